"""What becomes of a split's records: counts, names, losses and places, of those on their way and of those that are settled.

A record's bytes include its delimiter. Of a line over `line.max_bytes` everything beyond the limit is lost, its delimiter
included, whatever becomes of its beginning; a line that is dropped for its length is lost as a whole. So for every settled
stretch: bytes read = bytes of records acknowledged, dead-lettered raw or dropped on purpose + bytes lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from copycat_agent.encoding.bulk import NAMED_MAX
from copycat_agent.model import Counts, Delivered, Loss, Rejection, Sample, StepFailure

ENTRIES_MAX = 20
"""Entries of one split in one batch; from then on a loss joins the latest entry with its reason, and sums stay exact."""

_OTHERS = "; and others"


class Losses:
    """What is given up of one split, as entries of the loss ledger in the order of the file. Bounded in number, exact in its sums."""

    def __init__(self) -> None:
        self._entries: list[Loss] = []

    def add(self, loss: Loss) -> None:
        """Take one in. A neighbour of the latest entry with the same reason becomes a part of it."""
        index = self._joins(loss)
        if index is None:
            self._entries.append(loss)
        else:
            self._entries[index] = _joined(self._entries[index], loss)

    def _joins(self, loss: Loss) -> int | None:
        entries = self._entries
        if entries and entries[-1].reason == loss.reason and entries[-1].end == loss.start:
            return len(entries) - 1
        if len(entries) < ENTRIES_MAX:
            return None
        return next((index for index in reversed(range(len(entries))) if entries[index].reason == loss.reason), None)

    def __iter__(self) -> Iterator[Loss]:
        return iter(self._entries)


def _joined(one: Loss, other: Loss) -> Loss:
    known = one.detail == other.detail or one.detail.endswith(_OTHERS)
    return one._replace(
        end=max(one.end, other.end),
        size_bytes=one.size_bytes + other.size_bytes,
        records=one.records + other.records,
        detail=one.detail if known else one.detail + _OTHERS,
    )


@dataclass(slots=True)
class RecordTally:
    """What became of some of a split's records.

    `size_bytes` is what was read for them, `messages` how many went to the producer. `rejections` and `step_failures` name the first
    of the bad ones and of those that a step's `on_error` let pass. `places` are where Kafka has them, by topic and partition.
    """

    counts: Counts = field(default_factory=Counts)
    size_bytes: int = 0
    messages: int = 0
    rejections: list[Rejection] = field(default_factory=list)
    step_failures: list[StepFailure] = field(default_factory=list)
    losses: Losses = field(default_factory=Losses)
    samples: list[Sample] = field(default_factory=list)
    places: dict[tuple[str, int], Delivered] = field(default_factory=dict)

    def add(self, other: RecordTally) -> None:
        """Take in the records of `other`, which come after these."""
        self.counts += other.counts
        self.size_bytes += other.size_bytes
        self.messages += other.messages
        self.rejections += other.rejections[: max(0, NAMED_MAX - len(self.rejections))]
        self.step_failures += other.step_failures[: max(0, NAMED_MAX - len(self.step_failures))]
        self.samples += other.samples
        for loss in other.losses:
            self.losses.add(loss)
        for key, one in other.places.items():
            known = self.places.get(key, one)
            self.places[key] = Delivered(*key, min(known.first, one.first), max(known.last, one.last))

    def place(self, topic: str, partition: int, offset: int) -> None:
        """Kafka has a record here. Called for each: it is quick."""
        known = self.places.get((topic, partition))
        if known is None:
            self.places[topic, partition] = Delivered(topic, partition, offset, offset)
        elif offset > known.last:
            self.places[topic, partition] = known._replace(last=offset)
        elif offset < known.first:
            self.places[topic, partition] = known._replace(first=offset)
