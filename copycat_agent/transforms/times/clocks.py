"""One format that shows days and clocks: from its texts to epoch microseconds.

The texts of days are looked up rather than computed, as are hours, minutes and seconds: records of one hour share them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, date, timedelta, tzinfo

from copycat_agent.transforms.times.layouts import compile_layout
from copycat_agent.transforms.times.zones import MICRO, offset_in, said_offset

Read = Callable[[str], int]
"""From a text to epoch microseconds. Raises ValueError, KeyError or OverflowError for what is no such time."""

_DAY = 86_400 * MICRO
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_YEARS_BACK = 8
"""From one February 29 to the one before it, at most."""
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
    """Numbers below `size` as they may be written, times `unit`; nothing is 0."""
    return {None: 0, "": 0} | {f"{number:{pad}d}": number * unit for number in range(size) for pad in ("", "02")}


_HOURS, _MINUTES, _SECONDS = _spelt(24, 3600 * MICRO), _spelt(60, 60 * MICRO), _spelt(61, MICRO)
"""Second 60 is a leap second: the first of the next minute, as clocks of Unix have it."""


class Days(dict[tuple[str, str, str], int]):
    """Year, month and day as written -> microseconds since 1970. Computed once while they repeat."""

    def __missing__(self, written: tuple[str, str, str]) -> int:
        """Raises ValueError, KeyError for no day."""
        year, month, day = written
        number = _day_start(_full_year(year), _month(month), int(day))
        if len(self) >= _REMEMBERED:
            self.clear()
        self[written] = number
        return number


def _full_year(text: str) -> int:
    """`26` is 2026, `69` is 1969, as POSIX has it."""
    year = int(text)
    return year if len(text) > 2 else year + (1900 if year >= 69 else 2000)  # noqa: PLR2004 - what POSIX says


def _month(text: str) -> int:
    return _MONTHS[text] if text in _MONTHS else _MONTHS[text.lower()]


def _day_start(year: int, month: int, day: int) -> int:
    return (date(year, month, day).toordinal() - _EPOCH_DAY) * _DAY


class ClockTime:
    """One format that shows days and clocks."""

    def __init__(self, text: str, zone: tzinfo | None) -> None:
        """Raises ValueError."""
        self._layout = compile_layout(text)
        self._zone = zone
        self._offset = offset_in(zone)
        self._days = Days()
        self._said: dict[str, int] = {"Z": 0, "+0000": 0, "+00:00": 0}
        self._named: dict[tuple[str, int], int] = {}
        self._minutes: dict[tuple[str, str], int] = {}
        """What stands around the seconds, and when its second 0 is: most lines of a log share that, too."""

    def bind(self, limit: int) -> Read:
        """`limit`: the latest moment, in microseconds, that a time without a year can be."""
        layout = self._layout
        latest = None if layout.has_year else _Latest(self, limit)
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

    def _common(self, match: re.Match[str], latest: _Latest | None) -> int:
        """Formats with nothing but the directives in `PARTS`."""
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
        """Where a text says `zone`, or nothing, how far its clock is before UTC."""
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
        """Its beginning. Raises ValueError, KeyError for no day."""
        return self._days[year, month, day]

    def _rare(self, match: re.Match[str], latest: _Latest | None) -> int:
        """Formats with %y, %j, %I, %p, %s or %Z."""
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


class _Latest:
    """Times without a year: of the latest year that has their day, and in which they are not behind a limit."""

    def __init__(self, clock: ClockTime, limit: int) -> None:
        self._clock = clock
        self._limit = limit
        last = min(MAXYEAR, (date(1970, 1, 1) + timedelta(microseconds=limit)).year + 1)
        self._years = [f"{year:04d}" for year in range(last, max(MINYEAR, last - _YEARS_BACK - 2), -1)]

    def moment(self, month: str, day: str, time_of_day: int, zone: str | None) -> int:
        """Raises ValueError, KeyError where there is none."""
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
    """`12 AM` is 0."""
    number = int(hour)
    if not 1 <= number <= _NOON:
        raise ValueError
    return (number % _NOON + (_NOON if half[0] in "pP" else 0)) * 3600 * MICRO
