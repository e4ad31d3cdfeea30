"""How far one split is: what is sent, and what of it is settled."""

from __future__ import annotations

import time
from dataclasses import replace

from copycat_agent.batch.tally import RecordTally
from copycat_agent.encoding.bulk import NAMED_MAX
from copycat_agent.encoding.window import BoundWindow
from copycat_agent.errors import CopycatError, FileError, SentInPartError
from copycat_agent.formats import TAIL_BYTES, Chunk, Draft, Gap, LongLine, Parsed, Part, SkippedRest, Text
from copycat_agent.model import Counts, Loss, LossReason, Rejection, Sample, Schema, Split, SplitResult, StepFailure
from copycat_agent.sources.files.reading.stream import Stream

_HOLE_WORDS = "NUL bytes that nobody wrote: the file was cut under its writer, or its host crashed"


class Progress:
    """One split under way. *Sent* runs ahead of *settled*; `settle` moves settled up to sent, nothing else does.

    `sent` tells of the records on their way, `done` of those that are settled. `orphans` counts messages that were sent and never will
    be settled. `changed`: the file is not the one that was read before. `error`, `damage`: why reading ended before the split's end.
    `skipping` and `cut` say where the sent position lies within a record over the limit, see `SourceOffset`.
    """

    def __init__(self, split: Split) -> None:
        self.split = split
        self.stream: Stream | None = None
        self.window: BoundWindow | None = None
        self.at_end = self.changed = False
        self.error: CopycatError | None = None
        self.damage = ""
        self.schema: Schema | None = None
        self.settled = split.offset
        self.sent_position, self.sent_records = split.offset.position, split.offset.records
        self.skipping, self.cut = split.offset.skipping, split.offset.cut
        self.sent, self.done = RecordTally(), RecordTally()
        self.orphans = 0
        self._limit = split.end
        self._tail: bytes | None = b""
        self._settled_tail = b""
        self._undated = 0

    def begin(self, stream: Stream) -> None:
        """Its file is open and is what was read before. Raises FileError.

        It goes on where the stream says, which is at once `at_end` when there is nothing to go on with yet.
        The bytes before the offset are taken along, so that a fingerprint covers `TAIL_BYTES` however little is read at a time.
        """
        self.stream = stream
        self.settled = stream.offset
        position = self.sent_position = self.settled.position
        self.sent_records, self.skipping, self.cut = self.settled.records, self.settled.skipping, self.settled.cut
        self._limit = position + self.split.end - self.split.offset.position
        self.at_end = stream.waits
        self._tail = self._settled_tail = stream.tail(position)

    def first_part(self, part: Part) -> Draft:
        """The first part of the record that `part` is of, read again. Raises FileError."""
        assert self.stream is not None
        start, end = part.first
        raw = self.stream.read(start, end - start)
        if len(raw) < end - start or not self.stream.is_still(end):
            raise FileError(f"{self.split.path!r} changed while it was read", "the agent reads it again")
        return Draft(Text(codec=part.codec).decoded(raw), start, end)

    def bounds(self) -> tuple[int, bool]:
        """See `Stream.bounds`. Of a packed file both are known late."""
        assert self.stream is not None
        return self.stream.bounds(self._limit)

    def reach_end(self) -> None:
        """No complete record is left before `bounds`."""
        assert self.stream is not None
        self.at_end = self.stream.is_exhausted(self._limit)

    def pass_chunk(self, chunk: Chunk | Parsed) -> None:
        """The whole chunk is on its way. It has fewer values than lines where empty lines were left out."""
        total = chunk.total
        self.advance(chunk.end, total, chunk.tail, chunk.size_bytes, dropped=total - len(chunk.values))

    def pass_up_to(self, chunk: Chunk | Parsed, record: Draft, sent: int) -> None:
        """Only what stands before `record` is on its way, `sent` records of it."""
        self._pass_some(chunk, record.start, record.number - self.sent_records - 1, sent)

    def pass_with(self, chunk: Chunk | Parsed, record: Draft, sent: int) -> None:
        """Only what stands before the end of `record` is on its way, `sent` records of it."""
        self._pass_some(chunk, record.end, record.number - self.sent_records, sent)

    def _pass_some(self, chunk: Chunk | Parsed, end: int, total: int, sent: int) -> None:
        self.advance(end, total, chunk.tail_before(total), chunk.weight(total), dropped=total - sent)

    def pass_frame(self, frame: LongLine | Part | SkippedRest | Gap, why: str, *, is_dropped: bool) -> None:
        """A frame that is no chunk is passed, what there was to send of it is on its way.

        `why` says what a long record is longer than. `is_dropped`: over-long lines are dropped as a whole, for their length.
        """
        size_bytes = frame.end - frame.start
        if isinstance(frame, LongLine):
            self.lose(frame.start if is_dropped else frame.start + len(frame.head), frame.end, "too_long", 1, why)
            self.count(Counts(too_long=1))
            self.advance(frame.end, 1, frame.tail, size_bytes, skipping=not frame.complete)
        elif isinstance(frame, Part):
            self.count(Counts(too_long=frame.number == 1))
            cut = frame.cut.text() if frame.cut else ""
            self.advance(frame.end, 1, frame.tail, size_bytes, skipping=bool(cut), cut=cut)
        elif isinstance(frame, SkippedRest):  # its line was counted when its beginning was
            self.lose(frame.start, frame.end, "too_long", 0, why)
            self.advance(frame.end, 0, frame.tail, size_bytes, skipping=not frame.complete)
        else:
            if frame.reason == "hole":  # the mark at the beginning of a text is no loss
                self.lose(frame.start, frame.end, "hole", 0, _HOLE_WORDS)
            self.advance(frame.end, 0, frame.tail, size_bytes)

    def advance(
        self, end: int, records: int, tail: bytes, size_bytes: int, *, dropped: int = 0, skipping: bool = False, cut: str = ""
    ) -> None:
        """Everything before `end` is on its way: `records` more, read from `size_bytes`. `tail` are the last bytes before `end`.

        A part of what a format found at once comes with fewer of them than it covers, or with none.
        """
        self.sent.counts += Counts(read=records, read_bytes=size_bytes, dropped=dropped)
        self.sent.size_bytes += max(size_bytes, records)  # rows without bytes have to be waited for, too
        self._tail = self._tail_after(tail, end - self.sent_position)
        self.sent_position = end
        self.sent_records += records
        self.skipping, self.cut = skipping, cut

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
        """Adds what records on their way count as once they are settled."""
        self.sent.counts += counts

    def reject(self, rejection: Rejection) -> None:
        """Name a bad record, once it is settled."""
        if len(self.done.rejections) + len(self.sent.rejections) < NAMED_MAX:
            self.sent.rejections.append(rejection)

    def step_failed(self, failure: StepFailure) -> None:
        """Name a record of which a step failed and that is no bad one, once it is settled."""
        if len(self.done.step_failures) + len(self.sent.step_failures) < NAMED_MAX:
            self.sent.step_failures.append(failure)

    def lose(self, start: int, end: int, reason: LossReason, records: int, detail: str, *, size_bytes: int | None = None) -> None:
        """Bytes `start` to `end` are given up on, once what was sent is settled; `records` are harmed by it.

        `size_bytes`: how many bytes that is, where positions are record numbers.
        """
        if end > start:
            at_ms = int(time.time() * 1000)
            split = self.split
            size = end - start if size_bytes is None else size_bytes
            self.sent.losses.add(Loss(split.partition, split.path, start, end, size, records, reason, detail, at_ms))

    @property
    def sampled(self) -> int:
        """The number of samples it has, settled or not."""
        return len(self.done.samples) + len(self.sent.samples)

    def sample(self, sample: Sample) -> None:
        """A record on its way, for `copycat tap` once it is settled."""
        self.sent.samples.append(sample)

    def place(self, topic: str, partition: int, offset: int) -> None:
        """Kafka has a record of this split here."""
        self.sent.place(topic, partition, offset)

    def move(self) -> None:
        """Settle what was sent, if the file is still the one it was read from, or was while it was read; else nothing of it counts."""
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
        """See `move`, before a bad record: nothing is settled where its split's records go together."""
        try:
            self.move()
        except SentInPartError:
            self.rewind()

    def settle(self) -> None:
        """Kafka has everything that was sent: the offset moves there, with a fingerprint of what was read."""
        if self.sent_position == self.settled.position and self.skipping == self.settled.skipping:
            return
        assert self.sent_position >= self.settled.position, "an offset never moves back"
        assert self.stream is not None
        tail = self.stream.tail(self.sent_position) if self._tail is None else self._tail
        self.settled = replace(
            self.settled,
            position=self.sent_position,
            records=self.sent_records,
            skipping=self.skipping,
            cut=self.cut,
            path=self.split.path,
            fingerprint=self.stream.fingerprint(self.sent_position, tail),
        )
        self._tail = self._settled_tail = tail
        self.done.add(self.sent)
        self._undated += self.window.take_undated() if self.window else 0
        self._forget()

    def rewind(self) -> None:
        """Forget what was sent since the last `settle`: it will be read again, so the end is not reached."""
        self.at_end = False
        self.orphans += self.sent.messages
        self.sent_position, self.sent_records = self.settled.position, self.settled.records
        self.skipping, self.cut = self.settled.skipping, self.settled.cut
        self._tail = self._settled_tail
        self._forget()

    def _forget(self) -> None:
        """Nothing is on its way any more."""
        self.sent = RecordTally()
        if self.window:
            self.window.take_undated()

    def result(self, error: CopycatError | None) -> SplitResult:
        """The result as it stands; `error` is the batch's, the split's own comes first."""
        done = self.done
        result = SplitResult(
            self.split,
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
            undated=self._undated,
            step_failures=tuple(done.step_failures),
        )
        return result if self.stream is None else self.stream.complete(result)

    def close(self) -> None:
        """Close the file."""
        if self.stream is not None:
            self.stream.close()
