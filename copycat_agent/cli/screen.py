"""Terminal output: tables that fit without being cut, and repeated views of the agent, also while it is away."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len
from rich.console import Console, OverflowMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from copycat_agent.api import AgentClient, AgentUnreachableError, address

GAP = 2
"""Spaces between two columns."""
WRAP_CELLS = 20
"""The least width of a column that wraps."""
_ENDLESS = 10_000


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column. `rank` 0 always stays; else the highest rank is left out first. `is_idle`: its values are all zero or empty.

    `wraps`: long values continue in the next line, so it needs little room.
    """

    title: str
    cells: Sequence[str | Text]
    rank: int = 0
    is_idle: bool = False
    left: bool = False
    wraps: bool = False

    @property
    def width(self) -> int:
        """The width of its widest value, in terminal cells."""
        widest = max((cell_len(str(cell)) for cell in (self.title, *self.cells)), default=0)
        return min(widest, WRAP_CELLS) if self.wraps else widest


def fitting(columns: Sequence[TableColumn], width: int) -> list[TableColumn]:
    """Returns the columns that fit into `width` cells, in their order: idle ones are left out first, then by rank."""
    kept = list(columns)
    while sum(column.width + GAP for column in kept) - GAP > width:
        spare = [column for column in kept if column.rank]
        if not spare:
            break
        kept.remove(max(spare, key=lambda column: (column.is_idle, column.rank)))
    return kept


def table(columns: Sequence[TableColumn], width: int, chosen: int | None = None) -> Table:
    """Returns a table of the columns that fit, without lines around them. Row `chosen` (from 0) is marked."""
    kept = fitting(columns, width)
    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in kept:
        how: OverflowMethod = "fold" if column.wraps else "ellipsis"
        made.add_column(column.title, justify="left" if column.left else "right", no_wrap=not column.wraps, overflow=how)
    for number, row in enumerate(zip(*(column.cells for column in kept), strict=True)):
        made.add_row(*row, style="reverse" if number == chosen else None)
    return made


class Rates:
    """The rates of acknowledged records, updated with every look at the connectors."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}
        self._rates: dict[str, float] = {}

    def look(self, connectors: Iterable[Mapping[str, Any]], now: float) -> None:
        """Takes in connectors in the form of the API, at `now` (monotonic seconds). A count that shrank began anew."""
        for one in connectors:
            name, count = one["name"], one["counts"]["acknowledged"]
            then, before = self._last.get(name, (now, count))
            self._last[name] = (now, count)
            if now > then:
                moved = count - before if count >= before else count
                self._rates[name] = moved / (now - then)

    def of(self, name: str) -> float | None:
        """Returns the acknowledged records per second between the last two looks, None before there were two."""
        return self._rates.get(name)


@dataclass(slots=True)
class AgentSnapshot:
    """The last known state. `away_since` is 0 while the agent answers, else when it stopped answering (epoch seconds), and `why`."""

    agent: dict[str, Any]
    connectors: list[dict[str, Any]]
    at: float
    away_since: float = 0.0
    why: str = ""
    rates: Rates = field(default_factory=Rates)


class AgentWatch:
    """Queries one agent, about all connectors or one."""

    def __init__(self, client: AgentClient, name: str | None = None) -> None:
        """Makes the first query: raises what `AgentClient` raises."""
        self._client, self._name = client, name
        agent, connectors = self._ask()
        self.seen = AgentSnapshot(agent, connectors, time.time())
        self.seen.rates.look(connectors, time.monotonic())

    def look(self) -> AgentSnapshot:
        """Queries again. If the agent does not answer, the last state is kept, with the time since when."""
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


def show(watch: AgentWatch, draw: Callable[[AgentSnapshot], RenderableType], console: Console, interval: float) -> None:
    """Draws every `interval` seconds until Ctrl-C: in place on a terminal, one block after the other elsewhere."""
    try:
        if console.is_terminal:
            with Live(draw(watch.seen), console=console, auto_refresh=False) as live:
                while True:
                    time.sleep(interval)
                    live.update(draw(watch.look()), refresh=True)
        while True:
            console.print(draw(watch.seen))
            console.file.flush()
            time.sleep(interval)
            watch.look()
    except KeyboardInterrupt:
        return  # the user leaves this way


def make_console(*, no_color: bool) -> Console:
    """Returns a console for stdout. Without a terminal or COLUMNS, lines are as long as needed."""
    console = Console(no_color=no_color or None, highlight=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _ENDLESS
    return console
