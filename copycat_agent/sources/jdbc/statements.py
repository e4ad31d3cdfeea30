"""SQL in the dialects of the databases: quotes names and values, limits rows, and selects columns so that Spark reads them without loss."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple

from copycat_agent.sources.jdbc.database import ColumnInfo, TableError, TableInfo
from copycat_agent.sources.jdbc.drivers import kind_of

Literal = bool | int | float | Decimal | str | bytes | date | datetime
HIDDEN = "copycat_hidden_"
"""Prefix of columns that are not part of a record."""
PLACE = f"{HIDDEN}place"
"""Column by which rows must be sorted if the statement cannot keep their order."""
PACKED = f"{HIDDEN}rows"
"""Prefix of the name of a column of packed rows (`packed_rows`); the rest of the name is names and types of their columns, as JSON."""
ROWS = "copycat_t"
"""Alias of the table, or query, in statements."""

_PLAIN = {"bool", "int2", "int4", "int8", "smallserial", "serial", "bigserial", "float4", "float8", "text", "varchar", "bpchar", "bytea"}
_ARRAYS = {"_bool", "_int2", "_int4", "_int8", "_float4", "_float8", "_text", "_varchar"}
_PACKED = {"int2", "int4", "int8", "float4", "float8", "bool", "date", "timestamp", "timestamptz"}
_SAME = {"smallserial": "int2", "serial": "int4", "bigserial": "int8"}
_DIGITS = 38
"""Most digits of Spark's decimals."""
_MYSQL_PLAIN = re.compile(
    r"(TINY|SMALL|MEDIUM|BIG)?INT(EGER)?|FLOAT|DOUBLE|REAL|BOOLEAN|TIMESTAMP|(VAR)?CHAR|(VAR)?BINARY|(TINY|MEDIUM|LONG)?(TEXT|BLOB)"
    r"|ENUM|SET|JSON|GEOMETRY|VECTOR|POINT|LINESTRING|POLYGON|MULTI(POINT|LINESTRING|POLYGON)|GEOMETRYCOLLECTION|GEOMCOLLECTION"
)
_H2_PLAIN = re.compile(
    r"BOOLEAN|(TINY|SMALL|BIG)?INT|INTEGER|REAL|FLOAT|DOUBLE PRECISION|DATE|TIMESTAMP( WITH TIME ZONE)?|VARCHAR.*"
    r"|(CHARACTER|BINARY)( VARYING| LARGE OBJECT)?"
)


