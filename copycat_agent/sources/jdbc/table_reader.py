"""`TableReader`, the base of the four ways to follow a table or query. Each has its own kind of position."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from copycat_agent.extending import Finding, Found, Position, Record
from copycat_agent.sources.jdbc.chosen_tables import TrackedTable
from copycat_agent.sources.jdbc.database import ColumnInfo, Database, TableInfo
from copycat_agent.sources.jdbc.statements import HIDDEN, PLACE, ROWS, dialect_of, fields_of, selected, subquery

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions

_WHOLE = {"int2", "int4", "int8", "smallserial", "serial", "bigserial", "integer", "bigint", "mediumint", "smallint", "int", "tinyint"}
"""Types of a key that can be split into ranges."""


class TableReader(ABC):
    """Looks for rows in the driver, and turns rows into records in a task, on another instance without a connection.

    `query` returns an `about`, any JSON object, that is passed on to `records` and `apply`.
    """

    mark: str
    """A key that all positions of this reader have, and those of no other."""

    def __init__(self, options: JdbcOptions, database: Database) -> None:
        self._options = options
        self._dialect = dialect_of(options.url)
        self._database = database
        self._targets: dict[str, int] = {}
        """By partition: where a run to the end stops."""

    @abstractmethod
    def look(self, key: str, tracked: TrackedTable, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        """As `FrameSource.look`, for one table. `saved` has its partitions only: `key`, and those that begin with `key#`."""

    @abstractmethod
    def query(self, tracked: TrackedTable, position: Position, end: Position) -> tuple[str, dict[str, Any]]:
        """Returns the statement for the next batch after `position`, and `about`. `end` is the one that `look` found."""

    @abstractmethod
    def records(self, rows: Iterable[RecordBatch], start: Position, about: Mapping[str, Any]) -> Iterator[tuple[Record, Position]]:
        """As `FrameSource.read`."""

    @abstractmethod
    def apply(self, start: Position, position: Position, about: Mapping[str, Any], *, finished: bool) -> Position:
        """As `FrameSource.apply`."""

    def goes_on(self, begin: Position, position: Position) -> bool:
        """Returns whether `position` still lies within the findings of a look that started at `begin`."""
        return bool(begin == position)

    def found(self, key: str, tracked: TrackedTable, position: Position, end: Position = None, rows: int = 1) -> Found:
        """Returns a finding. `end` is None if there is nothing to read."""
        work = json.dumps([tracked.table, tracked.number, tracked.time]).encode() if end is not None else b""
        return Found(key, position, end, unread=rows if end is not None else 0, name=tracked.table.text, work=work)

    @staticmethod
    def tracked_of(found: Found) -> TrackedTable:
        """Returns the table that `found` was made for."""
        table, number, moment = json.loads(found.work)
        columns = tuple(ColumnInfo(*one) for one in table[1])
        return TrackedTable(TableInfo(tuple(table[0]), columns, tuple(table[2])), number, moment)

    def _source(self, tracked: TrackedTable) -> str:
        """Returns the table or subquery for FROM."""
        if self._options.query is None:
            return f"{self._dialect.name(*tracked.table.name)} {ROWS}"
        return subquery(self._options.query)

    def _select(self, tracked: TrackedTable) -> str:
        """Returns the statement up to WHERE."""
        return f"SELECT {self._columns(tracked)} FROM {self._source(tracked)}"

    def _in_order(self, tracked: TrackedTable, where: str, order: Sequence[str], limit: int) -> str:
        """Returns the statement for the first `limit` rows in this order."""
        hidden = [f"{HIDDEN}{number}" for number in range(len(order) if self._dialect.is_mysql else 0)]
        columns = ", ".join([self._columns(tracked), *(f"{one} AS {name}" for one, name in zip(order, hidden, strict=False))])
        first = self._dialect.limited(f"SELECT {columns} FROM {self._source(tracked)}{where} ORDER BY {', '.join(order)}", limit)
        if not hidden:
            return first
        # Spark wraps the statement in another one, for which MariaDB returns rows of varying length in the order of its pages.
        own = ", ".join(map(self._dialect.name, fields_of(tracked.table, self._options.key_field)))
        return f"SELECT {own}, ROW_NUMBER() OVER (ORDER BY {', '.join(hidden)}) AS {PLACE} FROM ({first}) copycat_n"

    def _columns(self, tracked: TrackedTable) -> str:
        return "*" if self._options.query is not None else selected(self._dialect, tracked.table, self._options.key_field)

    def _count(self, tracked: TrackedTable, condition: str, column: str | None = None) -> tuple[int, str | None]:
        """Returns the number of rows, and the largest value of a column."""
        largest = "NULL" if column is None else f"max({self._dialect.name(column)})"
        ((rows, newest),) = self._database.rows(f"SELECT count(*), {largest} FROM {self._source(tracked)} WHERE {condition}")
        return int(rows or 0), newest

    def _bounds(self, table: TableInfo) -> list[int]:
        """Returns the keys that split a table into ranges of about the same width; [] if its key is no single integer."""
        partitions = self._options.partitions
        kinds = {one.name: one.type_name.lower().partition(" ")[0] for one in table.columns}  # INT UNSIGNED, int identity
        if partitions == 1 or self._options.query is not None or len(table.key) != 1 or kinds[table.key[0]] not in _WHOLE:
            return []
        column = self._dialect.name(table.key[0])
        ((low, high),) = self._database.rows(f"SELECT min({column}), max({column}) FROM {self._dialect.name(*table.name)}")
        if low is None or high is None:
            return []
        first, width = int(low), int(high) - int(low) + 1
        return sorted({first - 1 + width * one // partitions for one in range(1, partitions)})
