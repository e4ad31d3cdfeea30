"""Determines when a line was written: recognises the timestamp formats of programs without configuration.

If a time can be read in more than one way (no year, an hour that a change of clocks repeats) the latest reading counts. So a search for
the first line at or after some time may begin too early, never too late.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone

HEAD_CHARACTERS = 256
"""Characters at the beginning of a line in which a timestamp is searched."""
_AT_FRONT = 2
"""If timestamps begin no further into the first lines, later ones are not searched further: the text after them may hold others."""
_ENOUGH_LINES = 10
"""Number of lines that show how a file writes times."""
_YEARS = 9
"""Number of years in which a time without a year is tried: 29 February returns after eight at the latest."""
_SLACK_SECONDS = 86400.0
"""Most by which a line may seem younger than its file's last change: clocks differ, and zones may be missing."""
_EARLIEST, _LATEST = 946_684_800.0, 4_102_444_800.0
"""Numbers that are seconds of the years 2000 to 2100 count as a time."""
_JSON_FIELDS = ("@timestamp", "timestamp", "time", "ts", "t", "date", "datetime", "asctime", "__REALTIME_TIMESTAMP")

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d|60)(?:[.,](?P<fraction>\d{1,9}))?"
_HOURS = r"(?P<hour>0?[1-9]|1[0-2]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d)"
_DATE = r"(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01])"
_ZONE = r"(?: ?(?P<zone>Z|UTC|GMT|[+-][01]\d:?[0-5]\d|(?<! )[+-][01]\d)(?![\w:]))?"
_DAY = r"(?P<day>[ 0][1-9]|[1-9]|[12]\d|3[01])"


@dataclass(frozen=True)
class TimeForm:
    """A way to write a time. `read(match, near)` is epoch seconds; `near` is when the file was changed last."""

    name: str
    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], float], float | None]


def _calendar(match: re.Match[str], near: float) -> float | None:
    """Reads a date and a time of day, in the given zone, else in the host's."""
    found = match.groupdict()
    month = found["month"]
    number = int(month) if month.isdigit() else _MONTHS.index(month) + 1
    hour = int(found["hour"]) if "half" not in found else int(found["hour"]) % 12 + 12 * (found["half"] == "PM")
    clock = hour, int(found["minute"]), int(found["second"])
    fraction = float(f"0.{found.get('fraction') or 0}")
    zone, year = found.get("zone"), found.get("year")
    if year:
        return _epoch(int(year), number, int(found["day"]), clock, fraction, zone)
    this_year = time.localtime(near).tm_year + 1
    readings = (_epoch(one, number, int(found["day"]), clock, fraction, zone) for one in range(this_year, this_year - _YEARS, -1))
    return next((one for one in readings if one is not None and one <= near + _SLACK_SECONDS), None)


def _epoch(year: int, month: int, day: int, clock: tuple[int, int, int], fraction: float, zone: str | None) -> float | None:
    hour, minute, second = clock
    leap = second // 60
    try:
        at = datetime(year, month, day, hour, minute, second - leap, tzinfo=_zone(zone))  # without one it is the host's
        seconds = max(at.timestamp(), at.replace(fold=1).timestamp())
    except (ValueError, OverflowError):
        return None
    return seconds + leap + fraction


def _zone(text: str | None) -> timezone | None:
    if not text:
        return None
    if text[0] not in "+-":
        return UTC
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def _number(match: re.Match[str], near: float) -> float | None:  # noqa: ARG001 - one of the forms
    return _seconds(match["whole"], match["fraction"])


def _seconds(whole: str, fraction: str | None = None) -> float | None:
    """Reads a number of seconds, milliseconds, microseconds or nanoseconds since 1970."""
    scale = 1000 ** max(0, (len(whole) - 10 + 2) // 3)
    seconds = int(whole) / scale + float(f"0.{fraction or 0}") / scale
    return seconds if _EARLIEST <= seconds < _LATEST else None


def _journal(match: re.Match[str], near: float) -> float | None:  # noqa: ARG001 - one of the forms
    """Reads the first line of an entry that journalctl exports: it holds microseconds since 1970, in hexadecimal."""
    return int(match["hex"], 16) / 1e6


def _json(match: re.Match[str], near: float) -> float | None:
    """Reads a line that is a JSON object: a field with the name of a time, else the first time in it."""
    try:
        found = json.loads(match.string)
    except (ValueError, RecursionError):
        return None
    readings = [_value(found.get(name), near) for name in _JSON_FIELDS] if isinstance(found, Mapping) else []
    seconds = next((one for one in readings if one is not None), None)
    inner = _ISO.search(match.string, 0, HEAD_CHARACTERS)
    return _calendar(inner, near) if seconds is None and inner else seconds


def _value(value: object, near: float) -> float | None:
    if isinstance(value, Mapping):
        value = value.get("$date")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    text = repr(value) if isinstance(value, float) else str(value)
    if number := re.fullmatch(r"(\d{10,19})(?:\.(\d+))?", text, re.ASCII):
        return _seconds(number[1], number[2])
    readings = (form.read(match, near) for form in _CALENDARS if (match := form.pattern.search(text, 0, HEAD_CHARACTERS)))
    return next((one for one in readings if one is not None), None)


def time_of(fields: Mapping[str, object], near: float, names: Iterable[str] = ()) -> float | None:
    """Returns when a record of fields was written, epoch seconds: by the first of `names` with a time, else by a usual field."""
    readings = (_field(fields.get(name), near) for name in (*names, *_JSON_FIELDS))
    return next((one for one in readings if one is not None), None)


def _field(value: object, near: float) -> float | None:
    """Reads a field's value; a time without a zone is in the host's, as in lines."""
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day).timestamp()  # noqa: DTZ001 - the host's zone
    return _value(value, near)


