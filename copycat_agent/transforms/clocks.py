"""One format of dates and times of day: parses its texts into epoch microseconds, by an offset, an unambiguous zone name, or zone rules.

The texts of days are looked up rather than computed, as are hours, minutes and seconds: records of one hour share them. Of two times that a
clock shows twice when it is set back, the first is meant; one that it skips is read as if the clock had not been set forward yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from copycat_agent.transforms.time_layouts import compile_layout

LOCAL = "local"
"""The zone of the host that reads."""

MICRO = 10**6
_MINUTE = 60 * MICRO
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the clock of a zone
_OFFSET = re.compile(r"([+-])([0-9]{2})(?::?([0-5][0-9])(?::?([0-5][0-9]))?)?", re.ASCII)
_MOST_HOURS = 24
_FIRST_WHOLE_MINUTE = 3 * 365 * 24 * 60
"""Minutes after 1970: zones have changed by whole minutes, at whole minutes, since 1973."""

_UTC_NAMES = ("", "Z", "UTC", "UT", "GMT")
_ZONE_HOURS = {
    "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10,
    "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "MET": 1, "MEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "SAST": 2,
    "JST": 9, "KST": 9, "HKT": 8, "AEST": 10, "AEDT": 11, "NZST": 12, "NZDT": 13,
}  # fmt: skip
"""Names that logs use for one zone only. Not included: CST (America, China), IST (India, Israel, Ireland), BST, AST and the like."""
_RFC_ONLY = {"CST": -6}

Offset = Callable[[int], int]
"""From microseconds of a clock since its 1970-01-01 to how far it is ahead of UTC, in microseconds. Raises ValueError, OverflowError."""


def find_zone(word: str) -> tzinfo | None:
    """Returns the zone of `local` (None), a name as Europe/Berlin, or an offset as +02:00. Raises ValueError for others."""
    if word == LOCAL:
        return None
    if word in ("UTC", "Z"):
        return UTC
    try:
        return timezone(timedelta(microseconds=offset)) if (offset := numeric_offset(word)) is not None else ZoneInfo(word)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        msg = "no time zone has this name; write local, UTC, a name such as Europe/Berlin, or an offset such as +02:00"
        raise ValueError(msg) from None


def numeric_offset(text: str) -> int | None:
    """Returns `+0200`, `+02:00`, `-05` in microseconds, None for anything else."""
    match = _OFFSET.fullmatch(text)
    if match is None or int(match[2]) >= _MOST_HOURS:
        return None
    size = (int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)) * MICRO
    return -size if match[1] == "-" else size


def said_offset(text: str, zone: tzinfo | None, clock: int, *, by_rfc: bool = False) -> int:
    """Returns the offset that follows a time whose clock shows `clock`: an offset, a name, or both. Raises ValueError.

    Names that `zone` itself uses at that time mean it; `by_rfc`: also those that only RFC 5322 defines.
    """
    name = text.rstrip("+-:0123456789").upper()
    behind = text[len(name) :]
    if behind:
        offset = numeric_offset(behind)
        if offset is None or name not in _UTC_NAMES:
            raise ValueError("no zone's offset")
        return offset
    if name in _UTC_NAMES:
        return 0
    own = _own_name(name, zone, clock)
    hours = (_RFC_ONLY if by_rfc else {}).get(name, _ZONE_HOURS.get(name)) if own is None else None
    if own is None and hours is None:
        raise ValueError("a zone's name that means several zones, or none")
    return own if own is not None else (hours or 0) * 3600 * MICRO


def _own_name(name: str, zone: tzinfo | None, clock: int) -> int | None:
    """Returns the offset of `zone` if it has this name when its clock shows this."""
    shown = _EPOCH + timedelta(microseconds=clock)
    for fold in (0, 1):
        aware = shown.replace(fold=fold).astimezone() if zone is None else shown.replace(fold=fold, tzinfo=zone)
        if (aware.tzname() or "").upper() == name:
            return _size(aware)
    return None


def _size(aware: datetime) -> int:
    offset = aware.utcoffset()
    assert offset is not None, "it has a zone"
    return offset // timedelta(microseconds=1)


def offset_in(zone: tzinfo | None) -> Offset:
    """Returns the function of offsets in `zone`, None for the host's own. Its results are cached by the minute."""
    if isinstance(zone, timezone):
        fixed = zone.utcoffset(None) // timedelta(microseconds=1)
        return lambda _: fixed
    known: dict[int, int] = {}

    def offset(clock: int) -> int:
        minute = clock // _MINUTE
        found = known.get(minute)
        if found is None:
            if minute < _FIRST_WHOLE_MINUTE:
                return _looked_up(clock, zone)
            if len(known) >= _REMEMBERED:
                known.clear()
            found = known[minute] = _looked_up(minute * _MINUTE, zone)
        return found

    return offset


