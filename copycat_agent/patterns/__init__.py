r"""Patterns that never hang: regular expressions in Python's syntax, safe on any text.

A backtracking engine may need time that doubles with each character: `(a+)+$`. `compile_pattern` computes beforehand how the work grows
with the text's length. If it grows linearly, the pattern is Python's own `re`, at full speed; if it grows faster, `re` only gets texts that
are short enough, and the others, or all, go to an engine that gives up after `TIMEOUT_SECONDS` with a `DataError`. A time-out for every
match would make each three times slower. The other engine gets the pattern rewritten from `re`'s own parse tree, so that both mean the
same; tests compare them over random patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import regex  # type: ignore[import-untyped]  # it has no types; this is its door

from copycat_agent.errors import DataError
from copycat_agent.patterns.ambiguity import EXPONENTIAL, Cost, cost, is_anchored, steps
from copycat_agent.patterns.loops import Chains
from copycat_agent.patterns.trees import parse, write

__all__ = ["TIMEOUT_SECONDS", "Match", "Pattern", "Repl", "Stop", "compile_pattern", "where_it_stopped"]

TIMEOUT_SECONDS = 0.1
"""The time-out of one match in one record. A batch has seconds for many thousands of them."""
_FLAGS = regex.IGNORECASE | regex.MULTILINE | regex.DOTALL
_HINT = "make the pattern tell where each repeat ends, such as [^ ]+ instead of .+"


class TimedPattern:
    """A pattern of the `regex` library, with a time-out for each match. Compiled on first use.

    `regex` gets the pattern as `re` understood it, and the behaviour of `re` (V0), so that both find the same. Only this class uses
    `regex`.
    """

    def __init__(self, write: Callable[[], str], flags: int) -> None:
        self._write = write
        self._flags = flags

    @cached_property
    def _pattern(self) -> Any:  # noqa: ANN401 - the library's types are its own
        return regex.compile(self._write(), regex.V0 | (self._flags & _FLAGS))

    def search(self, text: str, seconds: float = TIMEOUT_SECONDS) -> Any:  # noqa: ANN401 - as above
        """Searches as `re` does. Raises DataError when it takes too long."""
        return self._within(lambda: self._pattern.search(text, timeout=seconds), seconds)

    def match(self, text: str) -> Any:  # noqa: ANN401 - as above
        """Matches as `re` does. Raises DataError when it takes too long."""
        return self._within(lambda: self._pattern.match(text, timeout=TIMEOUT_SECONDS))

    def fullmatch(self, text: str) -> Any:  # noqa: ANN401 - as above
        """Matches the whole text as `re` does. Raises DataError when it takes too long."""
        return self._within(lambda: self._pattern.fullmatch(text, timeout=TIMEOUT_SECONDS))

    def sub(self, repl: str | Callable[[Any], str], text: str) -> str:
        """Substitutes as `re` does. Raises DataError when it takes too long."""
        done: str = self._within(lambda: self._pattern.sub(repl, text, timeout=TIMEOUT_SECONDS))
        return done

    @staticmethod
    def _within(look: Callable[[], Any], seconds: float = TIMEOUT_SECONDS) -> Any:  # noqa: ANN401 - as above
        try:
            return look()
        except (TimeoutError, MemoryError):
            pass
        msg = f"the pattern took longer than {seconds * 1000:.0f} ms on this record"
        raise DataError(msg, _HINT)  # outside the except: its cause may hold data


_STEPS = 8_500_000
"""How many alternatives `re` may try on one text, each some ten nanoseconds: less than `TIMEOUT_SECONDS` in all."""
_UNBOUNDED = 2**62
_SHOWN = 60

Repl = str | Callable[[Any], str]


class Match(Protocol):
    """The result of a match, with the interface of `re.Match`."""

    lastindex: int | None

    def group(self, group: int | str = 0, /) -> Any:  # noqa: ANN401 - a text, None for a group that took no part
        """Returns what the group matched."""

    def groups(self) -> tuple[str | None, ...]:
        """Returns what each group matched, from the first."""

    def groupdict(self) -> dict[str, str | None]:
        """Returns what each named group matched, by name."""

    def start(self, group: int | str = 0, /) -> int:
        """Returns where the group begins, -1 if it did not match."""

    def end(self, group: int | str = 0, /) -> int:
        """Returns where the group ends, -1 if it did not match."""

    def __getitem__(self, group: int | str, /) -> Any:  # noqa: ANN401 - as above
        pass


class Pattern(NamedTuple):
    """A compiled pattern. All functions take a whole text, and raise `DataError` if it takes too long.

    `search` finds the pattern anywhere in the text; if the pattern begins with `^` it looks only at the beginning. `groupindex` has the
    numbers of named groups, `groups` is how many there are, named or not. `doubt` says what may take too long, "" if nothing can.
    `search_within` takes the time-out in seconds, for callers with many texts. `most` is the most characters of a text that `re` alone
    searches, -1 for none. `anchored`: it matches only at the beginning.
    """

    text: str
    groups: int
    groupindex: Mapping[str, int]
    search: Callable[[str], Match | None]
    match: Callable[[str], Match | None]
    fullmatch: Callable[[str], Match | None]
    sub: Callable[[Repl, str], str]
    doubt: str
    search_within: Callable[[str, float], Match | None]
    most: int
    anchored: bool


@lru_cache(maxsize=512)
def compile_pattern(text: str) -> Pattern:
    """Compiles a pattern in Python's syntax. Raises ValueError, with the reason and the position, if it is invalid."""
    try:
        native, tree = re.compile(text), parse(text)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"not a regular expression: {error if not isinstance(error, RecursionError) else 'it is nested too deeply'}"
        raise ValueError(msg) from None
    expected, anchored = cost(tree), is_anchored(tree)
    matching = most_characters(expected.matching_chains, expected.ways)
    searching = matching if anchored else most_characters(expected.searching_chains, expected.ways)
    timed = TimedPattern(lambda: write(tree), tree.flags)
    return Pattern(
        text,
        native.groups,
        native.groupindex,
        _either(native.match if anchored else native.search, timed.search, searching),
        _either(native.match, timed.match, matching),
        _either(native.fullmatch, timed.fullmatch, matching),
        _sub(native, timed, searching),
        _doubt(expected),
        timed.search,
        searching,
        anchored,
    )


