"""Access logs of web servers: common, combined, and what is put before or behind them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from copycat_agent.guessing.model import Guess, StepGuess

_BEFORE = r'(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] "'
_REQUEST = r'(?P<method>\S+) (?P<path>\S+)(?: (?P<protocol>[^"]*))?'
_ANY_REQUEST = rf'(?:{_REQUEST}|(?P<request>(?:[^"\\]|\\.)*))'
_AFTER = r'" (?P<status>\d{3}) (?P<bytes>\d+|-)'
_COMBINED = _AFTER + r' "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)"'
_MORE = r" (?P<more>.*)"
_FORMS = (
    ("nginx or Apache access log, combined format", "^" + _BEFORE, f"{_COMBINED}$", 1.0),
    ("Apache access log with virtual hosts, combined format", rf"^(?P<vhost>[\w.:-]+) {_BEFORE}", f"{_COMBINED}$", 1.0),
    ("nginx or Apache access log, common format", "^" + _BEFORE, f"{_AFTER}$", 1.0),
    ("nginx or Apache access log, combined format and more behind it", "^" + _BEFORE, f"{_COMBINED}{_MORE}$", 0.99),
    ("nginx or Apache access log, common format and more behind it", "^" + _BEFORE, f"{_AFTER}{_MORE}$", 0.98),
)
"""What it is, what stands before and after the request, and how much a match says."""
_ENOUGH = 0.5


def recognise(lines: Sequence[str]) -> Guess | None:
    """The form with the most lines."""
    found = [
        (what, before + request + after, weight * _share(before + request + after, lines))
        for what, before, after, weight in _FORMS
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