def _looked_up(clock: int, zone: tzinfo | None) -> int:
    shown = _EPOCH + timedelta(microseconds=clock)
    if zone is not None:
        return _size(shown.replace(tzinfo=zone))
    return clock - round(shown.timestamp() * MICRO)


Read = Callable[[str], int]
"""Returns epoch microseconds of a text. Raises ValueError, KeyError or OverflowError for an invalid time."""

_DAY = 86_400 * MICRO
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_YEARS_BACK = 8
"""Years from one February 29 to the one before it, at most."""
_REMEMBERED = 4096
_WHOLE_MINUTES_SINCE = 3 * 366 * _DAY
"""From then on zones change at whole minutes."""
_LEAP = "60"
_NOON = 12

_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTHS = {f"{number:{pad}d}": number for number in range(1, 13) for pad in ("", "02")} | {
    spelt: number for number, name in enumerate(_MONTH_NAMES, start=1) for spelt in (name, name[:3])
}
_MONTHS["sept"] = 9


def _spelt(size: int, unit: int) -> dict[str | None, int]:
    """Returns numbers below `size` as they may be written, times `unit`; an absent one is 0."""
    return {None: 0, "": 0} | {f"{number:{pad}d}": number * unit for number in range(size) for pad in ("", "02")}


_HOURS, _MINUTES, _SECONDS = _spelt(24, 3600 * MICRO), _spelt(60, 60 * MICRO), _spelt(61, MICRO)
"""Second 60 is a leap second: it equals the first of the next minute, as in Unix clocks."""


class DayCache(dict[tuple[str, str, str], int]):
    """Microseconds since 1970 by year, month and day as written; a cache, since days repeat."""

    def __missing__(self, written: tuple[str, str, str]) -> int:
        """Raises ValueError, KeyError for an invalid day."""
        year, month, day = written
        number = _day_start(_full_year(year), _month(month), int(day))
        if len(self) >= _REMEMBERED:
            self.clear()
        self[written] = number
        return number


def _full_year(text: str) -> int:
    """Returns the year: `26` is 2026, `69` is 1969, as in POSIX."""
    year = int(text)
    return year if len(text) > 2 else year + (1900 if year >= 69 else 2000)  # noqa: PLR2004 - what POSIX says


def _month(text: str) -> int:
    return _MONTHS[text] if text in _MONTHS else _MONTHS[text.lower()]


def _day_start(year: int, month: int, day: int) -> int:
    return (date(year, month, day).toordinal() - _EPOCH_DAY) * _DAY


