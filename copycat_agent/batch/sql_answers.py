"""Sends the records of a batch to its query, and holds the query's results."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import Any, Protocol

import pyarrow as pa

from copycat_agent.batch.progress import SplitProgress
from copycat_agent.batch.sql_table import FAILED, RECORD, Table
from copycat_agent.encoding.encoder import StageError
from copycat_agent.errors import CopycatError, DataError
from copycat_agent.formats import Chunk, Frame, LongLine, Parsed, RecordPart
from copycat_agent.formats.records import parquet_values
from copycat_agent.model import SourcePartition
from copycat_agent.transforms.sql import SqlStep

NOT_ASKED = -1
"""The query number of a record that is not sent to the query."""
UNNAMED = "one of its functions"
"""The place of a query's failure, if it is not known more exactly."""

MOST_ROWS = 100_000
"""A record for which a query makes more rows is a bad one."""

RESULT_BYTES = 2**26
"""Bytes of a query's result that one batch keeps. The next batch queries the rest again."""

_MOST_REASONS = 1000
"""The most reasons of bad records that the records of a split share."""

_WHOLE = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


class QueryChannel(Protocol):
    """The channel through Spark, for one batch. `condemned`: not used; every record is bad for this reason. `why`: what a failure means."""

    condemned: str
    why: str

    def put(self, batch: pa.RecordBatch) -> None:
        """Sends rows of the table, in order. Raises RetriableError when Spark is gone."""

    def results(self) -> Iterable[pa.RecordBatch]:
        """Returns the query's results, after the last rows (`QueryResults`). Raises RetriableError."""


class QuerySender:
    """Sends records of a batch to the query, and tells the result of each, and what to do if the query failed.

    `least`: at least this many of its first rows are answered, even if as bad records, so that every batch makes progress.
    """

    def __init__(self, step: SqlStep, query: QueryChannel) -> None:
        self.step = step
        self.bad: dict[int, DataError] = {}
        self.results: QueryResults | None = None
        self.total = 0
        self.least = 1
        self.query = query
        self._table = Table(step.columns or ())
        self._by_split: dict[SourcePartition, QueriedRecords] = {}

    def ask(self, fields: list[dict[str, Any]]) -> int:
        """Sends rows to the query. Returns how many."""
        first = self.total
        self.total += len(fields)
        if fields and not self.query.condemned:
            batch, bad = self._table.batch(fields, range(first, self.total))
            self.bad |= bad
            self.query.put(batch)
        return len(fields)

    def come(self) -> None:
        """Waits for the query's results; no more rows are sent."""
        self.results = QueryResults(self.query.results())

    def asked(self, progress: SplitProgress) -> QueriedRecords:
        """Returns what is known of a split's records, by their numbers."""
        return self._by_split.setdefault(progress.split.partition, QueriedRecords())

    def error(self, record: int) -> DataError | None:
        """Returns why a record is a bad one, None when it is not."""
        assert self.results is not None
        if self.query.condemned:
            return DataError(self.query.condemned)
        if record in self.bad:
            return self.bad[record]
        if where := self.results.failed(record):
            return DataError(failure(where, self.query.why))
        if record == self.results.end or self.results.count(record) > MOST_ROWS:
            return DataError(f"the query makes more of this record than {MOST_ROWS} rows or 64 MiB")
        return None

    def among(self, records: list[int]) -> list[dict[str, Any] | bool | None] | None:
        """Returns the query's fields of consecutive records, by their query numbers; None for one that it dropped, or that was not sent.

        True for a record that has to be handled by itself. None when all have to be.
        """
        assert self.results is not None
        if self.query.condemned or self.results.end is not None:
            return None
        asked = [record for record in records if record >= 0]
        if not asked:
            return [None] * len(records)
        made, several = self.results.between(asked[0], asked[-1] + 1)
        made |= dict.fromkeys(several, True)
        if self.bad or self.results.failures:
            made |= {record: True for record in asked if record in self.bad or self.results.failed(record)}
        return list(map(made.get, records))

    def answered(self, progress: SplitProgress, frame: Frame, number: int) -> tuple[Frame | None, bool]:
        """Returns the part of the frame whose results were kept, and whether that is all of it.

        A record that alone is too large is a bad one.

        `number` is that of the frame's first record.
        """
        assert self.results is not None
        limit = None if self.results.end is None else max(self.least, self.results.end)
        if limit is None or limit >= self.total:
            return frame, True
        if isinstance(frame, RecordPart):
            asked = self.asked(progress)
            is_answered = max(asked.record(number), asked.firsts.get(frame.first[0], NOT_ASKED)) < limit
            return (frame if is_answered else None), is_answered
        if not isinstance(frame, Chunk | Parsed | LongLine):
            return frame, True
        at = self.asked(progress).number(limit)
        if at is None or not number <= at < number + (1 if isinstance(frame, LongLine) else frame.total):
            return frame, True
        return (frame.cut(at - number)[0] if at > number and not isinstance(frame, LongLine) else None), False


