"""Syslog: RFC 5424 and RFC 3164 with or without a priority, as daemons send and as they write files."""

from __future__ import annotations

import re
from collections.abc import Sequence

from copycat_agent.guessing.model import Guess, StepGuess

_TAG = r"[^\s:\[]+(?:\[[^\]]*\])?:"
_FORMS = (
    ("syslog, RFC 5424", re.compile(r"(?:<\d{1,3}>)1 (?:\d{4}-\d\d-\d\dT\S+|-) \S+ \S+ \S+ \S+ (?:-|\[)")),
    ("syslog, RFC 3164", re.compile(rf"(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d \S+ (?:{_TAG}|\S)")),
)
_ISO = r"^(?P<ts>\d{4}-\d\d-\d\dT\S+) (?P<host>\S+) (?P<program>[^\s:\[]+)(?:\[(?P<pid>[^\]]*)\])?: (?P<message>.*)"
_ENOUGH = 0.5


def recognise(lines: Sequence[str]) -> Guess | None:
    """One of the two formats, or rsyslog's own with full times."""
    for what, pattern in _FORMS:
        share = sum(1 for line in lines if pattern.match(line)) / len(lines)
        if share >= _ENOUGH:
            remarks = ("lines of RFC 3164 name no year and no zone: the year is the latest that fits, the zone the host's",)
            return Guess(what, share, 1.0, (StepGuess("syslog", {}),), timestamp="event", remarks=remarks if "3164" in what else ())
    share = sum(1 for line in lines if re.match(_ISO, line)) / len(lines)
    if share < _ENOUGH:
        return None
    steps = (StepGuess("regex", _ISO), StepGuess("timestamp", {"field": "ts", "format": "rfc3339"}, keep=True))
    return Guess("syslog as rsyslog writes it, with full times", share, 0.96, steps, timestamp="event")
