"""Reads dates, times and timestamps from text: exactly, or with a ValueError that never holds the text.

Python reads fractions of a second up to microseconds and drops further digits: that is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NoReturn
from zoneinfo import ZoneInfo

from copycat_agent.formats.records.field_values import Read, ReadAll

_UNITS = {"unix": 1_000_000, "unix_ms": 1000, "unix_us": 1}
"""Microseconds per unit of numeric timestamps."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNT = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,9})?", re.ASCII)
_FINE = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]", re.ASCII)
_SEVEN_DIGITS = re.compile(r"\.[0-9]{7}", re.ASCII)
_ODD_OFFSETS_UNTIL = 1973
"""Before that year some zones were seconds away from UTC, which RFC 3339 cannot express."""
_PLAIN_ZONES = {None, UTC}
_TOO_FINE = "a time finer than microseconds"


def dates(argument: str) -> tuple[str, Read, ReadAll]:
    """Returns the type of dates: ISO 8601, or in the strptime format `argument`."""
    _check_format(argument)

    def read(text: str) -> date:
        text = text.strip()
        try:
            return datetime.strptime(text, argument).date() if argument else date.fromisoformat(text)  # noqa: DTZ007 - a day has no zone
        except ValueError:
            _refuse(f"not a date as in {argument}" if argument else "not a date such as 2026-11-21")

    return "date", read, _each(read) if argument else _all_dates


def _all_dates(texts: list[str]) -> list[date]:
    return list(map(date.fromisoformat, texts))


def times(argument: str) -> tuple[str, Read, ReadAll]:
    """Returns the type of times of day: ISO 8601, or in the format `argument`."""
    _check_format(argument)

    def read(text: str) -> time:
        text = text.strip()
        if not argument and _FINE.search(text):
            _refuse(_TOO_FINE)
        try:
            return datetime.strptime(text, argument).timetz() if argument else time.fromisoformat(text)  # noqa: DTZ007 - as the text says
        except ValueError:
            _refuse(f"not a time as in {argument}" if argument else "not a time such as 13:45:00")

    return "time(6)", read, _each(read)


def timestamps(argument: str, zone: str) -> tuple[str, Read, ReadAll]:
    """Returns the type of timestamps: ISO 8601, `unix`, `unix_ms`, `unix_us`, or the format `argument`. `zone`: of those without one."""
    if argument in _UNITS:
        return "timestamp", *_counted(_UNITS[argument])
    _check_format(argument)
    in_zone = _in_zone(ZoneInfo(zone)) if zone else _to_minutes

    def read(text: str) -> datetime:
        text = text.strip()
        if not argument and _FINE.search(text):
            _refuse(_TOO_FINE)
        try:
            found = datetime.strptime(text, argument) if argument else datetime.fromisoformat(text)  # noqa: DTZ007 - see `in_zone`
            return in_zone(found)
        except (ValueError, OverflowError):
            _refuse(f"not a timestamp as in {argument}" if argument else "not a timestamp such as 2026-11-21T05:00:00Z")

    def read_all(texts: list[str]) -> list[datetime]:
        joined = "\n".join(texts)
        if argument or "," in joined or _SEVEN_DIGITS.search(joined):
            return list(map(read, texts))
        found = list(map(datetime.fromisoformat, texts))
        return found if not zone and {moment.tzinfo for moment in found} <= _PLAIN_ZONES else list(map(in_zone, found))

    return "timestamp", read, read_all


def _in_zone(zone: ZoneInfo) -> Callable[[datetime], datetime]:
    """Returns a function that adds a zone. A time that a clock shows twice is the first; one that it skips is as if not set forward."""

    def in_zone(moment: datetime) -> datetime:
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
            return moment if moment.year >= _ODD_OFFSETS_UNTIL else _to_minutes(moment)
        return _to_minutes(moment)

    return in_zone


def _to_minutes(moment: datetime) -> datetime:
    """Returns the same moment, in UTC when its offset has seconds: RFC 3339 has minutes only."""
    offset = moment.utcoffset()
    return moment.astimezone(UTC) if offset is not None and offset % timedelta(minutes=1) else moment


def _counted(unit: int) -> tuple[Read, ReadAll]:
    def read(text: str) -> datetime:
        text = text.strip()
        if not _COUNT.fullmatch(text):
            _refuse("not a number of seconds, or parts of them, since 1970")
        microseconds = Decimal(text) * unit
        if microseconds % 1:
            _refuse(_TOO_FINE)
        try:
            return _EPOCH + timedelta(microseconds=int(microseconds))
        except OverflowError:
            _refuse("a time outside of the years 1 to 9999")

    return read, _each(read)


def _each(read: Read) -> ReadAll:
    def read_each(texts: list[str]) -> list[Any]:
        return list(map(read, texts))

    return read_each


def _check_format(argument: str) -> None:
    """Raises ValueError for a format that strptime cannot read."""
    if not argument:
        return
    if "%" not in argument:
        _refuse(f"a format has directives such as %Y-%m-%d, or is one of {', '.join(_UNITS)}")
    try:
        sample = datetime(2026, 11, 21, 13, 45, 59, 123456, tzinfo=UTC).strftime(argument)
        datetime.strptime(sample, argument)  # noqa: DTZ007 - only whether it can be read
    except (ValueError, re.error):
        _refuse("not a format that strptime can read, such as %d.%m.%Y %H:%M:%S")


def _refuse(why: str) -> NoReturn:
    raise ValueError(why) from None