_ISO = re.compile(rf"(?<![\d-]){_DATE}[T _]{_TIME}{_ZONE}", re.ASCII)
_CALENDARS = (
    TimeForm("iso", _ISO, _calendar),
    TimeForm("iso basic", re.compile(r"(?<!\d)" + _DATE.replace("-(", "(") + "T" + _TIME.replace(":(", "(") + _ZONE, re.ASCII), _calendar),
    TimeForm("slashes", re.compile(rf"(?<![\d/]){_DATE.replace('-(', '/(')}[ T]{_TIME}{_ZONE}", re.ASCII), _calendar),
    TimeForm("web server", re.compile(rf"(?<!\w){_DAY}/{_MONTH}/(?P<year>\d{{4}}):{_TIME}{_ZONE}", re.ASCII), _calendar),
    TimeForm("ctime", re.compile(rf"\b{_MONTH} {{1,2}}{_DAY} {_TIME}(?: (?P<zone>UTC|GMT)| [A-Z]{{3,5}})? (?P<year>\d{{4}})\b"), _calendar),
    TimeForm("java", re.compile(rf"\b{_MONTH} {_DAY}, (?P<year>\d{{4}}),? {_HOURS} (?P<half>[AP]M)\b", re.ASCII), _calendar),
    TimeForm("year last", re.compile(rf"\b{_MONTH} {{1,2}}{_DAY} (?P<year>\d{{4}}) {_TIME}{_ZONE}", re.ASCII), _calendar),
    TimeForm("day first", re.compile(rf"(?<!\w){_DAY}[ -]{_MONTH}[ -](?P<year>\d{{4}}) {_TIME}{_ZONE}", re.ASCII), _calendar),
    TimeForm("syslog", re.compile(rf"(?<!\w){_MONTH} {{1,2}}{_DAY} {_TIME}(?! \d{{4}}\b)", re.ASCII), _calendar),
    TimeForm(
        "klog", re.compile(rf"^[IWEFD](?P<year>\d{{4}})?(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12]\d|3[01]) {{1,2}}{_TIME}"), _calendar
    ),
)
_FORMS = (
    TimeForm("json", re.compile(r"\A\s*\{(?=\s*\")"), _json),
    *_CALENDARS,
    TimeForm("journal", re.compile(r"__CURSOR=\S*;t=(?P<hex>[0-9a-f]{10,16});"), _journal),
    TimeForm("audit", re.compile(r"\baudit\((?P<whole>\d{10})(?:\.(?P<fraction>\d+))?", re.ASCII), _number),
    TimeForm(
        "epoch field", re.compile(r"\b(?:ts|time|timestamp)[=:](?P<whole>\d{10,19})(?:\.(?P<fraction>\d+))?(?!\w)", re.ASCII), _number
    ),
    TimeForm("epoch", re.compile(r"(?<!.)[\[(\"]?(?P<whole>\d{10}|\d{13}|\d{16}|\d{19})(?:\.(?P<fraction>\d+))?(?!\w)", re.ASCII), _number),
)


@dataclass(frozen=True)
class LineClock:
    """Reads the times of one file's lines. `near`: when the file was changed last, epoch seconds."""

    form: TimeForm
    reach: int
    near: float

    def read(self, line: str) -> float | None:
        """Returns the line's time in epoch seconds; None if it has none and belongs to the line before."""
        match = self.form.pattern.search(line, 0, HEAD_CHARACTERS)
        if match is None or match.start() > self.reach:
            return None
        return self.form.read(match, self.near)


def recognise(lines: Iterable[str], near: float) -> LineClock | None:
    """Returns the clock of a file that begins with `lines` (heads of lines or, better for JSON, whole ones). None if no format fits."""
    starts: dict[str, list[int]] = {}
    for line in lines:
        if sum(map(len, starts.values())) >= _ENOUGH_LINES:
            break
        found = ((match, form) for form in _FORMS if (match := form.pattern.search(line, 0, HEAD_CHARACTERS)))
        for match, form in sorted(found, key=lambda one: one[0].start()):
            if form.read(match, near) is not None:
                starts.setdefault(form.name, []).append(match.start())
                break
    if not starts:
        return None
    ((name, _),) = Counter({name: len(found) for name, found in starts.items()}).most_common(1)
    form = next(form for form in _FORMS if form.name == name)
    return LineClock(form, _AT_FRONT if max(starts[name]) <= _AT_FRONT else HEAD_CHARACTERS, near)
