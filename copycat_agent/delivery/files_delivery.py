"""Delivery into files: a range of a partition is done once its files are claimed and published (`sinks.claims`), always exactly once.

The store of files decides how far each partition is written. The saved offset is a copy, for the lag and for planning: a task asks the
store before it reads, and if the store has another end, the batch returns that end and reads nothing. A split becomes one file, or one
per directory: it is read up to `sink.roll`, and ends where its file ends.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, cast

from copycat_agent.batch.run import BatchRun
from copycat_agent.delivery.at_least_once import AtLeastOnceDelivery, ImmediateOpening
from copycat_agent.delivery.files_dead_letters import DeadLetters, DirectoryTopics
from copycat_agent.encoding.files_layout import TypedValue
from copycat_agent.errors import CopycatError, DataError, FatalError, RetriableError
from copycat_agent.model import Batch, FilesPlan, Loss, Results, Schema, Split, SplitResult
from copycat_agent.producer import Message, ProducerPool, RefusedRecordError, TaskProducer
from copycat_agent.sinks.claims import Claims, LocalFile, Range
from copycat_agent.sinks.file_names import final_keys
from copycat_agent.sinks.files_options import FilesSinkOptions
from copycat_agent.sinks.formats import RangeFiles
from copycat_agent.sinks.sink_stores import SinkStore, store_at
from copycat_agent.sources.contract import OffsetSource, as_text, from_text

if TYPE_CHECKING:
    from copycat_agent.batch.progress import SplitProgress
    from copycat_agent.delivery.base import AsValue, Callbacks, MakeRun
    from copycat_agent.encoding.encoder import Encoder
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.templates.metadata import TopicPlace


_ANY = 2**62
AGAIN_SECONDS = 30.0
"""Least time for a split that is written again because Kafka has refused one of its dead letters."""
Where = Literal["here", "elsewhere"] | None
"""Where records were written: in files of this chain, in those of another name or address, or (None) nobody knows whether at all."""


class FilesGuarantee:
    """Opens deliveries into files, without any request: tasks ask the store."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def open(self, definition: Definition, callbacks: Callbacks, earlier: Sequence[str]) -> ImmediateOpening:
        """Returns the open delivery."""
        return ImmediateOpening(FilesDelivery(definition.name, self._store, callbacks.log, FilesPlan(tuple(earlier))))

    def leave(self, _connector: str) -> None:
        """Does nothing: offsets are saved as with at_least_once."""

    def remember(self, _connector: str, _error: CopycatError) -> None:
        """Does nothing: a person has nothing to decide."""


class FilesDelivery(AtLeastOnceDelivery):
    """The driver's part: saves the results of batches, as at_least_once does, also where the store ends before the saved position."""

    may_stay = False
    allow_rewind = True


class FilesTask:
    """The task's part: writes and publishes one range of each partition."""

    def run(
        self, batch: Batch, encoder: Encoder, producers: ProducerPool, stopping: Callable[[], bool], make_run: MakeRun, as_value: AsValue
    ) -> Results:
        """Runs a batch, one split after the other, and returns a result per split it came to. What it raises came before any write."""
        options = encoder.definition.sink
        assert isinstance(options, FilesSinkOptions)
        definition = encoder.definition
        store = _store(options.uri)
        assert isinstance(batch.delivery, FilesPlan)
        claims, *earlier = (Claims(store, name) for name in (definition.name, *batch.delivery.earlier))
        letters = DeadLetters(batch, encoder, producers, stopping)
        has_query = len(encoder.stages) > 1
        letters.wait = has_query

        def write(split: Split, seconds: float) -> SplitResult:
            alone = replace(batch, splits=(split,), max_seconds=seconds, max_records=_records(batch, options))
            return _SplitWriter(alone, encoder, _RangeProducer(options, store, (claims, *earlier), letters)).run(
                stopping, make_run, as_value
            )

        deadline = time.monotonic() + batch.max_seconds
        results: list[SplitResult] = []
        try:
            for split in batch.splits:
                left = deadline - time.monotonic()
                if results and (left <= 0 or stopping() or has_query):  # a batch has one run of its query
                    results.append(SplitResult(split, split.offset))
                    continue
                have_waited = letters.wait
                result = write(split, max(left, 0.0))
                if letters.wait and not have_waited:
                    result = write(split, max(left, AGAIN_SECONDS))
                results.append(result)
        finally:
            client = letters.close()
        if client is not None and results:
            results[0] = replace(results[0], client=client)
        return tuple(results)


def _records(batch: Batch, options: FilesSinkOptions) -> int:
    return min(batch.max_records or options.roll.records, options.roll.records)


@lru_cache(maxsize=64)
def _store(uri: str) -> SinkStore:
    """Returns the store of an address, cached since a client takes 0.1 s to make. Raises FatalError without conditional puts."""
    store = store_at(uri)
    if not store.has_conditional_put():
        words = f"{store.shown()} does not support conditional puts; without them two agents could write the same records"
        raise FatalError(words, "write to another store, or to its gateway's newer version; see docs/lake.md")
    return store


