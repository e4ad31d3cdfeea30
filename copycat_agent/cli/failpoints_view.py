"""`copycat --failpoints`: the places where a test can make the agent die, for people and for programs."""

from __future__ import annotations

import json

from copycat_agent import failpoints
from copycat_agent.cli.options import Format

_WIDTH = 16


def listing(output: Format) -> str:
    """Names with their windows, and how to use one."""
    if output is Format.JSON:
        return json.dumps([{"name": name, "window": window, "where": where} for name, window, where in _rows()], indent=2)
    lines = [f"{name:<{_WIDTH}}{window:<5}{where}" for name, window, where in _rows()]
    actions = [f"  {name:<{_WIDTH - 2}}{what}" for name, what in failpoints.ACTIONS.items()]
    how = (
        f"\n{failpoints.VARIABLE}=name[:nth][:kill|hang|error] acts when a process of the agent comes there for the nth time (1);\n"
        f"with {failpoints.ONCE}=FILE only the first process that does. For tests: docs/exactly-once.md has the windows."
    )
    return "\n".join([*lines, how, *actions])


def _rows() -> list[tuple[str, str, str]]:
    """Name, window, and what is true there."""
    cut = {name: words.partition(": ") for name, words in failpoints.NAMES.items()}
    return [(name, window, where) for name, (window, _, where) in cut.items()]
