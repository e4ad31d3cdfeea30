"""A pattern, compiled so that no text can hold it up: by `re` where that is bounded, by an engine with a time-out where it is not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from copycat_agent.patterns.ambiguity import EXPONENTIAL, Cost, cost, is_anchored, steps
from copycat_agent.patterns.loops import Chains
from copycat_agent.patterns.timed import TIMEOUT_SECONDS, Timed
from copycat_agent.patterns.trees import parse, write

_STEPS = 8_500_000
"""So many ways `re` may try on one text, each some ten nanoseconds: less than `TIMEOUT_SECONDS` in all."""
_UNBOUNDED = 2**62
_SHOWN = 60

Repl = str | Callable[[Any], str]


class Match(Protocol):
    """What was found, as `re.Match` says it."""

    lastindex: int | None
    lastgroup: str | None

    def group(self, group: int | str = 0, /) -> Any:  # noqa: ANN401 - a text, None for a group that took no part
        """See `re.Match`."""

    def groups(self) -> tuple[str | None, ...]:
        """See `re.Match`."""

    def groupdict(self) -> dict[str, str | None]:
        """See `re.Match`."""

    def start(self, group: int | str = 0, /) -> int:
        """See `re.Match`."""

    def end(self, group: int | str = 0, /) -> int:
        """See `re.Match`."""

    def __getitem__(self, group: int | str, /) -> Any:  # noqa: ANN401 - as above
        """See `re.Match`."""


class Pattern(NamedTuple):
    """A compiled pattern. All functions take a whole text, and raise `DataError` for one that takes too long.

    `search` is the one for "anywhere in the text": for a pattern that begins with `^` it does not look further. `groupindex` has the
    numbers of named groups, `groups` is how many there are, named or not. `doubt` says what may take too long, "" when nothing can.
    `search_within` takes the time-out, in seconds, and is for who has many texts to look at. `most` is how many characters a text may
    have that `re` alone searches, -1 for none. `anchored`: it matches at the beginning only.
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
    """A pattern in Python's spelling. ValueError, with the reason and the place, for what is none."""
    try:
        native, tree = re.compile(text), parse(text)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"not a regular expression: {error if not isinstance(error, RecursionError) else 'it is nested too deeply'}"
        raise ValueError(msg) from None
    expected, anchored = cost(tree), is_anchored(tree)
    matching = most_characters(expected.matching_chains, expected.ways)
    searching = matching if anchored else most_characters(expected.searching_chains, expected.ways)
    timed = Timed(lambda: write(tree), tree.flags)
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
    """How long a text may be for the work of these chains, so many times; -1: none is short enough."""
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


def _sub(native: re.Pattern[str], timed: Timed, most: int) -> Callable[[Repl, str], str]:
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
