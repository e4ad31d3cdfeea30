"""What a batch counts: how much it may still read and send, and what becomes of the records of each split.

A record's bytes include its delimiter. Of a line over `line.max_bytes` everything beyond the limit is lost, its delimiter
included, whatever becomes of its beginning; a line that is dropped for its length is lost as a whole. So for every settled
stretch: bytes read = bytes of records acknowledged, dead-lettered raw or dropped on purpose + bytes lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from copycat_agent.encoding.bulk import NAMED_MAX
from copycat_agent.formats import Chunk, Frame, Parsed
from copycat_agent.model import Batch, Counts, Delivered, Loss, Rejection, Sample, StepFailure

ENTRIES_MAX = 20
"""Entries of one split in one batch; from then on a loss joins the latest entry with its reason, and sums stay exact."""

_OTHERS = "; and others"

_BLOCK_BYTES = 2**20
"""Batches below this size are small: they read less at a time, and what is read may be cut."""
_LEAST_BLOCK_BYTES = 2**16
_LIKELY_BYTES = 1024
"""The size that a record is taken to have, so that a batch of few records does not read a whole block for them."""
_ANY = 2**62
LOOK_SECONDS = 0.1
"""How often work on records asks whether it has to end. One record may take long: a pattern tries for as much as that."""


class Watch:
    """Says whether work on records has to end before it is done, at little cost: who works on them asks once it is later than `until`."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self.until = time.monotonic() + LOOK_SECONDS

    def ends(self) -> bool:
        """Whether to work on no more records now."""
        now = time.monotonic()
        if now <= self.until:
            return False
        self.until = now + LOOK_SECONDS
        return self._is_over()


class Budget:
    """Knows what is left of a batch's budget. A record may overdraw it, so that every batch gets ahead; nothing else does by much."""

    def __init__(self, batch: Batch) -> None:
        self._deadline = time.monotonic() + batch.max_seconds
        self._bytes = batch.max_bytes
        self._records = batch.max_records or _ANY
        self._is_small = batch.max_records > 0 or batch.max_bytes < _BLOCK_BYTES

    @property
    def is_spent(self) -> bool:
        """Whether reading should end."""
        return self._bytes <= 0 or self._records <= 0 or time.monotonic() > self._deadline

    @property
    def block_bytes(self) -> int | None:
        """How much to read at a time; None for the format's own choice, which is the fastest."""
        if not self._is_small:
            return None
        return max(1, min(_BLOCK_BYTES, self._bytes, max(_LEAST_BLOCK_BYTES, self._records * _LIKELY_BYTES)))

    def pieces(self, frame: Frame) -> Iterator[Frame]:
        """`frame`, cut to what is left; its last piece may be missing. Ask `is_spent` before taking the next one."""
        while self._is_small and isinstance(frame, Chunk | Parsed):
            index = frame.fitting(self._records, self._bytes)
            if index == frame.total:
                break
            piece, frame = frame.cut(index)
            yield piece
        yield frame

    def take(self, size_bytes: int, records: int) -> None:
        """So many bytes were read and so many records sent."""
        self._bytes -= size_bytes
        self._records -= records

    def extend(self, seconds: float) -> None:
        """Time that was lost without the batch's fault."""
        self._deadline += seconds

    def end(self) -> None:
        """Read no more."""
        self._bytes = 0


class Losses:
    """Collects what is given up of one split, as entries of the loss ledger in the file's order. Bounded in number, exact in sums."""

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
