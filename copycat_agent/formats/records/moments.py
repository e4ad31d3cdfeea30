"""Dates and times from the counts that binary formats hold. What Python's own types cannot hold exactly is ISO 8601 text, never rounded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

_DAY = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICRO = 10**6
_MARCH_TO_DECEMBER = 10


def moments(per_second: int, *, utc: bool) -> Callable[[int], datetime | str]:
    """A function from so many parts of a second since 1970 to the moment; `utc` gives it a zone, else it has none.

    Text where a datetime cannot hold it: digits behind the microsecond, years before 1 or after 9999.
    """
    epoch = datetime(1970, 1, 1, tzinfo=UTC if utc else None)
    zone = "+00:00" if utc else ""

    def of(count: int) -> datetime | str:
        micros, finer = divmod(count * _MICRO, per_second)
        if not finer:
            try:
                return epoch + timedelta(microseconds=micros)
            except OverflowError:
                pass
        days, rest = divmod(count, _DAY * per_second)
        return f"{_day_text(days)}T{_clock_text(rest, per_second)}{zone}"

    return of


def day(days: int) -> date | str:
    """So many days after 1970-01-01; text for years before 1 or after 9999."""
    ordinal = _EPOCH_DAY + days
    return date.fromordinal(ordinal) if 1 <= ordinal <= date.max.toordinal() else _day_text(days)


def clocks(per_second: int) -> Callable[[int], time | str]:
    """A function from so many parts of a second since midnight to the time of day.

    Text where a time cannot hold it: digits behind the microsecond, more than a day.
    """

    def of(count: int) -> time | str:
        micros, finer = divmod(count * _MICRO, per_second)
        if finer or not 0 <= micros < _DAY * _MICRO:
            return _clock_text(count, per_second)
        seconds, micros = divmod(micros, _MICRO)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)

    return of


def _clock_text(count: int, per_second: int) -> str:
    seconds, part = divmod(count, per_second)
    digits = len(str(per_second)) - 1
    fraction = f".{part:0{digits}d}" if part else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def _day_text(days: int) -> str:
    """The proleptic Gregorian date. Howard Hinnant's `civil_from_days`: eras of 400 years that begin on March 1."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    is_next_year = shifted >= _MARCH_TO_DECEMBER
    month = shifted - 9 if is_next_year else shifted + 3
    year = year_of_era + era * 400 + is_next_year
    text = f"{year:04d}" if 0 <= year <= date.max.year else f"{year:+05d}"
    return f"{text}-{month:02d}-{day_of_year - (153 * shifted + 2) // 5 + 1:02d}"
