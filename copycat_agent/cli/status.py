"""`copycat status`: how the connectors of the running agent are."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from copycat_agent.cli import exits
from copycat_agent.cli.client import SomeName, find_agent
from copycat_agent.cli.options import Config, Format, NoColor, Output, Socket, StateDir
from copycat_agent.cli.shown import age, visible
from copycat_agent.cli.status_view import connectors_table, is_degraded, reasons, warnings
from copycat_agent.cli.watching import Look, Watch, make_console, show

BETWEEN_LOOKS_SECONDS = 0.5
"""A rate needs two looks."""
_OUTSIDE = frozenset({"retrying", "blocked"})
"""States in which a connector waits for something outside, which `doctor` looks at."""


def status(  # noqa: PLR0913, PLR0917 - the command's options
    name: SomeName = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks, with --watch.")] = 2.0,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
    no_color: NoColor = False,
) -> None:
    """Show state, rate, lag and losses of every connector.

    Exits 3 when a connector is neither RUNNING nor PAUSED nor STOPPED on purpose, or offsets cannot be saved; 1 when no agent
    runs. Counts are since the connector was started, lost bytes since ever.
    """
    watched = Watch(find_agent(socket, state_dir, config), name)
    console = make_console(no_color=no_color)
    if output is Format.JSON:
        _json(watched, interval if watch else None)
    elif watch:
        show(watched, lambda look: frame(look, console.width), console, interval)
    else:
        time.sleep(BETWEEN_LOOKS_SECONDS)
        _once(watched.look(), console)
    if not watch and (watched.seen.agent["offsets_unsaved"] or any(map(is_degraded, watched.seen.connectors))):
        raise typer.Exit(exits.DEGRADED)


def frame(look: Look, width: int) -> RenderableType:
    """The picture of one look, for --watch."""
    now = time.time()
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    head = Text(f"{clock}  {look.why}; waiting for it since {age(now - look.away_since)}", "bold red") if look.away_since else Text(clock)
    words = [Text(f"warning: {one}", "yellow") for one in warnings(look.agent)]
    return Group(head, connectors_table(look.connectors, look.rates, now, width), *reasons(look.connectors), *words)


def _once(look: Look, console: Console) -> None:
    """The table on stdout, what is wrong with the agent as a whole on stderr."""
    console.print(connectors_table(look.connectors, look.rates, time.time(), console.width))
    for paragraph in reasons(look.connectors):
        console.print(paragraph, soft_wrap=True)
    if not look.connectors:
        typer.echo("the agent has no connectors", err=True)
    if any(one["state"] in _OUTSIDE for one in look.connectors):
        typer.echo(f"what is wrong, step by step: copycat doctor {visible(look.agent['directory'])}", err=True)
    for words in warnings(look.agent):
        typer.echo(f"warning: {words}", err=True)


def _json(watched: Watch, interval: float | None) -> None:
    """One document, or one per line and interval."""
    if interval is None:
        typer.echo(json.dumps(_document(watched.seen), indent=2))
        return
    try:
        while True:
            typer.echo(json.dumps(_document(watched.seen)))
            time.sleep(interval)
            watched.look()
    except KeyboardInterrupt:
        return


def _document(look: Look) -> dict[str, Any]:
    return {"at": look.at, "agent": look.agent, "connectors": look.connectors} | (
        {"away_since": look.away_since} if look.away_since else {}
    )
