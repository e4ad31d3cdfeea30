"""`copycat top` and `copycat tap`: the running agent, live, and records as they are sent."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from copycat_agent.api import AgentClient, address
from copycat_agent.api.status_text import warnings
from copycat_agent.cli.agent_client import Name, find_agent
from copycat_agent.cli.common_options import Config, Format, NoColor, Output, Socket, StateDir
from copycat_agent.cli.keyboard import Keyboard, KeyPress
from copycat_agent.cli.screen import AgentSnapshot, TableColumn, make_console, table
from copycat_agent.cli.status import connectors_table, reasons
from copycat_agent.cli.top_screen import TopScreen, TopSnapshot, TopWatch
from copycat_agent.display import age, count, rate, size, visible
from copycat_agent.templates import time_text

_UP = "UP"
ONCE_SECONDS = 1.0
"""Time between the two looks of --once, which rates need."""
_RESIZE_SECONDS = 0.25
"""How soon a new size of the terminal is noticed."""
_SLICE_SECONDS = 10.0
"""How long one request lasts: within it the agent notices that nobody listens any more."""
_LIMIT = 1_000


def kafka_table(connectors: Sequence[Mapping[str, Any]], width: int) -> Table | None:
    """Returns all brokers by name, as all producers together see them; None if no producer has reported any yet."""
    seen: dict[str, list[Mapping[str, Any]]] = {}
    for client in _clients(connectors):
        for broker in client["brokers"]:
            seen.setdefault(broker["name"], []).append(broker)
    if not seen:
        return None
    names = sorted(seen)
    columns = [
        TableColumn("broker", [visible(name) for name in names], left=True),
        TableColumn("state", [_states(seen[name]) for name in names], left=True),
        TableColumn("producers", [str(len(seen[name])) for name in names], rank=1),
        TableColumn("rtt", [_rtt(seen[name]) for name in names]),
    ]
    return table(columns, width)


def clients_line(connectors: Sequence[Mapping[str, Any]]) -> Text:
    """Returns how much is in the producers' queues, in words."""
    clients = _clients(connectors)
    records, waiting = sum(one["queue_records"] for one in clients), sum(one["queue_bytes"] for one in clients)
    retries = sum(one["retries"] for one in clients)
    return Text(f"queued {count(records)} records, {size(waiting)}   resent {count(retries)}")


def _clients(connectors: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [client for one in connectors for client in one["clients"]]


def _states(brokers: Sequence[Mapping[str, Any]]) -> Text:
    """Returns `UP`, or the states with the numbers of producers that see them."""
    states = Counter(visible(broker["state"]) for broker in brokers)
    if len(states) == 1:
        state = next(iter(states))
        return Text(state, "green" if state == _UP else "red")
    return Text(", ".join(f"{number} {state}" for state, number in states.most_common()), "yellow")


def _rtt(brokers: Sequence[Mapping[str, Any]]) -> str:
    """Returns the worst of the producers' means."""
    known = [broker["rtt_ms"] for broker in brokers if broker["rtt_ms"] is not None]
    return f"{max(known):.1f} ms" if known else "-"


def top(
    once: Annotated[bool, typer.Option("--once", help="One picture, then end.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")] = 1.0,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
    no_color: NoColor = False,
) -> None:
    """Show connectors, rates, lag and the brokers, live; Enter opens a connector, q or Ctrl-C ends. Off a terminal, as with --once."""
    watched = TopWatch(find_agent(socket, state_dir, config))
    console = make_console(no_color=no_color)
    if once or not console.is_terminal or console.is_dumb_terminal:
        time.sleep(ONCE_SECONDS)
        console.print(frame(watched.look(), console.width))
    else:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)  # restores the terminal
        with contextlib.suppress(KeyboardInterrupt, EOFError):
            live(watched, console, interval)


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def live(watched: TopWatch, console: Console, interval: float) -> None:
    """Draws until the user leaves: the agent's state every `interval` seconds, and a key's or a resize's effect at once.

    Raises KeyboardInterrupt, and EOFError if the terminal is gone.
    """
    screen, look, drawn = TopScreen(), watched.seen, console.size

    def draw() -> RenderableType:
        head, beneath = Group(*_above(look.agent, time.time())), Group(*_beneath(look.agent, console.width))
        return screen.picture(look, head, beneath, console)

    with Keyboard() as keyboard, Live(draw(), console=console, auto_refresh=False, screen=True) as picture:
        next_look, goes_on = time.monotonic() + interval, True
        while goes_on:
            key = keyboard.wait(min(_RESIZE_SECONDS, max(0.0, next_look - time.monotonic())))
            if key is not None:
                goes_on = screen.press(key, look)
                look = watched.open(screen.opened) if key is KeyPress.OPEN else look
            elif time.monotonic() >= next_look:
                look, next_look = watched.look(screen.opened), time.monotonic() + interval
            elif console.size == drawn:
                continue
            drawn = console.size
            picture.update(draw(), refresh=True)


