"""New rows by the values of columns, for databases that do not say which transaction wrote a row.

`NumberedRows`: rows above the largest number, and the numbers that are missing below it, since a transaction that began earlier may end
later. A number that stays missing is given up after a while, and told. `TimedRows`: rows that are not older than the newest less a look
back, up to a delay before now; what was sent of them is remembered.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from copycat_agent.extending import FatalError, LostRecords, Record
from copycat_agent.sources.jdbc.statements import Dialect

Position = dict[str, Any]
Row = dict[str, Any]

GAPS_MOST = 1000
"""Ranges of missing numbers that are asked for. With more, the oldest are given up."""
RECENT_MOST = 6000
"""Rows of the look back that are remembered. With more, it is shorter."""
_SHOWN = 5
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone


class NumberedRows:
    """Positions {"last": the largest number, None before the first row, "gaps": [[first, last, since when, epoch ms], ...], "asked_ms"}."""

    def __init__(self, dialect: Dialect, column: str, gap_seconds: float) -> None:
        self._dialect = dialect
        self._column = column
        self._gap_ms = int(gap_seconds * 1000)

    def expired(self, position: Position, now_ms: int) -> list[list[int]]:
        """The gaps that are given up now."""
        gaps = position["gaps"]
        return [gap for index, gap in enumerate(gaps) if now_ms - gap[2] >= self._gap_ms or index < len(gaps) - GAPS_MOST]

    def condition(self, position: Position, expired: Sequence[list[int]]) -> str:
        """Of the rows that are new."""
        name, last = self._dialect.name(self._column), position["last"]
        if last is None:
            return f"{name} IS NOT NULL"
        parts = [f"{name} > {last}"]
        parts += [f"{name} BETWEEN {first} AND {end}" for first, end, since in position["gaps"] if [first, end, since] not in expired]
        return f"({' OR '.join(parts)})"

    @property
    def order(self) -> str:
        """Of the rows."""
        return self._dialect.name(self._column)

    def records(self, rows: Iterator[Row], start: Position, end: Row) -> Iterator[tuple[Record, Position]]:
        """Rows in order of the column. Raises FatalError for one without a number."""
        last, gaps, now_ms, number = start["last"], start["gaps"], end["now_ms"], 0
        if expired := end["expired"]:
            gaps = [gap for gap in gaps if gap not in expired]
            shown = ", ".join(f"{first}" if first == final else f"{first} to {final}" for first, final, _ in expired[:_SHOWN])
            more = f" and {len(expired) - _SHOWN} more ranges" if len(expired) > _SHOWN else ""
            why = (
                f"no rows with {self._column} {shown}{more} came in time: rolled back, or a transaction that takes longer than gap_timeout"
            )
            yield LostRecords(why), {**start, "last": last, "gaps": gaps, "rows": 0}
        for row in rows:
            value = row[self._column]
            if isinstance(value, bool) or int(value) != value:
                raise FatalError(f"column {self._column} has a value that is no whole number", "name another column in source.columns")
            value, number = int(value), number + 1
            if last is None or value > last:
                if last is not None and value > last + 1:
                    gaps = [*gaps, [last + 1, value - 1, now_ms]]
                last = value
            else:
                gaps = _without(gaps, value)
            yield row, {**start, "last": last, "gaps": gaps, "rows": number}


def _without(gaps: list[list[int]], value: int) -> list[list[int]]:
    """The gaps without a number that has come. Rows with equal numbers come together, and the first has filled it."""
    found = []
    for first, end, since in gaps:
        if first <= value <= end:
            found += [[begin, final, since] for begin, final in ((first, value - 1), (value + 1, end)) if begin <= final]
        else:
            found.append([first, end, since])
    return found


class TimedRows:
    """Positions {"last": the newest time that was read, "at": how far a pass has come, "recent": [[time, mark], ...], ...}.

    Times are microseconds from 1970; `zoned` says whether the column has a zone. A pass goes from the look back on to the newest rows; `at`
    is None between two. Of rows older than `floor` the marks are forgotten: they are not looked for again.
    """

    def __init__(self, dialect: Dialect, column: str, key: Sequence[str], look_back_seconds: float) -> None:
        self._dialect = dialect
        self._column = column
        self._key = tuple(key)
        self._back_us = int(look_back_seconds * 1_000_000)

    def condition(self, position: Position, delay_seconds: float) -> str:
        """Of the rows of a pass that is to go on."""
        name = self._dialect.name(self._column)
        parts = [f"{name} <= {self._dialect.seconds_ago(delay_seconds)}" if delay_seconds else f"{name} IS NOT NULL"]
        if (begin := self.begin_of(position)) is not None:
            parts.append(f"{name} >= {self._literal(begin, zoned=position['zoned'])}")
        return " AND ".join(parts)

    def begin_of(self, position: Position) -> int | None:
        """The oldest time of the rows that are to be read next; None at the beginning."""
        if position["at"] is not None:
            return int(position["at"])
        return None if position["last"] is None else max(position["last"] - self._back_us, position["floor"] or 0)

    def known(self, position: Position) -> int:
        """How many rows of the next pass have been read already, as far as they are still there."""
        begin = self.begin_of(position)
        return 0 if begin is None else sum(1 for micros, _ in position["recent"] if micros >= begin)

    @property
    def order(self) -> str:
        """Of the rows."""
        return ", ".join(self._dialect.name(one) for one in (self._column, *self._key))

    def _literal(self, micros: int, *, zoned: bool) -> str:
        moment = _EPOCH + timedelta(microseconds=micros)
        return self._dialect.value(moment.replace(tzinfo=UTC) if zoned else moment)

    def records(self, rows: Iterator[Row], start: Position) -> Iterator[tuple[Record, Position]]:
        """Rows in order of the time, without those that were sent before. Raises FatalError for one without a time."""
        known, fresh = {one[1] for one in start["recent"]}, list[list[Any]]()
        times: Counter[str] = Counter()  # rows that are the same in everything: each counts
        for number, row in enumerate(rows, 1):
            micros, zoned = _micros(row[self._column])
            mark = self._mark(row)
            times[mark] += 1
            mark = mark if times[mark] == 1 else f"{mark}-{times[mark]}"
            if mark not in known:
                fresh.append([micros, mark])
                yield row, {"fresh": fresh, "sent": len(fresh), "zoned": zoned, "rows": number}

    def behind(self, start: Position, position: Position | None, *, is_over: bool) -> Position:
        """The position behind what was sent. `is_over`: the pass has come to its end. Raises FatalError for too many rows of one time."""
        sent = [] if position is None else position["fresh"][: position["sent"]]
        at = sent[-1][0] if sent else start["at"]
        newest = max((one for one in (at, start["last"]) if one is not None), default=None)
        passes = start["passes"] + is_over
        if newest is None:
            return {**start, "passes": passes}
        recent = [one for one in (*start["recent"], *sent) if one[0] >= newest - self._back_us]
        recent.sort()
        floor = start["floor"]
        if len(recent) > RECENT_MOST:
            floor = recent[-RECENT_MOST - 1][0] + 1
            recent = [one for one in recent if one[0] >= floor]
        if floor is not None and at is not None and floor > at:
            words = f"more than {RECENT_MOST:,} rows have the same {self._column}, or come within the look back and late"
            raise FatalError(words, "name a column with finer times, or shorten source.look_back")
        zoned = start["zoned"] if position is None else position["zoned"]
        last, reached = (newest, None) if is_over else (start["last"], at)
        return {"last": last, "at": reached, "zoned": zoned, "recent": recent, "floor": floor, "passes": passes}

    def _mark(self, row: Row) -> str:
        parts = [row[name] for name in (self._column, *self._key)] if self._key else list(row.values())
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _micros(value: Any) -> tuple[int, bool]:  # noqa: ANN401 - whatever the column holds
    """Microseconds, and whether they are of a time with a zone. Raises FatalError for what is no time."""
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        naive = value.astimezone(UTC).replace(tzinfo=None) if zoned else value
        return (naive - _EPOCH) // timedelta(microseconds=1), zoned
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day) - _EPOCH) // timedelta(microseconds=1), False  # noqa: DTZ001
    raise FatalError("the column of times holds something else", "name another column in source.columns.timestamp")
