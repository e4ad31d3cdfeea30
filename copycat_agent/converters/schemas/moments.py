"""Dates and times as schemas count them. Takes Python's own types, and RFC 3339 text, which is what JSON lines have."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from copycat_agent.converters.schemas.unfit import Unfit, wanted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DATED = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")
_DAY_ONLY = re.compile(r"\d{4}-\d\d-\d\d")
_FINER = re.compile(r"[.,]\d{6}(\d{1,3})")
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")


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
