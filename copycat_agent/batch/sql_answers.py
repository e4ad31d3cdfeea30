"""The questions and answers of a query about the records of a batch."""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from typing import Any, Protocol

import pyarrow as pa

from copycat_agent.batch.progress import Progress
from copycat_agent.batch.sql_table import FAILED, RECORD, Table
from copycat_agent.encoding.encoder import StageError
from copycat_agent.errors import CopycatError, DataError
from copycat_agent.formats import Chunk, Frame, LongLine, Parsed, Part
from copycat_agent.model import SourcePartition
from copycat_agent.transforms.sql import SqlStep

NOT_ASKED = -1
"""The number in the query of a record that does not come to it."""
UNNAMED = "one of its functions"
"""The place at which a query failed, where nobody knows more."""

MOST_ROWS = 100_000
"""A record of which a query makes more is a bad one."""

RESULT_BYTES = 2**26
"""Bytes of a query's result that one batch keeps. The next batch asks again for what is beyond that."""

_WHOLE = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


class QueryChannel(Protocol):
    """The way through Spark, for one batch. `condemned`: not asked; every record is bad for this reason. `why`: what a failure means."""

    condemned: str
    why: str

    def put(self, batch: pa.RecordBatch) -> None:
        """Rows of the table, in order. Raises RetriableError when Spark is gone."""

    def results(self) -> Iterable[pa.RecordBatch]:
        """No rows follow: what the query makes of them, see `sql_rows.Results`. Raises RetriableError."""


class Answers:
    """Asks the query about records of a batch, and says what it made of each, and what to do where it failed.

    `least`: of so many of its first rows each is answered, be it as a bad record, so that every batch gets ahead.
    """

    def __init__(self, step: SqlStep, query: QueryChannel) -> None:
        self.step = step
        self.bad: dict[int, DataError] = {}
        self.results: Results | None = None
        self.total = 0
        self.least = 1
        self.query = query
        self._table = Table(step.columns or ())
        self._by_split: dict[SourcePartition, Asked] = {}

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
        """No more is asked: wait for what the query makes of it."""
        self.results = Results(self.query.results())

    def asked(self, progress: Progress) -> Asked:
        """Returns what is known of a split's records, by their numbers."""
        return self._by_split.setdefault(progress.split.partition, Asked())

    def error(self, record: int) -> DataError | None:
        """Returns why it is a bad one, None when it is not."""
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
        """Returns the fields that the query made of neighbours, given by their numbers in it; None for one that it dropped, or never saw.

        True for one that has to be looked at by itself. None when all have to be.
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

    def answered(self, progress: Progress, frame: Frame, number: int) -> tuple[Frame | None, bool]:
        """The part of the frame whose answers were kept, and whether that is all of it. A record that alone is too much is a bad one.

        `number` is that of the frame's first record.
        """
        assert self.results is not None
        limit = None if self.results.end is None else max(self.least, self.results.end)
        if limit is None or limit >= self.total:
            return frame, True
        if isinstance(frame, Part):
            asked = self.asked(progress)
            is_answered = max(asked.record(number), asked.firsts.get(frame.first[0], NOT_ASKED)) < limit
            return (frame if is_answered else None), is_answered
        if not isinstance(frame, Chunk | Parsed | LongLine):
            return frame, True
        at = self.asked(progress).number(limit)
        if at is None or not number <= at < number + (1 if isinstance(frame, LongLine) else frame.total):
            return frame, True
        return (frame.cut(at - number)[0] if at > number and not isinstance(frame, LongLine) else None), False


class Asked:
    """Knows the records of a split by their numbers: which number each has in the query, and what happened to it before.

    `special`: why a record is a bad one, or what a step that came from outside raised, or, of one that a step dropped though it failed,
    the words for that. `times` are event times, `troubles` what `on_error: keep` let pass. `firsts`: of records in parts, by where they
    begin, the number in the query of their first part.
    """

    def __init__(self) -> None:
        self.special: dict[int, StageError | CopycatError | str] = {}
        self.times: dict[int, int] = {}
        self.troubles: dict[int, str] = {}
        self.firsts: dict[int, int] = {}
        self._first = 0
        self._records: list[int] = []

    def record(self, number: int) -> int:
        """The record's number in the query, NOT_ASKED when it does not come to it."""
        index = number - self._first
        return self._records[index] if 0 <= index < len(self._records) else NOT_ASKED

    def records(self, number: int, total: int) -> list[int]:
        """Returns the numbers in the query of `total` records from this one on."""
        index = number - self._first
        return self._records[index : index + total]

    def number(self, record: int) -> int | None:
        """The other way round; None for a record of another split."""
        try:
            return self._first + self._records.index(record)
        except ValueError:
            return None

    def enter(self, number: int, records: Iterable[int]) -> None:
        """The numbers in the query of the records from `number` on."""
        self._first = self._first or number
        self._records += [NOT_ASKED] * (number - self._first - len(self._records))
        self._records += records


class Results:
    """Holds what a query made of records, by their numbers, as Arrow. Fields are made when they are asked for, quickest in order."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Reads `batches` to their end, in which the rows of a record stand together and records in their order.

        `end` is the first record of which not all rows were kept: there was no room for it. None when there was for all.
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
        """Returns where the query fails for this record, "" where it does not."""
        return self.failures.get(record, "")

    def count(self, record: int) -> int:
        """Returns how many rows the query made of this record."""
        begin, end = self._place(record, record + 1)
        return end - begin

    def rows(self, record: int) -> list[dict[str, Any]]:
        """The fields of each row that the query made of this record, the caller's to change; none when it dropped it."""
        begin, end = self._place(record, record + 1)
        if begin == end:
            return []
        if record <= self._asked:
            self._read = -1  # they may have been changed
        self._asked = record
        return [self._fields(one) for one in range(begin, end)]

    def between(self, first: int, end: int) -> tuple[dict[int, Any], set[int]]:
        """Returns the fields of the records from `first` up to, not including, `end`, and those of which the query made several rows."""
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
        """The rows from one place to another."""
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
    """The rows as fields, without the columns that are ours."""
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
    return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]


def failure(where: str, why: str) -> str:
    """Words for a record that a query fails for: `where` as in the column `FAILED`, `why` as in `QueryChannel`."""
    place = where if where in ("WHERE", UNNAMED) or where.endswith("(...)") else f"column {where!r}"
    return f"the query fails for this record at {place}: {why}"
