"""One batch of a connector with a query: the whole batch goes through Spark at once.

First all of it is read and goes through the steps before the query; then Spark answers; then the same frames, which stay in memory, are
handed over once more as any other's are, each record as what the query made of it. So files are read once, a record that Kafka refuses
is looked for without Spark, and nothing is sent before the query has come through for the whole batch.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from copycat_agent.batch.bound import Bound
from copycat_agent.batch.budget import Watch
from copycat_agent.batch.items import StopAt
from copycat_agent.batch.passing import passed, passed_gap, passed_long_line, passed_part, passed_rest
from copycat_agent.batch.pipeline import Pipeline
from copycat_agent.batch.progress import Progress
from copycat_agent.batch.run import RUN_FILES, BatchRun
from copycat_agent.batch.sql_answers import AnsweredBound, Answers, Query
from copycat_agent.batch.sql_ask import Asking
from copycat_agent.batch.sql_rows import Results, Table
from copycat_agent.converters import Converter
from copycat_agent.errors import BlockedError, FatalError, FileError
from copycat_agent.formats import Chunk, Frame, Gap, LongLine, Parsed, Part, Row
from copycat_agent.model import Batch, SourcePartition
from copycat_agent.producer import TaskProducer
from copycat_agent.transforms.queries import UNKNOWN_COLUMNS, UNKNOWN_COLUMNS_HINT, sql_step
from copycat_agent.transforms.sql import SqlStep

BATCH_BYTES = 2**24
"""A batch reads no more: all of it is in memory, here and in the process at the other end of the query."""


def asked_step(pipeline: Pipeline) -> SqlStep:
    """The query of a definition that has one. Raises FatalError when nobody knows the columns of its table."""
    step = sql_step(pipeline.definition)
    assert step is not None, "only definitions with a query come here"
    if step.columns is None:
        msg = f"{step.name}: {UNKNOWN_COLUMNS}"
        raise FatalError(msg, UNKNOWN_COLUMNS_HINT)
    return step


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Python does not look for cycles: a batch makes hundreds of thousands of dicts without any, and looking costs a quarter of it all."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _converter(pipeline: Pipeline) -> Converter | None:
    """What makes the value of fields alone; None where more goes into it."""
    return None if pipeline.wants_record or pipeline.value is not None else pipeline.convert_fields or pipeline.convert_value


class SqlRun(BatchRun):
    """See `BatchRun`."""

    def __init__(self, batch: Batch, pipeline: Pipeline, producer: TaskProducer, stopping: Callable[[], bool], query: Query) -> None:
        """See `asked_step` for what it raises."""
        super().__init__(replace(batch, max_bytes=min(batch.max_bytes, BATCH_BYTES)), pipeline, producer, stopping)
        self._query = query
        step = asked_step(pipeline)
        self._table = Table(step.columns or ())
        self._answers = Answers(step, query)
        self._before = tuple(pipeline.definition.transforms[: step.number])
        self._watch = Watch(self._is_over)
        self._held: dict[SourcePartition, list[Frame]] = {}
        self._reached: dict[SourcePartition, tuple[bool, str]] = {}
        self._is_gathering = True
        self._is_again = False

    def run(self) -> None:
        """See `BatchRun.run`."""
        with _no_collector():
            self._run()

    def anew(self, batch: Batch, producer: TaskProducer, stopping: Callable[[], bool]) -> SqlRun:
        """See `BatchRun.anew`. What was read is still there, and so are the answers: Spark is not asked again."""
        run = SqlRun(batch, self._pipeline, producer, stopping, self._query)
        run._answers, run._held, run._is_gathering, run._is_again = self._answers, self._held, False, True
        run._reached = self._reached
        return run

    def _run(self) -> None:
        for topic in self._pipeline.literal_topics():
            self._producer.topics.partitions(topic)
        try:
            if self._is_again:
                self._open_again()
            else:
                self._gather()
            self._replay()
            self._settle()
        finally:
            for progress in self.progresses:
                progress.close()

    def _gather(self) -> None:
        for progress in self.progresses:
            if self._spent() or len(self._open) >= RUN_FILES:
                break
            self._one(progress)
        self._answers.results = Results(self._query.results())
        self._is_gathering = False

    def _open_again(self) -> None:
        """The files that were read: whether they are still the same is asked once more when their records are sent."""
        for progress in self.progresses:
            if progress.split.partition in self._held:
                try:
                    stream = progress.stream = self._pipeline.source.open(progress.split, self._pipeline.frames)
                    progress.changed = not stream.is_what_was_read()
                    if not progress.changed:
                        progress.begin(stream)
                except FileError as error:
                    progress.error = error

    def _is_over(self) -> bool:
        if self._is_gathering or self._is_again:
            return super()._is_over()
        return self._stopping()  # what Spark took is no reason to throw its answers away

    def _run_is_full(self) -> bool:
        return not self._is_gathering and super()._run_is_full()

    def _bound(self, progress: Progress) -> Bound:
        inner = super()._bound(progress)
        asking = Asking(inner, self._answers.asked(progress), self._before, self._watch)
        return AnsweredBound(inner, progress, self._answers, asking, _converter(self._pipeline))

    def _send(self, progress: Progress, bound: Bound, frame: Frame) -> int:
        if not self._is_gathering:
            return super()._send(progress, bound, frame)
        assert isinstance(bound, AnsweredBound)
        held = self._held.setdefault(progress.split.partition, [])
        if isinstance(frame, Chunk | Parsed):
            return self._ask_chunk(progress, bound, held, frame)
        held.append(frame)
        if isinstance(frame, LongLine):
            truncates = self._pipeline.frames.on_too_long == "truncate"
            value = frame.head if frame.value is None else frame.value
            row = Row(value, frame.start, frame.end, 0)
            count = self._put(bound.asking.row(row, progress.sent_records + 1, self._answers.total, partial=False)) if truncates else 0
            passed_long_line(progress, frame, [], self._items.too_long, is_dropped=self._items.drops_long_lines)
            return count
        if isinstance(frame, Part):
            return self._ask_part(progress, bound, frame)
        if isinstance(frame, Gap):
            passed_gap(progress, frame)
        else:
            passed_rest(progress, frame, self._items.too_long)
        return 0

    def _ask_part(self, progress: Progress, bound: AnsweredBound, part: Part) -> int:
        """Of a part of a record. One with which a batch begins brings the record's first one along."""
        fields = bound.asking.part(self._items.piece(progress, part), progress.sent_records + 1, self._answers.total)
        if not self._answers.total:
            self._answers.least = max(1, len(fields))
        passed_part(progress, part, [])
        return self._put(fields)

    def _ask_chunk(self, progress: Progress, bound: AnsweredBound, held: list[Frame], chunk: Chunk | Parsed) -> int:
        """Of all of it, or, where the batch has to end, of its first part. Returns how many records of it are asked about."""
        fields, done = bound.asking.chunk(chunk, progress.sent_records + 1, self._answers.total)
        if done < chunk.total:
            chunk, _ = chunk.cut(done)
        held.append(chunk)
        passed(progress, chunk)
        return self._put(fields)

    def _put(self, fields: list[dict[str, Any]]) -> int:
        """Send rows to the query. Returns how many."""
        first = self._answers.total
        self._answers.total += len(fields)
        if fields and not self._query.condemned:
            batch, bad = self._table.batch(fields, range(first, self._answers.total))
            self._answers.bad |= bad
            self._query.put(batch)
        return len(fields)

    def _pieces(self, frame: Frame) -> Iterator[Frame]:
        """What Spark answered goes as a whole, unless a record is looked for that Kafka refuses."""
        return self._budget.pieces(frame) if self._is_again else iter((frame,))

    def _frames(self, progress: Progress, block_bytes: int | None) -> Iterator[Frame]:
        if self._is_gathering:
            yield from super()._frames(progress, block_bytes)
            return
        position = progress.sent_position
        for frame in self._held[progress.split.partition]:
            if isinstance(frame, Chunk | Parsed) and frame.start < position < frame.end:
                yield frame.cut(frame.before(position))[1]
            elif frame.start >= position:
                yield frame

    def _replay(self) -> None:
        """Hand over what was read, as the answers say."""
        todo = [one for one in self.progresses if self._is_to_replay(one)]
        for progress in todo:
            self._reached.setdefault(progress.split.partition, (progress.at_end, progress.damage))
            progress.rewind()
            progress.damage = ""
        self._open = [progress for progress in self._open if progress.split.partition not in self._held]
        for progress in todo:
            if self._comes_too_early(progress):
                continue
            if self._stopping() or not self._replay_one(progress):
                break
            progress.at_end, progress.damage = self._reached[progress.split.partition]

    def _is_to_replay(self, progress: Progress) -> bool:
        is_open = progress.stream is not None and not progress.changed
        return is_open and progress.split.partition in self._held and not (self._is_again and progress.error)

    def _replay_one(self, progress: Progress) -> bool:
        """False when the batch ends here. A bad record ends the batch, as in `_one`."""
        self._open.append(progress)
        try:
            bound = self._bound(progress)
            for frame in self._held[progress.split.partition]:
                part, is_whole = self._answers.answered(progress, frame, progress.sent_records + 1)
                for piece in () if part is None else self._pieces(part):
                    records = super()._send(progress, bound, piece)
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
            self._settle()
            if not isinstance(stop.error, BlockedError):
                raise stop.error from None
            progress.error = stop.error
            return False
        return True
