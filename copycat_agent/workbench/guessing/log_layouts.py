"""Recognises lines by patterns: access logs, the extended log format of the W3C (IIS), syslog, logs of programs, plain text.

The patterns are used in the definition as they are. Where a layout has a level, it must be a known one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from copycat_agent.workbench.guessing.guesses import Guess, StepGuess, Value, format_of

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
ACCESS_LOGS = tuple(
    (what, before + request + after, weight) for what, before, after, weight in _ACCESS_FORMS for request in (_REQUEST, _ANY_REQUEST)
)
"""Access logs: name, pattern, and significance of a match (0 to 1)."""
_ENOUGH = 0.5
_FIELDS = "#Fields:"
_NUMBERS = {"sc-status", "sc-substatus", "sc-win32-status", "sc-bytes", "cs-bytes", "time-taken", "s-port", "c-port"}
_TAG = r"[^\s:\[]+(?:\[[^\]]*\])?:"
_SYSLOG_FORMS = (
    ("syslog, RFC 5424", re.compile(r"(?:<\d{1,3}>)1 (?:\d{4}-\d\d-\d\dT\S+|-) \S+ \S+ \S+ \S+ (?:-|\[)")),
    ("syslog, RFC 3164", re.compile(rf"(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d \S+ (?:{_TAG}|\S)")),
)
_RSYSLOG = r"^(?P<ts>\d{4}-\d\d-\d\dT\S+) (?P<host>\S+) (?P<program>[^\s:\[]+)(?:\[(?P<pid>[^\]]*)\])?: (?P<message>.*)"
_GOES_ON = re.compile(
    r"\s|$|Traceback \(|Caused by: |Suppressed: |During handling of|The above exception"
    r"|(?:[\w$]+\.)*\w+(?:Error|Exception|Warning|Interrupt|Exit)\b(?::|\s*$)"
)
_JAVA = re.compile(r"\s+at [\w$.<>/]+\(|Caused by: |(?:[\w$]+\.)+[\w$]*(?:Exception|Error)(?::|\s*$)")
_PYTHON = re.compile(r"Traceback \(most recent call last\):|\s+File \"[^\"]*\", line \d+")
_ISO = r"(?P<ts>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*)"
_CLOCK = r"(?P<ts>\d\d:\d\d:\d\d[.,]\d+)"
_LEVEL = r"(?P<level>[A-Z]+)"
_MESSAGE = r"(?P<message>.*)"
_LEVELS = {
    "TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "WARNING", "ERROR", "CRITICAL", "CRIT", "ALERT", "EMERG", "FATAL", "SEVERE",
    "FINE", "FINER", "FINEST", "CONFIG", "LOG", "PANIC", "HINT", "DETAIL", "STATEMENT", "V", "D", "I", "W", "E", "F",
}  # fmt: skip


def access_log(lines: Sequence[str]) -> Guess | None:
    """Recognises access logs, by the form that matches most lines."""
    found = [(what, pattern, weight * _share(pattern, lines)) for what, pattern, weight in ACCESS_LOGS]
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


def _share(pattern: str | re.Pattern[str], lines: Sequence[str]) -> float:
    return sum(1 for line in lines if re.match(pattern, line)) / len(lines)


def w3c_log(lines: Sequence[str]) -> Guess | None:
    """Recognises W3C logs, with columns as the first `#Fields:` names them; date and time become one field."""
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
    """Returns the name of a field for a column: `cs_user_agent` for `cs(User-Agent)`."""
    field = re.sub(r"\W+", "_", name.lower()).strip("_")
    return field if field[:1].isalpha() else f"f_{field}"


def syslog_lines(lines: Sequence[str]) -> Guess | None:
    """Recognises syslog of one of the two RFCs, or rsyslog's own format with full times."""
    for what, pattern in _SYSLOG_FORMS:
        share = _share(pattern, lines)
        if share >= _ENOUGH:
            remarks = ("lines of RFC 3164 name no year and no zone: the year is the latest that fits, the zone the host's",)
            return Guess(what, share, 1.0, (StepGuess("syslog", {}),), timestamp="event", remarks=remarks if "3164" in what else ())
    share = _share(_RSYSLOG, lines)
    if share < _ENOUGH:
        return None
    steps = (StepGuess("regex", _RSYSLOG), StepGuess("timestamp", {"field": "ts", "format": "rfc3339"}, keep=True))
    return Guess("syslog as rsyslog writes it, with full times", share, 0.96, steps, timestamp="event")


def heads(lines: Sequence[str]) -> list[str]:
    """Returns the lines that begin a record, all lines if none does."""
    return [line for line in lines if not _GOES_ON.match(line)] or list(lines)


