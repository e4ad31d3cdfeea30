"""Rows of Arrow columns as records, without an object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from copycat_agent.formats.draft import LazyFields

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class ArrowRows(LazyFields):
    """The rows of a batch, each a record of its columns."""

    def __init__(self, batch: RecordBatch) -> None:
        self.batch = batch

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        """The fields of all rows, without loss: decimals exact, times with their zone, values that Python cannot hold as text."""
        from copycat_agent.formats.records.parquet_values import rows_of, values  # noqa: PLC0415 - imports pyarrow, 0.15 s

        return rows_of(self.batch.schema.names, [values(column) for column in self.batch.columns], self.batch.num_rows)

    @classmethod
    def joined(cls, parts: Sequence[ArrowRows]) -> ArrowRows | None:
        """Returns all parts as one. None if they have different columns, or are too many."""
        from copycat_agent.formats.records.parquet_values import one_batch  # noqa: PLC0415 - as above

        made = one_batch([one.batch for one in parts])
        return None if made is None else cls(made)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.fields)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> ArrowRows: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | ArrowRows:
        if isinstance(index, int):
            return self.fields[index]
        begin, end, _ = index.indices(len(self))
        return ArrowRows(self.batch.slice(begin, end - begin))
