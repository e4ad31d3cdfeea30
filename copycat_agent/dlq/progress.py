"""Which dead letters of a partition have been replayed, and how a consumer group keeps it.

A group saves one number, but letters that failed again stay among others that went. So the number is the first letter that is
left, and the words beside it say what else is: `copycat1 END LEFT`, everything before END is done except LEFT, in ranges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from copycat_agent.producer.consuming import Position

_WORDS_MAX = 4000
"""Characters; a broker takes 4096 bytes by default (offset.metadata.max.bytes)."""

_WORDS = re.compile(r"copycat1 (\d{1,19}) ((?:\d{1,19}-\d{1,19},?)*)")


def group_of(connector: str) -> str:
    """The consumer group that keeps the replays of a connector's dead letters."""
    return f"copycat-dlq-{connector}"


class Progress:
    """Everything before `end` is done, but for what is `left`."""

    def __init__(self, end: int = 0, left: Iterable[int] = ()) -> None:
        self._end = end
        self._left = set(left)

    def forget(self, begin: int, end: int) -> None:
        """The topic now holds `begin` to `end`: what lay before has been deleted. If it never was so long, it is another topic."""
        if self._end > end:
            self._end, self._left = 0, set()
        self._left = {offset for offset in self._left if offset >= begin}
        self._end = max(self._end, begin)

    @property
    def begin(self) -> int:
        """The first letter that is not done."""
        return min(self._left, default=self._end)

    def is_done(self, offset: int) -> bool:
        """Whether nothing is to be done for this letter any more."""
        return offset < self._end and offset not in self._left

    def done(self, offset: int) -> None:
        """It went, or is none of ours. Letters are told in the order of the partition, from `begin` or before on."""
        self._left.discard(offset)
        self._end = max(self._end, offset + 1)

    def leave(self, offset: int) -> None:
        """It failed again and stays for another time."""
        self._left.add(offset)
        self._end = max(self._end, offset + 1)

    def saved(self) -> Position:
        """What the group keeps. When there is not room for all that is left, the letters behind will be sent again."""
        text, end = "", self._end
        for low, high in _ranges(sorted(self._left)):
            more = f"{low}-{high},"
            if len(text) + len(more) > _WORDS_MAX:
                end = low
                break
            text += more
        return Position(self.begin, f"copycat1 {end} {text.rstrip(',')}" if text else "")

    @classmethod
    def of(cls, position: Position | None) -> Progress:
        """What the group kept; words of somebody else's are not ours to read, their number counts."""
        if position is None:
            return cls()
        match = _WORDS.fullmatch(position.words)
        if match is None:
            return cls(position.offset)
        end = int(match[1])
        pairs = [tuple(map(int, one.split("-"))) for one in match[2].split(",") if one]
        if any(not position.offset <= low <= high < end for low, high in pairs):
            return cls(position.offset)
        return cls(end, (offset for low, high in pairs for offset in range(low, high + 1)))


def _ranges(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers, each as its first and last."""
    begin = 0
    for index in range(len(offsets)):
        if index + 1 == len(offsets) or offsets[index + 1] != offsets[index] + 1:
            yield offsets[begin], offsets[index]
            begin = index + 1