def trace_preset(lines: Sequence[str]) -> str:
    """Returns the kind of stack traces in the sample: `java`, `python`, or "" for none."""
    java, python = (sum(1 for line in lines if pattern.match(line)) for pattern in (_JAVA, _PYTHON))
    return "" if not java and not python else "python" if python >= java else "java"


def multiline_of(lines: Sequence[str], start: str) -> Mapping[str, Value] | None:
    """Returns options of `multiline`: a preset for stack traces, else `start`. None if each line is a record."""
    if preset := trace_preset(lines):
        return {"preset": preset}
    if any(_GOES_ON.match(line) and line.strip() for line in lines):
        return {"start": start}
    return None


class LogLayout(NamedTuple):
    """A layout: its name, its pattern, how specific that is (0 to 1), and the kind of stack traces to expect if the sample has none.

    `noise` is a pattern of lines that are no records.
    """

    what: str
    pattern: str
    weight: float
    preset: str = ""
    noise: str = ""


LAYOUTS = (
    LogLayout("Python logging", rf"^{_ISO} - (?P<logger>\S+) - {_LEVEL} - {_MESSAGE}", 0.95, "python"),
    LogLayout("Python logging", rf"^{_LEVEL}:(?P<logger>[\w.]+):{_MESSAGE}", 0.9, "python"),
    LogLayout("Python logging", rf"^{_ISO} \[{_LEVEL}\] (?P<logger>[\w.]+): {_MESSAGE}", 0.9, "python"),
    LogLayout(
        "Spring Boot",
        rf"^{_ISO} +{_LEVEL} (?P<pid>\d+) --- (?:\[(?P<app>[^\]]*)\] )??\[ *(?P<thread>[^\]]*)\] (?P<logger>\S+) *: {_MESSAGE}",
        1.0,
        "java",
    ),
    LogLayout("logback", rf"^{_ISO} \[(?P<thread>[^\]]+)\] {_LEVEL} +(?P<logger>\S+) - {_MESSAGE}", 0.97, "java"),
    LogLayout("logback, without a date", rf"^{_CLOCK} \[(?P<thread>[^\]]+)\] {_LEVEL} +(?P<logger>\S+) - {_MESSAGE}", 0.97, "java"),
    LogLayout("log4j", rf"^{_ISO} {_LEVEL} +\[(?P<thread>[^\]]+)\] (?P<logger>[\w.$-]+):? -? ?{_MESSAGE}", 0.95, "java"),
    LogLayout("log4j", rf"^{_ISO} {_LEVEL} +(?P<logger>[\w.$-]+):(?P<line>\d+) - {_MESSAGE}", 0.96, "java"),
    LogLayout("log4j, as Hadoop writes it", rf"^{_ISO} {_LEVEL} +(?P<logger>[\w$-]+(?:\.[\w$-]+)+): {_MESSAGE}", 0.93, "java"),
    LogLayout("log4j, as Kafka writes it", r"^\[" + rf"{_ISO}\] {_LEVEL} {_MESSAGE}" + r" \((?P<logger>[\w.$-]+)\)", 0.96, "java"),
    LogLayout("log4j, as ZooKeeper writes it", rf"^{_ISO} - {_LEVEL} +\[(?P<thread>.*?)\] - {_MESSAGE}", 0.95, "java"),
    LogLayout(
        "log4j, as HDFS writes it",
        rf"^(?P<ts>\d{{6}} \d{{6}}) (?P<pid>\d+) {_LEVEL} (?P<logger>[^:]+): {_MESSAGE}",
        0.97,
        "java",
    ),
    LogLayout(
        "log4j, as Spark writes it",
        rf"^(?P<ts>\d\d/\d\d/\d\d \d\d:\d\d:\d\d) {_LEVEL} (?P<logger>[^:]+): {_MESSAGE}",
        0.97,
        "java",
    ),
    LogLayout("program log", rf"^{_ISO} {_LEVEL} +(?P<logger>[\w.$-]+): {_MESSAGE}", 0.85),
    LogLayout(
        "Android logcat",
        r"^(?P<ts>\d\d-\d\d \d\d:\d\d:\d\d\.\d+) +(?P<pid>\d+) +(?P<tid>\d+) (?P<level>[VDIWEF]) (?P<tag>[^:]*?) *: " + _MESSAGE,
        1.0,
        "java",
        "^-+ beginning of ",
    ),
    LogLayout(
        "Apache error log",
        r"^\[(?P<ts>\w{3} \w{3} [ \d]\d [\d:.]+ \d{4})\] \[(?:(?P<module>\w*):)?(?P<level>\w+)\]"
        r"(?: \[pid (?P<pid>\d+)(?::tid (?P<tid>\d+))?\])?(?: \[client (?P<client>[^\]]+)\])? " + _MESSAGE,
        1.0,
    ),
    LogLayout(
        "nginx error log",
        r"^(?P<ts>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d) \[(?P<level>\w+)\] (?P<pid>\d+)#(?P<tid>\d+): (?:\*(?P<connection>\d+) )?" + _MESSAGE,
        1.0,
    ),
    LogLayout(
        "klog or glog",
        r"^(?P<level>[IWEF])(?P<ts>\d{4} \d\d:\d\d:\d\d\.\d+) +(?P<thread>\d+) (?P<file>[^:\]]+):(?P<line>\d+)\] " + _MESSAGE,
        1.0,
    ),
    LogLayout(
        "PostgreSQL",
        r"^(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?) (?P<zone>\w+) \[(?P<pid>\d+)\] .*?(?P<level>[A-Z]+):  " + _MESSAGE,
        0.98,
    ),
    LogLayout("log with a level", rf"^{_ISO} \[?(?P<level>[A-Z]+)\]?:? {_MESSAGE}", 0.7),
    LogLayout("log with a level", rf"^\[{_ISO}\] \[?(?P<level>[A-Z]+)\]?:? {_MESSAGE}", 0.7),
    LogLayout("log with times", rf"^\[?{_ISO}\]?:? {_MESSAGE}", 0.5),
    LogLayout("log with times, as Go writes it", rf"^(?P<ts>\d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?) {_MESSAGE}", 0.5),
)  # fmt: skip
"""Layouts from the most to the least specific; the first of equal scores wins."""


