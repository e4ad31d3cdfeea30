"""`copycat ls`: the connectors of the running agent."""

from __future__ import annotations

import json
from typing import Any

import typer

from copycat_agent.cli.client import find_agent
from copycat_agent.cli.guarantee_view import guarantee_of
from copycat_agent.cli.options import Config, Format, NoColor, Output, Socket, StateDir
from copycat_agent.cli.shown import visible
from copycat_agent.cli.status_view import state_text
from copycat_agent.cli.tables import Column, table
from copycat_agent.cli.watching import make_console


def ls(
    output: Output = Format.TEXT, socket: Socket = None, state_dir: StateDir = None, config: Config = None, no_color: NoColor = False
) -> None:
    """List the connectors: name, enabled, state, guarantee, file."""
    found: list[dict[str, Any]] = find_agent(socket, state_dir, config).get("/v1/connectors")["connectors"]
    if output is Format.JSON:
        typer.echo(json.dumps([{key: one[key] for key in ("name", "enabled", "state", "guarantee", "path")} for one in found], indent=2))
        return
    console = make_console(no_color=no_color)
    columns = [
        Column("connector", [visible(one["name"]) for one in found], left=True),
        Column("enabled", ["yes" if one["enabled"] else "no" for one in found], left=True),
        Column("state", [state_text(one) for one in found], left=True),
        Column("guarantee", [guarantee_of(one) for one in found], left=True, rank=1),
        Column("file", [visible(one["path"]) for one in found], left=True, wraps=True),
    ]
    console.print(table(columns, console.width))
