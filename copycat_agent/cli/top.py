"""`copycat top`: the running agent, live."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from copycat_agent.cli.client import find_agent
from copycat_agent.cli.kafka_view import clients_line, kafka_table
from copycat_agent.cli.options import Config, NoColor, Socket, StateDir
from copycat_agent.cli.shown import age, rate, size, visible
from copycat_agent.cli.status_view import connectors_table, reasons, warnings
from copycat_agent.cli.watching import Look, Watch, make_console, show

ONCE_SECONDS = 1.0
"""--once looks twice, so that it can tell rates."""


def top(
    once: Annotated[bool, typer.Option("--once", help="One picture, then end.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")] = 1.0,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
    no_color: NoColor = False,
) -> None:
    """Show connectors, rates, lag and the brokers, live, until Ctrl-C. Off a terminal, as with --once."""
    watched = Watch(find_agent(socket, state_dir, config))
    console = make_console(no_color=no_color)
    if once or not console.is_terminal:
        time.sleep(ONCE_SECONDS)
        console.print(frame(watched.look(), console.width))
    else:
        show(watched, lambda look: frame(look, console.width), console, interval, screen=True)


def frame(look: Look, width: int, now: float | None = None) -> RenderableType:
    """One picture, `width` cells wide; `now` in epoch seconds."""
    now = time.time() if now is None else now
    parts: list[RenderableType] = [_head(look, now)]
    parts += [Text(f"! {words}", "bold red") for words in warnings(look.agent)]
    parts += [Text(), connectors_table(look.connectors, look.rates, now, width, sparks=True)]
    parts += reasons(look.connectors)
    if brokers := kafka_table(look.connectors, width):
        parts += [Text(), brokers, clients_line(look.connectors)]
    return Group(*parts)


def _head(look: Look, now: float) -> Text:
    agent = look.agent
    if look.away_since:
        return Text(f"copycat  {look.why}; waiting for it since {age(now - look.away_since)}", "bold red")
    total = sum(look.rates.of(one["name"]) or 0.0 for one in look.connectors)
    unread = sum(one["lag"]["bytes"] for one in look.connectors)
    parts = [
        f"copycat {agent['version']}", f"pid {agent['pid']}", f"up {age(now - agent['started'])}", f"spark {visible(agent['spark'])}",
        f"{rate(total)} records/s", f"{size(unread)} unread",
    ]  # fmt: skip
    return Text("  ".join(parts), "bold")
