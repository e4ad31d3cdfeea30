"""Options of source `jdbc`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from copycat_agent.extending import Duration, Field, Options, PolledOptions, Secret
from copycat_agent.sources.jdbc.drivers import driver_of, kind_of

Mode = Literal["bulk", "incrementing", "timestamp", "timestamp_and_incrementing"]
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f]+$")]

_SECRET = re.compile(
    r"(passw(or)?d|pwd|secret|token|(pvt|api|client)_?key)(\d*|\w*key)\s*=|//[^/@]*:[^/@]*@|^jdbc:oracle:\w+:[^@/]*/[^@]+@", re.IGNORECASE
)
"""Passwords and the like, which a URL must not contain."""


class TrackedColumns(Options):
    """Columns that tell what is new."""

    incrementing: Name | None = Field(None, description="Numbers that grow with each row. Absent: the primary key, if that is one column.")
    timestamp: Name | None = Field(None, description="When a row was changed last.")


class TableColumns(TrackedColumns):
    """Columns that tell what is new; those of some tables have other names."""

    tables: dict[Name, TrackedColumns] = Field({}, description="By table, as in public.orders: its columns, where they are other ones.")


class JdbcOptions(PolledOptions):
    """Rows of tables of a database, or of a query, through its JDBC driver, read by Spark."""

    type: Literal["jdbc"] = Field("jdbc", description="Rows of tables of a database, or of a query.")
    url: str = Field(
        pattern=r"^jdbc:[^\x00-\x1f]+$", max_length=4096, description="As in jdbc:postgresql://db1:5432/shop. No password in it."
    )
    user: str | None = Field(None, max_length=256, description="User of the database.")
    password: Secret | None = Field(None, description="Its password.")
    driver: str = Field(
        "",
        pattern=r"^(|/[^\x00]+\.jar|[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+)$",
        description="JDBC driver: Maven coordinates, group:artifact:version, or the path of a jar. Absent: the agent's choice for "
        "PostgreSQL, H2, MySQL, MariaDB, SQL Server and Oracle, fetched once.",
    )
    driver_class: str = Field("", pattern=r"^[A-Za-z0-9_.$]*$", description="Class of a driver that the agent does not know.")
    properties: dict[str, Secret] = Field({}, description="Further connection properties of the driver, such as sslmode: verify-full.")
    tables: tuple[Name, ...] = Field(
        (), description="Tables to read, as in public.orders; * and ? stand for any characters. New ones are found while it runs."
    )
    exclude: tuple[Name, ...] = Field((), description="Tables to leave out, as in tables.")
    query: str | None = Field(
        None,
        min_length=1,
        max_length=65536,
        description="A SELECT to read in place of tables. Its columns tell what is new, as those of a table do.",
    )
    mode: Mode = Field(
        description="bulk: everything, at each poll. incrementing: new rows, by a column of growing numbers. timestamp: new and changed "
        "rows, by a column with the time of the last change. timestamp_and_incrementing: by both."
    )
    columns: TableColumns = Field(TableColumns(), description="Columns that tell what is new.")
    key_field: Name | None = Field(
        None,
        description="Records get the primary key of their row as this field too, as in _key: one column as it is, several as texts with | "
        "between them. For record.key, where tables have keys of different names.",
    )
    start_at: Literal["beginning", "end"] = Field(
        "beginning", description="Where to begin when a table is first read: with all of its rows, or with later ones."
    )
    poll_interval: Duration = Field(
        5.0,
        ge=0.05,
        le=31_536_000,
        description="Time between two looks for new rows; with mode bulk from the end of one reading to the next.",
    )
    delay: Duration = Field(
        5.0,
        ge=0,
        le=86400,
        description="Modes with a timestamp, other databases than PostgreSQL: rows younger than this are not read yet; "
        "their transaction may not be the last with that time.",
    )
    look_back: Duration = Field(
        60.0,
        ge=0,
        le=86400,
        description="The same: how far behind the newest row late rows are still found. What was sent of them is remembered.",
    )
    gap_timeout: Duration = Field(
        60.0,
        ge=0,
        le=86400,
        description="Mode incrementing, databases other than PostgreSQL: how long a missing number is asked for again "
        "before it is given up.",
    )
    partitions: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of ranges of its key into which a table is split when all of it is read; tasks read them in parallel.",
    )
    batch_rows: int = Field(
        100_000,
        ge=1,
        le=1_000_000,
        description="Rows of one query at most. A batch may end before, by delivery.max_batch_bytes and max_batch_time.",
    )
    fetch_rows: int = Field(
        256,
        ge=1,
        le=100_000,
        description="Rows that the driver fetches at once. All of them are in memory: with rows of several MB set less.",
    )

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for options that exclude or lack each other."""
        if bool(self.tables) == (self.query is not None):
            raise ValueError("either tables or query, not both" if self.tables else "name tables, or give a query")
        if _SECRET.search(self.url):
            raise ValueError("url holds a password: write it as password, which is never shown; other secrets as properties")
        if driver_of(self.url) is None and not (self.driver and self.driver_class):
            raise ValueError(f"no driver is known for jdbc:{kind_of(self.url)}: name driver and driver_class")
        if self.query is not None and self.mode in ("incrementing", "timestamp_and_incrementing") and self.columns.incrementing is None:
            raise ValueError("a query has no primary key: name columns.incrementing")
        if self.mode.startswith("timestamp") and self.columns.timestamp is None and not self.columns.tables:
            raise ValueError("modes with a timestamp: name columns.timestamp")

    def tracked(self, table: str) -> TrackedColumns:
        """Returns the tracked columns of a table."""
        own = self.columns.tables.get(table)
        if own is None:
            return self.columns
        return TrackedColumns(incrementing=own.incrementing or self.columns.incrementing, timestamp=own.timestamp or self.columns.timestamp)
