"""Splits packed rows of PostgreSQL into columns: each row comes as the text of a row value.

Spark makes several objects of every value: a row of 8 columns takes 4 µs in the JVM, a row of a single text 1 µs. Splitting and parsing the
text here takes 0.4 µs. The resulting types are those that Spark has for such columns.
"""

from __future__ import annotations

import json
import re
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from copycat_agent.extending import RetriableError
from copycat_agent.sources.jdbc.statements import PACKED

_TYPES = {
    "int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64(), "float4": pa.float32(), "float8": pa.float64(), "bool": pa.bool_(),
    "text": pa.string(), "date": pa.date32(), "timestamp": pa.timestamp("us"), "timestamptz": pa.timestamp("us", "UTC"),
}  # fmt: skip
_MOMENT = re.compile(r"(\d+)-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?([+-]\d\d)?(:\d\d)?)?( BC)?")
_INFINITE = {"infinity": "9999-12-31", "-infinity": "0001-01-01"}
"""Spark's values of infinite dates."""
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
"""The Gregorian calendar repeats after this many years, or days."""
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86_400


def unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns of a batch of packed rows, whose only column's name describes them; any other batch is returned unchanged.

    Raises RetriableError for rows that do not fit the description.
    """
    if not batch.schema.names[0].startswith(PACKED):
        return batch
    columns: list[list[str]] = json.loads(batch.schema.names[0].removeprefix(PACKED))
    names, types = [name for name, _ in columns], [_type_of(kind) for _, kind in columns]
    if not batch.num_rows:
        return pa.RecordBatch.from_arrays([pa.array([], type_) for type_ in types], names=names)
    try:
        arrays = _read(batch.column(0), types)
    except pa.ArrowException:
        arrays = [_exact(one, type_) for one, type_ in zip(_read(batch.column(0), [pa.string()] * len(types)), types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _type_of(kind: str) -> pa.DataType:
    if kind in _TYPES:
        return _TYPES[kind]
    digits, scale = kind.removeprefix("numeric").split(",")
    return pa.decimal128(int(digits), int(scale))


def _read(rows: pa.StringArray, types: list[pa.DataType]) -> list[pa.Array]:
    """Parses texts such as (,1,"a b",) into columns, without the first and last value. Raises what pyarrow raises."""
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows), "\n")[0].as_buffer()
    inner = [str(number) for number in range(len(types))]
    table = csv.read_csv(
        pa.BufferReader(lines),
        csv.ReadOptions(use_threads=False, block_size=lines.size + 1, column_names=["(", *inner, ")"]),
        csv.ParseOptions(escape_char="\\", newlines_in_values=True),
        csv.ConvertOptions(
            check_utf8=False, column_types=dict(zip(inner, types, strict=True)), include_columns=inner, null_values=[""],
            strings_can_be_null=True, quoted_strings_can_be_null=False, true_values=["t"], false_values=["f"],
        ),
    )  # fmt: skip
    (batch,) = table.combine_chunks().to_batches()
    return list(batch.columns)


def _exact(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    """Parses a column with values that pyarrow may not parse: times before the year 1 and after 9999."""
    if not (pa.types.is_timestamp(type_) or pa.types.is_date(type_)):
        return _cast(texts, type_)
    counts = [None if one is None else _count(one, in_days=pa.types.is_date(type_)) for one in texts.to_pylist()]
    return pa.array(counts, pa.int32() if pa.types.is_date(type_) else pa.int64()).view(type_)


def _cast(texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(type_):
        return pc.equal(texts, "t")
    try:
        return texts.cast(type_)
    except pa.ArrowException:
        pass
    raise RetriableError("the rows have other columns than when the table was looked at", "they are looked at again")


def _count(text: str, *, in_days: bool) -> int:
    """Returns the days or microseconds from 1970 to a time as PostgreSQL writes it."""
    found = _MOMENT.fullmatch(_INFINITE.get(text, text))
    if found is None:
        raise RetriableError("the rows have other columns than when the table was looked at", "they are looked at again")
    year, month, day, hours, minutes, seconds, fraction, ahead, further, before = found.groups()
    cycles, of_cycle = divmod(1 - int(year) if before else int(year), _CYCLE_YEARS)
    days = (cycles - 1) * _CYCLE_DAYS + date(of_cycle + _CYCLE_YEARS, int(month), int(day)).toordinal() - _EPOCH
    if in_days:
        return days
    second = days * _DAY_SECONDS + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    second -= int(ahead or 0) * 3600 + int(f"{(ahead or '')[:1]}{(further or ':0')[1:]}") * 60
    return second * 1_000_000 + int((fraction or "").ljust(6, "0"))
