"""New rows by the values of columns, for databases that do not say which transaction wrote a row.

`NumberedRows`: rows above the largest number, and the numbers that are missing below it, since a transaction that began earlier may end
later. A number that stays missing is given up after a while, and told. `TimedRows`: rows that are not older than the newest less a look
back, up to a delay before now; what was sent of them is remembered.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any, NamedTuple

from copycat_agent.extending import FatalError, LostRecords, Record
from copycat_agent.sources.jdbc.statements import Dialect

Position = dict[str, Any]
Row = dict[str, Any]

GAPS_MOST = 1000
"""Ranges of missing numbers that are asked for. With more, the oldest are given up."""
RECENT_MOST = 5000
"""Rows of the look back that are remembered. With more, it is shorter."""
LOWEST = -(2**63)
_SHOWN = 5
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone


class NumberRange(NamedTuple):
    """A condition on numbers, both ends included; None: without an end."""

    first: int | None
    last: int | None


class NumberedRows:
    """Positions {"last": the largest number, None before the first row, "gaps": [[first, last, since, epoch ms], ...], "top", "missing"}.

    `top` is the largest number when the table was met. Below it a missing number is most likely that of a row deleted long ago: how many
    ranges of those were given up is counted in `missing`, and told once, with the last of them; `top` is None then. A position of
    `records` is the list of numbers that were read, and how many of them; `behind` makes one of the first kind of it.
    """

    def __init__(self, dialect: Dialect, column: str, gap_seconds: float) -> None:
        self._dialect = dialect
        self._column = column
        self._gap_ms = int(gap_seconds * 1000)

    def overdue(self, position: Position, now_ms: int) -> int | None:
        """Up to which number what is missing is given up, once it has been asked for again; None for nothing."""
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
        """The numbers of rows that are new."""
        if position["last"] is None:
            return [NumberRange(None, None)]
        return [NumberRange(position["last"] + 1, None), *(NumberRange(first, end) for first, end, _ in position["gaps"])]

    def condition(self, position: Position) -> str:
        """Of the rows that are new."""
        name = self._dialect.name(self._column)
        return f"({' OR '.join(_within(name, one) for one in self.ranges(position))})"

    @property
    def order(self) -> str:
        """Of the rows."""
        return self._dialect.name(self._column)

    def records(self, rows: Iterable[Row], start: Position, *, limit: int, overdue: int | None) -> Iterator[tuple[Record, Position]]:
        """Of rows in order of the column: one more than `limit` where there are more.

        What is overdue and has not come is lost, as soon as the rows have passed it. Ends early where too many numbers are missing: a
        position holds few. Raises FatalError for a row without a number of its own.
        """
        numbers, made, given, ahead = list[int](), 0, None, chain(rows, (None,))
        row = next(ahead)
        while row is not None and len(numbers) < limit and made < GAPS_MOST:
            value, following = self._number(row), next(ahead)
            if following is not None and self._number(following) == value:
                raise FatalError(f"several rows have the same {self._column}", "name a column in source.columns that has each number once")
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
            raise FatalError(f"column {self._column} has a value that is no whole number", "name another column in source.columns")
        return int(value)

    def _lost(self, start: Position, numbers: list[int], given: int) -> Iterator[tuple[Record, Position]]:
        """What is given up of the numbers up to `given`, in place of a record, where people are to be told of it."""
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
        """Numbers that are missing behind a position of `records`: to be asked for, lost, and how many old ranges are given up."""
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
        """The position behind what was sent; None: there was nothing. `now_ms` is no earlier than the rows were read."""
        position = position or {"numbers": [], "sent": 0, "given": overdue}
        kept, _, old = self._parts(start, position, now_ms)
        last = max((one for one in (start["last"], *position["numbers"][: position["sent"]][-1:]) if one is not None), default=None)
        top = start["top"]
        if top is not None and position["given"] is not None and position["given"] >= top and last is not None and last >= top:
            top, old = None, 0
        return {"last": last, "gaps": kept, "top": top, "missing": old, "asked_ms": now_ms}


def _missing(start: Position, numbers: Sequence[int], now_ms: int) -> Iterator[list[int]]:
    """The gaps of a position without numbers that have come since, and those between these. Numbers in order, gaps as well."""
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


class TimedRows:
    """Positions {"last": the newest time that was read, "at": how far a pass has come, "recent": [[time, mark], ...], ...}.

    Times are microseconds from 1970; `zoned` says whether the column has a zone. A pass goes from the look back on to the newest rows; `at`
    is None between two. The look back is from `since`, the newest time when the pass before began: rows appear during a pass as well. Of
    rows older than `floor` the marks are forgotten: they are not looked for again. `after`: where more rows have the time `at` than are
    remembered, the key of the last that was sent.
    """

    def __init__(self, dialect: Dialect, column: str, key: Sequence[str], look_back_seconds: float) -> None:
        self._dialect = dialect
        self._column = column
        self._key = tuple(key)
        self._back_us = int(look_back_seconds * 1_000_000)

    def condition(self, position: Position, delay_seconds: float | None) -> str:
        """Of the rows of a pass that is to go on: those that are older than the delay, None: or whatever the database's clock says."""
        name, zoned = self._dialect.name(self._column), position["zoned"]
        ago = None if delay_seconds is None else self._dialect.seconds_ago(delay_seconds, zoned=zoned)
        parts = [f"{name} IS NOT NULL" if ago is None else f"{name} <= {ago}"]
        if (begin := self.begin_of(position)) is not None:
            parts.append(f"{name} >= {self._literal(begin, zoned=zoned)}")
        if begin is not None and position["after"]:
            keys, values = (
                [self._dialect.name(one) for one in self._key],
                [self._dialect.value(from_json(one)) for one in position["after"]],
            )
            parts.append(f"({name} >= {self._literal(begin + 1, zoned=zoned)} OR {self._dialect.behind(keys, values)})")
        return " AND ".join(parts)

    def begin_of(self, position: Position) -> int | None:
        """The oldest time of the rows that are to be read next; None at the beginning."""
        at, since, floor = position["at"], position["since"], position["floor"]
        if at is not None or since is None:
            return None if at is None else int(at)
        return max(int(since) - self._back_us, LOWEST if floor is None else int(floor))

    @property
    def order(self) -> str:
        """Of the rows."""
        return ", ".join(self._dialect.name(one) for one in (self._column, *self._key))

    def _literal(self, micros: int, *, zoned: bool) -> str:
        moment = _EPOCH + timedelta(microseconds=micros)
        return self._dialect.value(moment.replace(tzinfo=UTC) if zoned else moment)

    def records(self, rows: Iterable[Row], start: Position) -> Iterator[tuple[Record, Position]]:
        """Rows in order of the time, without those that were sent before. Raises FatalError for one without a time."""
        known, fresh, read = {one[1] for one in start["recent"]}, list[list[Any]](), [0]
        times: Counter[str] = Counter()  # rows that are the same in everything: each counts
        for row in rows:
            read[0] += 1
            micros, zoned = _micros(row[spelt(row, self._column)])
            key = [row[spelt(row, one)] for one in self._key]
            mark = self._mark(row, micros, key)
            times[mark] += 1
            mark = mark if times[mark] == 1 else f"{mark}-{times[mark]}"
            if mark not in known:
                fresh.append([micros, mark])
                yield row, {"fresh": fresh, "sent": len(fresh), "zoned": zoned, "key": key, "read": read}

    def behind(self, start: Position, position: Position | None, limit: int, *, finished: bool) -> Position:
        """The position behind what was sent. `finished`: of a query of up to `limit` rows. Raises FatalError for too many of one time."""
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
        """How a pass goes on among more rows of one time than are remembered."""
        if position is None and start["at"] == at:
            return list(start["after"])
        key = [] if position is None else position["key"]
        if not key or None in key:
            words = f"more than {RECENT_MOST:,} rows have the same {self._column}, or come within the look back and late"
            raise FatalError(words, "give the table a primary key, name a column with finer times, or shorten source.look_back")
        return [to_json(one) for one in key]

    def _mark(self, row: Row, micros: int, key: Sequence[Any]) -> str:
        parts = [micros, *key] if key else list(row.values())
        return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def spelt(row: Row, name: str) -> str:
    """How the database spells a column. Raises FatalError where there is none."""
    if name in row:
        return name
    same = [one for one in row if one.lower() == name.lower()]
    if len(same) != 1:
        raise FatalError(f"the rows have no column {name}", "correct source.columns, or have source.query give it")
    return same[0]


