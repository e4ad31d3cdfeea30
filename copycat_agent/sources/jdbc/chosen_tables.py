"""Which tables of a database are read, and which of their columns show new rows. Used by the source and by `copycat doctor`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.sources.jdbc.database import Database, TableError, TableInfo, matches
from copycat_agent.sources.jdbc.statements import dialect_of

if TYPE_CHECKING:
    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions


_NEVER_TIMES = re.compile(
    r"(bool(ean)?|(small|big|tiny|medium)?(int(eger)?|serial)\d*|numeric|number|decimal|float\d*|real|double|money|bit|text|bpchar|"
    r"n?(var)?char\d*|character|clob|string|uuid|jsonb?|xml|bytea|time|timetz|interval)($|[ (])",
    re.IGNORECASE,
)
"""Types of columns that hold no points in time."""


class TrackedTable(NamedTuple):
    """A table, or the query, and its columns that show new rows: a growing number, a time of last change; None if there is none."""

    table: TableInfo
    number: str | None
    time: str | None


class ChosenTables(NamedTuple):
    """The names of the tables that the options select, sorted, and those of all others that this user may see."""

    names: list[tuple[str, ...]]
    left_out: set[tuple[str, ...]]


def chosen_tables(database: Database, options: JdbcOptions) -> ChosenTables:
    """Returns which tables are read. Raises what `Database` raises."""
    everything = set(database.tables())
    chosen = {one for one in everything if matches(one, options.tables) and not matches(one, options.exclude)}
    if dialect_of(options.url).is_postgresql:  # the rows of a partition, or of a table that inherits, are read with its parent
        chosen -= {one for one, above in database.parents() if above in chosen}
    return ChosenTables(sorted(chosen), everything - chosen)


def tracked_of(options: JdbcOptions, table: TableInfo) -> TrackedTable:
    """Returns a table with its tracked columns. Raises TableError if one is missing, or its type cannot be a time."""
    names = options.tracked(table.text)
    mode = options.mode
    number = names.incrementing if mode in ("incrementing", "timestamp_and_incrementing") else None
    if mode in ("incrementing", "timestamp_and_incrementing") and number is None and len(table.key) == 1:
        number = table.key[0]
    moment = names.timestamp if mode.startswith("timestamp") else None
    if table.columns:
        number, moment = (None if one is None else _column(table, one) for one in (number, moment))
        kind = next((one.type_name for one in table.columns if one.name == moment), "")
        if _NEVER_TIMES.match(kind):
            words = f"column {moment} of table {table.text} is of type {kind}, which holds no times"
            raise TableError(words, "name a column with times in source.columns, take another mode, or leave the table out")
    if (mode == "incrementing" and number is None) or (mode.startswith("timestamp") and moment is None):
        wanted = "timestamp" if mode.startswith("timestamp") else "incrementing"
        raise TableError(f"table {table.text} has no column for mode {mode}", f"name source.columns.{wanted}, or leave the table out")
    return TrackedTable(table, number, moment)


def _column(table: TableInfo, name: str) -> str:
    """Returns the column's name as the database spells it; many turn names into upper case. Raises TableError if it is missing."""
    names = [one.name for one in table.columns if one.name == name]
    names = names or [one.name for one in table.columns if one.name.lower() == name.lower()]
    if len(names) != 1:
        raise TableError(f"table {table.text} has no column {name}", "correct source.columns, or leave the table out")
    return names[0]


def is_standby(database: Database) -> bool:
    """Returns whether a PostgreSQL server is a standby, which does not know the transactions that run on its primary."""
    return database.rows("SELECT pg_is_in_recovery()")[0][0] in ("t", "true")