def frame(look: TopSnapshot, width: int, now: float | None = None) -> RenderableType:
    """Returns everything as one view, `width` cells wide; `now` in epoch seconds."""
    now, seen = time.time() if now is None else now, look.agent
    table = connectors_table(seen.connectors, seen.rates, now, width, look.lines)
    return Group(*_above(seen, now), Text(), table, *_beneath(seen, width))


def _above(look: AgentSnapshot, now: float) -> list[RenderableType]:
    return [_head(look, now), *(Text(f"! {words}", "bold red") for words in warnings(look.agent))]


def _beneath(look: AgentSnapshot, width: int) -> list[RenderableType]:
    brokers = kafka_table(look.connectors, width)
    parts: list[RenderableType] = [*reasons(look.connectors)]
    return [*parts, Text(), brokers, clients_line(look.connectors)] if brokers else parts


def _head(look: AgentSnapshot, now: float) -> Text:
    agent = look.agent
    if look.away_since:
        return Text(f"copycat  {look.why}; waiting for it since {age(now - look.away_since)}", "bold red")
    total = sum(look.rates.of(one["name"]) or 0.0 for one in look.connectors)
    unread = sum(one["lag"]["bytes"] for one in look.connectors)
    parts = [
        f"copycat {agent['version']}", f"pid {agent['pid']}", f"up {age(now - agent['started'])}", f"spark {visible(agent['spark'])}",
        *([f"on {visible(agent['master'])}"] if agent.get("master") else []),
        f"{rate(total)} records/s", f"{size(unread)} unread",
    ]  # fmt: skip
    return Text("  ".join(parts), "bold")


def tap(  # noqa: PLR0913, PLR0917 - the command's options
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="End after so many records.")] = 10,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, help="End after so long.")] = 60.0,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
    no_color: NoColor = False,
) -> None:
    """Show records as they are sent to Kafka from now on: a sample, which slows nothing down and may leave some out.

    Keys and values are cut to 4 KiB. Control characters are escaped. With --format json one record per line, and what is not
    UTF-8 as base64.
    """
    console = make_console(no_color=no_color)
    shown = 0
    try:
        for record in _records(find_agent(socket, state_dir, config), name, limit, seconds):
            shown += 1
            if output is Format.JSON:
                typer.echo(json.dumps(record))
            else:
                console.print(head(record), style="bold", soft_wrap=True)
                console.print(body(record), soft_wrap=True)
    except KeyboardInterrupt:
        pass  # the user leaves this way
    if not shown:
        typer.echo(f"{name} sent nothing in this time", err=True)


def head(record: Mapping[str, Any]) -> str:
    """Returns the record's target and origin, in a line."""
    parts = [record["topic"], f"key {_text(record, 'key')}", f"{visible(record['path'])}:{record['start']}"]
    if record["timestamp_ms"] is not None:
        parts.append(time_text(record["timestamp_ms"]))
    return "  ".join(parts)


def body(record: Mapping[str, Any]) -> str:
    """Returns the headers, then the value, a line each."""
    headers = [f"  {visible(header['name'])}: {_text(header, 'value')}" for header in record["headers"]]
    return "\n".join([*headers, f"  {_text(record, 'value')}"])


def _records(client: AgentClient, name: str, limit: int, seconds: float) -> Iterator[Mapping[str, Any]]:
    end, left = time.monotonic() + seconds, limit
    while left > 0 and (rest := end - time.monotonic()) > 0:
        part = min(rest, _SLICE_SECONDS)
        for record in client.stream(address("connectors", name, f"/tap?limit={min(left, _LIMIT)}&seconds={part:.1f}")):
            left -= 1
            yield record


def _text(record: Mapping[str, Any], name: str) -> str:
    """Returns a text: UTF-8 unchanged, other bytes as escapes, `-` for none."""
    if name in record:
        return "-" if record[name] is None else visible(record[name], backslash=True)
    return visible(base64.b64decode(record[f"{name}_base64"]).decode(errors="surrogateescape"), backslash=True)
