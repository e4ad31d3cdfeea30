"""Which letters a dead-letter topic holds, and which of them have been replayed.

A consumer group keeps the progress of replays. It stores one offset per partition, but letters that failed again may lie between others
that were sent. So the offset is that of the first letter left, and the metadata says the rest: `copycat1 END LEFT` means that everything
before END is done except the ranges LEFT.
"""

from __future__ import annotations

import bisect
import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from copycat_agent.dlq.letter import DeadLetter, parse
from copycat_agent.options import Definition
from copycat_agent.producer.topic_reader import GroupPosition, Received, TopicReader

_WORDS_MAX = 4000
"""Most characters of the metadata; a broker accepts 4096 bytes by default (offset.metadata.max.bytes)."""

_WORDS = re.compile(r"copycat1 (\d{1,19}) ((?:\d{1,19}-\d{1,19},?)*)")


def group_of(connector: str) -> str:
    """Returns the consumer group that keeps the progress of replays of a connector's dead letters."""
    return f"copycat-dlq-{connector}"


class ReplayProgress:
    """The progress of replays in one partition: every letter before `end` is done, except those `left`."""

    def __init__(self, end: int = 0, left: Iterable[tuple[int, int]] = ()) -> None:
        """`left` has the first and last letter of each range, in order and without overlaps."""
        self._end = end
        self._left = list(left)

    def forget(self, begin: int, end: int) -> None:
        """Drops deleted letters: the topic now holds `begin` to `end`. If that is less than the progress, it was recreated: starts over."""
        if self._end > end:
            self._end, self._left = 0, []
        self._left = [(max(low, begin), high) for low, high in self._left if high >= begin]
        self._end = max(self._end, begin)

    @property
    def begin(self) -> int:
        """The first letter that is not done."""
        return self._left[0][0] if self._left else self._end

    def is_done(self, offset: int) -> bool:
        """Returns whether the letter needs no replay any more."""
        return offset < self._end and self._range_with(offset) is None

    def done(self, offset: int) -> None:
        """Marks the letter at `offset` as sent, or as another connector's. Call it in offset order from `begin`, or after `pass_to`."""
        if (index := self._range_with(offset)) is not None:
            low, high = self._left[index]
            rest = ((low, offset - 1), (offset + 1, high))
            self._left[index : index + 1] = [one for one in rest if one[0] <= one[1]]
        self._end = max(self._end, offset + 1)

    def leave(self, offset: int) -> None:
        """Leaves the letter at `offset`, which failed again, for another replay."""
        if self._range_with(offset) is None:
            self._leave(offset, offset)
        self._end = max(self._end, offset + 1)

    def pass_to(self, offset: int) -> None:
        """Skips to the letter at `offset`: earlier ones that were not looked at are left for another replay."""
        if offset > self._end:
            self._leave(self._end, offset - 1)
            self._end = offset

    def _leave(self, low: int, high: int) -> None:
        if self._left and self._left[-1][1] + 1 == low:
            self._left[-1] = self._left[-1][0], high
        else:
            bisect.insort(self._left, (low, high))

    def _range_with(self, offset: int) -> int | None:
        """Returns the index of the range left that has this letter."""
        index = bisect.bisect_right(self._left, offset, key=itemgetter(0)) - 1
        return index if index >= 0 and offset <= self._left[index][1] else None

    def saved(self) -> GroupPosition:
        """Returns the position for the group to keep. If the ranges left do not fit, letters after those that fit will be sent again."""
        text, end = "", self._end
        for low, high in self._left:
            more = f"{low}-{high},"
            if len(text) + len(more) > _WORDS_MAX:
                end = low
                break
            text += more
        return GroupPosition(self.begin, f"copycat1 {end} {text.rstrip(',')}" if text else "")

    @classmethod
    def of(cls, position: GroupPosition | None) -> ReplayProgress:
        """Parses the position that the group kept. If its metadata has another form, only the offset counts."""
        if position is None:
            return cls()
        match = _WORDS.fullmatch(position.words)
        if match is None:
            return cls(position.offset)
        end = int(match[1])
        left, before = list[tuple[int, int]](), position.offset - 1
        for low, high in (map(int, one.split("-")) for one in match[2].split(",") if one):
            if not before < low <= high < end:
                return cls(position.offset)
            left.append((low, high))
            before = high
        return cls(end, left)


