"""Parses texts into epoch times, with the file's time as a hint of the year; and `timestamp`, which sets the record's time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.options import AfterValidator, BeforeValidator, Field, OneOrMore, Options
from copycat_agent.templates import MISSING, SplitMeta
from copycat_agent.transforms.base import Columns, Step, StepOptions, TransformKind, in_short, known
from copycat_agent.transforms.clocks import LOCAL, MICRO, ClockTime, Read, find_zone, offset_in
from copycat_agent.transforms.paths import FieldName, finder, putter, with_type
from copycat_agent.transforms.time_layouts import EPOCH_UNITS, NAMES

_AHEAD = 2 * 86_400 * MICRO
"""How much later than its file's last change a time without a year may be: clocks and zones differ."""
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""
_OUTSIDE = "a time outside of the years 1970 to 9999"
_REMEMBERED = 4096
_LONGEST = 128
"""The most characters of a text that may be a time."""
NO_TIME = (ValueError, KeyError, OverflowError)
"""The errors that a reader of one format raises."""
_MOST_COUNT = 10**21
_EPOCH_TEXT = re.compile(r"([+-]?)([0-9]{1,21})(?:\.([0-9]{1,18}))?", re.ASCII)


class TimeCache(dict[str, int]):
    """Caches texts and their times, since many repeat: many lines of an access log have the same second."""

    def __init__(self, first: Read, others: Read, unit: int) -> None:
        """`first` is tried, then `others`, whose error counts. `unit`: 1 keeps microseconds, 1000 milliseconds, as records have them."""
        super().__init__()
        self._first = first
        self._others = others
        self._unit = unit

    def __missing__(self, text: str) -> int:
        """Raises DataError for an invalid time."""
        try:
            found = self._first(text) if len(text) <= _LONGEST else self._others(text)  # which refuses it, so no long text is kept
        except NO_TIME:
            found = self._others(text)
        if self._unit > 1:
            found //= self._unit
            if not 0 <= found <= _LAST_MS:
                raise DataError(_OUTSIDE)
        if len(self) >= _REMEMBERED:
            self.clear()
        self[text] = found
        return found


class TimeFormats:
    """Compiled formats, tried in order. Stateless except for a cache; shared by threads. Made by `compile_times`."""

    def __init__(self, formats: Sequence[str], zone: str) -> None:
        """Raises ValueError."""
        self.formats = tuple(formats)
        self.zone = find_zone(zone)
        self._offset = offset_in(self.zone)
        self._readers = [_epoch_reader(EPOCH_UNITS[each]) if each in EPOCH_UNITS else ClockTime(each, self.zone) for each in formats]

    @property
    def units_ns(self) -> tuple[int, ...]:
        """Returns the nanoseconds of the units that numbers may count, in the order of the formats."""
        return tuple(EPOCH_UNITS[each] for each in self.formats if each in EPOCH_UNITS)

    def bind(self, near_ms: int = 0) -> Read:
        """Returns a function from text to epoch milliseconds, 0 or more; see `bind_us`. Finer fractions are cut off."""
        first, others = self._readers_at(near_ms)
        return TimeCache(first, others, 1000).__getitem__

    def bind_us(self, near_ms: int = 0) -> Read:
        """Returns a function from text to epoch microseconds; finer fractions are cut off. It raises DataError in words without the text.

        `near_ms` is when the file was last changed; a time without a year is of the latest year in which it is not more than two days after
        that. 0, or a time at which no file can have been changed, means now. Repeated texts are cached.
        """
        first, others = self._readers_at(near_ms)
        return TimeCache(first, others, 1).__getitem__

    def _readers_at(self, near_ms: int) -> tuple[Read, Read]:
        """Returns the reader of the first format, which raises `NO_TIME`, and one of all formats."""
        limit = min((near_ms if 0 < near_ms <= _LAST_MS else int(time.time() * 1000)) * 1000 + _AHEAD, _LAST_MS * 1000)
        readers = [reader.bind(limit) if isinstance(reader, ClockTime) else reader for reader in self._readers]
        words = f"no time as in {self.formats[0]}" if len(readers) == 1 else f"no time as in any of the {len(readers)} formats"

        def read_any(text: str) -> int:
            if len(text) <= _LONGEST:
                for candidate in (text, text.strip()):
                    for reader in readers:
                        try:
                            return reader(candidate)
                        except NO_TIME:
                            continue
            raise DataError(words)

        return readers[0], read_any

    def to_utc(self, clock: int) -> int:
        """Returns epoch microseconds for a clock in the zone of times without one. Raises DataError if there are none."""
        try:
            return clock - self._offset(clock)
        except (ValueError, OverflowError):
            pass
        raise DataError("a time at the end of the calendar")


