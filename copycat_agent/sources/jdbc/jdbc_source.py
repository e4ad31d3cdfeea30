"""The `FrameSource` of `jdbc`: lists the tables, and has each followed by the `TableReader` that mode and database call for."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from copycat_agent.extending import BlockedError, FatalError, Finding, Found, Position, Record, Schema, Stretch, Troubled, schema_of_rows
from copycat_agent.sources.jdbc.bulk_reader import BulkReader
from copycat_agent.sources.jdbc.chosen_tables import chosen_tables, tracked_of
from copycat_agent.sources.jdbc.database import Database, TableError, TableInfo, connection_properties, prepared, spark_options
from copycat_agent.sources.jdbc.numbered_reader import NumberedReader
from copycat_agent.sources.jdbc.snapshot_reader import SnapshotReader
from copycat_agent.sources.jdbc.statements import PACKED, PLACE, dialect_of, packed, packed_columns, shown, subquery
from copycat_agent.sources.jdbc.timed_reader import TimedReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions
    from copycat_agent.sources.jdbc.table_reader import TableReader

LIST_SECONDS = 30.0
"""Interval at which new and changed tables are looked for."""
_KEY_MOST = 150
"""Longest key of a partition without a hash, in characters."""


class JdbcSource:
    """A `FrameSource`."""

    def __init__(self, options: JdbcOptions, database: Database | None = None) -> None:
        """`database` replaces the one that the options name."""
        self._options = options
        self._database = database or Database(options)
        self._reader = self._chosen_reader()
        self._tables: dict[str, TableInfo] = {}
        self._left_out: set[str] = set()
        """Keys of tables that exist and are not read."""
        self._listed_at = -math.inf

    def _chosen_reader(self) -> TableReader:
        options, database = self._options, self._database
        if options.mode == "bulk":
            return BulkReader(options, database)
        if dialect_of(options.url).is_postgresql and options.query is None:
            return SnapshotReader(options, database, self._forget_tables)
        return NumberedReader(options, database) if options.mode == "incrementing" else TimedReader(options, database)

    def _forget_tables(self) -> None:
        self._listed_at = -math.inf

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        if time.monotonic() - self._listed_at >= LIST_SECONDS:
            self._list()
        found: list[Finding] = []
        errors: list[TableError] = []
        for key, table in self._tables.items():
            own = {one: saved[one] for one in saved if one == key or one.startswith(f"{key}#")}
            try:
                found += self._look_at(key, table, own, to_the_end=to_the_end)
            except TableError as error:
                trouble = f"{error.message}; {error.hint}"
                known = (Found(one, own[one], name=table.text, trouble=trouble) for one in own)
                found += known if own else [Troubled(table.text, trouble)]
                errors.append(error)
        if len(errors) == len(self._tables):
            self._forget_tables()
            raise errors[0]
        gone = (key for key in saved if "#" not in key and key not in {*self._tables, *self._left_out} and isinstance(saved[key], dict))
        words = "the table is not there any more; copycat offsets reset NAME --key {} forgets it"
        found += (Found(key, saved[key], trouble=words.format(key)) for key in gone)
        return found

    def _list(self) -> None:
        if self._options.query is not None:
            self._tables = {"query": self._database.query(f"SELECT * FROM {subquery(self._options.query)} WHERE 1 = 0")}
        else:
            names, left_out = chosen_tables(self._database, self._options)
            self._left_out = {key_of(one) for one in left_out}
            known = ((key_of(one), self._database.table(one)) for one in names)
            self._tables = {key: table for key, table in known if table is not None}
            if not self._tables:
                words = "the database has no table that source.tables stands for, or none that this user may see"
                raise BlockedError(words, "correct source.tables, or grant SELECT; copycat doctor lists what is there")
        self._listed_at = time.monotonic()

    def _look_at(self, key: str, table: TableInfo, own: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        if any(self._reader.mark not in position and "done" not in position for position in own.values()):
            words = f"what was saved of {table.text} is of another source.mode"
            raise FatalError(words, "set the mode back, or read anew: stop the connector, then copycat offsets reset NAME")
        yield from self._reader.look(key, tracked_of(self._options, table), own, to_the_end=to_the_end)

    def plan(self, found: Found, position: Position) -> Stretch | None:
        if found.end is None or not self._reader.goes_on(found.end["from"], position):
            return None
        tracked = self._reader.tracked_of(found)
        query, about = self._reader.query(tracked, position, found.end)
        whole, dialect = about.pop("whole", False), dialect_of(self._options.url)
        columns = None
        if self._options.query is None:
            columns = packed_columns(dialect, tracked.table, self._options.key_field, about.get("keys", 0))
        if columns is not None:
            query, about["packed"] = packed(dialect, query, columns), columns
        statement = query.encode("utf-8", "surrogatepass")
        return Stretch(found.key, found.name, position, about, statement, whole=whole)

    def frame(self, stretch: Stretch, session: SparkSession) -> DataFrame:
        options = self._options
        reader = session.read.format("jdbc").options(**connection_properties(options))
        reader = reader.options(**spark_options(options)).option("driver", prepared(session, options))
        reader = reader.option("preferTimestampNTZ", value=True)
        frame = reader.option("query", stretch.work.decode("utf-8", "surrogatepass")).load()
        if "packed" in stretch.end:
            return frame.toDF(PACKED + json.dumps(stretch.end["packed"]))
        return frame.sortWithinPartitions(PLACE) if PLACE in frame.columns else frame

    def read(self, stretch: Stretch, rows: Iterable[RecordBatch]) -> Iterator[tuple[Record, Position]]:
        from copycat_agent.sources.jdbc.packed_rows import unpacked  # noqa: PLC0415 - imports pyarrow, 0.15 s, which tasks have

        return self._reader.records(map(unpacked, rows), stretch.start, stretch.end)

    def schema(self, rows: RecordBatch) -> Schema | None:
        from copycat_agent.sources.jdbc.packed_rows import unpacked  # noqa: PLC0415 - as above

        rows = unpacked(rows)
        return schema_of_rows(rows.select(shown(rows.schema.names)))

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        return self._reader.apply(stretch.start, position, stretch.end, finished=finished)

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Does nothing: the database keeps no positions."""

    def close(self) -> None:
        self._database.close()


def key_of(name: tuple[str, ...]) -> str:
    """Returns the partition key of a table: its quoted name; a long name is cut and gets a hash."""
    text = quote(".".join(name), safe="._-$")
    if len(text) <= _KEY_MOST:
        return text
    return f"{text[:_KEY_MOST]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"
