"""Sources whose records Spark reads: a stretch is a frame, and the task that sends it is given the frame's rows."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from copycat_agent.errors import RetriableError
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.model import Schema
from copycat_agent.sources.base import Offsets, Source, SourceKind
from copycat_agent.sources.contract import LostRecords
from copycat_agent.sources.contract_partitions import RecordPartitions
from copycat_agent.sources.contract_source import ContractSource
from copycat_agent.sources.contract_stream import Records, RecordStream
from copycat_agent.sources.contract_threads import WHOLE_SECONDS, ReadThreads, rows_weight

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

    from copycat_agent.errors import CopycatError
    from copycat_agent.formats import RecordFormat
    from copycat_agent.logs import Log
    from copycat_agent.model import Split, Stretch
    from copycat_agent.options import DeliveryOptions
    from copycat_agent.sources.contract import FrameSource, PolledOptions, Probed, Record, RunsAs
    from copycat_agent.sources.contract_threads import Pair
    from copycat_agent.sources.files.reading.stream import Stream

    Offer = Callable[[float], SparkSession]
    """Waits for the session at most so many seconds. Raises RetriableError and FatalError."""

SESSION_SECONDS = 60.0


class SparkAccess:
    """The Spark session of this process, for sources that ask it. Whoever has one offers it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offers: list[Offer] = []

    def offer(self, session: Offer) -> None:
        """Have the session asked for here, until `withdraw`."""
        with self._lock:
            self._offers.append(session)

    def withdraw(self, session: Offer) -> None:
        """Take an offer back; without effect where there is none."""
        with self._lock:
            self._offers = [one for one in self._offers if one != session]

    def session(self, seconds: float = SESSION_SECONDS) -> SparkSession:
        """The session. Raises RetriableError while there is none, FatalError when there will be none."""
        with self._lock:
            offer = self._offers[-1] if self._offers else None
        if offer is None:
            raise RetriableError("no Spark session runs in this process")
        return offer(seconds)


SPARK = SparkAccess()


class FrameRows:
    """Rows of a frame, some at a time. What was read of them stays, for who goes through them again. Thread-safe."""

    def __init__(self, batches: Iterable[RecordBatch]) -> None:
        self._batches = iter(batches)
        self._kept: list[RecordBatch] = []
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[RecordBatch]:
        for index in itertools.count():
            with self._lock:
                if index == len(self._kept):
                    batch = next(self._batches, None)
                    if batch is None:
                        return
                    self._kept.append(batch)
            yield self._kept[index]


class FrameStream(RecordStream):
    """A `stream.Stream` of rows that a Spark job brings; where there is none, this process's session reads them."""

    def __init__(self, split: Split, records: Records, source: FrameSource) -> None:
        super().__init__(split, records)
        self._reader = source
        self._columns: Schema | None = None
        self.rows: FrameRows | None = None
        self._row_bytes = 0

    def _pairs(self, begun: int) -> Iterator[Pair]:
        if self.rows is None:
            frame = self._reader.frame(self._stretch, SPARK.session())
            self.rows = FrameRows(frame.toArrow().to_batches())
        return _behind(self._reader.read(self._stretch, self._seen(self.rows)), begun)

    def _seen(self, rows: FrameRows) -> Iterator[RecordBatch]:
        for batch in rows:
            if self._columns is None:
                self._columns = self._reader.schema(batch)
            self._row_bytes = rows_weight(batch)
            yield batch

    def _weigh(self, record: Record) -> int:
        """Its share of the batch that Spark brought: that takes no look at each value."""
        return self._row_bytes * (len(record) if isinstance(record, ArrowRows) else 1)

    def _schema(self) -> Schema | None:
        return self._columns


def _behind(pairs: Iterator[Pair], records: int) -> Iterator[Pair]:
    """What comes behind the first `records` of them, and behind what was lost before those."""
    for record, position in pairs:
        if isinstance(record, ArrowRows):
            if records < len(record):
                yield record[records:], position[records:]
            records = max(0, records - len(record))
        elif records:
            records -= type(record) is not LostRecords
        else:
            yield record, position


class FramePartitions(RecordPartitions):
    """Records that Spark reads: a job for each stretch, and first of all the database, or whatever it is, takes its time."""

    most_per_batch = 1
    least_seconds = WHOLE_SECONDS


def frame_source_kind(
    options: type[PolledOptions],
    source: Callable[[Any], FrameSource],
    *,
    probe: Callable[[Any, RunsAs], Iterable[Probed]] | None = None,
    sample: str = "",
    told: Callable[[BaseException], CopycatError | None] | None = None,
) -> SourceKind:
    """What `source`, a class or function that makes one of its options, is in `SOURCES`. See `source_kind`.

    `told(error)`: what the source says of an error that pyspark or py4j raised, in words that hold no data; None: it is none of its own.
    """

    def make(connector: str, chosen: PolledOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
        made = cast("Any", source(chosen))
        return ContractSource(connector, chosen, delivery, offsets, log, made, FramePartitions(made, delivery.max_batch_bytes))

    def framing(chosen: PolledOptions, *, raw: bool) -> RecordFormat:
        del raw  # there are no bytes as they stand in a file
        records = Records(cast("Any", source(chosen)), f"source {chosen.type}")
        records.threads = ReadThreads(silent_seconds=WHOLE_SECONDS)
        return cast("RecordFormat", records)

    def opened(split: Split, records: Records) -> Stream:
        return cast("Stream", FrameStream(split, records, cast("Any", records.source)))

    def frame(chosen: PolledOptions, stretch: Stretch, session: SparkSession) -> DataFrame:
        return source(chosen).frame(stretch, session)

    return SourceKind(options, make, opened, framing, probe=probe, sample=sample, frame=frame, told=told)


def fields_of_rows(batch: RecordBatch) -> list[dict[str, Any]]:
    """Rows as fields, see `ArrowRows.fields`."""
    return ArrowRows(batch).fields


def schema_of_rows(batch: RecordBatch) -> Schema:
    """Their columns, with the types of Spark SQL."""
    from copycat_agent.formats.records.schemas import arrow_columns  # noqa: PLC0415 - as above

    return Schema(arrow_columns(batch.schema))
