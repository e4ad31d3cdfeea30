"""Looking at the agent again and again: one picture after the other, also while it is away."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from copycat_agent.api import AgentClient, AgentUnreachableError, address
from copycat_agent.cli.rates import Rates

_ENDLESS = 10_000


@dataclass(slots=True)
class Look:
    """What was last seen. `away_since` is 0 while the agent answers, else when it stopped to (epoch seconds), and `why`."""

    agent: dict[str, Any]
    connectors: list[dict[str, Any]]
    at: float
    away_since: float = 0.0
    why: str = ""
    rates: Rates = field(default_factory=Rates)


class Watch:
    """Asks one agent, about all connectors or one."""

    def __init__(self, client: AgentClient, name: str | None = None) -> None:
        """Ask for the first time: raises what `AgentClient` raises."""
        self._client, self._name = client, name
        agent, connectors = self._ask()
        self.seen = Look(agent, connectors, time.time())
        self.seen.rates.look(connectors, time.monotonic())

    def look(self) -> Look:
        """Ask again. An agent that does not answer leaves the last picture, with since when."""
        try:
            self.seen.agent, self.seen.connectors = self._ask()
        except AgentUnreachableError as error:
            self.seen.away_since, self.seen.why = self.seen.away_since or time.time(), error.message
            return self.seen
        self.seen.at, self.seen.away_since = time.time(), 0.0
        self.seen.rates.look(self.seen.connectors, time.monotonic())
        return self.seen

    def _ask(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        agent = self._client.get("/v1")
        if self._name:
            return agent, [self._client.get(address("connectors", self._name))]
        return agent, self._client.get("/v1/connectors")["connectors"]


def show(watch: Watch, draw: Callable[[Look], RenderableType], console: Console, interval: float, *, screen: bool = False) -> None:
    """Draw every `interval` seconds until Ctrl-C: in place on a terminal, one block after the other elsewhere."""
    try:
        if console.is_terminal:
            with Live(draw(watch.seen), console=console, auto_refresh=False, screen=screen) as live:
                while True:
                    time.sleep(interval)
                    live.update(draw(watch.look()), refresh=True)
        while True:
            console.print(draw(watch.seen))
            console.file.flush()
            time.sleep(interval)
            watch.look()
    except KeyboardInterrupt:
        return  # it is how one leaves


def make_console(*, no_color: bool) -> Console:
    """Of stdout. Where there is no terminal to fit into, and no COLUMNS says otherwise, lines are as long as they have to be."""
    console = Console(no_color=no_color or None, highlight=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _ENDLESS
    return console