def saved_progress(reader: TopicReader, definition: Definition) -> dict[int, ReplayProgress]:
    """Returns the progress by partition, from the group of `reader`'s connector or, where that has none, of its former names.

    Raises as `TopicReader` does.
    """
    saved = reader.positions()
    if len(saved) < len(reader.ranges):
        for name in definition.renamed_from:
            for number, position in _of_group(reader, definition, group_of(name)).items():
                saved.setdefault(number, position)
    progress = {number: ReplayProgress.of(saved.get(number)) for number in reader.ranges}
    for number, (begin, end) in reader.ranges.items():
        progress[number].forget(begin, end)
    return progress


def _of_group(reader: TopicReader, definition: Definition, group: str) -> dict[int, GroupPosition]:
    with TopicReader(definition.kafka, reader.topic, group) as other:
        return other.positions()


class LetterKind(NamedTuple):
    """The key by which letters are counted."""

    connector: str
    stage: str
    error: str


@dataclass(slots=True)
class LetterCount:
    """Letters of one kind. `waiting` have not been replayed; None when their connector is not among those asked about."""

    letters: int = 0
    waiting: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, letter: DeadLetter, *, is_done: bool | None) -> None:
        """Counts a letter."""
        self.letters += 1
        if is_done is not None:
            self.waiting = (self.waiting or 0) + (not is_done)
        if letter.at_ms is not None:
            self.first_ms = min(self.first_ms or letter.at_ms, letter.at_ms)
            self.last_ms = max(self.last_ms or letter.at_ms, letter.at_ms)


@dataclass(slots=True)
class Survey:
    """The contents of a dead-letter topic. `foreign` counts records that are not dead letters of this agent."""

    topic: str
    exists: bool
    tallies: dict[LetterKind, LetterCount] = field(default_factory=dict)
    foreign: int = 0


Replayed = Mapping[str, Mapping[int, ReplayProgress]]
"""Progress by the connector's name, as letters give it, and by partition."""


def survey(reader: TopicReader, replayed: Replayed, seen: Callable[[int], None] = lambda _: None) -> Survey:
    """Reads the whole topic and counts its letters. `seen` is called now and then with the number of records read."""
    found = Survey(reader.topic, bool(reader.ranges))
    for record in _counted(reader, seen):
        letter = parse(record)
        if letter is None:
            found.foreign += 1
            continue
        kind = LetterKind(letter.connector, letter.stage, letter.error)
        progress = replayed.get(letter.connector)
        is_done = None if progress is None else progress.get(letter.partition, ReplayProgress()).is_done(letter.offset)
        found.tallies.setdefault(kind, LetterCount()).add(letter, is_done=is_done)
    return found


def latest(reader: TopicReader, names: frozenset[str], limit: int, seen: Callable[[int], None] = lambda _: None) -> tuple[DeadLetter, ...]:
    """Returns the newest letters of a connector (under all its names), at most `limit`, oldest first."""
    mine = (letter for letter in map(parse, _counted(reader, seen)) if letter is not None and letter.connector in names)
    return tuple(sorted(heapq.nlargest(limit, mine, _age), key=_age))  # no more than so many are held at a time


def _age(letter: DeadLetter) -> tuple[int, int, int]:
    return letter.at_ms or 0, letter.partition, letter.offset


def _counted(reader: TopicReader, seen: Callable[[int], None]) -> Iterator[Received]:
    for count, record in enumerate(reader.records({}), 1):
        if count % 1000 == 0:
            seen(count)
        yield record
