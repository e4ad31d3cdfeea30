"""Modes `incrementing` and `timestamp` on PostgreSQL: finds new rows by the transactions that wrote them, as `snapshots` explains."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from copycat_agent.extending import BlockedError, Finding, Gone, Position, Record
from copycat_agent.sources.jdbc.chosen_tables import TrackedTable, is_standby, tracked_of
from copycat_agent.sources.jdbc.database import Database, TableError
from copycat_agent.sources.jdbc.key_values import at_once
from copycat_agent.sources.jdbc.snapshots import STALE, SnapshotSql, SnapshotWindow, added_to, behind_window, tables_of, window_of
from copycat_agent.sources.jdbc.statements import HIDDEN
from copycat_agent.sources.jdbc.table_reader import TableReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions

FULL_SHARE = 20
"""Full looks at a table take at most 1/20 of the time: one that takes a second is repeated after twenty."""


class SnapshotReader(TableReader):
    """A `TableReader` with positions as `snapshots.Position`. Partitions `#N` are parts of a table's rows at its first look."""

    mark = "seen"

    def __init__(self, options: JdbcOptions, database: Database, changed: Callable[[], None]) -> None:
        """`changed` is called when a table's columns have changed."""
        super().__init__(options, database)
        self._changed = changed
        self._full_at: dict[str, float] = {}
        self._failed: set[str] = set()
        """Tables whose last full look failed."""
        self._shapes: dict[str, str] = {}

    def look(self, key: str, tracked: TrackedTable, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        position, loads = saved.get(key), {one: saved[one] for one in saved if one.startswith(f"{key}#")}
        sql = self._sql(tracked)
        if position is None:
            yield from self._begin(key, tracked, sql, loads)
            return
        for one, load in loads.items():
            yield Gone(one) if "done" in load else self.found(one, tracked, load, {"from": load, "window": load["window"]})
        if any("done" not in load for load in loads.values()):  # a newer version of a row must not go out before the one they read
            yield self.found(key, tracked, position)
        elif "window" in position:
            yield self.found(key, tracked, position, {"from": position, "window": position["window"]})
        elif to_the_end and position["recent"]["below"] >= self._targets.get(key, 2**63):
            yield self.found(key, tracked, position)
        else:
            yield self._look_behind(key, tracked, sql, position, to_the_end=to_the_end)

    def _look_behind(self, key: str, tracked: TrackedTable, sql: SnapshotSql, position: Position, *, to_the_end: bool) -> Finding:
        now, known = time.monotonic(), sql.known(position)
        full = to_the_end or now >= self._full_at.get(key, -math.inf)
        if not full and known.get("floor") is None:
            return self.found(key, tracked, position)
        try:
            window, full = self._window(key, sql, position, full=full)
        except TableError:  # for instance, it took too long
            self._failed.add(key)
            self._full_at[key] = time.monotonic() + (time.monotonic() - now) * FULL_SHARE
            raise
        took = time.monotonic() - now
        if self._shapes.get(key) != window.shape:
            now_tracked = self._refreshed(key, tracked, window.shape)
            return self._look_behind(key, now_tracked, self._sql(now_tracked), position, to_the_end=to_the_end)
        if full:
            self._failed.discard(key)
            self._full_at[key] = time.monotonic() + took * FULL_SHARE
        self._targets.setdefault(key, window.to["below"])
        is_old = window.to["below"] - position["recent"]["below"] > STALE
        is_old |= full and window.tables != position.get("tables")
        is_stale = is_old or (full and not window.is_held_back and known.get("floor") != known.get("top"))
        found = self.found(key, tracked, position)
        if window.rows or is_stale:
            end = {"from": position, "window": sql.window(window, full=full)}
            found = self.found(key, tracked, position, end, max(1, window.rows))
        if window.is_held_back:
            trouble = f"transaction {window.to['below']} has been open for long: rows of later ones wait for its end"
            found = found._replace(trouble=trouble)
        return found

    def _window(self, key: str, sql: SnapshotSql, position: Position, *, full: bool) -> tuple[SnapshotWindow, bool]:
        """Returns the window after a position, and whether the look was full. Tables that the position does not know need a full one."""
        window = window_of(self._database.rows(sql.look(position, full=full))[0], position["recent"])
        added = added_to(position, window.tables)
        if added and (full or key not in self._failed):
            window = window_of(self._database.rows(sql.look(position, full=True, added=added))[0], position["recent"])
            full, added = True, [one for one in added_to(position, window.tables) if one not in added]
        return window._replace(tables=[one for one in window.tables if one not in added]), full

    def _refreshed(self, key: str, tracked: TrackedTable, shape: str) -> TrackedTable:
        """Returns the table with its present columns, after a look has seen a new `shape`: the list of tables may be out of date."""
        table = self._database.table(tracked.table.name)
        if table is None:
            raise TableError(f"table {tracked.table.text} is not there any more", "it is left alone until it is")
        if table != tracked.table:
            self._changed()
        found = tracked_of(self._options, table)
        self._shapes[key] = shape
        return found

    def _begin(self, key: str, tracked: TrackedTable, sql: SnapshotSql, loads: Mapping[str, Position]) -> Iterator[Finding]:
        """Yields the partitions of a table that is new: its present rows may be read by several."""
        if is_standby(self._database):
            raise BlockedError("this PostgreSQL is a standby, which does not know what is being written", "give the URL of the primary")
        if loads:
            load: dict[str, Any] = next(iter(loads.values()))["load"]
            missing = [one for one in self._loads(key, load) if one[0] not in loads]
            yield from (self.found(one, tracked, position) for one, position in missing)
            if not missing:
                yield self.found(key, tracked, self._loaded(load))
            return
        everything: Position = {"seen": None}
        found = window_of(self._database.rows(sql.look(everything, full=True))[0], None)
        tracked = self._refreshed(key, tracked, found.shape)
        window = self._sql(tracked).window(found, full=True)
        load = {"window": window}
        if self._options.start_at == "end":
            yield self.found(key, tracked, self._loaded(load))
        elif found.rows and (bounds := self._bounds(tracked.table)):
            load["bounds"] = bounds
            yield from (self.found(one, tracked, position) for one, position in self._loads(key, load))
        else:
            yield self.found(key, tracked, {"seen": None, "recent": found.to, "window": window})

    @staticmethod
    def _loaded(load: Mapping[str, Any]) -> Position:
        window = load["window"]
        return {"seen": window["to"], "recent": window["to"], "floor": None, "top": window["top"], "by": window["by"], **tables_of(window)}

    @staticmethod
    def _loads(key: str, load: Mapping[str, Any]) -> list[tuple[str, Position]]:
        """Returns keys and positions of the partitions for the rows that a table has at first."""
        spans = pairwise([None, *load["bounds"], None])
        return [
            (f"{key}#{number}", {"seen": None, "window": load["window"], "range": list(span), "load": load})
            for number, span in enumerate(spans)
        ]

    def _sql(self, tracked: TrackedTable) -> SnapshotSql:
        column = tracked.time or tracked.number
        by_time, key_field = tracked.time is not None, self._options.key_field
        return SnapshotSql(self._dialect, tracked.table, column, by_time=by_time, key_field=key_field)

    def goes_on(self, begin: Position, position: Position) -> bool:
        if begin == position:
            return True
        if "window" not in position:
            return False
        return bool(begin.get("window", position["window"]) == position["window"] and begin["seen"] == position["seen"])

    def query(self, tracked: TrackedTable, position: Position, end: Position) -> tuple[str, dict[str, Any]]:
        # The window under way is the position's: a look beside its first batch may have found a larger one from the same start.
        sql, window, limit = self._sql(tracked), position.get("window", end["window"]), self._options.batch_rows
        return sql.rows(position, window, limit), {"limit": limit, "window": window, "keys": len(sql.key), "order": sql.order}

    def records(self, rows: Iterable[RecordBatch], start: Position, about: Mapping[str, Any]) -> Iterator[tuple[Record, Position]]:
        del start
        yield from at_once(rows, [f"{HIDDEN}{index}" for index in range(about["keys"])])

    def apply(self, start: Position, position: Position, about: Mapping[str, Any], *, finished: bool) -> Position:
        number, *after = position or (0,)
        here = {**start, "window": about["window"]} | ({"after": after, "order": about["order"]} if number else {})
        return behind_window(here) if finished and number < about["limit"] else here
