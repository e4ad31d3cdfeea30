"""Modes with a timestamp on databases that do not tell which transaction wrote a row: finds new rows by the time of their last change.

New rows lie between the newest time read, less a look back, and now, less a delay. Rows of the look back that were sent are remembered.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from copycat_agent.extending import FatalError, Finding, Record
from copycat_agent.sources.jdbc.key_values import EPOCH, LOWEST, Row, each_row, from_json, micros_of, micros_of_text, spelt, to_json
from copycat_agent.sources.jdbc.table_reader import TableReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from copycat_agent.sources.jdbc.chosen_tables import TrackedTable
    from copycat_agent.sources.jdbc.database import Database
    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions
    from copycat_agent.sources.jdbc.statements import Dialect

Position = dict[str, Any]

RECENT_MOST = 5000
"""Most rows of the look back that are remembered. With more, the look back gets shorter."""
_FIRST_US = -62_135_596_800_000_000
"""The begin of the year 1: no literal has an older time."""
SURE_SECONDS = 15.0
"""Least interval at which the look back is read again although its number of rows is the same: one may have come as another went."""


class TimedRows:
    """Finds rows by time, in passes from the beginning of the look back to the newest row. Times are microseconds from 1970.

    Positions: `last` is the newest time read, `at` how far a pass has come, None between two. The look back is counted from `since`, the
    newest time when the previous pass began, because rows also appear during a pass. `recent` are [time, mark] of the rows sent. Rows older
    than `floor` have no marks any more and are not looked for again. `after` is the key of the last row sent, if more rows have the time
    `at` than are remembered. `zoned`: the column has a zone. `passes` counts passes.
    """

    def __init__(self, dialect: Dialect, column: str, key: Sequence[str], look_back_seconds: float) -> None:
        self._dialect = dialect
        self._column = column
        self._key = tuple(key)
        self._back_us = int(look_back_seconds * 1_000_000)

    def condition(self, position: Position, delay_seconds: float | None) -> str:
        """Returns the SQL condition for the next rows of a pass, older than the delay; None: whatever the database's clock says."""
        name, zoned = self._dialect.name(self._column), position["zoned"]
        ago = None if delay_seconds is None else self._dialect.seconds_ago(delay_seconds, zoned=zoned)
        parts = [] if ago is None else [f"{name} <= {ago}"]
        if (begin := self.begin_of(position)) is None:
            parts.append(self._dialect.has_time(name))
        else:
            parts.append(f"{name} >= {self._literal(begin, zoned=zoned)}")
        if begin is not None and position["after"]:
            keys, values = (
                [self._dialect.name(one) for one in self._key],
                [self._dialect.value(from_json(one)) for one in position["after"]],
            )
            parts.append(f"({name} >= {self._literal(begin + 1, zoned=zoned)} OR {self._dialect.behind(keys, values)})")
        return " AND ".join(parts)

    def begin_of(self, position: Position) -> int | None:
        """Returns the oldest time to read next; None at the beginning."""
        at, since, floor = position["at"], position["since"], position["floor"]
        if at is not None or since is None:
            return None if at is None else int(at)
        return max(int(since) - self._back_us, _FIRST_US if floor is None else int(floor))

    @property
    def order(self) -> list[str]:
        """SQL of the columns by which the rows are ordered."""
        return [self._dialect.ordered(one) for one in (self._column, *self._key)]

    def _literal(self, micros: int, *, zoned: bool) -> str:
        moment = EPOCH + timedelta(microseconds=micros)
        return self._dialect.value(moment.replace(tzinfo=UTC) if zoned else moment)

    def records(self, rows: Iterable[Row], start: Position) -> Iterator[tuple[Record, Position]]:
        """Yields rows that were not sent before, each with a position. `rows` are in order of time.

        Positions share the lists `fresh` and `read`, so that they cost little. Raises FatalError for a row without a time.
        """
        known, fresh, read = {one[1] for one in start["recent"]}, list[list[Any]](), [0]
        times: Counter[str] = Counter()  # identical rows are distinguished by their number
        for row in rows:
            read[0] += 1
            micros, zoned = micros_of(row[spelt(row, self._column)])
            key = [row[spelt(row, one)] for one in self._key]
            mark = self._mark(row)
            times[mark] += 1
            mark = mark if times[mark] == 1 else f"{mark}-{times[mark]}"
            if mark not in known:
                fresh.append([micros, mark])
                yield row, {"fresh": fresh, "sent": len(fresh), "zoned": zoned, "key": key, "read": read}

    def behind(self, start: Position, position: Position | None, limit: int, *, finished: bool) -> Position:
        """Returns the position after what was sent. `finished`: all rows of the query, `limit` at most, were.

        Raises FatalError for too many rows with the same time.
        """
        is_over = finished and (position is None or position["read"][0] < limit)
        sent = [] if position is None else position["fresh"][: position["sent"]]
        at, floor = sent[-1][0] if sent else start["at"], start["floor"]
        newest = max((one for one in (at, start["last"]) if one is not None), default=None)
        passes = start["passes"] + is_over
        if newest is None:
            return {**start, "passes": passes}
        since = newest if start["last"] is None else start["last"]
        oldest = since - self._back_us if is_over else min(since - self._back_us, at)
        recent, after = sorted(one for one in (*start["recent"], *sent) if one[0] >= oldest), None
        if len(recent) > RECENT_MOST:
            floor = max(recent[-RECENT_MOST - 1][0] + 1, LOWEST if floor is None else floor)
        if not is_over and ((floor is not None and floor > at) or (start["after"] and at == start["at"])):
            after = self._key_behind(start, position, at)
            recent = [one for one in start["recent"] if one[0] >= at]
        elif floor is not None:
            recent = [one for one in recent if one[0] >= floor]
        zoned = start["zoned"] if position is None else position["zoned"]
        done: Position = {"after": after, "zoned": zoned, "recent": recent, "floor": floor, "passes": passes}
        if is_over:
            return {"last": newest, "at": None, "since": since, **done}
        return {"last": start["last"], "at": at, "since": start["since"], **done}

    def _key_behind(self, start: Position, position: Position | None, at: int) -> list[Any]:
        """Returns the key at which a pass goes on among more rows of one time than are remembered."""
        if position is None and start["at"] == at:
            return list(start["after"])
        key = [] if position is None else position["key"]
        if not key or None in key:
            words = f"more than {RECENT_MOST:,} rows have the same {self._column}, or come within the look back and late"
            raise FatalError(words, "give the table a primary key, name a column with finer times, or shorten source.look_back")
        return [to_json(one) for one in key]

    @staticmethod
    def _mark(row: Row) -> str:
        """Returns a hash of all values, because a row can change while its time stays the same."""
        return hashlib.blake2b(repr(list(row.values())).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class TimedReader(TableReader):
    """A `TableReader` that uses `TimedRows`."""

    mark = "passes"

    def __init__(self, options: JdbcOptions, database: Database) -> None:
        super().__init__(options, database)
        self._counted: dict[str, tuple[Position, float]] = {}

    def look(self, key: str, tracked: TrackedTable, saved: Mapping[str, Any], *, to_the_end: bool) -> Iterator[Finding]:
        position = saved.get(key)
        if position is None:
            yield self.found(key, tracked, self._first(tracked))
            return
        if to_the_end and position["passes"] >= self._targets.setdefault(key, position["passes"] + 1 + (position["at"] is not None)):
            yield self.found(key, tracked, position)
            return
        delay = None if not self._options.delay else 0.0 if to_the_end else self._options.delay
        rows, newest = self._count(tracked, self._rows_by(tracked).condition(position, delay), tracked.time)
        state: Position = {**position, "passes": 0, "counted": [rows, newest]}
        before, at = self._counted.get(key, (None, 0.0))
        is_known = before == state and position["at"] is None and time.monotonic() - at < max(self._options.look_back / 4, SURE_SECONDS)
        if not rows or (is_known and not to_the_end):
            yield self.found(key, tracked, position)
            return
        self._counted[key] = state, time.monotonic()
        yield self.found(key, tracked, position, {"from": position, "delay": delay}, rows)

    def _first(self, tracked: TrackedTable) -> Position:
        """Returns the first position: before all rows, or after the newest."""
        kind = next((one.type_name for one in tracked.table.columns if one.name == tracked.time), "")
        begin, zoned = None, self._dialect.has_zone(kind)
        if self._options.start_at == "end":
            column, ago = self._dialect.name(tracked.time or ""), self._dialect.seconds_ago(0, zoned=zoned)
            where = f" WHERE {column} <= {ago}" if self._options.delay else ""
            if (newest := self._database.rows(f"SELECT max({column}) FROM {self._source(tracked)}{where}")[0][0]) is not None:
                begin, zoned = micros_of_text(newest)
        floor = None if begin is None else begin + 1
        return {"last": begin, "since": begin, "at": None, "after": None, "recent": [], "floor": floor, "zoned": zoned, "passes": 0}

    def _rows_by(self, tracked: TrackedTable) -> TimedRows:
        return TimedRows(self._dialect, tracked.time or "", _key_of(tracked), self._options.look_back)

    def goes_on(self, begin: Position, position: Position) -> bool:
        return bool(begin == position or position["at"] is not None)

    def query(self, tracked: TrackedTable, position: Position, end: Position) -> tuple[str, dict[str, Any]]:
        times, limit = self._rows_by(tracked), self._options.batch_rows + len(position["recent"])
        query = self._in_order(tracked, f" WHERE {times.condition(position, end['delay'])}", times.order, limit)
        return query, {"limit": limit, "time": tracked.time, "key": _key_of(tracked)}

    def records(self, rows: Iterable[RecordBatch], start: Position, about: Mapping[str, Any]) -> Iterator[tuple[Record, Position]]:
        yield from self._rows_of(about).records(each_row(rows), start)

    def apply(self, start: Position, position: Position | None, about: Mapping[str, Any], *, finished: bool) -> Position:
        return self._rows_of(about).behind(start, position, about["limit"], finished=finished)

    def _rows_of(self, about: Mapping[str, Any]) -> TimedRows:
        return TimedRows(self._dialect, about["time"], about["key"], self._options.look_back)


def _key_of(tracked: TrackedTable) -> list[str]:
    """Returns the columns that tell rows of one time apart."""
    return list(tracked.table.key) or ([] if tracked.number is None else [tracked.number])
