"""Runs one batch, from files to acknowledgements.

Records are sent in *runs* of a few MiB over all the batch's splits; a run ends with a flush, and offsets move only after a flush that
leaves nothing unsent. When Kafka refuses a record somewhere in a run, the run is read again and sent in small groups, then one by one, to
find it: repeats stay within the run, and the order stays the file's.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, cast

from copycat_agent.batch.policy import StopAt, messages_of, policy_of
from copycat_agent.batch.progress import SplitProgress
from copycat_agent.batch.refused_record_search import RefusedRecordSearch
from copycat_agent.batch.sending import ChunkSender, EndCheck, Sender, Tap
from copycat_agent.display import NOTHING_SECRET
from copycat_agent.encoding.encoder import Encoder, SplitEncoder
from copycat_agent.errors import BlockedError, DamageError, DataError, FileError, SentInPartError
from copycat_agent.formats import Chunk, Frame, FrameOptions, LongLine, Parsed, RecordPart
from copycat_agent.formats.lines import BLOCK_BYTES
from copycat_agent.model import Batch, Split
from copycat_agent.producer import TaskProducer
from copycat_agent.sources.files.reading.stream import Stream

if TYPE_CHECKING:
    from copycat_agent.sources.contract_frames import FrameRows, FrameStream

RUN_BYTES = 16 * 2**20
"""Bytes between two flushes. A flush costs a round trip; a failure repeats a run."""
RUN_FILES = 128
"""Most files that one run may hold open."""
GRACE_SECONDS = 10.0
"""Most time that waiting for missing topics may add to a batch."""

_BLOCK_BYTES = 2**20
"""Batches below this size are small: they read less at a time, and a block may be cut."""
_LEAST_BLOCK_BYTES = 2**16
_LIKELY_BYTES = 1024
"""Assumed size of a record, so that a batch of few records does not read a whole block for them."""
_ANY = 2**62

_runs = itertools.count()


class Budget:
    """The remaining budget of a batch. A single record may exceed it, so that every batch makes progress; nothing else does by much."""

    def __init__(self, batch: Batch) -> None:
        self._deadline = time.monotonic() + batch.max_seconds
        self._bytes = batch.max_bytes
        self._records = batch.max_records or _ANY
        self._is_small = batch.max_records > 0 or batch.max_bytes < _BLOCK_BYTES
        self._grace_seconds = GRACE_SECONDS

    @property
    def is_spent(self) -> bool:
        """Returns whether reading should end."""
        return self._bytes <= 0 or self._records <= 0 or time.monotonic() > self._deadline

    @property
    def block_bytes(self) -> int | None:
        """Returns the number of bytes to read at a time; None for the format's own choice, which is the fastest."""
        if not self._is_small:
            return None
        return max(1, min(_BLOCK_BYTES, self._bytes, max(_LEAST_BLOCK_BYTES, self._records * _LIKELY_BYTES)))

    def pieces(self, frame: Frame) -> Iterator[Frame]:
        """Yields `frame` in pieces that fit what is left; its last piece may be missing. Ask `is_spent` before taking the next one."""
        while self._is_small and isinstance(frame, Chunk | Parsed):
            index = frame.fitting(self._records, self._bytes)
            if index == frame.total:
                break
            piece, frame = frame.cut(index)
            yield piece
        yield frame

    def take(self, size_bytes: int, records: int) -> None:
        """Deducts `size_bytes` that were read and `records` that were sent."""
        self._bytes -= size_bytes
        self._records -= records

    def extend(self, seconds: float) -> None:
        """Adds time that was lost without the batch's fault, up to `GRACE_SECONDS` in all."""
        granted = min(seconds, self._grace_seconds)
        self._grace_seconds -= granted
        self._deadline += granted

    def end(self) -> None:
        """Ends the budget: nothing more is read."""
        self._bytes = 0


