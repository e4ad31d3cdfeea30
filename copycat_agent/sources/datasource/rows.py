"""What a reader yields as fields: tuples, lists and Rows by the schema, Arrow's RecordBatches as Parquet files are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Row

from copycat_agent.errors import FatalError
from copycat_agent.formats.records.parquet.parquet_values import rows_of, values

Fields = dict[str, Any]


def fields_of(given: Iterable[Any] | None, names: list[str], what: str = "read") -> Iterator[Fields]:
    """The records that the reader's method `what` gives.

    Raises FatalError for None and for what does not fit the schema, and whatever the reader raises.
    """
    if given is None:
        raise FatalError(f"{what}() returned nothing", "return an iterator, or an empty list")
    for one in given:
        if isinstance(one, pa.RecordBatch):
            yield from _of_batch(one, names)
        else:
            yield _of_row(one, names)


def _of_batch(batch: pa.RecordBatch, names: list[str]) -> Iterator[Fields]:
    if sorted(batch.schema.names) != sorted(names):
        raise FatalError(f"the reader gives Arrow columns {_listed(batch.schema.names)}, and its schema has {_listed(names)}")
    columns = [values(batch.column(name)) for name in names]
    yield from rows_of(names, columns, batch.num_rows)


def _of_row(row: Any, names: list[str]) -> Fields:  # noqa: ANN401 - whatever a reader yields
    if not isinstance(row, list | tuple):
        kind = type(row).__name__
        raise FatalError(f"the reader gives a {kind} as a record", "it has to yield tuples, lists, Rows or Arrow RecordBatches")
    if len(row) != len(names):
        raise FatalError(f"the reader gives a record of {len(row)} values, and its schema has {len(names)}: {_listed(names)}")
    if isinstance(row, Row) and hasattr(row, "__fields__"):
        if set(row.__fields__) != set(names):
            raise FatalError(f"the reader gives a Row of {_listed(row.__fields__)}, and its schema has {_listed(names)}")
        return {name: _plain(row[name]) for name in names}
    return {name: _plain(value) for name, value in zip(names, row, strict=True)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a record holds
    """A value without classes of PySpark's in it."""
    if isinstance(value, Row) and hasattr(value, "__fields__"):
        return {name: _plain(one) for name, one in zip(value.__fields__, value, strict=True)}
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
