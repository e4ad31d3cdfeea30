"""What lies in a dead-letter topic."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from copycat_agent.dlq.letter import Letter, parse
from copycat_agent.dlq.progress import Progress
from copycat_agent.producer.consuming import Received, TopicReader


class Kind(NamedTuple):
    """What letters are counted by."""

    connector: str
    stage: str
    error: str


@dataclass(slots=True)
class Tally:
    """Letters of one kind. `waiting` have not been replayed; None when their connector is not among those asked about."""

    letters: int = 0
    waiting: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None

    def add(self, letter: Letter, *, is_done: bool | None) -> None:
        """Count one."""
        self.letters += 1
        if is_done is not None:
            self.waiting = (self.waiting or 0) + (not is_done)
        if letter.at_ms is not None:
            self.first_ms = min(self.first_ms or letter.at_ms, letter.at_ms)
            self.last_ms = max(self.last_ms or letter.at_ms, letter.at_ms)


@dataclass(slots=True)
class Survey:
    """A dead-letter topic. `foreign` counts records that are no dead letters of this agent."""

    topic: str
    exists: bool
    tallies: dict[Kind, Tally] = field(default_factory=dict)
    foreign: int = 0


Replayed = Mapping[str, Mapping[int, Progress]]
"""By connector's name, as letters give it, and by partition."""


def survey(reader: TopicReader, replayed: Replayed, seen: Callable[[int], None] = lambda _: None) -> Survey:
    """Read the whole topic and count. `seen` is told now and then how many records have been read."""
    found = Survey(reader.topic, bool(reader.ranges))
    for record in _counted(reader, seen):
        letter = parse(record)
        if letter is None:
            found.foreign += 1
            continue
        kind = Kind(letter.connector, letter.stage, letter.error)
        progress = replayed.get(letter.connector)
        is_done = None if progress is None else progress.get(letter.partition, Progress()).is_done(letter.offset)
        found.tallies.setdefault(kind, Tally()).add(letter, is_done=is_done)
    return found


def latest(reader: TopicReader, names: frozenset[str], limit: int, seen: Callable[[int], None] = lambda _: None) -> tuple[Letter, ...]:
    """The newest letters of a connector (all its names), oldest first."""
    mine = (letter for letter in map(parse, _counted(reader, seen)) if letter is not None and letter.connector in names)
    return tuple(sorted(heapq.nlargest(limit, mine, _age), key=_age))  # no more than so many are held at a time


def _age(letter: Letter) -> tuple[int, int, int]:
    return letter.at_ms or 0, letter.partition, letter.offset


def _counted(reader: TopicReader, seen: Callable[[int], None]) -> Iterator[Received]:
    for count, record in enumerate(reader.records({}), 1):
        if count % 1000 == 0:
            seen(count)
        yield record
