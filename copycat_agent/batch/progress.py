"""Tracks the progress of one split: what is sent, what of it is settled, and the outcomes of its records.

A record's bytes include its delimiter. Of a line over `line.max_bytes` everything beyond the limit is lost, its delimiter included,
whatever the outcome of its beginning; a line that is dropped for its length is lost as a whole. So for every settled range: bytes read =
bytes of records acknowledged, dead-lettered raw or dropped on purpose + bytes lost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from copycat_agent.encoding.bulk import NAMED_MAX
from copycat_agent.encoding.encoder import SplitEncoder
from copycat_agent.encoding.window import BoundWindow
from copycat_agent.errors import CopycatError, FileError, SentInPartError
from copycat_agent.formats import TAIL_BYTES, Chunk, Draft, Parsed
from copycat_agent.model import (
    Counts,
    Loss,
    LossReason,
    OffsetRange,
    Rejection,
    Sample,
    Schema,
    SourceOffset,
    Split,
    SplitResult,
    StepFailure,
)
from copycat_agent.sources.files.reading.stream import Stream

ENTRIES_MAX = 20
"""Most loss entries of one split in one batch; further losses are added to the latest entry with their reason, and sums stay exact."""
_OTHERS = "; and others"


class SplitLosses(list[Loss]):
    """The losses of one split, as entries of the loss ledger in the file's order. Bounded in number, exact in sums."""

    def add(self, loss: Loss) -> None:
        """Adds a loss. A neighbour of the latest entry with the same reason is merged with it."""
        index = self._joins(loss)
        if index is None:
            self.append(loss)
        else:
            self[index] = _joined(self[index], loss)

    def _joins(self, loss: Loss) -> int | None:
        if self and self[-1].reason == loss.reason and self[-1].end == loss.start:
            return len(self) - 1
        if len(self) < ENTRIES_MAX:
            return None
        return next((index for index in reversed(range(len(self))) if self[index].reason == loss.reason), None)


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
    """The outcomes of some of a split's records.

    `size_bytes` is what was read for them, `messages` the number given to the producer, `undated` the number of settled ones without a time
    of their own. `rejections` and `step_failures` hold the first bad ones, and the first that a step's `on_error` kept or dropped. `places`
    are their offsets in Kafka, by topic and partition.
    """

    counts: Counts = field(default_factory=Counts)
    size_bytes: int = 0
    messages: int = 0
    undated: int = 0
    rejections: list[Rejection] = field(default_factory=list)
    step_failures: list[StepFailure] = field(default_factory=list)
    losses: SplitLosses = field(default_factory=SplitLosses)
    samples: list[Sample] = field(default_factory=list)
    places: dict[tuple[str, int], OffsetRange] = field(default_factory=dict)

    def add(self, other: RecordTally) -> None:
        """Adds the records of `other`, which come after these."""
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
            self.places[key] = OffsetRange(*key, min(known.first, one.first), max(known.last, one.last))

    def place(self, topic: str, partition: int, offset: int) -> None:
        """Notes a record's offset in Kafka. Called for each record, so it has to be quick."""
        known = self.places.get((topic, partition))
        if known is None:
            self.places[topic, partition] = OffsetRange(topic, partition, offset, offset)
        elif offset > known.last:
            self.places[topic, partition] = known._replace(last=offset)
        elif offset < known.first:
            self.places[topic, partition] = known._replace(first=offset)


class SplitPoint(NamedTuple):
    """A point in a split: the next byte, the records before it, and whether and where it lies within a record over the limit.

    `tail` are the last bytes before it, None when they have to be read again.
    """

    position: int
    records: int
    skipping: bool = False
    cut: str = ""
    tail: bytes | None = b""


class ReadLimit(NamedTuple):
    """The byte that reading goes up to, and when a batch that stays saw its file reach that size; 0 before."""

    end: int
    seen_ns: int = 0