class BatchRun:
    """The state of one batch while it runs. Used once, from one thread.

    `most_run_bytes`: bytes between two flushes, `RUN_BYTES` by default.
    """

    most_run_bytes = 0

    def __init__(
        self,
        batch: Batch,
        encoder: Encoder,
        producer: TaskProducer,
        stopping: Callable[[], bool],
        *,
        rows: FrameRows | None = None,
    ) -> None:
        """`rows`: what Spark has read for the batch's only split, for a source that is read by Spark."""
        self.progresses = [SplitProgress(split) for split in batch.splits]
        self._by_partition = {one.split.partition: one for one in self.progresses}
        self._rows = rows
        self._encoder = encoder
        self._producer = producer
        self._stopping = stopping
        self._batch = batch
        self._budget = Budget(batch)
        self._open: list[SplitProgress] = []
        self._policy = policy_of(encoder)
        self.sender = Sender(producer, self._policy)
        self._tap = Tap(batch.samples, self.progresses, encoder.definition.mask if batch.samples else NOTHING_SECRET)
        self._chunks = ChunkSender(producer, self._policy, self.sender, self._tap, EndCheck(self._is_over))

    @property
    def max_bytes(self) -> int:
        """Returns how many bytes the batch may read."""
        return self._batch.max_bytes

    def run(self) -> None:
        """Reads, sends and settles until the splits are done or the budget is spent. Raises what ends the whole batch."""
        with closing(self):
            self.send()

    def send(self) -> None:
        """Does what `run` does, but leaves open the files of a batch that may stay."""
        for topic in self._encoder.literal_topics:
            self._producer.topics.partitions(topic)
        for progress in self.progresses:
            if self._spent():
                break
            self._one(progress)
        self._settle()

    def close(self) -> None:
        """Closes all files."""
        for progress in self.progresses:
            progress.close()

    def go_on(self, grown: Sequence[tuple[SplitProgress, int, int]]) -> bool:
        """Sends and settles what was added to files whose end had been reached; each with its observed end, and the time of that.

        Returns whether their ends are reached again. Raises what ends the whole batch.
        """
        self._budget = Budget(self._batch)
        for progress, end, seen_ns in grown:
            progress.go_on(end, seen_ns)
            self._attempt(progress, self._read_on)
            if not progress.at_end:
                break
        self._settle()
        return all(progress.at_end and not progress.changed for progress, _, _ in grown)

    def join(self, splits: Sequence[Split]) -> list[SplitProgress]:
        """Reads, sends and settles further splits of a batch that stays. Returns their progress. Raises what ends the whole batch."""
        self._budget = Budget(self._batch)
        joined = [SplitProgress(split) for split in splits]
        self.progresses += joined
        self._by_partition.update((one.split.partition, one) for one in joined)
        for progress in joined:
            if self._spent():
                break
            self._one(progress)
        self._settle()
        return joined

    def anew(self, batch: Batch, producer: TaskProducer, stopping: Callable[[], bool]) -> BatchRun:
        """Returns another run for what is left of the same batch: nothing of this one counts."""
        return BatchRun(batch, self._encoder, producer, stopping, rows=self._rows)

    def expect(self, refusals: Sequence[DataError]) -> None:
        """Prepares for refusals of this many of the first messages, see `Sender`: with the record that they belong to the batch ends."""
        self.sender.expect(refusals)

    def _spent(self) -> bool:
        return self._budget.is_spent or self._stopping() or self.sender.has_found

    def _is_over(self) -> bool:
        """Returns whether to send nothing more, called while a frame is sent. No budget ends a split sent as a whole: a part is useless."""
        return self._stopping() if any(one.split.goes_as_one for one in self._open) else self._spent()

    def _one(self, progress: SplitProgress) -> None:
        """Sends one split, as far as the budget goes. A file's error affects only this split; a StopAt ends the batch."""
        if not self._comes_too_early(progress):
            self._attempt(progress, self._begin)

    def _begin(self, progress: SplitProgress) -> None:
        stream = progress.stream = self._opened(progress.split)
        self._open.append(progress)
        if stream.is_what_was_read():
            progress.begin(stream)
            if not progress.at_end:
                self._read(progress)
        else:
            progress.changed = True

    def _opened(self, split: Split) -> Stream:
        """Returns the open stream of a split. Raises FileError."""
        stream: Stream = self._encoder.source.open(split, self._encoder.frames)
        if self._rows is not None:
            cast("FrameStream", stream).rows = self._rows
        return stream

    def _read_on(self, progress: SplitProgress) -> None:
        self._open.append(progress)
        self._read(progress)

    def _attempt(self, progress: SplitProgress, read: Callable[[SplitProgress], None]) -> None:
        begun = time.monotonic()
        try:
            read(progress)
        except FileError as error:
            progress.error = error
        except BlockedError as error:
            if self._producer.broken:
                raise
            self._blocked(progress, error, begun)
        except StopAt as stop:
            self._settle_before(progress)
            if not isinstance(stop.error, BlockedError):
                raise stop.error from None
            self._blocked(progress, stop.error, begun)

    def _comes_too_early(self, progress: SplitProgress) -> bool:
        """Returns whether the older file of the log has data left, which has to go first: the next batch has both."""
        before = self._by_partition.get(progress.split.after) if progress.split.after else None
        return before is not None and not before.at_end

    def _blocked(self, progress: SplitProgress, error: BlockedError, begun: float) -> None:
        """Notes that a topic of this file's records is missing or closed. The wait extends the budget: other files' topics may exist."""
        progress.error = error
        self._budget.extend(time.monotonic() - begun)

    def _read(self, progress: SplitProgress) -> None:
        encoder = self._bind(progress)
        bounds = None
        try:
            while bounds != (bounds := progress.bounds()):  # a packed file's end is known when it is reached
                for frame in self._frames(progress, self._block_bytes(self._budget.block_bytes)):
                    for piece in self._budget.pieces(frame):
                        if not self._read_piece(progress, encoder, piece):
                            return
        except DamageError as error:
            progress.damage, progress.at_end = error.message, True
        else:
            progress.reach_end()

    def _read_piece(self, progress: SplitProgress, encoder: SplitEncoder, frame: Frame) -> bool:
        """Sends a frame or a piece of one. Returns False when reading should end here."""
        assert progress.stream is not None
        if not self._producer.may_send(progress.stream, frame.end):
            return False
        before = progress.sent.size_bytes
        records = self._send(progress, encoder, frame)
        self._budget.take(progress.sent.size_bytes - before, records)
        if self._run_is_full():
            self._settle()
        if progress.sent_position != frame.end:
            return False  # it changed, or checking its records, or the search for a refused one, took all the time
        return not self._spent()

    def _bind(self, progress: SplitProgress) -> SplitEncoder:
        """Returns the encoder for what is sent of this split next; its records belong to the split, at any offset in Kafka."""
        known, batch = progress.encoder, self._batch
        if known is not None and batch.follow_seconds and known.window is None and not batch.tracked:
            return known
        if batch.tracked:
            self._producer.attribute(progress.place)
        stream, window = progress.stream, None
        assert stream is not None
        if self._encoder.window is not None:
            window = self._encoder.window.bind(stream.read, progress.sent_position, progress.split.mtime_ms)
        partitions, run = self._producer.topics.partitions, next(_runs)
        progress.encoder = self._encoder.bind(progress.split, partitions, run, window=window, origin=stream)
        return progress.encoder

    def _frames(self, progress: SplitProgress, block_bytes: int | None) -> Iterator[Frame]:
        """Yields frames from the sent position on."""
        assert progress.stream is not None
        (end, is_end), split = progress.bounds(), progress.split
        how: FrameOptions = {
            "skipping": progress.reach.skipping, "final": split.final and is_end, "flush": split.flush and is_end,
            "block_bytes": block_bytes,
        }  # fmt: skip
        if progress.reach.cut and self._encoder.frames.on_too_long == "split":
            how["cut"] = progress.reach.cut
        return progress.stream.frames(self._encoder.frames, progress.sent_position, end, **how)

    def _block_bytes(self, block_bytes: int | None) -> int | None:
        """Returns the budget's bytes, at most a run; None for what is sent again, which is not charged to the budget."""
        run_bytes = self._producer.run_bytes
        return block_bytes if run_bytes >= BLOCK_BYTES else min(run_bytes, block_bytes or run_bytes)

    def _run_is_full(self) -> bool:
        """Returns whether to settle before more is sent: earlier than usual on a connection that cannot carry as much in time."""
        run_bytes = min(self.most_run_bytes or RUN_BYTES, self._producer.run_bytes)
        return len(self._open) >= RUN_FILES or sum(progress.sent.size_bytes for progress in self._open) >= run_bytes

    def _send(self, progress: SplitProgress, encoder: SplitEncoder, frame: Frame) -> int:
        """Sends one frame, or a part of it if the batch has to end. Raises StopAt after everything before a bad record is sent.

        Returns the number of messages.
        """
        assert progress.sent_position == frame.start, "an offset never passes what was not sent"
        if isinstance(frame, Chunk | Parsed):
            if isinstance(frame, Parsed):
                progress.schema = frame.schema or progress.schema
            return self._chunks.send(progress, encoder, frame)
        messages = self._send_one(progress, encoder, frame) if isinstance(frame, LongLine | RecordPart) else 0
        self._policy.pass_frame(progress, frame)
        return messages

    def _send_one(self, progress: SplitProgress, encoder: SplitEncoder, frame: LongLine | RecordPart) -> int:
        """Sends a frame that is one record. Returns the number of its messages. Raises StopAt."""
        sent, stop = self.sender.produce(progress, [self._policy.of_frame(progress, encoder, frame)])
        if stop:
            raise stop
        self._tap.take(progress, sent)
        messages = messages_of(sent)
        progress.sent.messages += messages
        self._policy.count(progress, sent)
        return messages

    def _settle(self) -> None:
        """Ends the run: waits for every acknowledgement, then settles what was sent."""
        pending, self._open = self._open, [progress for progress in self._open if not progress.at_end][-1:]
        if size_bytes := sum(progress.sent.size_bytes for progress in pending):
            self._producer.weigh(size_bytes)
            try:
                self._producer.flush()
            except DataError:
                self._settle_one_by_one(pending)
        for progress in pending:
            progress.move()
            if progress not in self._open and not self._batch.follow_seconds:
                progress.close()

    def _settle_before(self, progress: SplitProgress) -> None:
        """Settles what precedes a bad record of this split; nothing if its records have to be settled together."""
        try:
            self._settle()
        except SentInPartError:
            progress.rewind()

    def _settle_one_by_one(self, pending: list[SplitProgress]) -> None:
        """Sends a run again in small groups until the record is found that Kafka refused. Raises FatalError for it."""
        is_whole = any(progress.split.goes_as_one for progress in pending)
        search = RefusedRecordSearch(self._producer, self._policy, self.sender, self._stopping, whole=is_whole)
        targets = [(progress, progress.sent_position, progress.at_end) for progress in pending]
        for progress in pending:
            progress.rewind()
        for progress, target, at_end in targets:
            if self._comes_too_early(progress):
                continue
            try:
                progress.at_end = self._sent_again(progress, target, search) and at_end
            except FileError as error:
                progress.rewind()
                progress.error = error
            except StopAt as stop:
                progress.move_before()
                raise stop.error from None
            progress.move()
        if search.is_vain:
            self._producer.smaller_batches()
            self._budget.end()

    def _sent_again(self, progress: SplitProgress, target: int, search: RefusedRecordSearch) -> bool:
        """Sends and settles this split's part of the run, up to position `target`. Returns False when the time ends before."""
        if progress.sent_position == target:
            return True
        encoder = self._bind(progress)
        if search.send(progress, encoder, self._frames(progress, self._block_bytes(None)), target):
            return True
        self._budget.end()
        return False
