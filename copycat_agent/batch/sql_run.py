"""One batch of a connector with a query: the whole batch goes through Spark at once.

First everything is read and goes through the steps before the query; then Spark answers; then the same frames, which stay in memory, are
sent like any other's, with the query's results as records. So files are read once, the search for a refused record does not need Spark, and
nothing is sent before the query has finished for the whole batch.

Rows and results are handled in columns, not by record: a whole chunk becomes rows at once, and so do results. Only records that need
special treatment are handled by themselves; `tests/unit/batch/test_sql_ways.py` compares the two ways.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from copycat_agent.batch.policy import StopAt, long_line
from copycat_agent.batch.progress import SplitProgress
from copycat_agent.batch.run import RUN_FILES, BatchRun
from copycat_agent.batch.sql_answers import QueryChannel, QuerySender
from copycat_agent.batch.sql_encoding import AnsweredEncoder, QueryRowEncoder
from copycat_agent.encoding.encoder import Encoder, SplitEncoder
from copycat_agent.errors import BlockedError, FatalError, FileError
from copycat_agent.formats import Chunk, Frame, LongLine, Parsed, RecordPart
from copycat_agent.model import Batch, SourcePartition, Split
from copycat_agent.producer import TaskProducer
from copycat_agent.sources.files.reading.stream import Stream
from copycat_agent.transforms import UNKNOWN_COLUMNS, UNKNOWN_COLUMNS_HINT, sql_step
from copycat_agent.transforms.sql import SqlStep

if TYPE_CHECKING:
    from copycat_agent.sources.contract_frames import FrameRows

BATCH_BYTES = 2**24
"""The most bytes that a batch reads: all of it is in memory, here and in the process at the other end of the query."""


def asked_step(encoder: Encoder) -> SqlStep:
    """Returns the query of a definition that has one. Raises FatalError when the columns of its table are not known."""
    step = sql_step(encoder.definition)
    assert step is not None, "only definitions with a query come here"
    if step.columns is None:
        raise FatalError(f"{step.name}: {UNKNOWN_COLUMNS}", UNKNOWN_COLUMNS_HINT)
    return step


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Turns the cycle collector off: a batch makes hundreds of thousands of dicts without cycles, and collecting takes a quarter of it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


Phase = Literal["gathering", "sending", "sending again"]


@dataclass(slots=True)
class BatchInput:
    """The data that a batch has read, by partition: frames, whether the split's end was reached and why it is damaged, and its stream.

    `phase` is the batch's present phase.
    """

    frames: dict[SourcePartition, list[Frame]] = field(default_factory=dict)
    reached: dict[SourcePartition, tuple[bool, str]] = field(default_factory=dict)
    streams: dict[SourcePartition, Stream] = field(default_factory=dict)
    phase: Phase = "gathering"


class SqlRun(BatchRun):
    """A `BatchRun` that reads everything before it sends anything, and sends the query's results."""

    def __init__(
        self,
        batch: Batch,
        encoder: Encoder,
        producer: TaskProducer,
        stopping: Callable[[], bool],
        *,
        query: QueryChannel,
        rows: FrameRows | None = None,
    ) -> None:
        """Raises what `asked_step` raises."""
        super().__init__(replace(batch, max_bytes=min(batch.max_bytes, BATCH_BYTES)), encoder, producer, stopping, rows=rows)
        self._answers = QuerySender(asked_step(encoder), query)
        self._gathered = BatchInput()

    def send(self) -> None:
        """Reads, queries, sends and settles."""
        with _no_collector():
            self._send_answers()

    def anew(self, batch: Batch, producer: TaskProducer, stopping: Callable[[], bool]) -> SqlRun:
        """Returns another run of the rest of the batch. It keeps what was read, and the results: the query does not run again."""
        run = SqlRun(batch, self._encoder, producer, stopping, query=self._answers.query, rows=self._rows)
        run._answers, run._gathered = self._answers, self._gathered
        run._gathered.phase = "sending again"
        return run

    def _send_answers(self) -> None:
        for topic in self._encoder.literal_topics:
            self._producer.topics.partitions(topic)
        if self._gathered.phase == "gathering":
            self._gather()
        else:
            self._open_again()
        self._replay()
        self._settle()

    def _gather(self) -> None:
        for progress in self.progresses:
            if self._spent() or len(self._open) >= RUN_FILES:
                break
            self._one(progress)
            if progress.stream is not None:
                self._gathered.streams[progress.split.partition] = progress.stream
        self._answers.come()
        self._gathered.phase = "sending"

    def _open_again(self) -> None:
        """Opens the files again, to check whether they are unchanged before their records are sent."""
        for progress in self.progresses:
            if progress.split.partition in self._gathered.frames:
                try:
                    stream = progress.stream = self._reopened(progress.split)
                    progress.changed = not stream.is_what_was_read()
                    if not progress.changed:
                        progress.begin(stream)
                except FileError as error:
                    progress.error = error

    def _reopened(self, split: Split) -> Stream:
        """Returns the stream that read the split if only that one knows its positions, else a new one."""
        before = self._gathered.streams[split.partition]
        return before if getattr(before, "knows_positions", False) else self._opened(split)

    def _is_over(self) -> bool:
        if self._gathered.phase != "sending":
            return super()._is_over()
        return self._stopping()  # the time of the query is no reason to discard its results

    def _run_is_full(self) -> bool:
        return self._gathered.phase != "gathering" and super()._run_is_full()

    def _bind(self, progress: SplitProgress) -> SplitEncoder:
        inner = super()._bind(progress)
        before = self._encoder.definition.transforms[: self._answers.step.number]
        asking = QueryRowEncoder(inner, self._answers.asked(progress), before, self._chunks.watch)
        return AnsweredEncoder(self._encoder, inner, progress, self._answers, asking)

    def _send(self, progress: SplitProgress, encoder: SplitEncoder, frame: Frame) -> int:
        if self._gathered.phase != "gathering":
            return super()._send(progress, encoder, frame)
        assert isinstance(encoder, AnsweredEncoder)
        held = self._gathered.frames.setdefault(progress.split.partition, [])
        if isinstance(frame, Chunk | Parsed):
            return self._ask_chunk(progress, encoder, held, frame)
        held.append(frame)
        fields: list[dict[str, Any]] = []
        if isinstance(frame, RecordPart):
            fields = self._ask_part(progress, encoder, frame)
        elif isinstance(frame, LongLine) and self._encoder.frames.on_too_long == "truncate":
            fields = encoder.asking.record(long_line(progress, frame), self._answers.total)
        self._policy.pass_frame(progress, frame)
        return self._answers.ask(fields)

    def _ask_part(self, progress: SplitProgress, encoder: AnsweredEncoder, part: RecordPart) -> list[dict[str, Any]]:
        """Sends a part of a record to the query. For a part at the beginning of a batch the record's first part is sent as well."""
        fields = encoder.asking.part(self._policy.part_of_record(progress, part), self._answers.total)
        if not self._answers.total:
            self._answers.least = max(1, len(fields))
        return fields

    def _ask_chunk(self, progress: SplitProgress, encoder: AnsweredEncoder, held: list[Frame], chunk: Chunk | Parsed) -> int:
        """Sends the chunk to the query, or only its first part if the batch has to end. Returns how many records are sent."""
        fields, done = encoder.asking.chunk(chunk, progress.sent_records + 1, self._answers.total)
        if done < chunk.total:
            chunk, _ = chunk.cut(done)
        held.append(chunk)
        progress.pass_chunk(chunk)
        return self._answers.ask(fields)

    def _pieces(self, frame: Frame) -> Iterator[Frame]:
        """Cuts a frame to the budget during the search for a refused record; otherwise the frame is sent as a whole."""
        return self._budget.pieces(frame) if self._gathered.phase == "sending again" else iter((frame,))

    def _frames(self, progress: SplitProgress, block_bytes: int | None) -> Iterator[Frame]:
        if self._gathered.phase == "gathering":
            yield from super()._frames(progress, block_bytes)
            return
        position = progress.sent_position
        for frame in self._gathered.frames[progress.split.partition]:
            if isinstance(frame, Chunk | Parsed) and frame.start < position < frame.end:
                yield frame.cut(frame.before(position))[1]
            elif frame.start >= position:
                yield frame

    def _replay(self) -> None:
        """Sends what was read, with the query's results."""
        todo = [one for one in self.progresses if self._is_to_replay(one)]
        for progress in todo:
            self._gathered.reached.setdefault(progress.split.partition, (progress.at_end, progress.damage))
            progress.rewind()
            progress.damage = ""
        self._open = [progress for progress in self._open if progress.split.partition not in self._gathered.frames]
        for progress in todo:
            if self._comes_too_early(progress):
                continue
            if self._stopping() or not self._replay_one(progress):
                break
            progress.at_end, progress.damage = self._gathered.reached[progress.split.partition]

    def _is_to_replay(self, progress: SplitProgress) -> bool:
        is_open = progress.stream is not None and not progress.changed
        return (
            is_open
            and progress.split.partition in self._gathered.frames
            and not (self._gathered.phase == "sending again" and progress.error)
        )

    def _replay_one(self, progress: SplitProgress) -> bool:
        """Returns False when the batch ends here. A bad record ends the batch, as in `_one`."""
        self._open.append(progress)
        try:
            encoder = self._bind(progress)
            for frame in self._gathered.frames[progress.split.partition]:
                part, is_whole = self._answers.answered(progress, frame, progress.sent_records + 1)
                for piece in () if part is None else self._pieces(part):
                    records = super()._send(progress, encoder, piece)
                    self._budget.take(0, records)
                    if self._run_is_full():
                        self._settle()
                    if progress.sent_position != piece.end or self._is_over():
                        return False
                if not is_whole or self._stopping():
                    return False
        except (BlockedError, FileError) as error:
            if self._producer.broken:
                raise
            progress.error = error
            return False
        except StopAt as stop:
            self._settle_before(progress)
            if not isinstance(stop.error, BlockedError):
                raise stop.error from None
            progress.error = stop.error
            return False
        return True
