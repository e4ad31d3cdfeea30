"""`FrameSource`, the task's part: a Spark job reads a stretch as a data frame, and the task that sends it gets the frame's rows."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.formats.records.schemas import arrow_columns
from copycat_agent.model import Schema, Split, Stretch
from copycat_agent.sources.base import Offsets, Source, SourceKind
from copycat_agent.sources.contract import FrameSource, LostRecords, PolledOptions, Probed, Record, RunsAs
from copycat_agent.sources.contract_partitions import RecordPartitions
from copycat_agent.sources.contract_source import ContractSource
from copycat_agent.sources.contract_stream import RecordStream, SourceFraming, too_large
from copycat_agent.sources.contract_threads import NAME_BYTES, WHOLE_SECONDS, Pair, ReadThreads, rows_weight

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

    from copycat_agent.formats import RecordFormat
    from copycat_agent.logs import Log
    from copycat_agent.options import DeliveryOptions
    from copycat_agent.sources.files.reading.stream import Stream

    Offer = Callable[[float], SparkSession]
    """Takes the seconds to wait at most, and returns the session. Raises RetriableError and FatalError."""

SESSION_SECONDS = 60.0
"""How long a source waits for the session by default."""


class SparkAccess:
    """Passes the Spark session of this process to sources. The owner of a session offers it here. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offers: list[Offer] = []

    def offer(self, session: Offer) -> None:
        """Registers a way to get the session, until `withdraw`. The newest one is used."""
        with self._lock:
            self._offers.append(session)

    def withdraw(self, session: Offer) -> None:
        """Removes an offer, if it is there."""
        with self._lock:
            self._offers = [one for one in self._offers if one != session]

    def session(self, seconds: float = SESSION_SECONDS) -> SparkSession:
        """Returns the session. Raises RetriableError while there is none, FatalError if there will be none."""
        with self._lock:
            offer = self._offers[-1] if self._offers else None
        if offer is None:
            raise RetriableError("no Spark session runs in this process")
        return offer(seconds)


SPARK = SparkAccess()


class FrameRows:
    """A frame's batches of rows. Batches that were read are kept, so that it can be iterated again. Thread-safe."""

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
    """A `stream.Stream` of a frame's rows. A Spark job sets `rows`; without one, this process's own session reads the frame."""

    def __init__(self, split: Split, records: SourceFraming, source: FrameSource) -> None:
        super().__init__(split, records)
        self._reader = source
        self._columns: Schema | None = None
        self.rows: FrameRows | None = None
        self._row_bytes = 0

    def _pairs(self, begun: int) -> Iterator[Pair]:
        if self.rows is None:
            frame = bounded(self._reader.frame(self._stretch, SPARK.session()), self._stretch)
            self.rows = FrameRows(frame.toArrow().to_batches())
        return _behind(self._reader.read(self._stretch, self._seen(self.rows)), begun)

    def _seen(self, rows: FrameRows) -> Iterator[RecordBatch]:
        most, seen = most_rows(self._stretch), 0
        for batch in rows:
            if self._columns is None:
                self._columns = self._reader.schema(batch)
            self._row_bytes = rows_weight(batch)
            seen += batch.num_rows
            if most is not None and seen > most:
                raise FatalError(*too_large(self._stretch))
            yield batch

    def _weigh(self, record: Record) -> int:
        """Returns its share of the batch's size, without checking each value."""
        return self._row_bytes * (len(record) if isinstance(record, ArrowRows) else 1)

    def _schema(self) -> Schema | None:
        return self._columns


def most_rows(stretch: Stretch) -> int | None:
    """Returns how many rows a stretch that must be sent whole may have, each with at least `NAME_BYTES`; None if there is no limit."""
    return stretch.most_bytes // NAME_BYTES if stretch.whole and stretch.most_bytes else None


def bounded(frame: DataFrame, stretch: Stretch) -> DataFrame:
    """Returns the frame up to the first row that exceeds the stretch's limit, as one partition.

    Spark goes on reading a frame that its task has given up, for as long as there are rows: it may never see the task's answer.
    """
    most = most_rows(stretch)
    return frame if most is None else frame.coalesce(1).limit(most + 1)


def _behind(pairs: Iterator[Pair], records: int) -> Iterator[Pair]:
    """Yields the pairs after the first `records` records; lost records are not counted."""
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
    """Partitions that Spark reads, one job per stretch. A batch may take long: the database may answer late."""

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
    """Returns an entry of `SOURCES` for a `FrameSource`; the parameters are those of `source_kind`.

    `told(error)` translates an exception of pyspark or py4j into an error without data, or returns None if it does not know the exception.
    """

    def make(connector: str, chosen: PolledOptions, delivery: DeliveryOptions, offsets: Offsets, log: Log) -> Source:
        made = cast("Any", source(chosen))
        return ContractSource(connector, chosen, delivery, offsets, log, made, FramePartitions(made, delivery.max_batch_bytes))

    def framing(chosen: PolledOptions, *, raw: bool) -> RecordFormat:
        del raw  # there are no bytes of a file
        records = SourceFraming(cast("Any", source(chosen)), f"source {chosen.type}")
        records.threads = ReadThreads(silent_seconds=WHOLE_SECONDS)
        return cast("RecordFormat", records)

    def opened(split: Split, records: SourceFraming) -> Stream:
        return cast("Stream", FrameStream(split, records, cast("Any", records.source)))

    def frame(chosen: PolledOptions, stretch: Stretch, session: SparkSession) -> DataFrame:
        return bounded(source(chosen).frame(stretch, session), stretch)

    return SourceKind(options, make, opened, framing, probe=probe, sample=sample, frame=frame, told=told)


def fields_of_rows(batch: RecordBatch) -> list[dict[str, Any]]:
    """Returns each row's fields, like `ArrowRows.fields`."""
    return ArrowRows(batch).fields


def schema_of_rows(batch: RecordBatch) -> Schema:
    """Returns the columns of these rows, with the types of Spark SQL."""
    return Schema(arrow_columns(batch.schema))
