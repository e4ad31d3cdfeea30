"""Writes rows of Arrow columns as JSON, column by column: the same bytes as `plain.dump`, in a sixth of the time. Door to numpy.

Each column becomes a column of JSON texts, and one call joins those of all columns. Columns of other types, and the few texts with a
character that JSON escapes, are written value by value as `dump` does. Tests compare both ways over random columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from copycat_agent.converters.plain import dump
from copycat_agent.errors import DataError
from copycat_agent.formats.records.parquet_values import values

_MICROS_FIRST, _MICROS_LAST = -62_135_596_800_000_000, 253_402_207_199_999_999
"""First and last microsecond that orjson writes from numpy: the begin of year 1, and the end of the 30th of December 9999."""
_DAYS_FIRST, _DAYS_LAST = -719_162, 2_932_896
"""First and last day of the years 1 to 9999; a column with other dates is written one by one."""
_SMALLEST_ESCAPED, _QUOTE, _BACKSLASH, _COMMA = 32, ord('"'), ord("\\"), ord(",")
_ASCII_END = 128
_FEW = 8
"""Texts with escaped characters are few if they are less than one in `_FEW`."""


class _Texts(NamedTuple):
    """A column as JSON, without nulls. `is_bare`: the texts lack the quotes around them."""

    column: pa.Array
    is_bare: bool = False


def rows_as_json(batch: pa.RecordBatch) -> list[bytes] | None:
    """Returns each row as a JSON object. None without rows, and if they have to be converted one by one."""
    names = batch.schema.names
    if not names or not batch.num_rows or len(set(names)) < len(names):
        return None
    parts: list[pa.Array | str] = []
    before = "{"
    try:
        for name, column in zip(names, batch.columns, strict=True):
            made = _texts_of(column)
            quote = '"' if made.is_bare else ""
            parts += [f"{before}{dump(name).decode()}:{quote}", made.column]
            before = f"{quote},"
        joined = pc.binary_join_element_wise(*parts, f"{before[:-1]}}}", "")
        return list(joined.cast(pa.binary()).to_pylist())
    except (pa.ArrowException, DataError, ValueError, TypeError, OverflowError):  # orjson raises TypeError
        return None  # converting the rows one by one finds the error


def _texts_of(column: pa.Array) -> _Texts:
    """Returns a column as JSON texts. Raises what `rows_as_json` catches."""
    type_ = column.type
    if pa.types.is_string(type_):
        return _of_strings(column)
    made = _WRITERS.get(type_.id, _one_by_one)(column)
    return _Texts(pc.if_else(column.is_valid(), made, "null") if column.null_count else made)


def _of_strings(column: pa.StringArray) -> _Texts:
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    if data.size and data.max() >= _ASCII_END:
        column.validate(full=True)
    escaped = np.flatnonzero((data < _SMALLEST_ESCAPED) | (data == _QUOTE) | (data == _BACKSLASH))
    if not escaped.size:
        return _Texts(column, is_bare=True) if not column.null_count else _Texts(_quoted(column).fill_null("null"))
    rows = np.unique(np.searchsorted(offsets, escaped + offsets[0], "right") - 1)
    if rows.size * _FEW > len(column):
        return _Texts(_one_by_one(column))
    mask = np.zeros(len(column), bool)
    mask[rows] = True
    made = pc.replace_with_mask(_quoted(column), pa.array(mask), _one_by_one(column.filter(pa.array(mask))))
    return _Texts(made.fill_null("null"))


def _quoted(column: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise('"', column, '"', "")


def _one_by_one(column: pa.Array) -> pa.StringArray:
    return pa.array([dump(value) for value in values(column)], pa.binary()).cast(pa.string())


def _cast(column: pa.Array) -> pa.StringArray:
    return column.cast(pa.string())


def _of_doubles(column: pa.Array) -> pa.StringArray:
    return _split(orjson.dumps(column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False), option=orjson.OPT_SERIALIZE_NUMPY))


def _of_times(column: pa.TimestampArray) -> pa.StringArray:
    micros = column.view(pa.int64()).fill_null(0)
    if column.type.unit != "us" or not _within(micros, _MICROS_FIRST, _MICROS_LAST):
        return _one_by_one(column)
    zone = 0 if column.type.tz is None else orjson.OPT_NAIVE_UTC
    return _split(orjson.dumps(micros.to_numpy().view("datetime64[us]"), option=orjson.OPT_SERIALIZE_NUMPY | zone))


def _of_days(column: pa.Date32Array) -> pa.StringArray:
    if not _within(column.view(pa.int32()).fill_null(0), _DAYS_FIRST, _DAYS_LAST):
        return _one_by_one(column)
    return _quoted(column.cast(pa.string()))


def _within(counts: pa.Array, first: int, last: int) -> bool:
    found = pc.min_max(counts)
    return bool(found["min"].as_py() >= first and found["max"].as_py() <= last)


def _split(text: bytes) -> pa.StringArray:
    """Returns the values of a JSON list whose values contain no comma."""
    data = np.frombuffer(text, np.uint8)[1:-1]
    is_comma = data == _COMMA
    places = np.flatnonzero(is_comma)
    offsets = np.zeros(places.size + 2, np.int32)
    offsets[1:-1] = places - np.arange(places.size)
    offsets[-1] = data.size - places.size
    return pa.StringArray.from_buffers(places.size + 1, pa.py_buffer(offsets), pa.py_buffer(data[~is_comma]))


_WRITERS = {
    **dict.fromkeys((pa.lib.Type_INT8, pa.lib.Type_INT16, pa.lib.Type_INT32, pa.lib.Type_INT64), _cast),
    **dict.fromkeys((pa.lib.Type_UINT8, pa.lib.Type_UINT16, pa.lib.Type_UINT32, pa.lib.Type_UINT64), _cast),
    pa.lib.Type_BOOL: _cast,
    pa.lib.Type_DECIMAL128: _cast,
    pa.lib.Type_FLOAT: _of_doubles,
    pa.lib.Type_DOUBLE: _of_doubles,
    pa.lib.Type_TIMESTAMP: _of_times,
    pa.lib.Type_DATE32: _of_days,
}
"""The writers of values by the type of a column. Their results for nulls are not used."""