class Dialect(NamedTuple):
    """SQL that differs between databases. `kind` is the URL's subprotocol."""

    kind: str

    @property
    def is_postgresql(self) -> bool:
        """Whether it is PostgreSQL, or compatible."""
        return self.kind == "postgresql"

    @property
    def is_mysql(self) -> bool:
        """Whether it is MySQL or MariaDB. Their sessions are in UTC (`connection_properties`)."""
        return self.kind in ("mysql", "mariadb")

    def name(self, *parts: str) -> str:
        """Returns a quoted name. Raises TableError for one with a zero byte."""
        if any("\0" in one for one in parts):
            raise TableError("a name in the database has a zero byte", "leave the table out")
        if self.is_mysql:
            return ".".join(f"`{one.replace('`', '``')}`" for one in parts)
        if self.kind == "sqlserver":
            return ".".join(f"[{one.replace(']', ']]')}]" for one in parts)
        return ".".join('"{}"'.format(one.replace('"', '""')) for one in parts)

    def text(self, value: str) -> str:
        """Returns a quoted text."""
        if self.is_mysql:  # a server setting decides what a backslash in quotes means
            return f"_utf8mb4 X'{value.encode('utf-8', 'surrogatepass').hex()}'"
        quoted = "'{}'".format(value.replace("'", "''"))
        if self.kind != "sqlserver":
            return quoted
        sign = "" if value.isascii() else "N"  # without it, characters that the code page lacks become question marks
        return sign + re.sub(r"\\(?=\r?\n)", lambda _: f"\\' + {sign}'", quoted)  # a backslash at the end of a line would join two lines

    def value(self, value: Literal) -> str:
        """Returns a literal to compare a column with. Raises TableError if the type has none."""
        if isinstance(value, bool):
            return str(int(value)) if self.is_mysql or self.kind == "sqlserver" else str(value).upper()
        if isinstance(value, datetime):
            return self._moment(value)
        if isinstance(value, date):
            return f"DATE '{value.isoformat()}'" if self.kind != "sqlserver" else f"CAST('{value.isoformat()}' AS date)"
        if isinstance(value, bytes):
            return self._bytes(value.hex())
        if not isinstance(value, int | float | Decimal | str):
            raise TableError(f"a key of type {type(value).__name__} cannot be compared", "set mode: bulk and partitions: 1")
        return self.text(value) if isinstance(value, str) else f"{value:f}" if isinstance(value, Decimal) else str(value)

    def _bytes(self, digits: str) -> str:
        if self.kind == "sqlserver":
            return f"0x{digits}"
        if self.kind == "oracle":
            return f"HEXTORAW('{digits}')"
        return f"'\\x{digits}'::bytea" if self.is_postgresql else f"X'{digits}'"

    def _moment(self, value: datetime) -> str:
        zoned = value.tzinfo is not None
        text = (value.astimezone(UTC).replace(tzinfo=None) if zoned else value).isoformat(" ", "microseconds")
        if self.kind == "sqlserver":
            return f"CAST('{text} +00:00' AS datetimeoffset)" if zoned else f"CAST('{text}' AS datetime2)"
        if self.is_mysql or not zoned:
            return f"TIMESTAMP '{text}'"
        return f"TIMESTAMP '{text} +00:00'" if self.kind == "oracle" else f"TIMESTAMP WITH TIME ZONE '{text}+00:00'"

    def seconds_ago(self, seconds: float, *, zoned: bool) -> str:
        """Returns SQL for the database's time `seconds` ago. `zoned`: it is compared with times that have a zone.

        Times without a zone are taken to be in the server's zone if it tells that, else in the zone of the agent's host.
        """
        if self.kind == "sqlserver":  # it takes a time without a zone as UTC when it compares it with one that has a zone
            return f"DATEADD(millisecond, {-int(seconds * 1000)}, {'SYSDATETIMEOFFSET' if zoned else 'SYSDATETIME'}())"
        if self.is_mysql:  # clients most likely write times without a zone in the server's zone
            now = "CURRENT_TIMESTAMP(6)" if zoned else "CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', @@global.time_zone)"
            return f"{now} - INTERVAL {int(seconds * 1_000_000)} MICROSECOND"
        if not zoned:  # sessions take the JVM's zone, which is UTC
            seconds -= time.localtime().tm_gmtoff
        if self.kind == "oracle":  # its interval literals have two digits only
            return f"CURRENT_TIMESTAMP - NUMTODSINTERVAL({seconds:.3f}, 'SECOND')"
        return f"CURRENT_TIMESTAMP - INTERVAL '{seconds:.3f}' SECOND"

    def has_zone(self, kind: str) -> bool:
        """Returns whether times of this type have a zone."""
        kind = kind.lower()
        is_short = kind.endswith("tz") and not kind.endswith("ntz")  # timestamptz; "ntz" are those without one
        is_long = any(one in kind for one in ("with time zone", "with local time zone", "offset"))
        return is_short or is_long or (self.is_mysql and kind == "timestamp")

    def has_time(self, name: str) -> str:
        """Returns the condition that a column of times has a value. `name` is SQL."""
        return f"{name} >= '0001-01-01'" if self.is_mysql else f"{name} IS NOT NULL"  # zero dates come as NULL

    def ordered(self, column: str, table: TableInfo | None = None) -> str:
        """Returns SQL to order rows by a column. It is qualified by `ROWS`: a bare name would mean the text that `selected` makes of it."""
        kinds = {} if table is None else {one.name: one.type_name.upper() for one in table.columns}
        name = f"{ROWS}.{self.name(column)}"
        # MySQL orders these types as numbers, but compares them as texts
        return f"CAST({name} AS CHAR)" if self.is_mysql and kinds.get(column) in ("ENUM", "SET") else name

    def limited(self, query: str, rows: int) -> str:
        """Returns a query limited to `rows` rows. The query must end with ORDER BY."""
        if self.kind in ("sqlserver", "oracle"):
            return f"{query} OFFSET 0 ROWS FETCH NEXT {rows} ROWS ONLY"
        return f"{query} LIMIT {rows}"

    def behind(self, columns: Sequence[str], values: Sequence[str]) -> str:
        """Returns the condition that a row comes after `values` in the order of `columns`. Both are SQL."""
        parts, equal = [], ""
        for column, value in zip(columns, values, strict=True):
            parts.append(f"({equal}{column} > {value})")
            equal += f"{column} = {value} AND "
        return f"({' OR '.join(parts)})"


