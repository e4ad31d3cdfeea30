r"""`syslog`: lines of RFC 5424 and of RFC 3164, distinguished by the version after the priority.

Programs write more variants of RFC 3164 than its text has: with and without the priority (files have none), with dates as `Nov 22
05:00:00`, with a year, with fractions, or as RFC 3339; with and without a host, a tag and a pid. All have the same fields, null if a line
does not have one. Names of facilities and severities are those of syslog.conf, as rsyslog and Vector write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from copycat_agent.errors import DataError
from copycat_agent.model import Column
from copycat_agent.options import Field
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms.base import Step, StepOptions, Transform, TransformKind, in_short
from copycat_agent.transforms.clocks import LOCAL
from copycat_agent.transforms.parsing import Dated, ParseOptions, dated_step, parsed_columns
from copycat_agent.transforms.times import TimeFormats, ZoneWord, compile_times

_FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp", "audit", "alert", "clock",
    "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
_SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_PRIORITIES = {f"{number:{pad}d}": (_FACILITIES[number >> 3], _SEVERITIES[number & 7]) for number in range(192) for pad in ("", "02", "03")}
"""Facility and severity by priority as written."""
_NEITHER = (None, None)

_COUNTED = re.compile(r"[1-9][0-9]{0,8} (?=<)")
"""The length that RFC 6587 puts before a message."""
_MODERN = re.compile(r"<([0-9]{1,3})>[1-9][0-9]{0,2} (\S+) (\S+) (\S+) (\S+) (\S+) (?:-|(?=\[))")
_ELEMENTS = re.compile(r'(?:\[[^ =\]"]+(?: +[^ =\]"]+="(?:[^"\\\]]|\\.)*")* *\])+', re.DOTALL)
_ELEMENT = re.compile(r'\[([^ =\]"]+)((?: +[^ =\]"]+="(?:[^"\\\]]|\\.)*")*) *\]', re.DOTALL)
_PARAMETER = re.compile(r' +([^ =\]"]+)="((?:[^"\\\]]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\\]])')
_NUMBER = re.compile(r"<([0-9]{1,3})>(?![1-9][0-9]{0,2} )")
_IS_MODERN = re.compile(r"(?:[1-9][0-9]{0,8} )?<[0-9]{1,3}>[1-9][0-9]{0,2} ")
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_WHEN = re.compile(
    rf"[*.]?((?:{_MONTHS}) +[0-9]{{1,2}} (?:[0-9]{{4}} )?[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,9}})?(?: [0-9]{{4}}(?= ))?)"
    r"(?: |: |:?$)"
    r"|([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)(?: |$)"
)
_HOST = re.compile(r"([^\s\[\]:<>()][^\s\[\]<>()]*[^\s\[\]:<>()]|[^\s\[\]:<>()])(?: +|$)")
_NAME = r"([^\s\[\]:<>][^\s\[\]:<>]{0,127})(?:\[([^\]\s]{1,64})\](?::? |:?$|:)|"
_TAG = re.compile(_NAME + ": ?)")
_TAG_FIRST = re.compile(_NAME + ":(?: |$))")
"""A tag in the position of a host: `fe80::1` is a host."""
_BOM = "\ufeff"
_SIGNS = ("+", "-")
_REMEMBERED = 4096
_BSD = ("%b %d %H:%M:%S", "%b %d %H:%M:%S.%f", "%b %d %Y %H:%M:%S", "%b %d %Y %H:%M:%S.%f", "%b %d %H:%M:%S %Y")
_NO_DATE = "not a syslog line: it begins with neither a priority such as <34> nor a date such as Nov 22 05:00:00"

_COLUMNS = (
    Column("timestamp"), Column("hostname"), Column("facility"), Column("severity"), Column("appname"), Column("procid"), Column("msgid"),
    Column("structured_data", "map<string, map<string, string>>"), Column("message"),
)  # fmt: skip


class SyslogOptions(ParseOptions):
    """How syslog is read."""

    format: Literal["auto", "rfc3164", "rfc5424"] = Field(
        "auto", description="auto: by each line. rfc3164: with and without priority. rfc5424: other lines are errors."
    )
    zone: ZoneWord = Field(
        LOCAL, description="The zone of dates that have none: local (that of the host that reads), a name such as Europe/Berlin, or +02:00."
    )


class SyslogStepOptions(StepOptions):
    """Parses syslog."""

    syslog: Annotated[SyslogOptions, in_short("format", str, str | SyslogOptions)] = Field(
        description="Parses syslog, RFC 5424 and RFC 3164, into timestamp, hostname, facility, severity, appname, procid, msgid, "
        "structured_data and message. Sets the record's time. {format, zone, field, into, keep_source}."
    )


_Moment = tuple[str, int]
"""A time as RFC 3339, and in epoch milliseconds."""


class _DateCache(dict[str, _Moment]):
    """Parsed dates by their texts, as a cache: many lines have the same second."""

    def __init__(self, read: Callable[[str], int], *, keep: bool) -> None:
        """`keep`: a date with a zone stays as it is written."""
        super().__init__()
        self._read = read
        self._keep = keep

    def __missing__(self, written: str) -> _Moment:
        """Raises DataError for an invalid time."""
        at_ms = self._read(written)
        moment = written if self._keep else f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
        if len(self) >= _REMEMBERED:
            self.clear()
        self[written] = moment, at_ms
        return moment, at_ms


@dataclass(frozen=True)
class _Syslog:
    """Compiled options. A date without a year needs the time of its file."""

    options: SyslogOptions
    zoned: TimeFormats
    bare: TimeFormats
    bsd: TimeFormats

    def bind(self, meta: SplitMeta) -> Step:
        zoned = _DateCache(self.zoned.bind(), keep=True)
        bsd = _Rfc3164(zoned, _DateCache(self.bare.bind(), keep=False), _DateCache(self.bsd.bind(meta.mtime_ms), keep=False)).parse
        parse: Dated
        if self.options.format == "rfc5424":
            parse = _modern(zoned)
        elif self.options.format == "rfc3164":
            parse = bsd
        else:
            modern = _modern(zoned)

            def parse(text: str) -> tuple[dict[str, Any], int | None]:
                return modern(text) if _IS_MODERN.match(text) else bsd(text)

        return dated_step(self.options, parse)


def _modern(moments: _DateCache) -> Dated:
    """Returns a parser of RFC 5424."""

    def parse(text: str) -> tuple[dict[str, Any], int | None]:
        head = _MODERN.match(text) or ((counted := _COUNTED.match(text)) and _MODERN.match(text, counted.end()))
        if not head:
            raise DataError("not a line of RFC 5424: <priority>1 time host app procid msgid [data] message")
        number, when, host, app, procid, msgid = head.groups()
        facility, severity = _priority(number)
        moment, at_ms = (None, None) if when == "-" else moments[when]
        end, data = head.end(), None
        if text.startswith("[", end):
            end, data = _structured(text, end)
        if text[end : end + 1] not in ("", " "):
            raise DataError(f"not a line of RFC 5424: a blank has to follow the structured data, at character {end + 1}")
        return {
            "timestamp": moment,
            "hostname": None if host == "-" else host,
            "facility": facility,
            "severity": severity,
            "appname": None if app == "-" else app,
            "procid": None if procid == "-" else procid,
            "msgid": None if msgid == "-" else msgid,
            "structured_data": data,
            "message": text[end + 1 :].removeprefix(_BOM) if end < len(text) else None,
        }, at_ms

    return parse


def _structured(text: str, begin: int) -> tuple[int, dict[str, dict[str, str]]]:
    """Returns where the elements that begin there end, and their content. The values of a repeated name are joined by a comma."""
    whole = _ELEMENTS.match(text, begin)
    if whole is None:
        raise DataError(f'not a line of RFC 5424: the structured data that begins at character {begin + 1} is not [id name="value"]')
    data: dict[str, dict[str, str]] = {}
    repeated: dict[tuple[str, str], list[str]] = {}
    for element in _ELEMENT.finditer(whole[0]):
        values = data.setdefault(element[1], {})
        for name, value in _PARAMETER.findall(element[2]):
            plain = _ESCAPED.sub(r"\1", value) if "\\" in value else value
            if name in values:
                repeated.setdefault((element[1], name), [values[name]]).append(plain)
            else:
                values[name] = plain
    for (part, name), texts in repeated.items():
        data[part][name] = ", ".join(texts)
    return whole.end(), data


def _priority(number: str) -> tuple[str, str]:
    found = _PRIORITIES.get(number)
    if found is None:
        raise DataError("not a syslog line: the highest priority is 191")
    return found


@dataclass(frozen=True)
class _Rfc3164:
    """RFC 3164, and its variants."""

    zoned: _DateCache
    bare: _DateCache
    bsd: _DateCache

    def parse(self, text: str) -> tuple[dict[str, Any], int | None]:
        at = counted.end() if (counted := _COUNTED.match(text)) else 0
        number = _NUMBER.match(text, at)
        facility, severity = _priority(number[1]) if number else _NEITHER
        at = number.end() if number else at
        when = _WHEN.match(text, at)
        if when is None and number is None:
            raise DataError(_NO_DATE)
        moment, at_ms = (None, None) if when is None else self._moment(when)
        at, host = at if when is None else when.end(), None
        tag = (_TAG if when is None else _TAG_FIRST).match(text, at)
        if tag is None and when is not None and (found := _HOST.match(text, at)):
            host, at = found[1], found.end()
            tag = _TAG.match(text, at)
        return {
            "timestamp": moment,
            "hostname": host,
            "facility": facility,
            "severity": severity,
            "appname": tag[1] if tag else None,
            "procid": tag[2] if tag else None,
            "msgid": None,
            "structured_data": None,
            "message": text[tag.end() if tag else at :],
        }, at_ms

    def _moment(self, when: re.Match[str]) -> _Moment:
        bsd, iso = when.groups()
        if bsd is not None:
            return self.bsd[bsd]
        return self.zoned[iso] if iso[-1] == "Z" or iso[-6:-5] in _SIGNS or iso[-5:-4] in _SIGNS else self.bare[iso]


def _build(options: SyslogStepOptions) -> Transform:
    zone = options.syslog.zone
    return _Syslog(
        options.syslog, compile_times(("rfc3339", "iso8601"), zone), compile_times(("iso8601",), zone), compile_times(_BSD, zone)
    )


SYSLOG = TransformKind(SyslogStepOptions, _build, lambda options, before: parsed_columns(options.syslog, _COLUMNS, before))
