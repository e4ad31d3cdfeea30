"""Converts values of Arrow arrays to Python without loss, including those that pyarrow's `to_pylist` refuses, rounds or wraps."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from copycat_agent.formats.records.schemas import clocks, day, moments

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_DAY_MS = 86_400_000
_NANOS_END = 2**63 // 1000
"""From this many microseconds since 1970 on, nanoseconds no longer fit in 64 bits."""
_BITS = {32: pa.int32(), 64: pa.int64()}


def values(array: pa.Array) -> list[Any]:  # noqa: PLR0911 - a table of kinds
    """Returns the values; None for null. Times that Python cannot hold become text, durations counts in their unit, UUIDs text."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        stored = values(array.storage)
        return [one and str(uuid.UUID(bytes=one)) for one in stored] if type_.extension_name == "arrow.uuid" else stored
    if pa.types.is_dictionary(type_):
        return _of_dictionary(array)
    if pa.types.is_duration(type_):
        return list(array.view(pa.int64()).to_pylist())
    if (convert := _moment_of(type_)) is not None:
        return [None if one is None else convert(one) for one in array.view(_BITS[type_.bit_width]).to_pylist()]
    if pa.types.is_map(type_):
        return _of_map(array)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return _split(array, values(array.flatten()))
    if pa.types.is_struct(type_):
        return _of_struct(array)
    return list(array.to_pylist())


def _moment_of(type_: pa.DataType) -> Callable[[int], Any] | None:
    if pa.types.is_timestamp(type_):
        return moments(_PER_SECOND[type_.unit], utc=type_.tz is not None)
    if pa.types.is_date32(type_):
        return day
    if pa.types.is_date64(type_):
        return lambda count: day(count // _DAY_MS)
    return clocks(_PER_SECOND[type_.unit]) if pa.types.is_time(type_) else None


def instants(micros: pa.Array, nanos: pa.Array) -> list[Any]:
    """Returns values of a column of the old type INT96, read both ways: nanoseconds wrap after 2262, microseconds lose digits."""
    fine, coarse = moments(10**9, utc=False), moments(10**6, utc=False)
    pairs = zip(micros.view(pa.int64()).to_pylist(), nanos.view(pa.int64()).to_pylist(), strict=True)
    return [None if micro is None else fine(nano) if abs(micro) < _NANOS_END else coarse(micro) for micro, nano in pairs]


def _of_dictionary(array: pa.DictionaryArray) -> list[Any]:
    """Shares one object between equal values, however long they are."""
    known = values(array.dictionary)
    return [None if index is None else known[index] for index in array.indices.to_pylist()]


def _of_map(array: pa.MapArray) -> list[Any]:
    """Returns dicts if keys are text; of equal keys the last one counts, as in Parquet. Else lists of {key, value}."""
    entries = array.view(pa.list_(pa.struct([pa.field("key", array.type.key_type), pa.field("value", array.type.item_type)]))).flatten()
    pairs = zip(values(entries.field(0)), values(entries.field(1)), strict=True)
    if pa.types.is_string(array.type.key_type) or pa.types.is_large_string(array.type.key_type):
        return [None if one is None else dict(one) for one in _split(array, list(pairs))]
    return _split(array, [{"key": key, "value": value} for key, value in pairs])


def _split(array: pa.Array, flat: list[Any]) -> list[Any]:
    """Splits the flattened values of a list array into its lists; null lists have no values in it."""
    lists: list[Any] = []
    begin = 0
    for size in _lengths(array):
        lists.append(None if size is None else flat[begin : begin + size])
        begin += size or 0
    return lists


def _lengths(array: pa.Array) -> list[int | None]:
    valid = array.is_valid().to_pylist()
    if pa.types.is_fixed_size_list(array.type):
        return [array.type.list_size if one else None for one in valid]
    offsets = array.offsets.to_pylist()
    return [offsets[index + 1] - offsets[index] if one else None for index, one in enumerate(valid)]


def _of_struct(array: pa.StructArray) -> list[Any]:
    names = [array.type.field(index).name for index in range(array.type.num_fields)]
    rows = rows_of(names, [values(child) for child in array.flatten()], len(array))
    return rows if not array.null_count else [row if one else None for row, one in zip(rows, array.is_valid().to_pylist(), strict=True)]


def rows_of(names: list[str], columns: list[list[Any]], count: int) -> list[dict[str, Any]]:
    """Returns columns as a list of dicts."""
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)] if columns else [{} for _ in range(count)]


def one_batch(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Joins batches into one; None if they have different columns, or are too many."""
    if any(one.schema != parts[0].schema for one in parts):
        return None
    made = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return made[0] if len(made) == 1 else None