def dialect_of(url: str) -> Dialect:
    """Returns the dialect of a JDBC URL."""
    return Dialect(kind_of(url))


def subquery(query: str) -> str:
    """Returns a query as a subquery for FROM. Its last line may be a comment."""
    return f"({query}\n) {ROWS}"


def shown(columns: Iterable[str]) -> list[str]:
    """Returns the columns that are part of a record."""
    return [name for name in columns if not name.startswith(HIDDEN)]


def fields_of(table: TableInfo, key_field: str | None) -> list[str]:
    """Returns the field names of a table's records: its columns, and `key_field` if that is set and the table has a key."""
    return [*(one.name for one in table.columns), *([key_field] if key_field is not None and table.key else [])]


def selected(dialect: Dialect, table: TableInfo, key_field: str | None = None) -> str:
    """Returns the SELECT list of a table, cast so that Spark reads it without loss, with the primary key once more as `key_field`.

    Raises TableError for a column with one of the agent's own names.
    """
    columns = _selected(dialect, table)
    if key_field is None or not table.key:
        return columns
    if key_field in {one.name for one in table.columns}:
        raise TableError(f"{table.text} has a column {key_field!r} of its own", "choose another source.key_field, or leave the table out")
    return f"{columns}, {_key_of(dialect, table)} AS {dialect.name(key_field)}"


def packed_columns(dialect: Dialect, table: TableInfo, key_field: str | None, hidden: int) -> list[tuple[str, str]] | None:
    """Returns names and types of the columns of `selected` and `hidden` more; None if its rows cannot come packed."""
    kinds = {one.name: _packed_kind(one) for one in table.columns}
    if not dialect.is_postgresql or not kinds or None in kinds.values():
        return None
    of_key = kinds.get(table.key[0]) if len(table.key) == 1 else None
    columns = [(name, kinds.get(name, of_key) or "text") for name in fields_of(table, key_field)]
    return [*columns, *((f"{HIDDEN}{number}", "text") for number in range(hidden))]


def packed(dialect: Dialect, query: str, columns: Sequence[tuple[str, str]]) -> str:
    """Returns the statement that gives the rows of a query packed, each as one text."""
    values = ", ".join(dialect.name("copycat_p", name) for name, _ in columns)
    # The parser does not know brackets: they end up in the first and the last value.
    return f"SELECT ROW(NULL, {values}, NULL)::text AS {PACKED} FROM ({query}) copycat_p"


def _packed_kind(column: ColumnInfo) -> str | None:
    """Returns the PostgreSQL type that Spark gets for a column; None if the column cannot be packed."""
    kind = column.type_name
    if kind.startswith("_") or kind == "bytea":
        return None
    if kind == "numeric" and 0 < column.size <= _DIGITS and 0 <= column.digits <= column.size:
        return f"numeric{column.size},{column.digits}"
    return _SAME.get(kind, kind if kind in _PACKED else "text")


