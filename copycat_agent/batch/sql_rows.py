"""Records as rows of the table `records`, and rows of the query's result as fields."""

from __future__ import annotations

import bisect
import contextlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Any

import pyarrow as pa

from copycat_agent.batch.sql_types import Read, arrow_type, column_error, reader
from copycat_agent.errors import DataError
from copycat_agent.transforms.base import Columns

RECORD = "__copycat_record"
"""The column that says which record a row comes from. Ours: a query cannot see it."""
FAILED = "__copycat_failed"
"""The column that says where a query fails for a record: a column's name, or WHERE; null where it does not. Not always there."""

RESULT_BYTES = 2**26
"""Of a query's result that one batch keeps. What is beyond that is asked for again with the next batch."""

_NOTHING = frozenset({type(None)})
_AT_ONCE: dict[str, frozenset[type]] = {
    "string": frozenset({str, type(None)}),
    "bigint": frozenset({int, type(None)}),
    "int": frozenset({int, type(None)}),
    "double": frozenset({float, int, type(None)}),
    "boolean": frozenset({bool, type(None)}),
}
"""Values that Arrow takes as they are meant, all of a column at once. It also takes 1 for a time, true for 1, and a text for a list."""

_WHOLE = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


class Table:
    """Makes Arrow batches of records. Stateless."""

    def __init__(self, columns: Columns) -> None:
        self._columns = [(column.name, column.type, arrow_type(column.type)) for column in columns]
        self.schema = pa.schema([*((name, kind) for name, _, kind in self._columns), (RECORD, pa.int64())])

    def batch(self, rows: Sequence[dict[str, Any]], records: Sequence[int]) -> tuple[pa.RecordBatch, dict[int, DataError]]:
        """The rows with their records' numbers; those that the table cannot hold are left out, by their number with the reason."""
        bad: dict[int, DataError] = {}
        arrays = []
        for name, spelt, kind in self._columns:
            values = _column(rows, name)
            array = None
            if _is_plain(values, spelt):
                with contextlib.suppress(pa.ArrowException, ValueError, OverflowError):
                    array = pa.array(values, kind)
            arrays.append(_one_by_one(name, spelt, values, records, bad) if array is None else array)
        batch = pa.RecordBatch.from_arrays([*arrays, pa.array(records, pa.int64())], schema=self.schema)
        if bad:
            batch = batch.filter(pa.array([record not in bad for record in records]))
        return batch, bad


def _column(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
    """A field of each row, None where it lacks."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _is_plain(values: list[Any], spelt: str) -> bool:
    """Whether Arrow takes these values as they are meant. Of lists, those of plain values; what lies deeper is looked at one by one."""
    if spelt.startswith("array<"):
        lists = [value for value in values if value is not None]
        return set(map(type, lists)) <= {list} and set(map(type, chain.from_iterable(lists))) <= _AT_ONCE.get(spelt[6:-1], _NOTHING)
    return set(map(type, values)) <= _AT_ONCE.get(spelt, _NOTHING)


def _one_by_one(name: str, type_: str, values: list[Any], records: Sequence[int], bad: dict[int, DataError]) -> pa.Array:
    read: Read = reader(type_)
    made: list[Any] = []
    for value, record in zip(values, records, strict=True):
        try:
            made.append(None if value is None else read(value))
        except ValueError as error:
            made.append(None)
            bad.setdefault(record, column_error(name, type_, error))
    return pa.array(made, arrow_type(type_))


class Results:
    """What a query made of records, by their numbers. Kept as Arrow; fields are made when they are asked for, quickest in order."""

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
        """Where the query fails for this record, "" where it does not."""
        return self.failures.get(record, "")

    def count(self, record: int) -> int:
        """How many rows it made of this record."""
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
        """Of the records from `first` up to, not including, `end`: the fields of those it made rows of, and of which it made several."""
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
    """As `to_pylist`, several times as fast for texts, and numbers without nulls."""
    if pa.types.is_string(column.type) or (not column.null_count and any(is_it(column.type) for is_it in _WHOLE)):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    if pa.types.is_list(column.type) and _is_flat(column.type.value_type):
        return _lists(column)
    return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
