"""Recognisers of logs that servers write: access logs of web servers, the extended format of the W3C (IIS), and syslog."""

from __future__ import annotations

import re
from collections.abc import Sequence

from copycat_agent.workbench.guessing.guesses import Guess, StepGuess

_BEFORE = r'(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] "'
_REQUEST = r'(?P<method>\S+) (?P<path>\S+)(?: (?P<protocol>[^"]*))?'
_ANY_REQUEST = rf'(?:{_REQUEST}|(?P<request>(?:[^"\\]|\\.)*))'
_AFTER = r'" (?P<status>\d{3}) (?P<bytes>\d+|-)'
_COMBINED = _AFTER + r' "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"'
_MORE = r" (?P<more>.*)"
_ACCESS_FORMS = (
    ("nginx or Apache access log, combined format", "^" + _BEFORE, f"{_COMBINED}$", 1.0),
    ("Apache access log with virtual hosts, combined format", rf"^(?P<vhost>[\w.:-]+) {_BEFORE}", f"{_COMBINED}$", 1.0),
    ("nginx or Apache access log, common format", "^" + _BEFORE, f"{_AFTER}$", 1.0),
    ("nginx or Apache access log, combined format and more behind it", "^" + _BEFORE, f"{_COMBINED}{_MORE}$", 0.99),
    ("nginx or Apache access log, common format and more behind it", "^" + _BEFORE, f"{_AFTER}{_MORE}$", 0.98),
)
"""What it is, what stands before and after the request, and how much a match says."""
_ENOUGH = 0.5
_FIELDS = "#Fields:"
_NUMBERS = {"sc-status", "sc-substatus", "sc-win32-status", "sc-bytes", "cs-bytes", "time-taken", "s-port", "c-port"}
_TAG = r"[^\s:\[]+(?:\[[^\]]*\])?:"
_SYSLOG_FORMS = (
    ("syslog, RFC 5424", re.compile(r"(?:<\d{1,3}>)1 (?:\d{4}-\d\d-\d\dT\S+|-) \S+ \S+ \S+ \S+ (?:-|\[)")),
    ("syslog, RFC 3164", re.compile(rf"(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d \S+ (?:{_TAG}|\S)")),
)
_ISO = r"^(?P<ts>\d{4}-\d\d-\d\dT\S+) (?P<host>\S+) (?P<program>[^\s:\[]+)(?:\[(?P<pid>[^\]]*)\])?: (?P<message>.*)"
_ENOUGH_SYSLOG = 0.5


def access_log(lines: Sequence[str]) -> Guess | None:
    """The form with the most lines."""
    found = [
        (what, before + request + after, weight * _share(before + request + after, lines))
        for what, before, after, weight in _ACCESS_FORMS
        for request in (_REQUEST, _ANY_REQUEST)
    ]
    what, pattern, share = max(found, key=lambda one: one[2])
    if share < _ENOUGH:
        return None
    why = "a line that is not like this is a bad record: see errors"
    steps = (
        StepGuess("regex", pattern, "request: what is no request of HTTP, such as scans send" if "<request>" in pattern else why),
        StepGuess("timestamp", {"field": "ts", "format": "%d/%b/%Y:%H:%M:%S %z"}, keep=True),
        StepGuess("convert", {"status": "int", "bytes": "int"}, keep=True, beside={"null": "-"}),
    )
    return Guess(what, share, 1.0, steps, key="{client}", timestamp="event")


def _share(pattern: str, lines: Sequence[str]) -> float:
    return sum(1 for line in lines if re.match(pattern, line)) / len(lines)


def w3c_log(lines: Sequence[str]) -> Guess | None:
    """The columns as the first line of that kind names them; date and time are taken as one."""
    names = next((line.removeprefix(_FIELDS).split() for line in lines if line.startswith(_FIELDS)), [])
    if not names:
        return None
    has_time = names[:2] == ["date", "time"]
    pattern = " ".join(_groups(names[2:] if has_time else names, has_time=has_time))
    numbers = {_field(name): "int" for name in names if name in _NUMBERS}
    steps = [
        StepGuess("drop_if", {"message": {"matches": "^#"}}, "comments; when the columns change, so has the pattern to"),
        StepGuess("regex", f"^{pattern}$"),
    ]
    if has_time:
        options = {"field": "ts", "format": "%Y-%m-%d %H:%M:%S", "zone": "UTC"}
        steps.append(StepGuess("timestamp", options, "the format has times in UTC", keep=True))
    if numbers:
        steps.append(StepGuess("convert", numbers, keep=True, beside={"null": "-"}))
    return Guess("W3C extended log, as IIS writes it", 1.0, 1.0, tuple(steps), timestamp="event" if has_time else "")


def _groups(names: Sequence[str], *, has_time: bool) -> list[str]:
    fields = [_field(name) for name in names]
    return ([r"(?P<ts>\S+ \S+)"] if has_time else []) + [
        rf"(?P<{field}>\S+)" if fields.index(field) == number else r"\S+" for number, field in enumerate(fields)
    ]


def _field(name: str) -> str:
    """`cs(User-Agent)` is `cs_user_agent`."""
    field = re.sub(r"\W+", "_", name.lower()).strip("_")
    return field if field[:1].isalpha() else f"f_{field}"


def syslog_lines(lines: Sequence[str]) -> Guess | None:
    """One of the two formats, or rsyslog's own with full times."""
    for what, pattern in _SYSLOG_FORMS:
        share = sum(1 for line in lines if pattern.match(line)) / len(lines)
        if share >= _ENOUGH_SYSLOG:
            remarks = ("lines of RFC 3164 name no year and no zone: the year is the latest that fits, the zone the host's",)
            return Guess(what, share, 1.0, (StepGuess("syslog", {}),), timestamp="event", remarks=remarks if "3164" in what else ())
    share = sum(1 for line in lines if re.match(_ISO, line)) / len(lines)
    if share < _ENOUGH_SYSLOG:
        return None
    steps = (StepGuess("regex", _ISO), StepGuess("timestamp", {"field": "ts", "format": "rfc3339"}, keep=True))
    return Guess("syslog as rsyslog writes it, with full times", share, 0.96, steps, timestamp="event")