def _key_of(dialect: Dialect, table: TableInfo) -> str:
    """Returns SQL for a primary key: a single column unchanged, several as texts joined by a bar."""
    kinds = {one.name: one for one in table.columns}
    parts = [_value_of(dialect, kinds[one]) if one in kinds else dialect.name(one) for one in table.key]
    if len(parts) == 1:
        return parts[0]
    if dialect.is_postgresql:
        return " || '|' || ".join(f"{dialect.name(one)}::text" for one in table.key)
    if dialect.is_mysql:
        return f"CONCAT_WS('|', {', '.join(_mysql_text(one, kinds.get(column)) for one, column in zip(parts, table.key, strict=True))})"
    kind_of_text = "NVARCHAR(400)" if dialect.kind == "sqlserver" else "VARCHAR(400)"
    sign = " + " if dialect.kind == "sqlserver" else " || "
    return f"{sign}'|'{sign}".join(f"CAST({one} AS {kind_of_text})" for one in parts)


def _mysql_text(value: str, column: ColumnInfo | None) -> str:
    """Returns SQL for a column within a composite key. Binary columns become hex, or the key would be binary as well."""
    kind = "" if column is None else column.type_name.upper()
    return f"HEX({value})" if kind.endswith(("BINARY", "BLOB")) else f"CAST({value} AS UNSIGNED)" if kind == "BIT" else value


def _selected(dialect: Dialect, table: TableInfo) -> str:
    if bad := next((one.name for one in table.columns if one.name.startswith(HIDDEN)), ""):
        raise TableError(f"{table.text} has a column {bad!r}: such names are the agent's own", "use source.query, or leave the table out")
    named = [(_value_of(dialect, one), dialect.name(one.name)) for one in table.columns]
    return ", ".join(name if value == name else f"{value} AS {name}" for value, name in named)


def _value_of(dialect: Dialect, column: ColumnInfo) -> str:
    """Returns SQL for a column so that Spark reads it without loss."""
    name = dialect.name(column.name)
    if dialect.is_postgresql:
        return _of_postgresql(name, column)
    if dialect.is_mysql:
        return _of_mysql(name, column)
    return _of_h2(name, column) if dialect.kind == "h2" else name


def _of_postgresql(name: str, column: ColumnInfo) -> str:
    """As `_value_of`. Types that Spark lacks or rounds come as PostgreSQL's text."""
    kind = column.type_name
    if kind in _PLAIN or kind in _ARRAYS or kind == "date":
        return name
    if kind in ("timestamp", "timestamptz"):  # Spark has no infinity, and no microseconds after the year 294247
        ends = f"WHEN {name} >= '290000-01-01' THEN '9999-12-31 23:59:59.999999+00' WHEN {name} = '-infinity' THEN '0001-01-01 00:00:00+00'"
        return f"CASE {ends} ELSE {name} END"
    if kind == "numeric" and 0 < column.size <= _DIGITS and 0 <= column.digits <= column.size:  # decimals have no NaN
        return f"NULLIF({name}, 'NaN')::numeric({column.size}, {column.digits})"
    return f"{name}::text[]" if kind.startswith("_") else f"{name}::text"


def _of_mysql(name: str, column: ColumnInfo) -> str:
    """As `_value_of`. Years and bits come as numbers, times of day (which are durations) as text, dates without a day as NULL."""
    kind = column.type_name.upper().partition(" ")[0].partition("(")[0]
    if kind == "YEAR":
        return f"CAST({name} AS SIGNED)"
    if kind in ("DATE", "DATETIME"):  # 2024-00-00 is a valid one
        return f"IF(MONTH({name}) * DAYOFMONTH({name}) > 0, {name}, NULL)"
    if kind == "BIT":
        return name if column.size == 1 else f"CAST({name} AS UNSIGNED)"
    is_exact = kind in ("DECIMAL", "NUMERIC") and column.size <= _DIGITS
    return name if is_exact or _MYSQL_PLAIN.fullmatch(kind) else f"CAST({name} AS CHAR)"


def _of_h2(name: str, column: ColumnInfo) -> str:
    """As `_value_of`. Types that Spark lacks come as text."""
    kind = column.type_name.upper()
    is_exact = kind in ("NUMERIC", "DECIMAL") and column.size <= _DIGITS
    return name if is_exact or _H2_PLAIN.fullmatch(kind) else f"CAST({name} AS VARCHAR)"
