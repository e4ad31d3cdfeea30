"""The commands by name, each imported when it is asked for: `run` does not pay for doctor, demo, the tables of `top` and the rest."""

from __future__ import annotations

import importlib
import keyword
import re
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMANDS: Mapping[str, str] = {
    "run": "run", "backfill": "backfill", "check": "check", "doctor": "doctor", "plan": "plan", "explain": "explain", "status": "status",
    "top": "top", "ls": "ls",
    "describe": "describe", "tap": "tap", "losses": "losses", "schema": "check", "dev-broker": "dev_broker", "demo": "demo",
    "completion": "completion", "fmt": "fmt", "new": "new", "import": "import_",
    "version": "version", "ctl": "ctl", "offsets": "offsets", "dlq": "dlq", "health": "health",
    "passwd": "passwd",
    "try": "try_", "test": "test_command", "bundle": "bundle",
}  # fmt: skip
"""Command -> the module of this package with a function, or a `typer.Typer` of commands, that has the
command's name; for a word of Python's (import, try) the module's."""
_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")


class Commands(TyperGroup):
    """The group of all commands; looks one up by importing it."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - typer's
        """For typer."""
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)  # the names: for the list, completion and "did you mean"

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer keeps the types to itself
        """The command, None when there is none of this name."""
        if cmd_name in self.commands and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load(cmd_name)
        return super().get_command(ctx, cmd_name)


def _load(name: str) -> Any:  # noqa: ANN401 - see `get_command`
    module = importlib.import_module(f"copycat_agent.cli.{COMMANDS[name]}")
    found = getattr(module, COMMANDS[name] if keyword.iskeyword(name) else name.replace("-", "_"))
    around = typer.Typer(add_completion=False)
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
        made: Any = typer.main.get_command(around)
        made = made.commands[name]
    else:
        around.command(name=name)(found)
        made = typer.main.get_command(around)
    for one in (made, *getattr(made, "commands", {}).values()):
        one.help = _LINE_END.sub(" ", one.help or "")
    return made