class QueriedRecords:
    """The records of a split by their numbers: their query numbers, and what happened to them before the query.

    `special`: why a record is bad, or the external error of a step, or, for one that a failed step dropped, the message. `times` are event
    times, `troubles` are the failures that `on_error: keep` let pass. `firsts`: for records in parts, by where they begin, the query number
    of their first part.
    """

    def __init__(self) -> None:
        self.special: dict[int, StageError | CopycatError | str] = {}
        self.times: dict[int, int] = {}
        self.troubles: dict[int, str] = {}
        self.firsts: dict[int, int] = {}
        self._first = 0
        self._records: list[int] = []
        self._reasons: dict[tuple[str, type[CopycatError], str], StageError | CopycatError] = {}

    def bad(self, number: int, stage: str, error: CopycatError) -> None:
        """Notes why a record is bad. Equal reasons are one object: an error takes up to 2 kB, and a batch may have a million of them."""
        key = (stage, type(error), str(error))
        reason = self._reasons.get(key)
        if reason is None:
            reason = StageError(stage, error) if isinstance(error, DataError) else error
            if len(self._reasons) < _MOST_REASONS:
                self._reasons[key] = reason
        error.__traceback__ = None  # it would keep the frames
        self.special[number] = reason

    def record(self, number: int) -> int:
        """Returns the record's query number, NOT_ASKED when it is not sent to the query."""
        index = number - self._first
        return self._records[index] if 0 <= index < len(self._records) else NOT_ASKED

    def records(self, number: int, total: int) -> list[int]:
        """Returns the query numbers of `total` records from this one on."""
        index = number - self._first
        return self._records[index : index + total]

    def number(self, record: int) -> int | None:
        """Returns the number of a record by its query number; None for a record of another split."""
        try:
            return self._first + self._records.index(record)
        except ValueError:
            return None

    def enter(self, number: int, records: Iterable[int]) -> None:
        """Adds the query numbers of the records from `number` on."""
        self._first = self._first or number
        self._records += [NOT_ASKED] * (number - self._first - len(self._records))
        self._records += records


