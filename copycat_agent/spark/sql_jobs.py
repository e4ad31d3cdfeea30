"""Runs batches with a query as Spark jobs of one task, and finds the records for which a query fails."""

# ruff: noqa: SLF001 - Spark's plans are reached through the JVM's objects, which pyspark keeps private

from __future__ import annotations

import functools
import logging
import pickle
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from copycat_agent import logs
from copycat_agent.batch.sql_table import Table
from copycat_agent.spark import sql_words as words
from copycat_agent.spark.batch_needs import makes_frames
from copycat_agent.spark.frame_jobs import SESSIONS, frame_of, numbered
from copycat_agent.spark.session import words_of
from copycat_agent.spark.sql_plan import Query, RefusedQueryError, prepare
from copycat_agent.spark.sql_task import SqlBatchMessage, back, feed, front, front_of_rows
from copycat_agent.spark.sql_words import QueryFailedError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from copycat_agent.model import Batch, TaskId
    from copycat_agent.transforms.sql import SqlStep

CAREFUL_SECONDS = 600.0
"""For this long after a failure a query is run in careful mode, which marks the records it fails for, and costs more."""

_MOST_RECORDS = 2**17
"""About the records of a batch. The search for a record that fails even in careful mode begins with this number."""

_DEFAULTS = {"spark.sql.session.timeZone": "UTC"}
"""Settings that `spark.conf` of agent.yaml may change."""
_FIXED = {
    "spark.sql.adaptive.enabled": "false",  # one task, whose rows keep their order
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}

_log = logs.get("spark")


@dataclass
class PreparedQuery:
    """A query in one session, and what is known of its failures.

    It is run in careful mode until `careful_until` (`time.monotonic()`), because of `condition`. `among` says, by task, among how many of
    the next records there is one for which the query fails even in careful mode.
    """

    query: Query
    table: pa.Schema
    result: StructType
    careful_until: float = 0.0
    condition: str = ""
    among: dict[TaskId, int] = field(default_factory=dict)


Job = Callable[["Batch", PreparedQuery, str, str, bool], bytes]
"""`job(batch, prepared, condemned, why, careful)` runs a batch once. Raises QueryFailedError, and what `SqlContext.run` raises."""


class SqlContext:
    """SQL on a running SparkContext, created for the first query, since most agents have none. Thread-safe."""

    def __init__(self, context: SparkContext) -> None:
        """Takes seconds the first time in a JVM."""
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)  # it quotes records
        self.context = context
        self._plain = SparkSession(context)
        given = context.getConf()
        for name, value in _FIXED.items() | {(name, value) for name, value in _DEFAULTS.items() if not given.contains(name)}:
            self._plain.conf.set(name, value)
        self._careful = self._plain.newSession()
        for name in (*_FIXED, *_DEFAULTS):
            self._careful.conf.set(name, self._plain.conf.get(name) or "")
        self._careful.conf.set("spark.sql.subexpressionElimination.enabled", "false")  # it would evaluate expressions outside `TryEval`
        self._lock = threading.Lock()
        self._prepared: dict[tuple[Any, ...], PreparedQuery | RefusedQueryError] = {}

    def prepared(self, step: SqlStep) -> PreparedQuery:
        """Returns the prepared query of a step, which is analysed once. Raises RefusedQueryError."""
        key = (step.options.sql.query, step.columns)
        with self._lock:
            found = self._prepared.get(key)
            if found is None:
                assert step.columns is not None
                schema = Table(step.columns).schema
                try:
                    found = PreparedQuery(prepare(self._plain, step.options.sql.query, step.columns), schema, from_arrow_schema(schema))
                except RefusedQueryError as error:
                    found = RefusedQueryError(f"{step.name}: {error.message}", error.hint)
                self._prepared[key] = found
        if isinstance(found, RefusedQueryError):
            raise found
        return found

    def run(
        self, prepared: PreparedQuery, message: SqlBatchMessage, meeting: str, *, careful: bool, frame: DataFrame | None = None
    ) -> bytes:
        """Runs one job; `frame` has the records if Spark reads them. Returns packed results.

        Raises QueryFailedError, and what py4j raises if the job fails otherwise.
        """
        data, result = pickle.dumps(message, pickle.HIGHEST_PROTOCOL), StructType([StructField("results", BinaryType())])
        if frame is None:
            source, to_query = self._one_row(data, careful=careful), functools.partial(front, meeting)
        else:
            source, to_query = numbered(frame), functools.partial(front_of_rows, meeting, data, frame.columns)
        answered = self._over(prepared, source, to_query, careful=careful)
        job = answered.mapInArrow(functools.partial(back, meeting, prepared.table), result)
        return bytes(_evaluated(job._jdf.collectAsList).get(0).get(0))

    def evaluate(self, prepared: PreparedQuery, batches: list[pa.RecordBatch], *, careful: bool) -> list[pa.RecordBatch]:
        """Returns the query's result over these rows, without a batch, for commands that try a query. Raises as `run` does."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, prepared.table) as writer:
            for batch in batches:
                writer.write_batch(batch)
        frame = self._over(prepared, self._one_row(sink.getvalue().to_pybytes(), careful=careful), feed, careful=careful)
        found: pa.Table = _evaluated(frame.toArrow)
        return list(found.to_batches())

    def _over(self, prepared: PreparedQuery, source: DataFrame, front: Callable[..., Any], *, careful: bool) -> DataFrame:
        session = self._careful if careful else self._plain
        table = source.mapInArrow(front, prepared.result)
        plan = prepared.query.over(table._jdf.queryExecution().analyzed(), careful=careful)
        assert session._jvm is not None
        return DataFrame(session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)

    def _one_row(self, data: bytes, *, careful: bool) -> DataFrame:
        """Returns a table of one row with these bytes, which go through the JVM's memory, as in `session.run_task`."""
        session = self._careful if careful else self._plain
        assert session._jvm is not None
        partition = self.context._jsc.parallelize([data], 1)
        encoder = session._jvm.org.apache.spark.sql.Encoders.BINARY()
        return DataFrame(session._jsparkSession.createDataset(partition.rdd(), encoder), session)