class SplitProgress:
    """One split under way. *Sent* runs ahead of *settled*; only `settle` moves settled up to sent.

    `sent` counts the records in flight, `done` those that are settled. `orphans` is the number of messages that were sent and will never
    be settled. `changed`: the file is not the one that was read before. `error`, `damage`: why reading ended before the split's end.
    `encoder` encodes its records, None before any is read.
    """

    def __init__(self, split: Split) -> None:
        self.split = split
        self.stream: Stream | None = None
        self.encoder: SplitEncoder | None = None
        self.at_end = self.changed = False
        self.error: CopycatError | None = None
        self.damage = ""
        self.schema: Schema | None = None
        self._settled = split.offset
        self.reach = self._settled_reach = SplitPoint(split.offset.position, split.offset.records, split.offset.skipping, split.offset.cut)
        self.sent, self.done = RecordTally(), RecordTally()
        self.orphans = 0
        self.limit = ReadLimit(split.end)

    def begin(self, stream: Stream) -> None:
        """Called when its file is open and is the one that was read before. Raises FileError.

        Reading continues at the stream's offset; `at_end` is set at once if there is nothing to read yet.
        The bytes before the offset are kept, so that a fingerprint covers `TAIL_BYTES` however little is read at a time.
        """
        self.stream = stream
        self._settled = stream.offset
        position, records, skipping, cut = stream.offset.position, stream.offset.records, stream.offset.skipping, stream.offset.cut
        self.reach = self._settled_reach = SplitPoint(position, records, skipping, cut, stream.tail(position))
        self.limit = ReadLimit(position + self.split.end - self.split.offset.position)
        self.at_end = stream.waits

    def go_on(self, end: int, seen_ns: int) -> None:
        """Sets the end up to which to read: its file was seen to end at byte `end` at `seen_ns`, by the clock of its file system."""
        self.limit = ReadLimit(end, seen_ns)
        self.at_end = False

    def reported(self) -> None:
        """Called when what is settled was reported: later results begin there."""
        self.split = replace(self.split, offset=self.settled)
        self.encoder = None
        self.done = RecordTally()

    @property
    def settled(self) -> SourceOffset:
        """Returns the offset to save for what is settled. Made on demand, since a batch that stays settles more often than it reports."""
        position, records, skipping, cut, tail = self._settled_reach
        if position != self._settled.position or skipping != self._settled.skipping:
            assert self.stream is not None
            assert tail is not None
            fingerprint = self.stream.fingerprint(position, tail)
            self._settled = replace(
                self._settled, position=position, records=records, skipping=skipping, cut=cut, path=self.split.path, fingerprint=fingerprint
            )
        return self._settled

    @property
    def settled_position(self) -> int:
        """Returns the position up to which records are settled."""
        return self._settled_reach.position

    @property
    def has_moved(self) -> bool:
        """Returns whether more is settled than was reported."""
        reach, told = self._settled_reach, self.split.offset
        return self._settled is not told or reach.position != told.position or reach.skipping != told.skipping

    def holds(self) -> bool:
        """Returns whether the file still has the bytes that were read around the settled position. Raises FileError."""
        position, tail = self._settled_reach.position, self._settled_reach.tail
        assert self.stream is not None
        assert tail is not None
        return self.stream.holds(position, tail)

    @property
    def window(self) -> BoundWindow | None:
        """Returns the window that selects records by their times; None for all."""
        return None if self.encoder is None else self.encoder.window

    @property
    def sent_position(self) -> int:
        """Returns the position up to which records are sent."""
        return self.reach.position

    @property
    def sent_records(self) -> int:
        """Returns the number of records before `sent_position`."""
        return self.reach.records

    def bounds(self) -> tuple[int, bool]:
        """Returns where framing ends, and whether the split's `final` and `flush` apply there; known late for a compressed file."""
        assert self.stream is not None
        return self.stream.bounds(self.limit.end)

    def reach_end(self) -> None:
        """Called when no complete record is left before `bounds`."""
        assert self.stream is not None
        self.at_end = self.stream.is_exhausted(self.limit.end)

    def pass_chunk(self, chunk: Chunk | Parsed) -> None:
        """Called when the whole chunk is in flight. It has fewer values than lines if empty lines were left out."""
        total = chunk.total
        self.advance(chunk.end, total, chunk.tail, chunk.size_bytes, dropped=total - len(chunk.values))

    def pass_up_to(self, chunk: Chunk | Parsed, record: Draft, sent: int) -> None:
        """Called when only the records before `record` are in flight, `sent` of them."""
        self._pass_some(chunk, record.start, record.number - self.sent_records - 1, sent)

    def pass_with(self, chunk: Chunk | Parsed, record: Draft, sent: int) -> None:
        """Called when only the records up to and including `record` are in flight, `sent` of them."""
        self._pass_some(chunk, record.end, record.number - self.sent_records, sent)

    def _pass_some(self, chunk: Chunk | Parsed, end: int, total: int, sent: int) -> None:
        self.advance(end, total, chunk.tail_before(total), chunk.weight(total), dropped=total - sent)

    def advance(
        self, end: int, records: int, tail: bytes, size_bytes: int, *, dropped: int = 0, skipping: bool = False, cut: str = ""
    ) -> None:
        """Moves sent up to `end`: `records` more, read from `size_bytes`. `tail` are the last bytes before `end`.

        For a part of what a format found at once, `tail` has fewer bytes than were passed, or none.
        """
        self.sent.counts += Counts(read=records, read_bytes=size_bytes, dropped=dropped)
        self.sent.size_bytes += max(size_bytes, records)  # rows without bytes have to be flushed, too
        tail_now = self._tail_after(tail, end - self.sent_position)
        self.reach = SplitPoint(end, self.sent_records + records, skipping, cut, tail_now)

    def _tail_after(self, tail: bytes, passed: int) -> bytes | None:
        """Returns the last bytes after `passed` more; None when they have to be read again.

        `tail` are the last of those bytes, or reach further back.
        """
        if len(tail) >= TAIL_BYTES:
            return tail[-TAIL_BYTES:]
        before = self.reach.tail
        if before is None or len(tail) < passed:
            return None
        return (before + tail[len(tail) - passed :])[-TAIL_BYTES:]

    def count(self, counts: Counts) -> None:
        """Adds counts of records in flight, for when they are settled."""
        self.sent.counts += counts

    def reject(self, rejection: Rejection) -> None:
        """Notes a bad record, for when it is settled."""
        if len(self.done.rejections) + len(self.sent.rejections) < NAMED_MAX:
            self.sent.rejections.append(rejection)

    def step_failed(self, failure: StepFailure) -> None:
        """Notes a record for which a step failed and that is not bad, for when it is settled."""
        if len(self.done.step_failures) + len(self.sent.step_failures) < NAMED_MAX:
            self.sent.step_failures.append(failure)

    def lose(self, start: int, end: int, reason: LossReason, records: int, detail: str, *, size_bytes: int | None = None) -> None:
        """Notes bytes `start` to `end` as lost, for when what was sent is settled; `records` are affected.

        `size_bytes`: the number of lost bytes, if positions are record numbers.
        """
        if end > start:
            at_ms = int(time.time() * 1000)
            split = self.split
            size = end - start if size_bytes is None else size_bytes
            self.sent.losses.add(Loss(split.partition, split.path, start, end, size, records, reason, detail, at_ms))

    @property
    def sampled(self) -> int:
        """Returns the number of its samples, settled or not."""
        return len(self.done.samples) + len(self.sent.samples)

    def sample(self, sample: Sample) -> None:
        """Adds a record in flight for `copycat tap`, which gets it once it is settled."""
        self.sent.samples.append(sample)

    def place(self, topic: str, partition: int, offset: int) -> None:
        """Notes the offset in Kafka of a record of this split."""
        self.sent.place(topic, partition, offset)

    def move(self) -> None:
        """Settles what was sent, if the file is still the same, or was while it was read; else rewinds."""
        if self.stream is None or self.changed:
            return
        try:
            self.changed = not self.stream.is_still(self.sent_position)
            if self.changed and not self.stream.was_still(self.sent_position):
                self.rewind()
            else:
                self.settle()
        except FileError as error:
            self.rewind()
            self.error = error

    def move_before(self) -> None:
        """Settles what was sent before a bad record, as `move` does; rewinds if the split's records have to be settled together."""
        try:
            self.move()
        except SentInPartError:
            self.rewind()

    def settle(self) -> None:
        """Moves settled up to sent. Called when everything sent is acknowledged."""
        reach, before = self.reach, self._settled_reach
        if reach.position == before.position and reach.skipping == before.skipping:
            return
        assert reach.position >= before.position, "an offset never moves back"
        assert self.stream is not None
        if reach.tail is None:
            self.reach = reach = reach._replace(tail=self.stream.tail(reach.position))
        self._settled_reach = reach
        self.stream.settled(reach.position)
        self.done.add(self.sent)
        self.done.undated += self.window.take_undated() if self.window else 0
        self._forget()

    def rewind(self) -> None:
        """Forgets what was sent since the last `settle`: it will be read again, so the end is not reached."""
        self.at_end = False
        self.orphans += self.sent.messages
        self.reach = self._settled_reach
        self._forget()

    def _forget(self) -> None:
        """Clears the records in flight."""
        self.sent = RecordTally()
        if self.window:
            self.window.take_undated()

    def result(self, error: CopycatError | None) -> SplitResult:
        """Returns the present result; `error` is the batch's, for a split without an error of its own."""
        done, split = self.done, self.split
        if self.limit.seen_ns:
            split = replace(split, end=self.limit.end, final=False, flush=False)
        result = SplitResult(
            split,
            self.settled,
            done.counts,
            at_end=self.at_end,
            changed=self.changed,
            error=self.error or error,
            rejections=tuple(done.rejections),
            losses=tuple(done.losses),
            damage=self.damage,
            schema=self.schema,
            delivered=tuple(sorted(done.places.values())),
            undated=done.undated,
            step_failures=tuple(done.step_failures),
            seen_ns=self.limit.seen_ns,
        )
        return result if self.stream is None else self.stream.complete(result)

    def close(self) -> None:
        """Closes the file."""
        if self.stream is not None:
            self.stream.close()
