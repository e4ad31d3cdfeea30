"""SQL of the databases: names and values quoted, rows limited, and how PostgreSQL is asked for values that Spark cannot read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.extending import FatalError

if TYPE_CHECKING:
    from copycat_agent.sources.jdbc.database import ColumnInfo, TableInfo

Literal = int | float | Decimal | str | date | datetime
HIDDEN = "copycat_hidden_"
"""How columns begin that are no part of a record."""

_PLAIN = {"bool", "int2", "int4", "int8", "smallserial", "serial", "bigserial", "float4", "float8", "text", "varchar", "bpchar", "bytea"}
_TIMES = {"date", "timestamp", "timestamptz"}
_ARRAYS = {"_bool", "_int2", "_int4", "_int8", "_float4", "_float8", "_text", "_varchar"}
_DIGITS = 38
"""Digits of Spark's decimals."""


class Dialect(NamedTuple):
    """How a kind of database spells what is not the same everywhere."""

    kind: str

    @property
    def is_postgresql(self) -> bool:
        """Whether it is PostgreSQL, or speaks as if."""
        return self.kind == "postgresql"

    def name(self, *parts: str) -> str:
        """A quoted name: whatever it is, it is one."""
        if any("\0" in one for one in parts):
            raise FatalError("a name in the database has a zero byte", "leave the table out")
        if self.kind in ("mysql", "mariadb"):
            return ".".join(f"`{one.replace('`', '``')}`" for one in parts)
        if self.kind == "sqlserver":
            return ".".join(f"[{one.replace(']', ']]')}]" for one in parts)
        return ".".join('"{}"'.format(one.replace('"', '""')) for one in parts)

    def text(self, value: str) -> str:
        """A text, quoted."""
        if self.kind in ("mysql", "mariadb"):
            value = value.replace("\\", "\\\\")
        return "'{}'".format(value.replace("'", "''"))

    def value(self, value: Literal) -> str:
        """A value of a column, as it is compared with. Raises FatalError for one that cannot be written."""
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str | date):
            raise FatalError(f"a key of type {type(value).__name__} cannot be compared", "set mode: bulk and partitions: 1")
        if isinstance(value, datetime):
            return self._moment(value)
        if isinstance(value, date):
            return f"DATE '{value.isoformat()}'" if self.kind != "sqlserver" else f"CAST('{value.isoformat()}' AS date)"
        return self.text(value) if isinstance(value, str) else str(value)

    def _moment(self, value: datetime) -> str:
        zoned = value.tzinfo is not None
        text = (value.astimezone(UTC) if zoned else value).strftime("%Y-%m-%d %H:%M:%S.%f") + ("+00:00" if zoned else "")
        if self.kind == "sqlserver":
            return f"CAST('{text}' AS {'datetimeoffset' if zoned else 'datetime2'})"
        if self.kind in ("mysql", "mariadb"):
            return f"TIMESTAMP '{text}'"
        return f"TIMESTAMP WITH TIME ZONE '{text}'" if zoned else f"TIMESTAMP '{text}'"

    def seconds_ago(self, seconds: float, *, zoned: bool) -> str:
        """The database's time, so many seconds ago; `zoned`: to compare with times that have a zone."""
        if self.kind == "sqlserver":  # which takes a time without a zone for one of UTC, where it is compared with one that has one
            return f"DATEADD(millisecond, {-int(seconds * 1000)}, {'SYSDATETIMEOFFSET' if zoned else 'SYSDATETIME'}())"
        if self.kind in ("mysql", "mariadb"):
            return f"CURRENT_TIMESTAMP(6) - INTERVAL {int(seconds * 1_000_000)} MICROSECOND"
        if self.kind == "oracle":  # whose literals of intervals have two digits
            return f"CURRENT_TIMESTAMP - NUMTODSINTERVAL({seconds:.3f}, 'SECOND')"
        return f"CURRENT_TIMESTAMP - INTERVAL '{seconds:.3f}' SECOND"

    def limited(self, query: str, rows: int) -> str:
        """A query that ends with its order, cut to so many rows."""
        if self.kind in ("sqlserver", "oracle"):
            return f"{query} OFFSET 0 ROWS FETCH NEXT {rows} ROWS ONLY"
        return f"{query} LIMIT {rows}"

    def behind(self, columns: Sequence[str], values: Sequence[str]) -> str:
        """The condition that a row lies behind these values, in the order of the columns. Both are SQL."""
        parts, equal = [], ""
        for column, value in zip(columns, values, strict=True):
            parts.append(f"({equal}{column} > {value})")
            equal += f"{column} = {value} AND "
        return f"({' OR '.join(parts)})"


