"""Which lines of a sample go on with the record above them, as far as that shows without knowing the format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from copycat_agent.guessing.model import Value

_GOES_ON = re.compile(
    r"\s|$|Traceback \(|Caused by: |Suppressed: |During handling of|The above exception"
    r"|(?:[\w$]+\.)*\w+(?:Error|Exception|Warning|Interrupt|Exit)\b(?::|\s*$)"
)
_JAVA = re.compile(r"\s+at [\w$.<>/]+\(|Caused by: |(?:[\w$]+\.)+[\w$]*(?:Exception|Error)(?::|\s*$)")
_PYTHON = re.compile(r"Traceback \(most recent call last\):|\s+File \"[^\"]*\", line \d+")


def heads(lines: Sequence[str]) -> list[str]:
    """The lines that begin a record, all of them when none does."""
    return [line for line in lines if not _GOES_ON.match(line)] or list(lines)


def trace_preset(lines: Sequence[str]) -> str:
    """Whose stack traces stand in the sample: `java`, `python`, or "" for nobody's."""
    java, python = (sum(1 for line in lines if pattern.match(line)) for pattern in (_JAVA, _PYTHON))
    return "" if not java and not python else "python" if python >= java else "java"


def multiline_of(lines: Sequence[str], start: str) -> Mapping[str, Value] | None:
    """The rule for lines that go on with a record: a preset for stack traces, else what each record begins with. None without any."""
    if preset := trace_preset(lines):
        return {"preset": preset}
    if any(_GOES_ON.match(line) and line.strip() for line in lines):
        return {"start": start}
    return None
