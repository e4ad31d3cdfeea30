"""Dates and times as schemas count them (Python's own types, and RFC 3339 text), and what a value is that a schema does not take."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from copycat_agent.errors import DataError

_NAME_CHARACTERS = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DATED = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")
_DAY_ONLY = re.compile(r"\d{4}-\d\d-\d\d")
_FINER = re.compile(r"[.,]\d{6}(\d{1,3})")
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")


class Unfit(ValueError):  # noqa: N818 - an outcome, which becomes a DataError with its place
    """A value does not fit. `reason` never holds it; `path` is where it lies, outermost name first."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def within(self, name: str) -> Unfit:
        """The same, seen from outside of the field `name`."""
        self.path.insert(0, name[:_NAME_CHARACTERS])
        return self

    def as_data_error(self, hint: str) -> DataError:
        """In words, for a dead letter or a person."""
        path = ".".join(self.path[:20]).replace(".[", "[")
        return DataError(f"field {path!r}: {self.reason}" if path else self.reason, hint)


def kind(value: object) -> str:  # noqa: PLR0911 - a table of kinds
    """What a value is, in words for people, without it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int):
        return "a whole number"
    if isinstance(value, float):
        return "a number with a point"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "bytes"
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def wanted(what: str, value: object) -> Unfit:
    """`what` is needed, and `value` is something else."""
    return Unfit(f"{what} is needed, not {kind(value)}")


def micros_of(value: object) -> int:
    """Microseconds since 1970 of a moment with a zone. Raises Unfit."""
    if isinstance(value, str):
        value = _moment(value)
    if not isinstance(value, datetime):
        raise wanted("a time", value)
    if value.tzinfo is None:
        msg = "a time with a zone is needed, this one has none"
        raise Unfit(msg)
    return (value - _EPOCH) // _MICROSECOND


def local_micros_of(value: object) -> int:
    """Microseconds since 1970 of a time without a zone. Raises Unfit."""
    if isinstance(value, str):
        value = _moment(value)
    if not isinstance(value, datetime):
        raise wanted("a time", value)
    if value.tzinfo is not None:
        msg = "a time without a zone is needed, this one has one"
        raise Unfit(msg)
    return (value - _LOCAL_EPOCH) // _MICROSECOND


def nanos_of(value: object) -> int:
    """Nanoseconds since 1970 of a moment with a zone: Python's own types know microseconds, texts may know more. Raises Unfit."""
    return micros_of(value) * 1000 + _finer(value)


def local_nanos_of(value: object) -> int:
    """Nanoseconds since 1970 of a time without a zone. Raises Unfit."""
    return local_micros_of(value) * 1000 + _finer(value)


def _finer(value: object) -> int:
    """What a text says behind its microseconds."""
    found = _FINER.search(value) if isinstance(value, str) else None
    return int(found[1].ljust(3, "0")) if found else 0


def days_of(value: object) -> int:
    """Days since 1970-01-01. Raises Unfit."""
    if isinstance(value, str):
        value = _parsed(date.fromisoformat, _DAY_ONLY.fullmatch(value), value, "a date such as 2026-11-21")
    if not isinstance(value, date) or isinstance(value, datetime):
        raise wanted("a date", value)
    return value.toordinal() - _EPOCH_DAY


def clock_micros_of(value: object) -> int:
    """Microseconds since midnight of a time of day. Raises Unfit."""
    if isinstance(value, str):
        value = _parsed(time.fromisoformat, _CLOCK.fullmatch(value), value, "a time of day such as 05:00:00")
    if not isinstance(value, time):
        raise wanted("a time of day", value)
    if value.tzinfo is not None:
        msg = "a time of day without a zone is needed, this one has one"
        raise Unfit(msg)
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond


def _moment(text: str) -> object:
    return _parsed(datetime.fromisoformat, _DATED.match(text), text, "a time such as 2026-11-21T05:00:00Z")


def _parsed(parse: Callable[[str], object], shape: re.Match[str] | None, text: str, what: str) -> object:
    if shape is not None:
        try:
            return parse(text)
        except ValueError:
            pass
    msg = f"{what} is needed, the text is none"
    raise Unfit(msg)