class QueryResults:
    """Holds a query's results by query number, as Arrow. Fields are made on demand, fastest in order."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Reads `batches` to their end; rows of a record are adjacent, and records in order.

        `end` is the first record of which not all rows were kept, for lack of room. None when all were kept.
        """
        self.failures: dict[int, str] = {}
        self.end: int | None = None
        self._batches: list[pa.RecordBatch] = []
        self._firsts: list[int] = []  # of each batch, the place of its first row
        self._records = array("q")  # of each row
        self._size_bytes = 0
        for batch in batches:
            if batch.num_rows:
                self._keep(batch)
        self._read = self._asked = -1
        self._rows: list[dict[str, Any]] = []

    def failed(self, record: int) -> str:
        """Returns where the query fails for this record, "" if it does not."""
        return self.failures.get(record, "")

    def count(self, record: int) -> int:
        """Returns how many rows the query made of this record."""
        begin, end = self._place(record, record + 1)
        return end - begin

    def rows(self, record: int) -> list[dict[str, Any]]:
        """Returns the fields of each row that the query made of this record, which the caller may change; none if it dropped the record."""
        begin, end = self._place(record, record + 1)
        if begin == end:
            return []
        if record <= self._asked:
            self._read = -1  # they may have been changed
        self._asked = record
        return [self._fields(one) for one in range(begin, end)]

    def between(self, first: int, end: int) -> tuple[dict[int, Any], set[int]]:
        """Returns the fields of the records from `first` up to, not including, `end`, and the records with several rows."""
        place, last = self._place(first, end)
        records = self._records[place:last]
        made: dict[int, Any] = dict(zip(records, chain.from_iterable(map(fields_of, self._slices(place, last))), strict=True))
        if len(made) == len(records):
            return made, set()
        return made, {one for one, following in pairwise(records) if one == following}

    def _place(self, first: int, end: int) -> tuple[int, int]:
        place = bisect.bisect_left(self._records, first)
        return place, bisect.bisect_left(self._records, end, place)

    def _slices(self, place: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows from one place to another."""
        index = bisect.bisect_right(self._firsts, place) - 1
        while place < end:
            batch, begin = self._batches[index], place - self._firsts[index]
            yield (piece := batch.slice(begin, min(batch.num_rows, end - self._firsts[index]) - begin))
            place += piece.num_rows
            index += 1

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self.end is not None:
            return
        records = batch.column(RECORD).to_numpy()
        self._size_bytes += batch.nbytes
        if self._size_bytes > RESULT_BYTES:
            self.end = int(records[0])  # it may have begun in the batch before
            return
        last = self._records[-1] if self._records else -1
        assert int(records[0]) >= last, "a query keeps the order of records"
        assert bool((records[1:] >= records[:-1]).all()), "a query keeps the order of records"
        self._firsts.append(len(self._records))
        self._records.frombytes(records.tobytes())
        self._batches.append(batch)
        if FAILED in batch.schema.names and batch.column(FAILED).null_count < len(records):
            where = batch.column(FAILED).to_pylist()
            self.failures |= {int(record): one for record, one in zip(records, where, strict=True) if one is not None}

    def _fields(self, place: int) -> dict[str, Any]:
        read = self._read
        if read < 0 or not 0 <= place - self._firsts[read] < len(self._rows):
            read = self._read = bisect.bisect_right(self._firsts, place) - 1
            self._rows = fields_of(self._batches[read])
        return self._rows[place - self._firsts[read]]


def fields_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns the rows as fields, without our own columns."""
    names = [name for name in batch.schema.names if name not in (RECORD, FAILED)]
    columns = [_values(batch.column(name)) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if names else [{} for _ in range(batch.num_rows)]


def _is_flat(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or any(is_it(kind) for is_it in _WHOLE)


def _lists(column: pa.Array) -> list[Any]:
    flat, sizes = iter(_values(column.flatten())), column.value_lengths().to_pylist()
    return [None if size is None else list(islice(flat, size)) for size in sizes]


def _values(column: pa.Array) -> list[Any]:
    """Does what `to_pylist` does, several times as fast for texts, and for numbers without nulls."""
    if pa.types.is_string(column.type) or (not column.null_count and any(is_it(column.type) for is_it in _WHOLE)):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    if pa.types.is_list(column.type) and _is_flat(column.type.value_type):
        return _lists(column)
    try:
        return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
    except OverflowError:
        return parquet_values.values(column)  # times beyond the years that Python has become text


def failure(where: str, why: str) -> str:
    """Returns the message for a record for which a query fails: `where` as in the column `FAILED`, `why` as in `QueryChannel`."""
    place = where if where in ("WHERE", UNNAMED) or where.endswith("(...)") else f"column {where!r}"
    return f"the query fails for this record at {place}: {why}"
