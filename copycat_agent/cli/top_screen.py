"""The screen of `copycat top`: a list of connectors to choose from, one of them opened, and scrolling within the terminal's size."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, SegmentLines
from rich.table import Table
from rich.text import Text

from copycat_agent.api import AgentClient, AgentUnreachableError, MissingError, address
from copycat_agent.api.status_text import connector_facts, reason_words
from copycat_agent.cli.keyboard import KeyPress
from copycat_agent.cli.screen import GAP, AgentSnapshot, AgentWatch
from copycat_agent.cli.status import LINE_CELLS, Lines, connectors_table, files_parts, state_text
from copycat_agent.cli.value_text import exactly_once_facts, spark
from copycat_agent.display import age, count, rate, size, visible
from copycat_agent.errors import UnknownConnectorError

FILES = 200
"""How many files of an opened connector are shown, those in trouble first."""
LINE_POINTS = 60
"""The points of an opened connector's rate line."""
_HEAD_SHARE = 3
"""The head gets at most one in this many of the terminal's lines: an agent may have many warnings."""
_LIST_KEYS = "\u2191\u2193 choose   Enter open   q quit"
_OPEN_KEYS = "\u2191\u2193 PgUp PgDn scroll   Esc back   q back   Ctrl-C quit"

Drawn = list[list[Segment]]
"""Rendered lines."""


@dataclass(slots=True)
class TopSnapshot:
    """The last known state: the agent, its rate lines, and for the opened connector its own line and its files."""

    agent: AgentSnapshot
    lines: Lines = field(default_factory=dict)
    line: Sequence[float] = ()
    files: Mapping[str, Any] | None = None


class TopWatch:
    """Queries one agent for what `top` shows."""

    def __init__(self, client: AgentClient) -> None:
        """Makes the first query: raises what `AgentClient` raises."""
        self._client, self._watch = client, AgentWatch(client)
        self.seen = TopSnapshot(self._watch.seen)
        self._ask("")

    def look(self, opened: str = "") -> TopSnapshot:
        """Queries again, also about the connector `opened`. If the agent does not answer, the last state is kept."""
        self._watch.look()
        self._ask(opened)
        return self.seen

    def open(self, name: str) -> TopSnapshot:
        """Queries only this connector."""
        self.seen.line, self.seen.files = (), None
        self._ask(name)
        return self.seen

    def _ask(self, opened: str) -> None:
        """Queries what `AgentWatch` does not. An agent that was started before an upgrade has no rate lines."""
        with contextlib.suppress(AgentUnreachableError, UnknownConnectorError):
            if not self.seen.agent.away_since:
                self.seen.lines = self._rates(f"points={LINE_CELLS}")
                if opened:
                    self.seen.line = self._rates(f"points={LINE_POINTS}&connector={opened}").get(opened, ())
                    self.seen.files = self._client.get(address("connectors", opened, f"/files?limit={FILES}"))

    def _rates(self, query: str) -> Lines:
        with contextlib.suppress(MissingError):
            known: Lines = self._client.get(f"/v1/rates?{query}")["rates"]
            return known
        return {}