def most_characters(chains: Chains, ways: int) -> int:
    """Returns the longest text for which the work of these chains, times `ways`, is allowed; -1 if no text is short enough."""
    if ways > _STEPS or max(map(len, chains), default=EXPONENTIAL) + 1 >= EXPONENTIAL:
        return -1
    if ways == 1 and not any(chains):
        return _UNBOUNDED
    low, high = 0, _STEPS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if steps(chains, middle) * ways <= _STEPS else (low, middle - 1)
    return low


def _either(quick: Callable[[str], Any], timed: Callable[[str], Any], most: int) -> Callable[[str], Match | None]:
    if most == _UNBOUNDED:
        return quick
    if most < 0:
        return timed
    return lambda text: quick(text) if len(text) <= most else timed(text)


def _sub(native: re.Pattern[str], timed: TimedPattern, most: int) -> Callable[[Repl, str], str]:
    if most == _UNBOUNDED:
        return native.sub
    return lambda repl, text: native.sub(repl, text) if len(text) <= most else timed.sub(repl, text)


def _doubt(expected: Cost) -> str:
    if expected.matching < EXPONENTIAL:
        return ""
    given_up = f"a match is given up after {TIMEOUT_SECONDS * 1000:.0f} ms"
    if not expected.part:
        return f"it cannot be told how long a text may hold this pattern up: {given_up}"
    part = expected.part if len(expected.part) <= _SHOWN else f"{expected.part[:_SHOWN]}..."
    return (
        f"its part {part} can match one text in many ways, so a text that fails may take time that doubles with each character: {given_up}"
    )


class Stop(NamedTuple):
    """The first `pattern_end` characters of the pattern match the text up to, not including, character `text_end`; `element` comes next.

    0, 0 and the first element if nothing of it matches.
    """

    pattern_end: int
    text_end: int
    element: str


def where_it_stopped(pattern: str, text: str) -> Stop | None:
    """Returns how far a pattern matches a text; None when all of it matches. Looks anywhere, as `Pattern.search` does.

    It splits the pattern into its elements and looks for the longest run of them, from the first on, that matches.
    """
    parts = elements(pattern)
    prefixes = ["".join(parts[:count]) for count in range(len(parts) + 1)]
    for count in range(len(parts), -1, -1):
        end = _found(prefixes[count], text)
        if end is not None:
            return None if count == len(parts) else Stop(len(prefixes[count]), end, parts[count])
    return Stop(0, 0, parts[0]) if parts else None


def _found(pattern: str, text: str) -> int | None:
    """Returns where a match ends; None if there is none, or if that cannot be determined."""
    try:
        match = compile_pattern(pattern).search(text)
    except (ValueError, DataError):
        return None
    return None if match is None else match.end()


def elements(pattern: str) -> list[str]:
    """Returns a pattern's top-level elements; joined they give the pattern again. A pattern with `|` at the top level is one element."""
    found: list[str] = []
    position = 0
    while position < len(pattern):
        end = _quantified(pattern, _atom(pattern, position))
        element = pattern[position:end]
        if element == "|":
            return [pattern]
        if found and _is_flags(found[-1]):
            element = found.pop() + element
        found.append(element)
        position = end
    return found


def _is_flags(element: str) -> bool:
    return element.startswith("(?") and element.endswith(")") and element[2:-1].isalpha()


def _atom(pattern: str, position: int) -> int:
    """Returns where the atom that begins at `position` ends."""
    first = pattern[position]
    if first == "\\":
        return min(position + 2, len(pattern))
    if first == "[":
        return _set_end(pattern, position)
    if first == "(":
        return _group_end(pattern, position)
    return position + 1


def _set_end(pattern: str, position: int) -> int:
    at = position + 1 + pattern.startswith("^", position + 1)
    at += pattern.startswith("]", at)  # the first one is a literal
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return min(at + 1, len(pattern))


def _group_end(pattern: str, position: int) -> int:
    depth, at = 0, position
    while at < len(pattern):
        if pattern[at] == "(":
            depth, at = depth + 1, at + 1
        elif pattern[at] == ")":
            depth, at = depth - 1, at + 1
            if not depth:
                return at
        else:
            at = _atom(pattern, at)
    return len(pattern)


def _quantified(pattern: str, at: int) -> int:
    """Returns the position after the quantifier that follows, if there is one, else `at`."""
    if at < len(pattern) and pattern[at] in "*+?":
        at += 1
    elif pattern.startswith("{", at) and (close := pattern.find("}", at)) > 0 and pattern[at + 1 : close].replace(",", "", 1).isdigit():
        at = close + 1
    else:
        return at
    return at + 1 if at < len(pattern) and pattern[at] in "?+" else at