def program_log(lines: Sequence[str]) -> Guess | None:
    """Recognises logs of programs, by the layout that fits best."""
    first = heads(lines)
    found = [guess for layout in LAYOUTS if (guess := _tried(layout, first, lines)) is not None]
    return max(found, key=lambda guess: guess.score, default=None)


def _tried(layout: LogLayout, first: Sequence[str], lines: Sequence[str]) -> Guess | None:
    pattern = re.compile(layout.pattern)
    if layout.noise:
        first = [line for line in first if not re.match(layout.noise, line)]
    matches = [match for line in first if (match := pattern.match(line)) and _is_level(match)]
    if len(matches) < _ENOUGH * len(first) or not matches:
        return None
    multiline = multiline_of(lines, _beginning(layout.pattern)) or ({"preset": layout.preset} if layout.preset else None)
    text = layout.pattern.replace(_MESSAGE, r"(?P<message>(?s:.*))") if multiline else layout.pattern
    steps = [StepGuess("drop_if", {"message": {"matches": layout.noise}}, "no records")] if layout.noise else []
    steps.append(StepGuess("regex", text, "the message may have several lines" if multiline else ""))
    times = [match["ts"] for match in matches] if "ts" in pattern.groupindex else []
    form = format_of(times)
    if form:
        steps.append(StepGuess("timestamp", {"field": "ts", "format": form}, "without a zone, a time is the host's: see zone", keep=True))
    numbers = {name: "int" for name in ("pid", "tid", "line", "connection") if name in pattern.groupindex}
    if numbers:
        steps.append(StepGuess("convert", numbers, keep=True))
    share = len(matches) / len(first)
    return Guess(
        layout.what, share, layout.weight, tuple(steps), multiline, timestamp="event" if form else "", remarks=_remarks(times, form)
    )


def _is_level(match: re.Match[str]) -> bool:
    level = match.groupdict().get("level")
    return level is None or level.upper() in _LEVELS


def _beginning(pattern: str) -> str:
    """Returns the pattern of a record's beginning: its time, or all before the message."""
    match = re.match(r"\^(?:\\\[)?\(\?P<ts>((?:[^()]|\((?:[^()])*\))*)\)", pattern)
    if match is None:
        return pattern.partition("(?P<message>")[0]
    return ("^\\[" if pattern.startswith("^\\[") else "^") + match[1]


def _remarks(times: Sequence[str], form: str) -> tuple[str, ...]:
    if times and not form:
        return ("the time of a line has a form that no known format reads, so record.timestamp stays the time of sending",)
    return ()


def plain_text(lines: Sequence[str]) -> Guess:
    """Returns a guess in which every line is a record, with stack traces kept together."""
    preset = trace_preset(lines)
    multiline: dict[str, Value] | None = {"preset": preset} if preset else None
    return Guess("plain text", 1.0, 0.05, multiline=multiline, remarks=("no known format: the value of a record is the line as it stands",))
