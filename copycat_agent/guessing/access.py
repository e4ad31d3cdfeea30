"""Access logs of web servers: common, combined, and what is put before or behind them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from copycat_agent.guessing.model import Guess, StepGuess

_COMMON = (
    r'(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+)(?: (?P<protocol>[^"]*))?"'
    r" (?P<status>\d{3}) (?P<bytes>\d+|-)"
)
_COMBINED = _COMMON + r' "(?P<referer>[^"]*)" "(?P<agent>[^"]*)"'
_FORMS = (
    ("nginx or Apache access log, combined format", f"^{_COMBINED}", 1.0),
    ("Apache access log with virtual hosts, combined format", rf"^(?P<vhost>[\w.:-]+) {_COMBINED}", 1.0),
    ("nginx or Apache access log, common format", f"^{_COMMON}", 0.98),
)
_ENOUGH = 0.5


def recognise(lines: Sequence[str]) -> Guess | None:
    """The form with the most lines."""
    found = [(what, pattern, weight * _share(pattern, lines)) for what, pattern, weight in _FORMS]
    what, pattern, share = max(found, key=lambda one: one[2])
    if share < _ENOUGH:
        return None
    steps = (
        StepGuess("regex", pattern, "a line that is not like this is a bad record: see errors"),
        StepGuess("timestamp", {"field": "ts", "format": "%d/%b/%Y:%H:%M:%S %z"}, keep=True),
        StepGuess("convert", {"status": "int", "bytes": "int"}, keep=True, beside={"null": "-"}),
    )
    return Guess(what, share, 1.0, steps, key="{client}", timestamp="event")


def _share(pattern: str, lines: Sequence[str]) -> float:
    return sum(1 for line in lines if re.match(pattern, line)) / len(lines)