def _micros(value: Any) -> tuple[int, bool]:  # noqa: ANN401 - whatever the column holds
    """Microseconds, and whether they are of a time with a zone. Raises FatalError for what is no time."""
    if isinstance(value, datetime):
        zoned = value.tzinfo is not None
        naive = value.astimezone(UTC).replace(tzinfo=None) if zoned else value
        return (naive - _EPOCH) // timedelta(microseconds=1), zoned
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day) - _EPOCH) // timedelta(microseconds=1), False  # noqa: DTZ001
    raise FatalError("the column of times holds something else", "name another column in source.columns.timestamp")


def micros_of_text(text: str) -> tuple[int, bool]:
    """The same, of a time as a driver writes it. Raises FatalError for what is none."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(\.\d+)?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?", text.strip())
    if found is None:
        raise FatalError("the newest time of a table cannot be read", "set source.start_at: beginning")
    day, clock, fraction, zone = found.groups()
    return _micros(datetime.fromisoformat(f"{day}T{clock or '00:00:00'}{(fraction or '')[:7]}{zone or ''}"))


def to_json(value: Any) -> list[Any]:  # noqa: ANN401 - whatever a key holds
    """A value of a key, as a position holds it. Raises FatalError for one that cannot be compared."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str | date):
        raise FatalError(f"a key of type {type(value).__name__} cannot be compared", "leave the table out, or use source.query")
    if isinstance(value, datetime):
        return ["time", value.isoformat()]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    return ["decimal", str(value)] if isinstance(value, Decimal) else ["plain", value]


def from_json(pair: Sequence[Any]) -> Any:  # noqa: ANN401 - as above
    """The reverse of `to_json`."""
    kind, value = pair
    if kind == "time":
        return datetime.fromisoformat(value)
    if kind == "date":
        return date.fromisoformat(value)
    return Decimal(value) if kind == "decimal" else value
