"""Source `jdbc`: which tables there are, what is new in each, and its records with their positions."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from copycat_agent.extending import BlockedError, FatalError, Found, Gone, Position, Record, Stretch, fields_of_rows, schema_of_rows
from copycat_agent.sources.jdbc.chosen_tables import Tracked, chosen_tables, is_standby, tracked_of
from copycat_agent.sources.jdbc.database import ColumnInfo, Database, TableError, TableInfo, connection_properties, prepared
from copycat_agent.sources.jdbc.snapshots import STALE, SnapshotSql, behind_window, window_of
from copycat_agent.sources.jdbc.statements import HIDDEN, dialect_of, selected
from copycat_agent.sources.jdbc.tracked_rows import NumberedRows, TimedRows, from_json, micros_of_text, to_json

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

    from copycat_agent.extending import Finding, Schema
    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions

LIST_SECONDS = 30.0
"""Between two looks for new tables, and changed ones."""
FULL_SHARE = 20
"""A full look at a table takes at most this part of the time: one that takes a second comes every twenty."""
SURE_SECONDS = 15.0
"""Rows of the look back are read again so often, though none seems to have come: one may have gone as well."""
WHOLE_BYTES = 2**26
"""A table without a key is read as one, and may have no more."""
_KEY_MOST = 150
_POSTGRESQL_WHOLE = {"int2", "int4", "int8", "smallserial", "serial", "bigserial"}
_WHOLE = _POSTGRESQL_WHOLE | {"integer", "bigint", "smallint", "int", "tinyint"}
"""Types by whose ranges a table is cut."""


class JdbcSource:
    """A `FrameSource`."""

    def __init__(self, options: JdbcOptions, database: Database | None = None) -> None:
        """`database`: what is asked, where it is another one than the options say."""
        self._options = options
        self._dialect = dialect_of(options.url)
        self._database = database or Database(options)
        self._tables: dict[str, TableInfo] = {}
        self._listed_at = -math.inf
        self._full_at: dict[str, float] = {}
        self._counted: dict[str, tuple[Position, float]] = {}
        self._targets: dict[str, int] = {}
        self._shapes: dict[str, str] = {}

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        self._list()
        found: list[Finding] = []
        for key, table in self._tables.items():
            found += self._look_at(key, table, saved, to_the_end=to_the_end)
        gone = (key for key in saved if "#" not in key and key not in self._tables and isinstance(saved[key], dict))
        found += (Found(key, saved[key], trouble="the table is not there any more") for key in gone)
        return found

    def _list(self) -> None:
        if time.monotonic() - self._listed_at < LIST_SECONDS:
            return
        if self._options.query is not None:
            self._tables = {"query": TableInfo(("query",), (), ())}
        else:
            known = ((key_of(one), self._database.table(one)) for one in chosen_tables(self._database, self._options))
            self._tables = {key: table for key, table in known if table is not None}
            if not self._tables:
                words = "the database has no table that source.tables stands for, or none that this user may see"
                raise BlockedError(words, "correct source.tables, or grant SELECT; copycat doctor lists what is there")
        self._listed_at = time.monotonic()

    def _look_at(self, key: str, table: TableInfo, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        try:
            yield from self._look_by_mode(key, tracked_of(self._options, table), saved, to_the_end=to_the_end)
        except TableError as error:
            yield Found(key, saved.get(key), name=table.text, trouble=error.message)

    def _look_by_mode(self, key: str, tracked: Tracked, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        if self._options.mode == "bulk":
            yield from self._look_at_all(key, tracked, saved, to_the_end=to_the_end)
        elif self._dialect.is_postgresql and self._options.query is None:
            yield from self._look_at_snapshot(key, tracked, saved, to_the_end=to_the_end)
        elif tracked.time is None:
            yield self._look_at_numbers(key, tracked, saved.get(key), to_the_end=to_the_end)
        else:
            yield self._look_at_times(key, tracked, saved.get(key), to_the_end=to_the_end)

    def _found(self, key: str, tracked: Tracked, position: Position, end: Position = None, rows: int = 1) -> Found:
        table = tracked.table
        work = json.dumps([table, tracked.number, tracked.time]).encode() if end is not None else b""
        return Found(key, position, end, unread=rows if end is not None else 0, name=table.text, work=work)

    def _snapshot_sql(self, tracked: Tracked) -> SnapshotSql:
        column = tracked.time or tracked.number
        by_time, key_field = tracked.time is not None, self._options.key_field
        return SnapshotSql(self._dialect, tracked.table, column, by_time=by_time, key_field=key_field)

    def _look_at_snapshot(self, key: str, tracked: Tracked, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        position, loads = saved.get(key), {one: saved[one] for one in saved if one.startswith(f"{key}#")}
        sql = self._snapshot_sql(tracked)
        if position is None:
            yield from self._begin(key, tracked, sql, loads)
            return
        for one, load in loads.items():
            yield Gone(one) if "done" in load else self._found(one, tracked, load, {"from": load, "window": load["window"]})
        if "window" in position:
            yield self._found(key, tracked, position, {"from": position, "window": position["window"]})
            return
        if to_the_end and position["recent"]["below"] >= self._targets.get(key, 2**63):
            yield self._found(key, tracked, position)
            return
        now, known = time.monotonic(), sql.known(position)
        full = to_the_end or now >= self._full_at.get(key, 0.0)
        if not full and known.get("floor") is None:
            yield self._found(key, tracked, position)
            return
        window = window_of(self._database.rows(sql.look(position, full=full))[0], position["recent"])
        took = time.monotonic() - now
        if self._shapes.setdefault(key, window.shape) != window.shape:
            self._shapes[key], self._listed_at = window.shape, -math.inf
            yield self._found(key, tracked, position)
            return
        if full:
            self._full_at[key] = time.monotonic() + took * FULL_SHARE
        self._targets.setdefault(key, window.to["below"])
        is_old = window.to["below"] - position["recent"]["below"] > STALE
        is_stale = is_old or (full and not window.is_held_back and known.get("floor") != known.get("top"))
        found = self._found(key, tracked, position)
        if window.rows or is_stale:
            end = {"from": position, "window": sql.window(window, full=full)}
            found = self._found(key, tracked, position, end, max(1, window.rows))
        if window.is_held_back:
            trouble = f"transaction {window.to['below']} has been open for long: rows of later ones wait for its end"
            found = found._replace(trouble=trouble)
        yield found

    def _begin(self, key: str, tracked: Tracked, sql: SnapshotSql, loads: Mapping[str, Position]) -> Iterator[Finding]:
        """A table that is met for the first time. What is in it is read by as many partitions as the definition says."""
        self._check_primary()
        if loads:
            load: dict[str, Any] = next(iter(loads.values()))["load"]
            missing = [one for one in self._loads(key, load) if one[0] not in loads]
            yield from (self._found(one, tracked, position) for one, position in missing)
            if not missing:
                yield self._found(key, tracked, self._loaded(load))
            return
        everything: Position = {"seen": None}
        found = window_of(self._database.rows(sql.look(everything, full=True))[0], None)
        window = sql.window(found, full=True)
        load = {"window": window}
        if self._options.start_at == "end":
            yield self._found(key, tracked, self._loaded(load))
            return
        bounds = self._bounds(tracked.table, self._options.partitions)
        if found.rows and bounds and self._options.partitions > 1:
            load["bounds"] = bounds
            yield from (self._found(one, tracked, position) for one, position in self._loads(key, load))
            return
        yield self._found(key, tracked, {"seen": None, "recent": found.to, "window": window})

    @staticmethod
    def _loaded(load: Mapping[str, Any]) -> Position:
        window = load["window"]
        return {"seen": window["to"], "recent": window["to"], "floor": None, "top": window["top"], "by": window["by"]}

    @staticmethod
    def _loads(key: str, load: Mapping[str, Any]) -> list[tuple[str, Position]]:
        """The partitions of what is in a table when it is first met."""
        spans = pairwise([None, *load["bounds"], None])
        return [
            (f"{key}#{number}", {"seen": None, "window": load["window"], "range": list(span), "load": load})
            for number, span in enumerate(spans)
        ]

    def _bounds(self, table: TableInfo, partitions: int) -> list[int]:
        """Keys at which a table is cut into ranges of about the same width; none where its key is no single whole number."""
        kinds = {one.name: one.type_name.lower() for one in table.columns}
        if partitions == 1 or len(table.key) != 1 or kinds[table.key[0]] not in _WHOLE:
            return []
        column = self._dialect.name(table.key[0])
        ((low, high),) = self._database.rows(f"SELECT min({column}), max({column}) FROM {self._dialect.name(*table.name)}")
        if low is None or high is None:
            return []
        first, width = int(low), int(high) - int(low) + 1
        return sorted({first - 1 + width * one // partitions for one in range(1, partitions)})

    def _check_primary(self) -> None:
        """Raises BlockedError on a standby: it does not know which transactions run."""
        if is_standby(self._database):
            raise BlockedError("this PostgreSQL is a standby, which does not know what is being written", "give the URL of the primary")

    def _look_at_numbers(self, key: str, tracked: Tracked, position: Position, *, to_the_end: bool) -> Found:
        if position is None:
            greatest = self._greatest(tracked)
            last, top = (None, greatest) if self._options.start_at == "beginning" else (greatest, None)
            return self._found(key, tracked, {"last": last, "gaps": [], "top": top, "missing": 0, "asked_ms": 0})
        numbers = self._numbers(tracked)
        condition, overdue = numbers.condition(position), numbers.overdue(position, int(time.time() * 1000))
        if to_the_end:
            if key not in self._targets:
                self._targets[key] = -(2**63) if (target := self._greatest(tracked)) is None else target
            condition += f" AND {numbers.order} <= {self._targets[key]}"
        rows, _ = self._count(tracked, condition)
        if not rows and overdue is None:
            return self._found(key, tracked, position)
        return self._found(key, tracked, position, {"from": position, "overdue": overdue}, max(1, rows))

    def _greatest(self, tracked: Tracked) -> int | None:
        """The largest number of all rows. Raises FatalError where that is none."""
        found = self._database.rows(f"SELECT max({self._dialect.name(tracked.number or '')}) FROM {self._source(tracked)}")[0][0]
        try:
            return None if found is None else int(Decimal(found))
        except (ArithmeticError, ValueError):
            words = f"column {tracked.number} of {tracked.table.text} holds no numbers"
        raise FatalError(words, "name another column in source.columns.incrementing")

    def _look_at_times(self, key: str, tracked: Tracked, position: Position, *, to_the_end: bool) -> Found:
        if position is None:
            return self._found(key, tracked, self._first_time(tracked))
        if to_the_end and position["passes"] >= self._targets.setdefault(key, position["passes"] + 1 + (position["at"] is not None)):
            return self._found(key, tracked, position)
        delay = None if not self._options.delay else 0.0 if to_the_end else self._options.delay
        rows, newest = self._count(tracked, self._times(tracked).condition(position, delay), tracked.time)
        state: Position = {**position, "passes": 0, "counted": [rows, newest]}
        before, at = self._counted.get(key, (None, 0.0))
        is_known = before == state and position["at"] is None and time.monotonic() - at < max(self._options.look_back / 4, SURE_SECONDS)
        if not rows or (is_known and not to_the_end):
            return self._found(key, tracked, position)
        self._counted[key] = state, time.monotonic()
        limit = self._options.batch_rows + len(position["recent"])
        return self._found(key, tracked, position, {"from": position, "delay": delay, "limit": limit}, rows)

    def _first_time(self, tracked: Tracked) -> Position:
        """Where a first start begins: before everything, or behind the newest row that is there."""
        kinds = {one.name: one.type_name.lower() for one in tracked.table.columns}
        kind, begin = kinds.get(tracked.time or "", ""), None
        zoned = "with time zone" in kind or "offset" in kind
        if self._options.start_at == "end":
            column, ago = self._dialect.name(tracked.time or ""), self._dialect.seconds_ago(0, zoned=zoned)
            where = f" WHERE {column} <= {ago}" if self._options.delay else ""
            if (newest := self._database.rows(f"SELECT max({column}) FROM {self._source(tracked)}{where}")[0][0]) is not None:
                begin, zoned = micros_of_text(newest)
        floor = None if begin is None else begin + 1
        return {"last": begin, "since": begin, "at": None, "after": None, "recent": [], "floor": floor, "zoned": zoned, "passes": 0}

    def _count(self, tracked: Tracked, condition: str, column: str | None = None) -> tuple[int, str | None]:
        """How many rows there are, and the largest value of a column."""
        largest = "NULL" if column is None else f"max({self._dialect.name(column)})"
        ((rows, newest),) = self._database.rows(f"SELECT count(*), {largest} FROM {self._source(tracked)} WHERE {condition}")
        return int(rows or 0), newest

    def _numbers(self, tracked: Tracked) -> NumberedRows:
        return NumberedRows(self._dialect, tracked.number or "", self._options.gap_timeout)

    def _times(self, tracked: Tracked) -> TimedRows:
        key = tracked.table.key or (() if tracked.number is None else (tracked.number,))
        return TimedRows(self._dialect, tracked.time or "", key, self._options.look_back)

    def _source(self, tracked: Tracked) -> str:
        """What stands behind FROM."""
        if self._options.query is None:
            return self._dialect.name(*tracked.table.name)
        return f"({self._options.query}) copycat_q"

    def _look_at_all(self, key: str, tracked: Tracked, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        known = {one: saved[one] for one in saved if one == key or one.startswith(f"{key}#")}
        if not known:
            bounds = self._bounds(tracked.table, self._options.partitions) if self._options.query is None else []
            ends: list[int | None] = [None, *bounds, None]
            for number, span in enumerate(pairwise(ends)):
                one = f"{key}#{number}" if bounds else key
                yield self._found(one, tracked, {"run": 1, "after": None, "range": list(span), "ended_ms": 0})
            return
        for one, position in known.items():
            self._targets.setdefault(one, position["run"])  # a run to the end reads once what is due
            is_due = not position["ended_ms"] or time.time() * 1000 >= position["ended_ms"] + self._options.poll_interval * 1000
            if position["ended_ms"] and (not is_due or (to_the_end and self._targets[one] < position["run"])):
                yield self._found(one, tracked, position)
            else:
                yield self._found(one, tracked, position, {"from": position})

    def plan(self, found: Found, position: Position) -> Stretch | None:
        end = found.end
        if end is None or not _goes_on(end["from"], position):
            return None
        table, number, moment = json.loads(found.work)
        columns = tuple(ColumnInfo(*one) for one in table[1])
        tracked = Tracked(TableInfo(tuple(table[0]), columns, tuple(table[2])), number, moment)
        query, about = self._query(tracked, position, end)
        whole = about.pop("whole", False)
        statement = query.encode("utf-8", "surrogatepass")
        return Stretch(found.key, found.name, position, about, statement, whole=whole, most_bytes=WHOLE_BYTES)

    def _query(self, tracked: Tracked, position: Position, end: Position) -> tuple[str, dict[str, Any]]:
        """The statement, and what the task has to know."""
        limit, table = self._options.batch_rows, tracked.table
        if "window" in end:
            sql, window = self._snapshot_sql(tracked), end["window"]
            about = {"kind": "snapshot", "limit": limit, "window": window, "keys": len(sql.key)}
            return sql.rows(position, window, limit), about
        columns = "*" if self._options.query is not None else selected(self._dialect, table, self._options.key_field)
        begin = f"SELECT {columns} FROM {self._source(tracked)}"
        if "overdue" in end:
            numbers = self._numbers(tracked)
            query = f"{begin} WHERE {numbers.condition(position)} ORDER BY {numbers.order}"
            about = {"kind": "numbers", "limit": limit, "column": tracked.number, "overdue": end["overdue"]}
            return self._dialect.limited(query, limit + 1), about
        if "delay" in end:
            times = self._times(tracked)
            query = f"{begin} WHERE {times.condition(position, end['delay'])} ORDER BY {times.order}"
            limit = self._options.batch_rows + len(position["recent"])
            about = {
                "kind": "times",
                "limit": limit,
                "table": [list(table.name), list(table.key)],
                "number": tracked.number,
                "time": tracked.time,
            }
            return self._dialect.limited(query, limit), about
        key = table.key if self._options.query is None else ()
        if not key:
            return begin, {"kind": "all", "whole": True, "limit": 2**62, "key": []}
        names = [self._dialect.name(one) for one in key]
        ends = [f"{names[0]} {sign} {one}" for sign, one in zip((">", "<="), position["range"], strict=True) if one is not None]
        if position["after"] is not None:
            ends.append(self._dialect.behind(names, [self._dialect.value(from_json(one)) for one in position["after"]]))
        where = f" WHERE {' AND '.join(ends)}" if ends else ""
        query = f"{begin}{where} ORDER BY {', '.join(names)}"
        return self._dialect.limited(query, limit), {"kind": "all", "limit": limit, "key": list(key)}

    def frame(self, stretch: Stretch, session: SparkSession) -> DataFrame:
        options = self._options
        reader = session.read.format("jdbc").options(**connection_properties(options))
        reader = reader.option("url", options.url).option("driver", prepared(session, options))
        reader = reader.option("fetchsize", options.fetch_rows).option("preferTimestampNTZ", value=True)
        return reader.option("query", stretch.work.decode("utf-8", "surrogatepass")).load()

    def read(self, stretch: Stretch, rows: Iterable[RecordBatch]) -> Iterator[tuple[Record, Position]]:
        about, start = stretch.end, stretch.start
        if about["kind"] == "snapshot":
            yield from _snapshot_records(rows, start, about)
        elif about["kind"] == "numbers":
            numbers = NumberedRows(self._dialect, about["column"], 0.0)
            yield from numbers.records(_all_of(rows), start, limit=about["limit"], overdue=about["overdue"])
        elif about["kind"] == "times":
            yield from self._times_of(about).records(_all_of(rows), start)
        else:
            for number, row in enumerate(_all_of(rows), 1):
                after = [to_json(row[name]) for name in about["key"]]
                yield row, None if stretch.whole else {**start, "after": after, "rows": number}

    def _times_of(self, about: Mapping[str, Any]) -> TimedRows:
        name, key = about["table"]
        return self._times(Tracked(TableInfo(tuple(name), (), tuple(key)), about["number"], about["time"]))

    def schema(self, rows: RecordBatch) -> Schema | None:
        return schema_of_rows(rows.select(_shown(rows)))

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        about, start = stretch.end, stretch.start
        if about["kind"] == "times":
            return self._times_of(about).behind(start, position, about["limit"], finished=finished)
        if about["kind"] == "numbers":
            numbers = NumberedRows(self._dialect, about["column"], 0.0)
            return numbers.behind(start, position, int(time.time() * 1000), about["overdue"])
        is_over = finished and (position is None or position["rows"] < about["limit"])
        here = start if position is None else {name: value for name, value in position.items() if name != "rows"}
        if about["kind"] == "snapshot":
            return behind_window({**here, "window": about["window"]}) if is_over else {**here, "window": about["window"]}
        if not is_over:
            return {**here, "ended_ms": 0}
        return {**start, "run": start["run"] + 1, "after": None, "ended_ms": int(time.time() * 1000)}

    def committed(self, positions: Mapping[str, Position]) -> None:
        """The database need not know."""

    def close(self) -> None:
        self._database.close()


def _goes_on(begin: Position, position: Position) -> bool:
    """Whether a position is the one that a look began with, or one on the way from there through what it found."""
    if begin == position:
        return True
    if "window" in position:
        return bool(begin.get("window", position["window"]) == position["window"] and begin["seen"] == position["seen"])
    if "at" in position and position["at"] is not None:
        return True
    return "run" in position and bool(begin["run"] == position["run"]) and not position["ended_ms"]


def _snapshot_records(rows: Iterable[RecordBatch], start: Position, about: Mapping[str, Any]) -> Iterator[tuple[Record, Position]]:
    begin = {**start, "window": about["window"]}
    number = 0
    for batch in rows:
        keys = [batch.column(f"{HIDDEN}{index}").to_pylist() for index in range(about["keys"])]
        for fields, *after in zip(fields_of_rows(batch.select(_shown(batch))), *keys, strict=True):
            number += 1
            yield fields, {**begin, "after": after, "rows": number}


def _all_of(rows: Iterable[RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in rows:
        yield from fields_of_rows(batch)


def _shown(batch: RecordBatch) -> list[str]:
    return [name for name in batch.schema.names if not name.startswith(HIDDEN)]


def key_of(name: tuple[str, ...]) -> str:
    """The partition of a table: its name, where that is short and plain."""
    text = quote(".".join(name), safe="._-$")
    if len(text) <= _KEY_MOST:
        return text
    return f"{text[:_KEY_MOST]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"
