"""Source `tables`: rows of SQLite tables as they are added. `source: {type: tables, database: /var/lib/shop.db, tables: [orders]}`.

Each table is a partition of its own, and its position the `rowid` of the last row that was read: the tables only grow.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Literal

from copycat_agent.extending import Field, Found, PolledOptions, RetriableError, Stretch, source_kind

ROWS = 10_000
"""Rows that a task reads at a time."""


class TablesOptions(PolledOptions):
    """Rows of SQLite tables, as they are added."""

    type: Literal["tables"] = Field("tables", description="Rows of SQLite tables.")
    database: str = Field(pattern=r"^/", description="The database file.")
    tables: tuple[str, ...] = Field(min_length=1, description="Names of the tables.")


class Tables:
    """See `copycat_agent.extending.AuthorSource`."""

    def __init__(self, options: TablesOptions) -> None:
        self._options = options

    def look(self, saved: Mapping[str, int], *, to_the_end: bool) -> Iterator[Found]:
        """A table is there from rowid 0 on, up to its newest row."""
        del to_the_end  # what comes meanwhile may come along
        for table in self._options.tables:
            newest = self._rows(f'SELECT max(rowid) FROM "{table}"')[0][0] or 0  # noqa: S608 - a name out of the definition
            yield Found(table, start=0, end=newest, unread=newest - saved.get(table, 0), name=table)

    def plan(self, found: Found, position: int) -> Stretch | None:
        """The next rows."""
        if found.end <= position:
            return None
        return Stretch(found.key, found.name, position, min(found.end, position + ROWS))

    def read(self, stretch: Stretch) -> Iterator[tuple[dict[str, Any], int]]:
        """Each row with its rowid, which is the position behind it."""
        query = f'SELECT rowid, * FROM "{stretch.key}" WHERE rowid > ? AND rowid <= ? ORDER BY rowid'  # noqa: S608 - as above
        names = [row[1] for row in self._rows(f'PRAGMA table_info("{stretch.key}")')]
        for rowid, *values in self._rows(query, stretch.start, stretch.end):
            yield dict(zip(names, values, strict=True)), rowid

    def apply(self, stretch: Stretch, position: int | None, *, finished: bool) -> int:
        """Behind the stretch, or behind the last row of it that Kafka has."""
        if finished or position is None:
            return int(stretch.end)
        return position

    def committed(self, positions: Mapping[str, int]) -> None:
        """A table need not know."""

    def close(self) -> None:
        """Nothing is open."""

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - what a column holds
        try:
            with closing(sqlite3.connect(f"file:{self._options.database}?mode=ro", uri=True)) as connection:
                return connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise RetriableError(f"the database cannot be read: {error}", "it is tried again") from None


TABLES = source_kind(TablesOptions, Tables)
