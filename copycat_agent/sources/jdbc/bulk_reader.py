"""Mode `bulk`: reads all rows of a table in order of its key, and again after each poll interval."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from copycat_agent.extending import Finding, Position, Record
from copycat_agent.sources.jdbc.key_values import at_once, from_json
from copycat_agent.sources.jdbc.table_reader import TableReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from copycat_agent.sources.jdbc.chosen_tables import TrackedTable
    from copycat_agent.sources.jdbc.database import Database
    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions


class BulkReader(TableReader):
    """Positions {"run": number of the reading, "after": key of the last row, "range": the part of the key to read, "ended_ms"}.

    `ended_ms` is when the previous reading ended, epoch milliseconds; 0 while one is under way.
    """

    mark = "run"

    def __init__(self, options: JdbcOptions, database: Database) -> None:
        super().__init__(options, database)
        self._seen: dict[str, tuple[int, float]] = {}
        """By partition: the number of the next reading, and when this process first saw that the previous one had ended (monotonic)."""

    def look(self, key: str, tracked: TrackedTable, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterator[Finding]:
        if not saved:
            bounds = self._bounds(tracked.table)
            ends: list[int | None] = [None, *bounds, None]
            for number, span in enumerate(pairwise(ends)):
                one = f"{key}#{number}" if bounds else key
                yield self.found(one, tracked, {"run": 1, "after": None, "range": list(span), "ended_ms": 0})
            return
        for one, position in saved.items():
            self._targets.setdefault(one, position["run"])  # a run to the end reads once what is due
            is_over = to_the_end and self._targets[one] < position["run"]
            if position["ended_ms"] and (is_over or not self._is_due(one, position)):
                yield self.found(one, tracked, position)
            else:
                yield self.found(one, tracked, position, {"from": position})

    def _is_due(self, key: str, position: Position) -> bool:
        """Returns whether the next reading is due, which a clock that was set back since the previous one does not delay further."""
        number, now, interval = position["run"], time.monotonic(), self._options.poll_interval
        if self._seen.get(key, (0, 0.0))[0] != number:
            self._seen[key] = number, now
        return now - self._seen[key][1] >= interval or time.time() >= position["ended_ms"] / 1000 + interval

    def goes_on(self, begin: Position, position: Position) -> bool:
        return bool(begin == position or (begin["run"] == position["run"] and not position["ended_ms"]))

    def query(self, tracked: TrackedTable, position: Position, end: Position) -> tuple[str, dict[str, Any]]:
        del end
        begin, limit = self._select(tracked), self._options.batch_rows
        key = tracked.table.key if self._options.query is None else ()
        if not key:  # with a lower end of its range the table had one: its first range reads all of it now
            where = "" if position["range"][0] is None else " WHERE 1 = 0"
            return f"{begin}{where}", {"whole": True, "limit": 2**62, "key": []}
        names = [self._dialect.ordered(one, tracked.table) for one in key]
        ends = [f"{names[0]} {sign} {one}" for sign, one in zip((">", "<="), position["range"], strict=True) if one is not None]
        if position["after"] is not None and len(position["after"]) == len(names):  # else the key was altered: begin anew
            ends.append(self._dialect.behind(names, [self._dialect.value(from_json(one)) for one in position["after"]]))
        where = f" WHERE {' AND '.join(ends)}" if ends else ""
        return self._in_order(tracked, where, names, limit), {"limit": limit, "key": list(key)}

    def records(self, rows: Iterable[RecordBatch], start: Position, about: Mapping[str, Any]) -> Iterator[tuple[Record, Position]]:
        del start
        yield from at_once(rows, about["key"])

    def apply(self, start: Position, position: Position, about: Mapping[str, Any], *, finished: bool) -> Position:
        number, *after = position or (0,)
        if finished and number < about["limit"]:
            return {**start, "run": start["run"] + 1, "after": None, "ended_ms": int(time.time() * 1000)}
        return {**start, "after": after if number else start["after"], "ended_ms": 0}
