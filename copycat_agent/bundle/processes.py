"""The agent's processes, as /proc has them: nothing of their command lines, memory or environment."""

from __future__ import annotations

import re
from pathlib import Path

_SHOWN = re.compile(r"^(Name|State|PPid|VmRSS|VmHWM|VmSwap|Threads|FDSize):\s*(.*)$", re.MULTILINE)


def processes(pid: int) -> str:
    """`pid` and all below it, one line each, and the limits of the first."""
    children: dict[int, list[int]] = {}
    found: dict[int, dict[str, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = dict(_SHOWN.findall((entry / "status").read_text("utf-8", "replace")))
            except OSError:  # it has ended
                continue
            found[int(entry.name)] = fields
            children.setdefault(int(fields["PPid"]), []).append(int(entry.name))
    lines, waiting = [], [(pid, 0)]
    while waiting:
        one, depth = waiting.pop()
        lines.append(f"{'  ' * depth}{one} {_line(one, found.get(one, {}))}")
        waiting += [(child, depth + 1) for child in sorted(children.get(one, ()), reverse=True)]
    return "\n".join([*lines, "", Path(f"/proc/{pid}/limits").read_text("utf-8")])


def _line(pid: int, fields: dict[str, str]) -> str:
    try:
        opened = str(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        opened = "?"
    return ", ".join(f"{name} {value}" for name, value in fields.items() if name != "PPid") + f", descriptors {opened}"
