"""Mode `incrementing` on databases that do not tell which transaction wrote a row: finds new rows by a column of growing numbers.

New rows are those above the largest number, and those whose numbers were missing below it: a transaction that began earlier may end later.
A number that stays missing is given up after a while, and entered as lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.extending import Finding, LostRecords, Record
from copycat_agent.sources.jdbc.database import Database, TableError
from copycat_agent.sources.jdbc.key_values import LOWEST, Row, each_row, spelt
from copycat_agent.sources.jdbc.table_reader import TableReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from copycat_agent.sources.jdbc.chosen_tables import TrackedTable
    from copycat_agent.sources.jdbc.jdbc_options import JdbcOptions
    from copycat_agent.sources.jdbc.statements import Dialect

Position = dict[str, Any]

GAPS_MOST = 1000
"""Most ranges of missing numbers in a position. With more, the oldest are given up."""
_SHOWN = 5
"""Ranges that a message names."""
_STEP_SECONDS = 1.0
"""From here on a change of the wall clock is a step."""


class NumberRange(NamedTuple):
    """A range of numbers, both ends included; None: no end."""

    first: int | None
    last: int | None


class NumberedRows:
    """Finds rows by number. Positions are {"last", "gaps", "top", "missing", "asked_ms"}.

    `last` is the largest number read, None before the first row. `gaps` are ranges of missing numbers, [first, last, since epoch ms]. `top`
    is the largest number at the time the table was first seen: a number missing below it most likely belongs to a row deleted long ago.
    `missing` counts the ranges below `top` that were given up; they are reported once, with the last of them, and `top` becomes None.
    `records` yields positions of its own, the numbers read and how many of them count; `behind` converts one into a position as above.
    """

    def __init__(self, dialect: Dialect, column: str, gap_seconds: float) -> None:
        self._dialect = dialect
        self._column = column
        self._gap_ms = int(gap_seconds * 1000)

    def overdue(self, position: Position, now_ms: int) -> int | None:
        """Returns the number up to which missing numbers are given up after one more query; None if none is due."""
        gaps, found = position["gaps"], None
        for index, (_, end, since) in enumerate(gaps):
            if now_ms - since < self._gap_ms and index >= len(gaps) - GAPS_MOST:
                break
            found = end
        top, last = position["top"], position["last"]
        is_told = top is None or last is None or last < top or not position["missing"] or (gaps and gaps[0][0] <= top)
        return found if is_told else max(top, found or top)

    @staticmethod
    def ranges(position: Position) -> list[NumberRange]:
        """Returns the ranges in which new rows can be."""
        if position["last"] is None:
            return [NumberRange(None, None)]
        return [NumberRange(position["last"] + 1, None), *(NumberRange(first, end) for first, end, _ in position["gaps"])]

    def condition(self, position: Position) -> str:
        """Returns the SQL condition for new rows."""
        name = self._dialect.name(self._column)
        return f"({' OR '.join(_within(name, one) for one in self.ranges(position))})"

    @property
    def order(self) -> str:
        """SQL of the column by which the rows are ordered."""
        return self._dialect.ordered(self._column)

    def records(self, rows: Iterable[Row], start: Position, *, limit: int, overdue: int | None) -> Iterator[tuple[Record, Position]]:
        """Yields up to `limit` rows, each with a position. `rows` are in order of the column, with one more than `limit` if there are more.

        Overdue numbers that have not come are yielded as lost once the rows have passed them. Ends early if too many numbers are missing
        for a position. Raises TableError for a row whose number is missing or not unique.
        """
        numbers, made, given, ahead = list[int](), 0, None, chain(rows, (None,))
        row = next(ahead)
        while row is not None and len(numbers) < limit and made < GAPS_MOST:
            value, following = self._number(row), next(ahead)
            if following is not None and self._number(following) == value:
                raise TableError(f"several rows have the same {self._column}", "name a column in source.columns that has each number once")
            if overdue is not None and given is None and value > overdue:
                given = overdue
                yield from self._lost(start, numbers, given)
            before = numbers[-1] if numbers else start["last"]
            made += value - 1 != before and value > (start["top"] or LOWEST)
            numbers.append(value)
            yield row, {"numbers": numbers, "sent": len(numbers), "given": given}
            row = following
        if overdue is not None and given is None and (row is None or numbers):
            yield from self._lost(start, numbers, overdue if row is None else numbers[-1])

    def _number(self, row: Row) -> int:
        value = row[spelt(row, self._column)]
        is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        if not is_number or value != value or value in (float("inf"), float("-inf")) or int(value) != value:  # noqa: PLR0124 - NaN
            raise TableError(
                f"column {self._column} has a value that is no whole number",
                "name another column in source.columns, or leave the table out",
            )
        return int(value)

    def _lost(self, start: Position, numbers: list[int], given: int) -> Iterator[tuple[Record, Position]]:
        """Yields `LostRecords` for the numbers up to `given` that are given up and have to be reported."""
        after: Position = {"numbers": numbers, "sent": len(numbers), "given": given}
        _, lost, old = self._parts(start, after, 0)
        if lost:
            shown = ", ".join(f"{first}" if first == final else f"{first} to {final}" for first, final in lost[:_SHOWN])
            more = f" and {len(lost) - _SHOWN:,} more ranges" if len(lost) > _SHOWN else ""
            words = f"no rows with {self._column} {shown}{more} came in time"
            yield LostRecords(f"{words}: rolled back, or of a transaction that takes longer than gap_timeout"), after
        if old and self.behind(start, after, 0)["top"] is None:
            words = f"{old:,} ranges of {self._column} up to {start['top']} had no rows when the table was first read"
            yield LostRecords(f"{words}: deleted, rolled back, or of a transaction that took longer than gap_timeout"), after

    @staticmethod
    def _parts(start: Position, position: Position, now_ms: int) -> tuple[list[list[int]], list[tuple[int, int]], int]:
        """Returns the gaps after a position of `records`: those still asked for, lost ones, and the count of old ranges given up."""
        numbers, given, top = position["numbers"][: position["sent"]], position["given"], start["top"]
        kept, lost, old = list[list[int]](), list[tuple[int, int]](), int(start["missing"])
        for first, end, since in _missing(start, numbers, now_ms):
            final = end if given is None else min(end, given)
            if given is None or first > given:
                kept.append([first, end, since])
                continue
            if top is not None and first <= top:
                old += first != LOWEST
            elif first != LOWEST:
                lost.append((first, final))
            if final < end:
                kept.append([final + 1, end, since])
        too_many = sum(first <= top for first, _, _ in kept[:-GAPS_MOST]) if top is not None else 0
        return kept[too_many:], lost, old + sum(first != LOWEST for first, _, _ in kept[:too_many])

    def behind(self, start: Position, position: Position | None, now_ms: int, overdue: int | None = None) -> Position:
        """Returns the position after what was sent (None: nothing was). `now_ms` must not be earlier than the query."""
        position = position or {"numbers": [], "sent": 0, "given": overdue}
        kept, _, old = self._parts(start, position, now_ms)
        last = max((one for one in (start["last"], *position["numbers"][: position["sent"]][-1:]) if one is not None), default=None)
        top = start["top"]
        if top is not None and position["given"] is not None and position["given"] >= top and last is not None and last >= top:
            top, old = None, 0
        return {"last": last, "gaps": kept, "top": top, "missing": old, "asked_ms": now_ms}


def _missing(start: Position, numbers: Sequence[int], now_ms: int) -> Iterator[list[int]]:
    """Yields the gaps of a position less the numbers that have come, then the gaps between these. Gaps and numbers are in order."""
    last = start["last"]
    came = iter([*numbers, None])
    number = next(came)
    for first, end, since in start["gaps"]:
        begin = first
        while number is not None and number <= end:
            if begin < number:
                yield [begin, number - 1, since]
            begin, number = number + 1, next(came)
        if begin <= end:
            yield [begin, end, since]
    while number is not None:
        if last is None:
            last = 0 if start["top"] is None and number > 0 else number - 1
            yield [LOWEST, last, now_ms]
        if last + 1 < number:
            yield [last + 1, number - 1, now_ms]
        last, number = number, next(came)


def _within(name: str, span: NumberRange) -> str:
    if span.first is None:
        return f"{name} IS NOT NULL"
    return f"{name} >= {span.first}" if span.last is None else f"{name} BETWEEN {span.first} AND {span.last}"


class DelayedClock:
    """The wall clock, but a step forwards counts only `delay` seconds after it was noticed.

    So nothing is taken to be older than `delay` because of the step.
    """

    def __init__(self, delay: float, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._delay, self._wall, self._monotonic = delay, wall, monotonic
        self._ahead = wall() - monotonic()
        self._stepped_at: float | None = None

    def now_ms(self) -> int:
        """Returns the time, epoch milliseconds."""
        now, wall = self._monotonic(), self._wall()
        if wall - now - self._ahead > _STEP_SECONDS:
            self._stepped_at = now if self._stepped_at is None else self._stepped_at
            if now - self._stepped_at < self._delay:
                return int((now + self._ahead) * 1000)
        self._ahead, self._stepped_at = wall - now, None
        return int(wall * 1000)


class NumberedReader(TableReader):
    """A `TableReader` that uses `NumberedRows`."""

    mark = "gaps"

    def __init__(self, options: JdbcOptions, database: Database) -> None:
        super().__init__(options, database)
        self._clock = DelayedClock(options.gap_timeout)

    def look(self, key: str, tracked: TrackedTable, saved: Mapping[str, Any], *, to_the_end: bool) -> Iterator[Finding]:
        position = saved.get(key)
        if position is None:
            greatest = self._greatest(tracked)
            last, top = (None, greatest) if self._options.start_at == "beginning" else (greatest, None)
            yield self.found(key, tracked, {"last": last, "gaps": [], "top": top, "missing": 0, "asked_ms": 0})
            return
        numbers = self._rows_by(tracked.number)
        condition, overdue = numbers.condition(position), numbers.overdue(position, self._clock.now_ms())
        if to_the_end:
            if key not in self._targets:
                self._targets[key] = LOWEST if (target := self._greatest(tracked)) is None else target
            condition += f" AND {numbers.order} <= {self._targets[key]}"
        rows, _ = self._count(tracked, condition)
        end = None if not rows and overdue is None else {"from": position, "overdue": overdue}
        yield self.found(key, tracked, position, end, max(1, rows))

    def _greatest(self, tracked: TrackedTable) -> int | None:
        """Returns the largest number of all rows, None without rows. Raises TableError if it is no number."""
        found = self._database.rows(f"SELECT max({self._dialect.name(tracked.number or '')}) FROM {self._source(tracked)}")[0][0]
        try:
            return None if found is None else int(Decimal(found))
        except (ArithmeticError, ValueError):
            words = f"column {tracked.number} of {tracked.table.text} holds no numbers"
        raise TableError(words, "name another column in source.columns.incrementing, or leave the table out")

    def _rows_by(self, column: str | None) -> NumberedRows:
        return NumberedRows(self._dialect, column or "", self._options.gap_timeout)

    def query(self, tracked: TrackedTable, position: Position, end: Position) -> tuple[str, dict[str, Any]]:
        numbers, limit = self._rows_by(tracked.number), self._options.batch_rows
        query = self._in_order(tracked, f" WHERE {numbers.condition(position)}", [numbers.order], limit + 1)
        about = {"limit": limit, "column": tracked.number, "overdue": end["overdue"]}
        return query, about

    def records(self, rows: Iterable[RecordBatch], start: Position, about: Mapping[str, Any]) -> Iterator[tuple[Record, Position]]:
        numbers = self._rows_by(about["column"])
        yield from numbers.records(each_row(rows), start, limit=about["limit"], overdue=about["overdue"])

    def apply(self, start: Position, position: Position | None, about: Mapping[str, Any], *, finished: bool) -> Position:
        del finished
        return self._rows_by(about["column"]).behind(start, position, int(time.time() * 1000), about["overdue"])
