"""Logs in the extended format of the W3C, as IIS writes them: lines of comments name the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from copycat_agent.guessing.model import Guess, StepGuess

_FIELDS = "#Fields:"
_NUMBERS = {"sc-status", "sc-substatus", "sc-win32-status", "sc-bytes", "cs-bytes", "time-taken", "s-port", "c-port"}


def recognise(lines: Sequence[str]) -> Guess | None:
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
