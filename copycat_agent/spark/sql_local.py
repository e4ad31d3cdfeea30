"""Checks queries, and tries them with given records, without a batch. For `check`, `try`, `test` and dry runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from copycat_agent.batch.sql_answers import UNNAMED, QueryResults, failure
from copycat_agent.batch.sql_run import SqlRun
from copycat_agent.batch.sql_table import FAILED, RECORD, Table
from copycat_agent.errors import DataError, FatalError
from copycat_agent.executor import run_batch
from copycat_agent.options import Definition, SparkOptions
from copycat_agent.sources.contract_frames import SPARK
from copycat_agent.spark import sql_words as words
from copycat_agent.spark.batch_needs import step_of
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.sql_jobs import PreparedQuery, SqlContext, SqlContexts
from copycat_agent.spark.sql_words import QueryFailedError
from copycat_agent.transforms import UNKNOWN_COLUMNS, UNKNOWN_COLUMNS_HINT, sql_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from copycat_agent.model import Batch, Results
    from copycat_agent.producer import ProducerPool
    from copycat_agent.transforms.sql import SqlStep

START_SECONDS = 120.0
"""Time limit of Spark's start."""


class LocalSql:
    """A Spark session for queries and records that Spark reads, started at the first use. A context manager. Thread-safe."""

    def __init__(self, run_dir: Path, options: SparkOptions | None = None, tell: Callable[[str], None] = lambda _: None) -> None:
        """`run_dir` is that of `SparkHost`; `tell` is called with a message before people have to wait."""
        self._run_dir = run_dir
        self._options = options or SparkOptions()
        self._tell = tell
        self._lock = threading.Lock()  # guards the host
        self._host: SparkHost | None = None
        self._sessions = SqlContexts()

    def query(self, definition: Definition) -> SqlQuery:
        """Returns the query of a definition, which must have one. Raises FatalError if it cannot be run, or Spark does not start."""
        step = sql_step(definition)
        assert step is not None, "only definitions with a query are asked for it"
        if step.columns is None:
            raise FatalError(f"{step.name}: {UNKNOWN_COLUMNS}", UNKNOWN_COLUMNS_HINT)
        session = self._session()
        return SqlQuery(session, session.prepared(step), step)

    def run(self, batch: Batch, producers: ProducerPool, stopping: Callable[[], bool]) -> Results:
        """As `run_batch`, in this process, for definitions with and without a query."""
        if step_of(batch.definition) is None:
            return run_batch(batch, producers, stopping)

        def make_run(batch: Batch, encoder: Any, producer: Any, stopping: Callable[[], bool]) -> SqlRun:  # noqa: ANN401 - see `MakeRun`
            return SqlRun(batch, encoder, producer, stopping, query=self.query(encoder.definition).batch())

        return run_batch(batch, producers, stopping, make_run=make_run)

    def close(self) -> None:
        """Ends Spark."""
        SPARK.withdraw(self._for_frames)
        if self._host is not None:
            self._host.close()

    def _session(self) -> SqlContext:
        with self._lock:
            if self._host is None:
                self._tell("starting Spark; this takes some seconds")
                self._host = SparkHost(self._options, self._run_dir, 1)
                self._host.start()
        return self._sessions.on(self._host.session(START_SECONDS).context)

    def _for_frames(self, seconds: float) -> SparkSession:
        """Starts the host, and returns the session that it offers. Raises as `SparkAccess.session` does."""
        self._session()
        SPARK.withdraw(self._for_frames)
        return SPARK.session(seconds)

    def __enter__(self) -> Self:
        SPARK.offer(self._for_frames)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SqlQuery:
    """A query that can be tried."""

    def __init__(self, session: SqlContext, prepared: PreparedQuery, step: SqlStep) -> None:
        self._session = session
        self._prepared = prepared
        self.step = step

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its result's columns."""
        return self._prepared.query.names

    def rows(self, records: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]] | DataError]:
        """Returns for each record its rows (none if it is dropped, several with LATERAL VIEW), or why it is a bad one."""
        asked = self.batch()
        batch, bad = Table(self.step.columns or ()).batch(records, range(len(records)))
        asked.put(batch)
        results = QueryResults(asked.results())
        failures = {one: DataError(failure(where, asked.why)) for one in range(len(records)) if (where := results.failed(one))}
        return [bad.get(one) or failures.get(one) or results.rows(one) for one in range(len(records))]

    def batch(self) -> LocalBatch:
        """Returns a `batch.sql_answers.Query` for one use."""
        return LocalBatch(self._session, self._prepared)


class LocalBatch:
    """A `batch.sql_answers.Query`."""

    condemned = ""

    def __init__(self, session: SqlContext, prepared: PreparedQuery) -> None:
        self.why = ""
        self._session = session
        self._prepared = prepared
        self._batches: list[pa.RecordBatch] = []

    def put(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def results(self) -> Iterable[pa.RecordBatch]:
        try:
            return self._session.evaluate(self._prepared, self._batches, careful=False)
        except QueryFailedError as failed:
            self.why = words.condition_words(failed.condition)
        return self._carefully(pa.Table.from_batches(self._batches, self._prepared.table))

    def _carefully(self, table: pa.Table) -> list[pa.RecordBatch]:
        """Evaluates in careful mode; if even that fails, finds the record by halving."""
        try:
            return self._session.evaluate(self._prepared, table.to_batches(), careful=True)
        except QueryFailedError:
            pass
        if table.num_rows == 1:
            return [pa.RecordBatch.from_arrays([table[RECORD].combine_chunks(), pa.array([UNNAMED])], names=[RECORD, FAILED])]
        half = table.num_rows // 2
        return [*self._carefully(table.slice(0, half)), *self._carefully(table.slice(half))]
