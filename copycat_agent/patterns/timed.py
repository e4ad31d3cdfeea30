"""Matching with a time-out. The door to the `regex` library.

It is asked for what `re` took the pattern for, and for the behaviour of `re` (V0), so that both find the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import regex  # type: ignore[import-untyped]  # it has no types; this is its door

from copycat_agent.errors import DataError

TIMEOUT_SECONDS = 0.1
"""For one match in one record. A batch has seconds for many thousands of them."""
_FLAGS = regex.IGNORECASE | regex.MULTILINE | regex.DOTALL
_HINT = "make the pattern tell where each repeat ends, such as [^ ]+ instead of .+"


class Timed:
    """A pattern that gives up. Compiled when it is first needed."""

    def __init__(self, write: Callable[[], str], flags: int) -> None:
        self._write = write
        self._flags = flags

    @cached_property
    def _pattern(self) -> Any:  # noqa: ANN401 - the library's types are its own
        return regex.compile(self._write(), regex.V0 | (self._flags & _FLAGS))

    def search(self, text: str, seconds: float = TIMEOUT_SECONDS) -> Any:  # noqa: ANN401 - as above
        """See `re.Pattern.search`. DataError when it takes too long."""
        return self._within(lambda: self._pattern.search(text, timeout=seconds), seconds)

    def match(self, text: str) -> Any:  # noqa: ANN401 - as above
        """See `re.Pattern.match`. DataError when it takes too long."""
        return self._within(lambda: self._pattern.match(text, timeout=TIMEOUT_SECONDS))

    def fullmatch(self, text: str) -> Any:  # noqa: ANN401 - as above
        """See `re.Pattern.fullmatch`. DataError when it takes too long."""
        return self._within(lambda: self._pattern.fullmatch(text, timeout=TIMEOUT_SECONDS))

    def sub(self, repl: str | Callable[[Any], str], text: str) -> str:
        """See `re.Pattern.sub`. DataError when it takes too long."""
        done: str = self._within(lambda: self._pattern.sub(repl, text, timeout=TIMEOUT_SECONDS))
        return done

    @staticmethod
    def _within(look: Callable[[], Any], seconds: float = TIMEOUT_SECONDS) -> Any:  # noqa: ANN401 - as above
        try:
            return look()
        except (TimeoutError, MemoryError):
            pass
        msg = f"the pattern took longer than {seconds * 1000:.0f} ms on this record"
        raise DataError(msg, _HINT)  # outside the except: what raised it may hold data
