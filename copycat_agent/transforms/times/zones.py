"""What a clock's time is in UTC: by an offset, by a name that means one zone only, or by the rules of a zone.

Of two times that a clock which is set back shows twice, the first is meant; one that it skips is read as if it had not been set on yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

LOCAL = "local"
"""The zone of the host that reads."""

MICRO = 10**6
_MINUTE = 60 * MICRO
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the clock of a zone
_OFFSET = re.compile(r"([+-])([0-9]{2})(?::?([0-5][0-9])(?::?([0-5][0-9]))?)?", re.ASCII)
_MOST_HOURS = 24
_WHOLE_MINUTES_SINCE = 3 * 365 * 24 * 60
"""Minutes after 1970: zones have changed by whole minutes, at whole minutes, since 1973."""
_REMEMBERED = 4096

_UTC_NAMES = ("", "Z", "UTC", "UT", "GMT")
_HOURS = {
    "EST": -5, "EDT": -4, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10,
    "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "MET": 1, "MEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "SAST": 2,
    "JST": 9, "KST": 9, "HKT": 8, "AEST": 10, "AEDT": 11, "NZST": 12, "NZDT": 13,
}  # fmt: skip
"""Names that logs use for one zone only. Not among them: CST (America, China), IST (India, Israel, Ireland), BST, AST and the like."""
_RFC_ONLY = {"CST": -6}

Offset = Callable[[int], int]
"""From microseconds of a clock since its 1970-01-01 to how far it is before UTC, in microseconds. Raises ValueError, OverflowError."""


def find_zone(word: str) -> tzinfo | None:
    """`local` (None), a name as Europe/Berlin, or an offset as +02:00. Raises ValueError for others."""
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
    """`+0200`, `+02:00`, `-05` in microseconds, None for what is no offset."""
    match = _OFFSET.fullmatch(text)
    if match is None or int(match[2]) >= _MOST_HOURS:
        return None
    size = (int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)) * MICRO
    return -size if match[1] == "-" else size


def said_offset(text: str, zone: tzinfo | None, clock: int, *, by_rfc: bool = False) -> int:
    """What a text says behind a time whose clock shows `clock`: an offset, a name, or both. Raises ValueError.

    Names that `zone` itself uses at that time mean it; `by_rfc`: also those that only RFC 5322 defines.
    """
    name = text.rstrip("+-:0123456789").upper()
    behind = text[len(name) :]
    if behind:
        offset = numeric_offset(behind)
        if offset is None or name not in _UTC_NAMES:
            msg = "no zone's offset"
            raise ValueError(msg)
        return offset
    if name in _UTC_NAMES:
        return 0
    own = _own_name(name, zone, clock)
    hours = (_RFC_ONLY if by_rfc else {}).get(name, _HOURS.get(name)) if own is None else None
    if own is None and hours is None:
        msg = "a zone's name that means several zones, or none"
        raise ValueError(msg)
    return own if own is not None else (hours or 0) * 3600 * MICRO


def _own_name(name: str, zone: tzinfo | None, clock: int) -> int | None:
    """The offset of `zone` where it is called so when its clock shows this."""
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
    """The offsets of clocks in `zone`, None for the host's own. What it finds is remembered by the minute."""
    if isinstance(zone, timezone):
        fixed = zone.utcoffset(None) // timedelta(microseconds=1)
        return lambda _: fixed
    known: dict[int, int] = {}

    def offset(clock: int) -> int:
        minute = clock // _MINUTE
        found = known.get(minute)
        if found is None:
            if minute < _WHOLE_MINUTES_SINCE:
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
