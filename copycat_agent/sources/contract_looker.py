"""Calls an author's source on a thread of its own, so that one that hangs holds up neither its connector nor the agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from copycat_agent.errors import RetriableError

if TYPE_CHECKING:
    from copycat_agent.sources.contract import AuthorSource, Found, Position

SLOW_SECONDS = 120.0
"""A look, or word of what is saved, that takes longer than this is told as trouble; it is waited for all the same."""
CLOSE_SECONDS = 1.0
"""So long the end of a connector waits for word of what is saved to get through: the next start gives it once more."""


class Looker:
    """Used from the connector's thread. The source is called from one other thread, one call at a time."""

    def __init__(self, source: AuthorSource, name: str) -> None:
        self._source = source
        self._turn = threading.Condition()
        self._wanted: tuple[dict[str, Position], bool] | None = None
        self._answer: list[Found] | Exception | None = None
        self._saved: dict[str, Position] = {}
        self._since: float | None = None
        self._ended = self._failed = False
        self._thread = threading.Thread(target=self._run, name=f"look-{name}", daemon=True)
        self._has_begun = False

    @property
    def is_done(self) -> bool:
        """Whether `take` has an answer."""
        return self._answer is not None

    @property
    def is_busy(self) -> bool:
        """Whether a look was asked for, or word of what is saved is to be given, and has not come through."""
        with self._turn:
            return self._wanted is not None or self._since is not None or (bool(self._saved) and not self._failed)

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> None:
        """Ask the source what is there; `take` returns the answer later."""
        with self._turn:
            self._wanted = dict(saved), to_the_end
            self._begin()

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Tell the source what is saved, before it is asked again."""
        with self._turn:
            self._saved.update(positions)
            self._begin()

    def take(self) -> list[Found] | None:
        """What was found; None while that is not known. Raises what the source raised, and RetriableError where it takes too long."""
        with self._turn:
            answer, self._answer = self._answer, None
            self._turn.notify_all()
        if isinstance(answer, Exception):
            raise answer
        since = self._since
        if answer is None and since is not None and time.monotonic() - since > SLOW_SECONDS:
            words = f"the source has not answered for {time.monotonic() - since:.0f} s"
            raise RetriableError(words, "it is waited for; what it reads from may hang")
        return answer

    def close(self) -> None:
        """Let word of what is saved get through, then end the source. The thread ends once the source lets it."""
        deadline = time.monotonic() + CLOSE_SECONDS
        with self._turn:
            while self._has_begun and self._saved and self._answer is None and (left := deadline - time.monotonic()) > 0:
                self._turn.wait(left)
            self._ended = True
            self._turn.notify_all()
        self._source.close()

    def _begin(self) -> None:
        self._failed = False
        if not self._has_begun:
            self._has_begun = True
            self._thread.start()
        self._turn.notify_all()

    def _run(self) -> None:
        while True:
            with self._turn:
                while not self._ended and not self._has_work():
                    self._turn.wait()
                if self._ended:
                    return
                wanted, saved = self._wanted, dict(self._saved)
                self._since = time.monotonic()
            answer = self._ask(wanted, saved)
            with self._turn:
                if not isinstance(answer, Exception):
                    self._saved = {key: value for key, value in self._saved.items() if key not in saved or value != saved[key]}
                self._failed = isinstance(answer, Exception)
                self._wanted = None if wanted is self._wanted else self._wanted
                self._since, self._answer = None, answer
                self._turn.notify_all()

    def _has_work(self) -> bool:
        """Whether there is something to ask or to tell, and room for the answer. After a failure that begins with the next look."""
        return self._answer is None and (self._wanted is not None or (bool(self._saved) and not self._failed))

    def _ask(self, wanted: tuple[dict[str, Position], bool] | None, saved: dict[str, Position]) -> list[Found] | Exception | None:
        try:
            if saved:
                self._source.committed(saved)
            return None if wanted is None else list(self._source.look(wanted[0], to_the_end=wanted[1]))
        except Exception as error:  # noqa: BLE001 - for the connector's thread
            return error