def compile_times(formats: Sequence[str], zone: str = LOCAL) -> TimeFormats:
    """Compiles formats with strptime's directives, `rfc3339`, `iso8601`, `rfc2822`, or `unix` and its parts. `zone`: of times without one.

    Raises ValueError that says what is wrong.
    """
    if not formats:
        raise ValueError(f"needs a format: {', '.join((*NAMES, *EPOCH_UNITS))}, or directives such as %d/%b/%Y:%H:%M:%S %z")
    return TimeFormats([_named(each) for each in formats], zone)


def _named(text: str) -> str:
    """Returns a format's name in lower case, since others write ISO8601 and UNIX_MS; a format with directives as it is."""
    name = text.lower()
    return name if name in NAMES or name in EPOCH_UNITS else text


def in_range(micros: int) -> int:
    """Returns milliseconds for a record's time. Raises DataError for times that Kafka and calendars cannot hold."""
    ms = micros // 1000
    if not 0 <= ms <= _LAST_MS:
        raise DataError(_OUTSIDE)
    return ms


def from_number(number: float | Decimal, units_ns: Sequence[int]) -> int:
    """Returns epoch microseconds of a count since 1970, in the first unit in which it is before the year 10000; rounded for a float.

    Raises DataError for an invalid time.
    """
    if not (isinstance(number, Decimal) and number.is_nan()) and -_MOST_COUNT < number < _MOST_COUNT:
        for unit_ns in units_ns:
            micros = round(number * unit_ns / 1000) if isinstance(number, float) else int(number * unit_ns // 1000)
            if micros <= _LAST_MS * 1000:
                return micros
    raise DataError(_OUTSIDE)


def _epoch_reader(unit_ns: int) -> Read:
    def read(text: str) -> int:
        match = _EPOCH_TEXT.fullmatch(text)
        if match is None:
            raise ValueError
        sign, whole, fraction = match.groups()
        if fraction:
            micros = int(sign + whole + fraction.ljust(18, "0")) * unit_ns // (1000 * 10**18)
        else:
            micros = int(sign + whole) * unit_ns // 1000
        if micros > _LAST_MS * 1000:  # perhaps of a smaller unit, which is tried next
            raise ValueError
        return micros

    return read


def _zone(word: object) -> object:
    if isinstance(word, str):
        find_zone(word)
    return word


def _format(text: object) -> object:
    if isinstance(text, str):
        compile_times((text,))
    return text


ZoneWord = Annotated[str, BeforeValidator(_zone)]
"""`local`, the name of a time zone, or an offset such as +02:00."""
TimeFormat = Annotated[str, BeforeValidator(_format)]
"""A time format that `compile_times` accepts."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the clock of a zone
_MICROSECOND = timedelta(microseconds=1)
_HINT = "see timestamp.format, or set on_error"

_MOST_BITS = 128
As = Literal["timestamp", "unix", "unix_ms", "unix_us"]
_DIVISORS = {"unix": 10**6, "unix_ms": 1000, "unix_us": 1}


def _not_empty(formats: tuple[str, ...]) -> tuple[str, ...]:
    if not formats:
        raise ValueError("needs a format")
    return formats


class TimestampParse(Options):
    """Which field, how it is written, and what becomes of it."""

    field: FieldName = Field(description="The field that holds the time. It stays as it is.")
    format: Annotated[OneOrMore[TimeFormat], AfterValidator(_not_empty)] = Field(
        ("iso8601",),
        description="How it is written: strptime's directives such as %d/%b/%Y:%H:%M:%S %z, or iso8601, rfc3339, rfc2822, unix, unix_ms, "
        "unix_us, unix_ns. A list is tried in order. A format without a year means the latest year in which the time is at most two "
        "days after the file's last change.",
    )
    zone: ZoneWord = Field(
        LOCAL, description="Zone of times that do not say theirs: local (of the host), a name such as UTC or Europe/Berlin, or +02:00."
    )
    into: FieldName | None = Field(None, description="A field that gets the moment, in UTC. Absent: it is only the record's time.")
    as_: As = Field(
        "timestamp",
        alias="as",
        description="What stands in `into`: a timestamp, which is RFC 3339 in JSON, or a whole number of seconds, milliseconds or "
        "microseconds.",
    )


class TimestampOptions(StepOptions):
    """The time of the event."""

    timestamp: Annotated[TimestampParse, in_short("field", str, str | TimestampParse)] = Field(
        description="Makes a field the record's time, for `record.timestamp: event` and {@timestamp}. A field's name, or {field, format, "
        "zone, into, as}."
    )


class _TimestampStep:
    """A `Transform`."""

    def __init__(self, options: TimestampParse) -> None:
        self._options = options
        self._times = compile_times(options.format, options.zone)
        self._find = finder(options.field)
        self._put = _putter(options)

    def bind(self, meta: SplitMeta) -> Step:
        name, top = self._options.field, "." not in self._options.field
        find, put = self._find, self._put
        read_ms, read_us = self._times.bind(meta.mtime_ms), self._times.bind_us(meta.mtime_ms)
        other = _other(self._times, read_us)

        def stamp(draft: Draft) -> bool:
            fields = draft.fields()
            value = fields.get(name) if top else find(fields)
            try:
                if type(value) is str and put is None:
                    draft.timestamp_ms = read_ms(value)
                    return True
                micros = other(MISSING if value is None and name not in fields else value)
                draft.timestamp_ms = in_range(micros)
            except DataError as error:
                why = error.message
            else:
                if put is not None:
                    put(fields, micros)
                return True
            raise DataError(f"field {name!r}: {why}", _HINT)

        return stamp


def _other(times: TimeFormats, read_us: Read) -> Callable[[object], int]:
    """Returns a function from a value of any type to epoch microseconds, which raises DataError.

    Numbers are counts if a format counts; else their digits are read, as by %Y%m%d.
    """
    units = times.units_ns

    def micros(value: object) -> int:
        if isinstance(value, str):
            return read_us(value)
        if isinstance(value, datetime):
            return (value - _EPOCH) // _MICROSECOND if value.tzinfo else times.to_utc((value - _CLOCK_EPOCH) // _MICROSECOND)
        if isinstance(value, date):
            return times.to_utc((value - _CLOCK_EPOCH.date()) // _MICROSECOND)
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return from_number(value, units) if units else read_us(_digits(value))
        raise DataError("it is missing" if value is MISSING else "it is null" if value is None else "neither a text, a number nor a time")

    return micros


def _digits(value: float | Decimal) -> str:
    """Returns a number as text; a word for one with more digits than any time has, which Python may refuse to convert."""
    return str(value) if not isinstance(value, int) or value.bit_length() < _MOST_BITS else "more"


def _putter(options: TimestampParse) -> Callable[[dict[str, Any], int], None] | None:
    if options.into is None:
        return None
    put, divisor = putter(options.into), _DIVISORS.get(options.as_)
    if divisor is not None:
        return lambda fields, micros: put(fields, micros // divisor)
    return lambda fields, micros: put(fields, _EPOCH + timedelta(microseconds=micros))


def _columns(options: TimestampOptions, before: Columns) -> Columns:
    into = options.timestamp.into
    if into is None:
        return before
    return with_type(before, into, "timestamp" if options.timestamp.as_ == "timestamp" else "bigint")


TIMESTAMP = TransformKind(TimestampOptions, lambda options: _TimestampStep(options.timestamp), known(_columns))