class ClockTime:
    """One format of dates and times of day."""

    def __init__(self, text: str, zone: tzinfo | None) -> None:
        """Raises ValueError."""
        self._layout = compile_layout(text)
        self._zone = zone
        self._offset = offset_in(zone)
        self._days = DayCache()
        self._said: dict[str, int] = {"Z": 0, "+0000": 0, "+00:00": 0}
        self._named: dict[tuple[str, int], int] = {}
        self._minutes: dict[tuple[str, str], int] = {}
        """The text around the seconds, and the time of its second 0: most lines of a log share these as well."""

    def bind(self, limit: int) -> Read:
        """Returns a reader. `limit` is the latest moment, in microseconds, that a time without a year can be."""
        layout = self._layout
        latest = None if layout.has_year else _LatestYear(self, limit)
        minutes = self._minutes if latest is None else {}
        whole = self._rare if layout.others else self._common
        fullmatch, at_second, at_fraction = layout.pattern.fullmatch, layout.second, layout.fraction

        def read(text: str) -> int:
            match = fullmatch(text)
            if match is None:
                raise ValueError
            second, fraction = match.group(at_second, at_fraction)
            if not second:
                return whole(match, latest)
            begin = match.start(at_second)
            within = _SECONDS[second] + int((fraction + "00000")[:6]) if fraction else _SECONDS[second]
            around = (text[:begin], text[match.end(at_fraction) if fraction else begin + len(second) :])
            minute = minutes.get(around)
            if minute is not None:
                return minute + within
            found = whole(match, latest)
            if found > _WHOLE_MINUTES_SINCE and second != _LEAP:
                if len(minutes) >= _REMEMBERED:
                    minutes.clear()
                minutes[around] = found - within
            return found

        return read

    def _common(self, match: re.Match[str], latest: _LatestYear | None) -> int:
        """Reads formats with only the directives in `PARTS`."""
        year, month, day, hour, minute, second, fraction, zone = match.group(*self._layout.parts)
        clock = _HOURS[hour] + _MINUTES[minute] + _SECONDS[second]
        if fraction:
            clock += int((fraction + "00000")[:6])
        if latest is not None:
            return latest.moment(month, day, clock, zone)
        clock += self._days[year, month, day]
        if zone and zone in self._said:
            return clock - self._said[zone]
        return clock - self.offset_of(zone, clock)

    def offset_of(self, zone: str | None, clock: int) -> int:
        """Returns the offset of a clock from UTC; `zone` is the text's zone, or empty."""
        if not zone:
            return self._offset(clock)
        key = (zone, clock // (60 * MICRO))
        offset = self._named.get(key)
        if offset is None:
            offset = said_offset(zone, self._zone, clock, by_rfc=self._layout.obsolete_names)
            if zone[0] in "+-":
                self._said[zone] = offset
            else:
                self._named[key] = offset
            for known in (self._said, self._named):
                if len(known) > _REMEMBERED:
                    known.clear()
        return offset

    def day(self, year: str, month: str, day: str) -> int:
        """Returns the beginning of a day. Raises ValueError, KeyError for an invalid day."""
        return self._days[year, month, day]

    def _rare(self, match: re.Match[str], latest: _LatestYear | None) -> int:
        """Reads formats with %y, %j, %I, %p, %s or %Z."""
        others = {name: match[index] for name, index in self._layout.others.items()}
        year, month, day, hour, minute, second, fraction, zone = match.group(*self._layout.parts)
        part = int((fraction + "00000")[:6]) if fraction else 0
        if "s" in others:
            seconds = int(others["s"])
            return seconds * MICRO + (-part if others["s"][0] == "-" else part)
        clock = (_half_day(others["I"], others["p"]) if "I" in others else _HOURS[hour]) + _MINUTES[minute] + _SECONDS[second] + part
        zone = zone or others.get("Z")
        year = year or others.get("y", "")
        if latest is not None:
            return latest.moment(month, day, clock, zone)
        if "j" in others:
            first = date(_full_year(year), 1, 1).toordinal() + int(others["j"]) - 1
            month_day = date.fromordinal(first)
            if month_day.year != _full_year(year):
                raise ValueError
            clock += (first - _EPOCH_DAY) * _DAY
        else:
            clock += self._days[year, month, day]
        return clock - self.offset_of(zone, clock)


class _LatestYear:
    """Times without a year: of the latest year that has their day and in which they are not after a limit."""

    def __init__(self, clock: ClockTime, limit: int) -> None:
        self._clock = clock
        self._limit = limit
        last = min(MAXYEAR, (date(1970, 1, 1) + timedelta(microseconds=limit)).year + 1)
        self._years = [f"{year:04d}" for year in range(last, max(MINYEAR, last - _YEARS_BACK - 2), -1)]

    def moment(self, month: str, day: str, time_of_day: int, zone: str | None) -> int:
        """Returns the time in epoch microseconds. Raises ValueError or KeyError if the text has none."""
        for year in self._years:
            try:
                shown = self._clock.day(year, month, day) + time_of_day
            except ValueError:  # February 29
                continue
            moment = shown - self._clock.offset_of(zone, shown)
            if moment <= self._limit:
                return moment
        raise ValueError


def _half_day(hour: str, half: str) -> int:
    """Returns the microseconds of an hour with AM or PM: `12 AM` is 0."""
    number = int(hour)
    if not 1 <= number <= _NOON:
        raise ValueError
    return (number % _NOON + (_NOON if half[0] in "pP" else 0)) * 3600 * MICRO