def dialect_of(url: str) -> Dialect:
    """By the URL's subprotocol."""
    return Dialect(re.split(r"[:+]", url)[1])


def shown(columns: Iterable[str]) -> list[str]:
    """Without those that are no part of a record."""
    return [name for name in columns if not name.startswith(HIDDEN)]


def selected(dialect: Dialect, table: TableInfo, key_field: str | None = None) -> str:
    """The columns of a table as Spark can read them without loss, and its primary key once more, as `key_field`.

    Raises FatalError where a name is one of ours.
    """
    columns = _selected(dialect, table)
    if key_field is None or not table.key:
        return columns
    if key_field in {one.name for one in table.columns}:
        raise FatalError(f"{table.text} has a column {key_field!r} of its own", "choose another source.key_field")
    return f"{columns}, {_key_of(dialect, table)} AS {dialect.name(key_field)}"


def _key_of(dialect: Dialect, table: TableInfo) -> str:
    """A key of one column as it is, that of several as texts with a bar between them."""
    names = [dialect.name(one) for one in table.key]
    if len(names) == 1:
        kind = next((one for one in table.columns if one.name == table.key[0]), None)
        return names[0] if kind is None or not dialect.is_postgresql else _of_postgresql(dialect, kind).partition(" AS ")[0]
    if dialect.is_postgresql:
        return " || '|' || ".join(f"{one}::text" for one in names)
    if dialect.kind in ("mysql", "mariadb"):
        return f"CONCAT_WS('|', {', '.join(names)})"
    kind_of_text = "NVARCHAR(400)" if dialect.kind == "sqlserver" else "VARCHAR(400)"
    sign = " + " if dialect.kind == "sqlserver" else " || "
    return f"{sign}'|'{sign}".join(f"CAST({one} AS {kind_of_text})" for one in names)


def _selected(dialect: Dialect, table: TableInfo) -> str:
    if bad := next((one.name for one in table.columns if one.name.startswith(HIDDEN)), ""):
        raise FatalError(f"{table.text} has a column {bad!r}: such names are the agent's own", "leave the table out, or use source.query")
    if dialect.kind == "h2":
        return ", ".join(_of_h2(dialect, one) for one in table.columns)
    if not dialect.is_postgresql:
        return ", ".join(dialect.name(one.name) for one in table.columns)
    return ", ".join(_of_postgresql(dialect, one) for one in table.columns)


def _of_postgresql(dialect: Dialect, column: ColumnInfo) -> str:
    """What Spark has no type for, or one that rounds, comes as PostgreSQL's own text of it."""
    name, kind = dialect.name(column.name), column.type_name
    if kind in _PLAIN or kind in _ARRAYS or (kind == "numeric" and 0 < column.size <= _DIGITS and 0 <= column.digits <= column.size):
        return name
    if kind in _TIMES:
        return name
    return f"{name}::text[] AS {name}" if kind.startswith("_") else f"{name}::text AS {name}"


def _of_h2(dialect: Dialect, column: ColumnInfo) -> str:
    """As above: arrays, intervals and documents of H2 come as its own text of them."""
    name, kind = dialect.name(column.name), column.type_name.upper()
    return f"CAST({name} AS VARCHAR) AS {name}" if kind.endswith("ARRAY") or kind.startswith(("INTERVAL", "ROW", "JSON")) else name