class _SplitWriter:
    """Writes one split of a batch."""

    def __init__(self, batch: Batch, encoder: Encoder, producer: _RangeProducer) -> None:
        self._batch, self._encoder, self._producer = batch, encoder, producer
        (self._split,) = batch.splits
        source: OffsetSource = encoder.frames.source  # type: ignore[union-attr]
        self._source = source

    def run(self, stopping: Callable[[], bool], make_run: MakeRun, as_value: AsValue) -> SplitResult:
        """Returns the result of the split, which contains the error if there was one."""
        split, producer = self._split, self._producer
        assert split.stretch is not None
        start: int = split.stretch.start
        try:
            there = self._source.apply(split.stretch, start, finished=False)
            into = from_text(self._split.offset.cursor).get("into")
            written: Where = None if into is None else "here" if into == there["into"] else "elsewhere"
            end = producer.begin(self._source.place(split.stretch), start, there.get("topic_id", ""), written)
        except Exception as error:  # noqa: BLE001 - a batch never raises
            return SplitResult(split, split.offset, error=as_value(error))
        if end != start or split.stretch.end == start:  # an empty stretch only begins the chain
            return self._moved(SplitResult(split, split.offset), end, as_value)
        failure: CopycatError | None = None
        run: BatchRun = make_run(self._batch, self._encoder, cast("TaskProducer", producer), stopping)
        run.most_run_bytes = _ANY  # a flush ends the file
        (progress,) = run.progresses
        producer.read_by(progress)
        try:
            run.run()
            if progress.error is None and not progress.changed:
                producer.claim_gap()
        except Exception as error:  # noqa: BLE001 - as above
            failure = as_value(error)
        finally:
            producer.abandon()
        result = replace(progress.result(failure), samples=tuple(progress.done.samples))
        return self._at(result, producer.end, as_value)

    def _at(self, result: SplitResult, end: int, as_value: AsValue) -> SplitResult:
        """Returns the result with the end that the store has."""
        split, stretch = self._split, self._split.stretch
        assert stretch is not None
        if end == stretch.start:
            return replace(result, offset=split.offset, losses=())  # they are found again, or in the claim
        return self._moved(result, end, as_value)

    def _moved(self, result: SplitResult, end: int, as_value: AsValue) -> SplitResult:
        split, stretch = self._split, self._split.stretch
        assert stretch is not None
        if not self._producer.has_claimed:
            try:
                result = replace(result, losses=self._producer.lost(split, end))
            except Exception as error:  # noqa: BLE001 - as above
                return SplitResult(split, split.offset, error=as_value(error))
        position = self._source.apply(stretch, end, finished=False)
        moved = replace(result.offset, position=end, cursor=as_text(position), path=stretch.name, mtime_ns=time.time_ns())
        return replace(result, offset=moved)


