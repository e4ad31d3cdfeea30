"""How far one split is: what is sent, and what of it is settled."""

from __future__ import annotations

import time
from dataclasses import replace

from copycat_agent.batch.losses import Losses
from copycat_agent.batch.window import BoundWindow
from copycat_agent.errors import CopycatError, FileError
from copycat_agent.formats import TAIL_BYTES, Part, Row, Text
from copycat_agent.model import Counts, Delivered, Loss, LossReason, Rejection, Sample, Schema, Split, SplitResult, StepFailure
from copycat_agent.sources.files.reading.stream import Stream

REJECTIONS_NAMED = 10
"""Rejected records per split that are named one by one; all are counted."""


class Progress:
    """One split under way. *Sent* runs ahead of *settled*; `settle` moves settled up to sent, nothing else does."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.stream: Stream | None = None
        self.at_end = False
        self.changed = False
        self.error: CopycatError | None = None
        self.settled = split.offset
        self.sent_position = split.offset.position
        self.sent_records = split.offset.records
        self._unsettled_bytes = 0
        self.damage = ""
        self.schema: Schema | None = None
        self._limit = split.end
        self._skipping, self._cut = split.offset.skipping, split.offset.cut
        self._tail: bytes | None = b""
        self._settled_tail = b""
        self._counts = Counts()
        self._unsettled = Counts()
        self._rejections: list[Rejection] = []
        self._unsettled_rejections: list[Rejection] = []
        self._step_failures: list[StepFailure] = []
        self._unsettled_step_failures: list[StepFailure] = []
        self._losses, self._unsettled_losses = Losses(), Losses()
        self._places: dict[tuple[str, int], Delivered] = {}
        self._unsettled_places: dict[tuple[str, int], Delivered] = {}
        self.window: BoundWindow | None = None
        self.messages = self._unsettled_messages = self.orphans = 0
        self._undated = 0
        self.samples: list[Sample] = []
        self._unsettled_samples: list[Sample] = []

    @property
    def unsettled_bytes(self) -> int:
        """What was read for records that are sent but not settled."""
        return self._unsettled_bytes

    def begin(self, stream: Stream) -> None:
        """Its file is open and is what was read before. Raises FileError.

        It goes on where the stream says, which is at once `at_end` when there is nothing to go on with yet.
        The bytes before the offset are taken along, so that a fingerprint covers `TAIL_BYTES` however little is read at a time.
        """
        self.stream = stream
        self.settled = stream.offset
        position = self.sent_position = self.settled.position
        self.sent_records, self._skipping, self._cut = self.settled.records, self.settled.skipping, self.settled.cut
        self._limit = position + self.split.end - self.split.offset.position
        self.at_end = stream.waits
        self._tail = self._settled_tail = stream.tail(position)

    @property
    def skipping(self) -> bool:
        """Whether what was sent ends inside an over-long record."""
        return self._skipping

    @property
    def cut(self) -> str:
        """What is known where that is between two parts of one, see `SourceOffset.cut`."""
        return self._cut

    def first_part(self, part: Part) -> Row:
        """The first part of the record that `part` is of, read again. Raises FileError."""
        assert self.stream is not None
        start, end = part.first
        raw = self.stream.read(start, end - start)
        if len(raw) < end - start or not self.stream.is_still(end):
            raise FileError(f"{self.split.path!r} changed while it was read", "the agent reads it again")
        return Row(Text(codec=part.codec).decoded(raw), start, end, 0)

    def bounds(self) -> tuple[int, bool]:
        """See `Stream.bounds`. Of a packed file both are known late."""
        assert self.stream is not None
        return self.stream.bounds(self._limit)

    def reach_end(self) -> None:
        """No complete record is left before `bounds`."""
        assert self.stream is not None
        self.at_end = self.stream.is_exhausted(self._limit)

    def advance(self, end: int, records: int, tail: bytes, size_bytes: int, *, skipping: bool = False, cut: str = "") -> None:
        """Everything before `end` is on its way: `records` more, read from `size_bytes`. `tail` are the last bytes before `end`.

        A part of what a format found at once comes with fewer of them than it covers, or with none. For `skipping` and `cut` see
        `SourceOffset`.
        """
        self._unsettled += Counts(read=records, read_bytes=size_bytes)
        self._unsettled_bytes += max(size_bytes, records)  # rows without bytes have to be waited for, too
        self._tail = self._tail_after(tail, end - self.sent_position)
        self.sent_position = end
        self.sent_records += records
        self._skipping, self._cut = skipping, cut

    def _tail_after(self, tail: bytes, passed: int) -> bytes | None:
        """The last bytes once `passed` more are on their way; None when they have to be read again.

        `tail` are the last of them, or reach back to what was on its way before.
        """
        if len(tail) >= TAIL_BYTES:
            return tail[-TAIL_BYTES:]
        if self._tail is None or len(tail) < passed:
            return None
        return (self._tail + tail[len(tail) - passed :])[-TAIL_BYTES:]

    def count(self, counts: Counts) -> None:
        """What becomes of records on their way, once they are settled."""
        self._unsettled += counts

    def hand_over(self, messages: int) -> None:
        """So many messages went to the producer. `messages` are those that are settled, `orphans` those that never will be."""
        self._unsettled_messages += messages

    def reject(self, rejection: Rejection) -> None:
        """Name a bad record, once it is settled."""
        if len(self._rejections) + len(self._unsettled_rejections) < REJECTIONS_NAMED:
            self._unsettled_rejections.append(rejection)

    def step_failed(self, failure: StepFailure) -> None:
        """Name a record of which a step failed and that is no bad one, once it is settled."""
        if len(self._step_failures) + len(self._unsettled_step_failures) < REJECTIONS_NAMED:
            self._unsettled_step_failures.append(failure)

    def lose(self, start: int, end: int, reason: LossReason, records: int, detail: str, *, size_bytes: int | None = None) -> None:
        """Bytes `start` to `end` are given up on, once what was sent is settled; `records` are harmed by it.

        `size_bytes`: how many bytes that is, where positions are record numbers.
        """
        if end > start:
            at_ms = int(time.time() * 1000)
            split = self.split
            size = end - start if size_bytes is None else size_bytes
            self._unsettled_losses.add(Loss(split.partition, split.path, start, end, size, records, reason, detail, at_ms))

    @property
    def sampled(self) -> int:
        """How many samples it has, settled or not."""
        return len(self.samples) + len(self._unsettled_samples)

    def sample(self, sample: Sample) -> None:
        """A record on its way, for `samples` once it is settled."""
        self._unsettled_samples.append(sample)

    def place(self, topic: str, partition: int, offset: int) -> None:
        """Kafka has a record of this split here. Called for each: it is quick."""
        places = self._unsettled_places
        known = places.get((topic, partition))
        if known is None:
            places[topic, partition] = Delivered(topic, partition, offset, offset)
        elif offset > known.last:
            places[topic, partition] = known._replace(last=offset)
        elif offset < known.first:
            places[topic, partition] = known._replace(first=offset)

    def settle(self) -> None:
        """Kafka has everything that was sent: the offset moves there, with a fingerprint of what was read."""
        if self.sent_position == self.settled.position and self._skipping == self.settled.skipping:
            return
        assert self.sent_position >= self.settled.position, "an offset never moves back"
        assert self.stream is not None
        tail = self.stream.tail(self.sent_position) if self._tail is None else self._tail
        self.settled = replace(
            self.settled,
            position=self.sent_position,
            records=self.sent_records,
            skipping=self._skipping,
            cut=self._cut,
            path=self.split.path,
            fingerprint=self.stream.fingerprint(self.sent_position, tail),
        )
        self._tail = self._settled_tail = tail
        self._counts += self._unsettled
        self.messages += self._unsettled_messages
        self._rejections += self._unsettled_rejections
        self._step_failures += self._unsettled_step_failures
        for loss in self._unsettled_losses:
            self._losses.add(loss)
        self.samples += self._unsettled_samples
        for key, one in self._unsettled_places.items():
            known = self._places.get(key, one)
            self._places[key] = Delivered(*key, min(known.first, one.first), max(known.last, one.last))
        self._undated += self.window.take_undated() if self.window else 0
        self._forget()

    def rewind(self) -> None:
        """Forget what was sent since the last `settle`: it will be read again, so the end is not reached."""
        self.at_end = False
        self.orphans += self._unsettled_messages
        self.sent_position, self.sent_records = self.settled.position, self.settled.records
        self._skipping, self._cut = self.settled.skipping, self.settled.cut
        self._tail = self._settled_tail
        self._forget()

    def _forget(self) -> None:
        """Nothing is on its way any more."""
        self._unsettled = Counts()
        self._unsettled_bytes = self._unsettled_messages = 0
        self._unsettled_rejections.clear()
        self._unsettled_step_failures.clear()
        self._unsettled_losses.clear()
        self._unsettled_samples.clear()
        self._unsettled_places = {}
        if self.window:
            self.window.take_undated()

    def result(self, error: CopycatError | None) -> SplitResult:
        """The result as it stands; `error` is the batch's, the split's own comes first."""
        result = SplitResult(
            self.split,
            self.settled,
            self._counts,
            at_end=self.at_end,
            changed=self.changed,
            error=self.error or error,
            rejections=tuple(self._rejections),
            losses=tuple(self._losses),
            damage=self.damage,
            schema=self.schema,
            delivered=tuple(sorted(self._places.values())),
            undated=self._undated,
            step_failures=tuple(self._step_failures),
        )
        return result if self.stream is None else self.stream.complete(result)

    def close(self) -> None:
        """Close the file."""
        if self.stream is not None:
            self.stream.close()
