"""`timestamp`: the time of the event, from a field. The field stays as it is; `into` keeps the moment in a field of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Draft
from copycat_agent.options import AfterValidator, BeforeValidator, Field, OneOrMore, Options
from copycat_agent.templates import MISSING, SplitMeta
from copycat_agent.transforms.base import Columns, Step, StepOptions, TransformKind, known
from copycat_agent.transforms.clocks import LOCAL, Read
from copycat_agent.transforms.paths import FieldName, finder, putter, with_type
from copycat_agent.transforms.times import TimeFormat, Times, ZoneWord, compile_times, from_number, in_range

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the clock of a zone
_MICROSECOND = timedelta(microseconds=1)
_HINT = "see timestamp.format, or set on_error"

_MOST_BITS = 128
As = Literal["timestamp", "unix", "unix_ms", "unix_us"]
_DIVISORS = {"unix": 10**6, "unix_ms": 1000, "unix_us": 1}


def _not_empty(formats: tuple[str, ...]) -> tuple[str, ...]:
    if not formats:
        msg = "needs a format"
        raise ValueError(msg)
    return formats


class TimestampParse(Options):
    """Which field, how it is written, and what becomes of it."""

    field: FieldName = Field(description="The field that holds the time. It stays as it is.")
    format: Annotated[OneOrMore[TimeFormat], AfterValidator(_not_empty)] = Field(
        ("iso8601",),
        description="How it is written: strptime's directives such as %d/%b/%Y:%H:%M:%S %z, or iso8601, rfc3339, rfc2822, unix, unix_ms, "
        "unix_us, unix_ns. A list is tried in order. A format without a year means the latest one that is not after the file's last "
        "change.",
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


def _as_parse(value: object) -> object:
    return {"field": value} if isinstance(value, str) else value


class TimestampOptions(StepOptions):
    """The time of the event."""

    timestamp: Annotated[TimestampParse, BeforeValidator(_as_parse, json_schema_input_type=str | TimestampParse)] = Field(
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
            msg = f"field {name!r}: {why}"
            raise DataError(msg, _HINT)

        return stamp


def _other(times: Times, read_us: Read) -> Callable[[object], int]:
    """From a value of any kind to epoch microseconds. Raises DataError.

    Numbers are counts where a format counts; else their digits are read, as by %Y%m%d.
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
        what = "it is missing" if value is MISSING else "it is null" if value is None else "neither a text, a number nor a time"
        raise DataError(what)

    return micros


def _digits(value: float | Decimal) -> str:
    """A number as it is written; a word for one with more digits than any time has, which Python may not even write."""
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
