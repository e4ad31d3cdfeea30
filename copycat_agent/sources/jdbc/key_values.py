"""Values of columns in positions: keys as JSON, and times as microseconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from copycat_agent.extending import ArrowRows, Record, fields_of_rows
from copycat_agent.sources.jdbc.database import TableError
from copycat_agent.sources.jdbc.statements import shown

if TYPE_CHECKING:
    from pyarrow import RecordBatch

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - for times without a zone
LOWEST = -(2**63)
"""The smallest 64-bit number, which means no lower end."""


def each_row(rows: Iterable[RecordBatch]) -> Iterator[Row]:
    """Yields rows one by one, as fields without hidden columns."""
    for batch in rows:
        yield from fields_of_rows(batch.select(shown(batch.schema.names)))


class RowPositions(Sequence[Any]):
    """Positions after rows, each computed on access: (number of rows so far, *key of the last one)."""

    def __init__(self, first: int, keys: RecordBatch) -> None:
        """`keys` are the key columns of the rows; the first row is number `first`. Raises TableError if a value cannot be a key."""
        self._first = first
        self._keys = keys
        if keys.num_rows:
            self[0]

    def __len__(self) -> int:
        return int(self._keys.num_rows)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a position, or positions
        if isinstance(index, slice):
            begin, end, _ = index.indices(len(self))
            return RowPositions(self._first + begin, self._keys.slice(begin, end - begin))
        if not 0 <= index < len(self):
            raise IndexError(index)
        (fields,) = fields_of_rows(self._keys.slice(index, 1))
        return (self._first + index, *map(to_json, fields.values()))


def at_once(rows: Iterable[RecordBatch], key: Sequence[str]) -> Iterator[tuple[Record, RowPositions]]:
    """Yields the rows of each batch as `ArrowRows`, with their `RowPositions`. `key` names the key columns."""
    read = 0
    for batch in rows:
        yield ArrowRows(batch.select(shown(batch.schema.names))), RowPositions(read + 1, batch.select(key))
        read += batch.num_rows


def spelt(row: Row, name: str) -> str:
    """Returns a column's name as the row has it, found without regard to case. Raises TableError if the row lacks it."""
    if name in row:
        return name
    same = [one for one in row if one.lower() == name.lower()]
    if len(same) != 1:
        raise TableError(f"the rows have no column {name}", "correct source.columns, or have source.query give it")
    return same[0]


def micros_of(value: Any) -> tuple[int, bool]:  # noqa: ANN401 - whatever the column holds
    """Returns microseconds from 1970, and whether the time has a zone. Raises TableError if the value is no time."""
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        naive = value.astimezone(UTC).replace(tzinfo=None) if zoned else value
        return (naive - EPOCH) // timedelta(microseconds=1), zoned
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day) - EPOCH) // timedelta(microseconds=1), False  # noqa: DTZ001
    raise TableError("the column of times holds something else", "name another column in source.columns.timestamp")


def micros_of_text(text: str) -> tuple[int, bool]:
    """As `micros_of`, for a time as a driver writes it. Raises TableError if the text is no time."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(\.\d+)?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?", text.strip())
    if found is None:
        raise TableError("the newest time of a table cannot be read", "set source.start_at: beginning")
    day, clock, fraction, zone = found.groups()
    return micros_of(datetime.fromisoformat(f"{day}T{clock or '00:00:00'}{(fraction or '')[:7]}{zone or ''}"))


def to_json(value: Any) -> Any:  # noqa: ANN401 - whatever a key holds
    """Returns a value of a key as JSON. Raises TableError if its type cannot be compared."""
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if not isinstance(value, int | Decimal | str | date):
        raise TableError(f"a key of type {type(value).__name__} cannot be compared", "leave the table out, or use source.query")
    if isinstance(value, datetime):
        return ["time", value.isoformat()]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    return ["decimal", str(value)] if isinstance(value, Decimal) else value


def from_json(value: Any) -> Any:  # noqa: ANN401 - as above
    """Returns the value that `to_json` was given."""
    if not isinstance(value, list):
        return value
    kind, text = value
    if kind == "time":
        return datetime.fromisoformat(text)
    if kind == "date":
        return date.fromisoformat(text)
    if kind == "bytes":
        return bytes.fromhex(text)
    return Decimal(text) if kind == "decimal" else text  # "plain": saved by earlier versions