class _RangeProducer:
    """Takes the place of a batch's producer: writes files of one range, which `flush` claims and publishes.

    `end` is the last known end of the partition's chain.
    """

    run_bytes = _ANY

    def __init__(self, options: FilesSinkOptions, store: SinkStore, claims: tuple[Claims, ...], letters: DeadLetters) -> None:
        """`claims` are those of the connector, then those of its earlier names."""
        self._options, self._store, self._letters = options, store, letters
        self._claims, *self._earlier = claims
        self._progress: SplitProgress | None = None
        self._place: TopicPlace | None = None
        self._topic_id = ""
        self.end = 0
        self.has_claimed = False
        """Whether the end has moved by a claim of its own."""
        self.topics = DirectoryTopics(letters)

    def begin(self, place: TopicPlace, start: int, topic_id: str, written: Where) -> int:
        """Returns the end of the partition's chain. Raises FatalError for a chain of an earlier topic, or as `SinkStore` does.

        `written` says where the records before `start` were. A new chain begins at `start`, or at the end of the chain of an earlier
        name. A chain that ends before records that were written elsewhere gets a claim without files up to their end. Raises FileError
        for a topic whose files the store cannot name, before anything of it is read.
        """
        self._store.shown(final_keys(Range(*place, start, start), [""], "x")[0])
        self._place, self._topic_id = place, topic_id
        self._scratch = self._store.scratch() / uuid.uuid4().hex
        self._files = RangeFiles(self._options, self._scratch)
        if written == "here":
            self.end = self._claims.resume(*place, start, start, topic_id)
            return self.end
        earlier = [one.resume(*place, start, topic_id=topic_id) for one in self._earlier if one.chain(*place) is not None]
        elsewhere = max([start if written else 0, *earlier])
        self.end = self._claims.resume(*place, max(start, elsewhere), topic_id=topic_id)
        while self.end < elsewhere:
            self.end = self._claims.commit(Range(*place, self.end, elsewhere - 1), (), topic_id=topic_id).end
        return self.end

    @property
    def broken(self) -> bool:
        """Whether the producer of dead letters is. Nothing of the range is published then: part of a chunk may have been written."""
        return self._letters.broken

    def read_by(self, progress: SplitProgress) -> None:
        """Sets the progress of the split whose records are written."""
        self._progress = progress

    def attribute(self, _place: object) -> None:
        """Does nothing: records in files have no offsets in Kafka."""

    def may_send(self, _source: object, _end: int) -> bool:
        """Returns whether the range may grow."""
        return not self._files.is_full

    def send(self, directory: str, values: list[Any], _tail: Message) -> None:
        """Writes values into a directory. Raises `RefusedRecordError` for the first that does not fit the format."""
        self._add(directory, values, 0)

    def send_each(self, messages: Iterable[Message]) -> None:
        """Writes messages, each into its directory; dead letters go to their topic. Raises as `send`."""
        done = 0
        for topic, alike in groupby(messages, itemgetter(0)):
            some = list(alike)
            if topic == self._letters.topic:
                try:
                    self._letters.send(some)
                except RefusedRecordError as refused:
                    raise RefusedRecordError(done + refused.sent, refused.reason) from None
            else:
                self._add(topic, [message[1] for message in some], done)
            done += len(some)

    def _add(self, directory: str, values: list[Any], before: int) -> None:
        name = directory.rstrip("/")
        if TypedValue not in set(map(type, values)):
            self._add_alike(name, values, None, before)
            return
        for schema, alike in groupby(values, _schema_of):
            some = [value.value if type(value) is TypedValue else value for value in alike]
            self._add_alike(name, some, schema, before)
            before += len(some)

    def _add_alike(self, name: str, some: list[Any], schema: Schema | None, before: int) -> None:
        """Adds values of one schema, after `before` others of the same call. Raises `RefusedRecordError`."""
        taken = self._files.add_all(name, some, schema)
        if taken < len(some):
            try:
                self._files.add(name, some[taken], schema)
            except DataError as error:
                raise RefusedRecordError(before + taken, error) from None
            raise AssertionError("add_all refused a value that add accepts")

    def partly_sent(self, reason: DataError) -> None:
        """Does nothing: if one of several rows of a record does not fit, the rows already written count."""

    def weigh(self, _size_bytes: int) -> None:
        """Does nothing: files have no pace."""

    def smaller_batches(self) -> None:
        """Does nothing: there are no batches of a client."""

    def flush(self) -> None:
        """Claims the range that was read and publishes its files, which are visible when this returns.

        Raises RetriableError if another agent has written this range, FatalError for a topic that was made anew meanwhile, or as
        `SinkStore` does; then nothing of the range counts.
        """
        progress, place = self._progress, self._place
        assert progress is not None
        assert place is not None
        try:
            progress.stream.verify()  # type: ignore[union-attr]
            self._letters.flush()
            behind = progress.stream.reached(progress.sent_position)  # type: ignore[union-attr]
            written = self._files.close()
            complete = [LocalFile(one.path, one.directory, one.records) for one in written]
            extension = written[0].extension if written else ""
            at = Range(place.topic, place.partition, self.end, behind - 1)
            lost = (*progress.sent.losses, *progress.stream.lost_between(self.end, behind))  # type: ignore[union-attr]
            done = self._claims.commit(at, complete, extension, self._topic_id, [one[1:] for one in lost])  # the partition is the chain's
        except BaseException:
            self._renew()
            raise
        self._renew()
        self.end = done.end
        self.has_claimed |= done.is_mine
        if not done.is_mine:
            words = f"{place.topic}/{place.partition} was written up to offset {done.end} by another agent"
            raise RetriableError(words, "it goes on from there; let one agent run the connector")

    def lost(self, split: Split, end: int) -> tuple[Loss, ...]:
        """Returns what was lost up to `end` by claims of writers that could not say so, such as killed ones."""
        assert self._place is not None
        assert split.stretch is not None
        found = [one.lost(*self._place, split.stretch.start, end) for one in (self._claims, *self._earlier)]
        return tuple(Loss(split.partition, *one) for some in found for one in some)

    def claim_gap(self) -> None:
        """Claims offsets after the last record that have no record, such as aborted ones, so that they are not read again forever."""
        progress = self._progress
        assert progress is not None
        if progress.stream is not None and progress.stream.reached(progress.sent_position) > self.end:  # type: ignore[attr-defined]
            self.flush()

    def _renew(self) -> None:
        self._files.abandon()
        self._files = RangeFiles(self._options, self._scratch)

    def abandon(self) -> None:
        """Removes files that were not published."""
        self._files.abandon()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _schema_of(value: object) -> Schema | None:
    return value.schema if type(value) is TypedValue else None
