"""Runs batches whose records Spark reads: a job reads the data frame, and its single task runs the batch with the rows."""

# ruff: noqa: SLF001 - Spark's frames and its context are reached through objects that pyspark keeps private

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from copycat_agent.batch.run import BatchRun
from copycat_agent.errors import RetriableError
from copycat_agent.sources.contract_frames import FrameRows
from copycat_agent.spark.batch_needs import makes_frames, told_by_source
from copycat_agent.spark.sql_task import Run, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from py4j.java_gateway import JavaObject
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

    from copycat_agent.model import Batch

ROWS_PER_BATCH, BYTES_PER_BATCH = 1000, 2**22
"""Limits of the rows that go to Python together. They are in memory on both sides, rows may have a megabyte each, and if a database is slow
the first row waits for the last."""

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.readSideCharPadding": "false",  # a CHAR stays as the database returns it
    "spark.sql.adaptive.enabled": "false",  # one task, whose rows keep their order
    "spark.sql.caseSensitive": "true",  # a table may have columns id and Id
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_PER_BATCH),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BYTES_PER_BATCH),
}


class FrameSessions:
    """The Spark SQL session for frames on the current SparkContext. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: SparkContext | None = None
        self._session: SparkSession | None = None

    def on(self, context: SparkContext) -> SparkSession:
        """Returns the session on this context. Takes seconds the first time in a JVM. Raises what py4j raises."""
        with self._lock:
            if self._session is None or self._context is not context:
                session = SparkSession(context).newSession()
                for name, value in _SETTINGS.items():
                    session.conf.set(name, value)
                self._context, self._session = context, session
            return self._session


SESSIONS = FrameSessions()


def deliver(
    run: Run,
    item: Any,  # noqa: ANN401 - what `run` takes
    names: Sequence[str],
    partition: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Runs a batch with the rows of a frame, in a task. Yields one row with the packed results."""
    results = run(item, functools.partial(BatchRun, rows=FrameRows(named(names, partition))))
    yield pa.RecordBatch.from_arrays([pa.array([results], pa.binary())], names=["results"])


def frame_of(session: SparkSession, batch: Batch) -> DataFrame:
    """Returns the data frame of a batch. Raises what the source raises, and RetriableError for Spark's errors, which may quote data."""
    makes = makes_frames(batch.definition)
    (split,) = batch.splits
    assert makes is not None, "only batches of such sources come here"
    assert split.stretch is not None, "as above"
    try:
        return makes(split.stretch, session)
    except PySparkException as error:
        if told := told_by_source(batch.definition, error):
            raise told from None
        words = f"Spark cannot read {split.path!r}: {type(error).__name__} {error.getCondition() or ''}".rstrip()
    raise RetriableError(words)


def numbered(frame: DataFrame) -> DataFrame:
    """Returns the frame for one task with numbered columns: `mapInArrow` looks columns up by name, and names may have dots or duplicates.

    `sql_task.named` restores the names.
    """
    return frame.coalesce(1).toDF(*map(str, range(len(frame.columns))))


def carry(frame: DataFrame, run: Run, item: Any) -> bytes:  # noqa: ANN401 - what `run` takes
    """Runs one job. Returns packed results. Raises what py4j raises if the job fails."""
    result = StructType([StructField("results", BinaryType())])
    made = numbered(frame).mapInArrow(functools.partial(deliver, run, item, frame.columns), result)
    rows: JavaObject = made._jdf.collectAsList()
    return bytes(rows.get(0).get(0))