def _evaluated(action: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the action returns
    """Returns a query's result. Raises QueryFailedError if the query fails for a record, else what pyspark and py4j raise."""
    try:
        return action()
    except PySparkException as error:
        condition = words.condition_of(str(error))
        if not condition:
            raise
    except Exception as error:
        condition = words.condition_of(words_of(error))
        if not condition:
            raise
    raise QueryFailedError(condition)  # outside the except clause, because the cause may contain data


def carry(sql: SqlContext, batch: Batch, step: SqlStep, job: Job) -> bytes:
    """Runs a batch, as often as needed to find records for which the query fails; they become bad records.

    A query that fails is run again in careful mode, which marks such records. If it still fails, smaller batches are tried, down to the one
    record. Raises what `SqlContext.run` raises otherwise.
    """
    prepared = sql.prepared(step)
    if batch.task in prepared.among:
        return _search(batch, prepared, prepared.condition, job)
    careful = time.monotonic() < prepared.careful_until
    try:
        return job(batch, prepared, "", words.condition_words(prepared.condition), careful)
    except QueryFailedError as failed:
        condition = failed.condition
    if not careful:
        prepared.condition, prepared.careful_until = condition, time.monotonic() + CAREFUL_SECONDS
        _log.info("a query fails for a record, which is looked for", connector=batch.task.connector, why=words.condition_words(condition))
        try:
            return job(batch, prepared, "", words.condition_words(condition), True)
        except QueryFailedError as failed:
            condition = failed.condition
    prepared.among[batch.task] = _MOST_RECORDS
    return _search(batch, prepared, condition, job)


def _search(batch: Batch, prepared: PreparedQuery, condition: str, job: Job) -> bytes:
    """Runs the beginning of the batch, up to where the query does not fail, or only the one record for which it fails.

    `prepared.among` says among how many of the next records that one is. The search halves this number, over several batches.
    """
    why, among = words.condition_words(condition), prepared.among
    while True:
        records = max(1, among[batch.task] // 2)
        try:
            results = job(replace(batch, max_records=records), prepared, "", why, True)
        except QueryFailedError as failed:
            why = words.condition_words(failed.condition)
            among[batch.task] = records
            if records > 1:
                continue
            del among[batch.task]
            return job(replace(batch, max_records=1), prepared, f"the query fails for this record: {why}", "", True)
        among[batch.task] -= records
        if among[batch.task] <= 0:
            del among[batch.task]
        return results


class SqlContexts:
    """The SQL session on the current SparkContext, a new one after each restart of the JVM. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: SqlContext | None = None

    def on(self, context: SparkContext) -> SqlContext:
        """Returns the session on this context. Raises what py4j raises."""
        with self._lock:
            if self._session is None or self._session.context is not context:
                self._session = SqlContext(context)
            return self._session


def frame_for(context: SparkContext, batch: Batch) -> DataFrame | None:
    """Returns the data frame of a batch; None if its source reads by itself. Raises what `frame_of` raises."""
    return None if makes_frames(batch.definition) is None else frame_of(SESSIONS.on(context), batch)


def socket_name(directory: str) -> str:
    """Returns a name for the socket of `sql_task.front`, in a private directory; with "" in one that the executor makes."""
    word = secrets.token_hex(8)
    return f"{directory}/q{word}" if directory else word