class TopScreen:
    """The selection, opened connector and scroll position. Keys change it; `picture` draws it."""

    def __init__(self) -> None:
        self.opened = ""
        """The name of the connector that is opened, "" while all are shown."""
        self._chosen = ""
        self._scrolled = 0
        self._room = 1
        """How many lines the last view had for the scrolled part, and how long that was."""
        self._length = 0

    def press(self, key: KeyPress, look: TopSnapshot) -> bool:
        """Handles a key. Returns False if the user wants to leave."""
        if self.opened:
            left = key in {KeyPress.BACK, KeyPress.QUIT}
            self.opened = "" if left else self.opened
            self._scrolled = 0 if left else _moved(key, self._scrolled, max(1, self._length - self._room + 1), self._room)
            return True
        names = [one["name"] for one in look.agent.connectors]
        if key is KeyPress.OPEN and names:
            self.opened, self._chosen, self._scrolled = names[self._number(names)], names[self._number(names)], 0
        elif names:
            self._chosen = names[_moved(key, self._number(names), len(names), self._room)]
        return key is not KeyPress.QUIT

    def picture(self, look: TopSnapshot, head: RenderableType, beneath: RenderableType, console: Console) -> RenderableType:
        """Returns as many lines as the terminal has: `head`, the scrolled part (with `beneath` in the list), and the keys."""
        names, now = [one["name"] for one in look.agent.connectors], time.time()
        if self.opened not in names:
            self.opened = ""
        above = _lines(console, head)[: max(1, console.height // _HEAD_SHARE)]
        if self.opened:
            one = look.agent.connectors[names.index(self.opened)]
            above += _lines(console, Group(Text(), Text.assemble((visible(one["name"]), "bold"), "  ", state_text(one))))
            return self._fitted(console, above, _lines(console, Group(*_opened(one, look, console.width, now))), _OPEN_KEYS)
        chosen = self._number(names)
        table = connectors_table(look.agent.connectors, look.agent.rates, now, console.width, look.lines, chosen if names else None)
        titles, *rows = _lines(console, table)
        body = [*rows, *_lines(console, beneath)]
        last = len(body) - 1 if chosen == len(rows) - 1 else chosen  # the last row of the table also scrolls to what is beneath it
        return self._fitted(console, [*above, [], titles], body, _LIST_KEYS, (chosen, last))

    def _fitted(self, console: Console, above: Drawn, body: Drawn, keys: str, sight: tuple[int, int] | None = None) -> RenderableType:
        """Returns the upper lines, as much of the body as fits, and the keys. Lines `sight` of it are visible, the first one at least."""
        self._room, self._length = max(1, console.height - len(above) - 1), len(body)
        if sight:
            self._scrolled = min(max(self._scrolled, sight[1] - self._room + 1), sight[0])
        begin = self._scrolled = max(0, min(self._scrolled, self._length - self._room))
        shown = body[begin : begin + self._room]
        more = f"   lines {begin + 1} to {begin + len(shown)} of {self._length}" if self._length > self._room else ""
        foot = _lines(console, Text(keys + more, "dim", no_wrap=True, overflow="ellipsis"))
        empty: Drawn = [[] for _ in range(self._room - len(shown))]
        return SegmentLines([*above, *shown, *empty, *foot][: console.height], new_lines=True)

    def _number(self, names: Sequence[str]) -> int:
        """Returns the number of the chosen connector; of the first one if it is gone."""
        return names.index(self._chosen) if self._chosen in names else 0


def _moved(key: KeyPress, at: int, length: int, page: int) -> int:
    """Returns where a key moves `at`, within `length`."""
    steps = {
        KeyPress.UP: -1,
        KeyPress.DOWN: 1,
        KeyPress.PAGE_UP: -page,
        KeyPress.PAGE_DOWN: page,
        KeyPress.FIRST: -length,
        KeyPress.LAST: length,
    }
    return min(max(0, at + steps.get(key, 0)), length - 1)


def _lines(console: Console, what: RenderableType) -> Drawn:
    return console.render_lines(what, console.options.update(height=None), pad=False)


def _opened(one: Mapping[str, Any], look: TopSnapshot, width: int, now: float) -> list[RenderableType]:
    """Returns all details of one connector: reason, counts, rate line, losses by reason, files."""
    why, current = reason_words(one), look.agent.rates.of(one["name"])
    told = connector_facts(one, now) | {"state since": age(now - one["since"]), "records/s": "" if current is None else rate(current)}
    errors = told.pop("errors")
    parts: list[RenderableType] = [Text(why, "yellow"), Text()] if why else []
    parts.append(_facts([(name, words) for name, words in told.items() if words], width))
    parts += [Text(f"errors: {errors}")] if errors else []
    parts += [Text(f"lost: {_losses(one)}; see: copycat losses {one['name']}", "red")] if one["losses"] else []
    parts += map(Text, exactly_once_facts(one))
    if look.line:
        parts += [Text(), Text(f"{spark(look.line, LINE_POINTS)}  at most {rate(max(look.line))} records/s in 15 minutes", overflow="fold")]
    if look.files is not None:
        total, shown = look.files["total"], len(look.files["files"])
        some = f" of {count(total)}, those in trouble first; copycat describe --files has more" if total > shown else ""
        parts += [Text(), Text(f"{count(shown)} {'file' if shown == 1 else 'files'}{some}", "bold")]
        parts += files_parts(look.files, width, now) if shown else []
    return parts


def _facts(pairs: Sequence[tuple[str, str]], width: int) -> Table:
    """Returns names with their values, two pairs in a line if they fit, column by column."""
    longest = max(len(name) + len(words) for name, words in pairs) + 2
    columns = 2 if 2 * longest + 2 * GAP <= width else 1
    height = -(-len(pairs) // columns)
    made = Table.grid(padding=(0, GAP, 0, 0))
    for number in range(height):
        cells = [cell for name, words in pairs[number::height] for cell in (Text(name, "dim"), Text(words))]
        made.add_row(*cells)
    return made


def _losses(one: Mapping[str, Any]) -> str:
    """Returns `2.0 KiB destroyed, 10 B too_long`."""
    return ", ".join(f"{size(total['size_bytes'])} {visible(reason)}" for reason, total in sorted(one["losses"].items()))
