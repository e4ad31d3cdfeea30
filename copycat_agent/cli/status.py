"""`copycat status`, `ls` and `describe`: the state of the running agent's connectors, and details of one of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from copycat_agent.api import address
from copycat_agent.api.status_text import (
    TROUBLED_FILES,
    is_degraded,
    lag_words,
    lost_bytes,
    oldest_words,
    option_words,
    origin_words,
    position_words,
    reason_words,
    state_words,
    unread_words,
    warnings,
)
from copycat_agent.cli import exits
from copycat_agent.cli.agent_client import Name, SomeName, find_agent
from copycat_agent.cli.common_options import Config, Format, NoColor, Output, Socket, StateDir
from copycat_agent.cli.screen import AgentSnapshot, AgentWatch, Rates, TableColumn, make_console, show, table
from copycat_agent.cli.value_text import EXACTLY_ONCE, exactly_once_facts, guarantee_of, spark
from copycat_agent.display import age, count, rate, size, visible

LINE_CELLS = 15
"""The width of a rate line in a table: one cell a minute."""
BETWEEN_LOOKS_SECONDS = 0.5
"""Time between two looks: a rate needs two."""
_STYLES = {"running": "green", "failed": "bold red", "retrying": "yellow", "blocked": "yellow", "paused": "cyan", "stopped": "dim"}

_OUTSIDE = frozenset({"retrying", "blocked"})
"""States in which a connector waits for something outside, which `doctor` checks."""

Connector = Mapping[str, Any]
Lines = Mapping[str, Sequence[float]]
"""Records per second over the last 15 minutes, by connector, as kept by the agent."""


def connectors_table(
    connectors: Sequence[Connector], rates: Rates, now: float, width: int, lines: Lines | None = None, chosen: int | None = None
) -> Table:
    """Returns one row per connector, row `chosen` marked. `now` in epoch seconds, `width` in terminal cells; `lines` are rate lines."""
    columns = [
        TableColumn("connector", [visible(one["name"]) for one in connectors], left=True),
        TableColumn("state", [state_text(one) for one in connectors], left=True),
        TableColumn("since", [age(now - one["since"]) for one in connectors], rank=3),
    ]
    if any(one.get("guarantee") == EXACTLY_ONCE for one in connectors):
        columns.append(TableColumn("guarantee", [guarantee_of(one) for one in connectors], rank=6, left=True))
    oldest, known = [oldest_words(one, now) for one in connectors], [rates.of(one["name"]) for one in connectors]
    if any(value is not None for value in known):
        columns.append(TableColumn("records/s", ["" if value is None else rate(value) for value in known], rank=1))
    if lines is not None:
        drawn = [spark(lines.get(one["name"], ()), LINE_CELLS) for one in connectors]
        columns.append(TableColumn("15 minutes", drawn, rank=1, is_idle=not any(drawn), left=True))
    waiting = [one["lag"].get("waiting_records", 0) for one in connectors]
    columns += [
        TableColumn("acknowledged", [count(one["counts"]["acknowledged"]) for one in connectors], rank=2),
        TableColumn("lag", [lag_words(one) for one in connectors], rank=1),
        *([_numbers("wait for a file", waiting, rank=4)] if any(waiting) else []),
        _numbers("files", [one["lag"]["files"] for one in connectors], rank=5),
        TableColumn("oldest unread", oldest, rank=2, is_idle=oldest.count("-") == len(oldest)),
        _numbers("retries", [one["retries"] for one in connectors], rank=6),
        _numbers("DLQ", [one["counts"]["dead_lettered"] for one in connectors], rank=4),
        _numbers("kept", [one["counts"]["kept"] for one in connectors], rank=7),
        _numbers("passed over", [one["counts"]["rejected"] for one in connectors], rank=8),
        TableColumn("lost", [_lost(one) for one in connectors], rank=2, is_idle=not any(map(lost_bytes, connectors))),
    ]
    return table(columns, width, chosen)


def reasons(connectors: Sequence[Connector]) -> list[Text]:
    """Returns the reasons of the connectors' states, one paragraph each."""
    told = [(one, reason_words(one)) for one in connectors]
    return [Text(f"{visible(one['name'])}: {words}", _style(one)) for one, words in told if words]


def state_text(one: Connector) -> Text:
    """Returns the state as definitions.md writes it; one that is switched off in its file is marked."""
    return Text(state_words(one), _style(one))


def _style(one: Connector) -> str:
    return _STYLES.get(one["state"], "")


def _numbers(title: str, values: Sequence[int], rank: int) -> TableColumn:
    return TableColumn(title, [count(value) for value in values], rank=rank, is_idle=not any(values))


def _lost(one: Connector) -> Text:
    lost = lost_bytes(one)
    return Text(size(lost), "red" if lost else "")


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
    watched = AgentWatch(find_agent(socket, state_dir, config), name)
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


def frame(look: AgentSnapshot, width: int) -> RenderableType:
    """Returns the view of one look, for --watch."""
    now = time.time()
    clock = time.strftime("%H:%M:%S", time.localtime(now))
    head = Text(f"{clock}  {look.why}; waiting for it since {age(now - look.away_since)}", "bold red") if look.away_since else Text(clock)
    words = [Text(f"warning: {one}", "yellow") for one in warnings(look.agent)]
    return Group(head, connectors_table(look.connectors, look.rates, now, width), *reasons(look.connectors), *words)


def _once(look: AgentSnapshot, console: Console) -> None:
    """Prints the table on stdout, and warnings about the agent as a whole on stderr."""
    console.print(connectors_table(look.connectors, look.rates, time.time(), console.width))
    for paragraph in reasons(look.connectors):
        console.print(paragraph, soft_wrap=True)
    if not look.connectors:
        typer.echo("the agent has no connectors", err=True)
    if any(one["state"] in _OUTSIDE for one in look.connectors):
        typer.echo(f"what is wrong, step by step: copycat doctor {visible(look.agent['directory'])}", err=True)
    if look.agent.get("master"):
        typer.echo(f"tasks run on {visible(look.agent['master'])}", err=True)
    for words in warnings(look.agent):
        typer.echo(f"warning: {words}", err=True)


def _json(watched: AgentWatch, interval: float | None) -> None:
    """Prints one document, or one per line and interval."""
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


def _document(look: AgentSnapshot) -> dict[str, Any]:
    return {"at": look.at, "agent": look.agent, "connectors": look.connectors} | (
        {"away_since": look.away_since} if look.away_since else {}
    )


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
        TableColumn("connector", [visible(one["name"]) for one in found], left=True),
        TableColumn("enabled", ["yes" if one["enabled"] else "no" for one in found], left=True),
        TableColumn("state", [state_text(one) for one in found], left=True),
        TableColumn("guarantee", [guarantee_of(one) for one in found], left=True, rank=1),
        TableColumn("file", [visible(one["path"]) for one in found], left=True, wraps=True),
    ]
    console.print(table(columns, console.width))


def describe(
    name: Name,
    files: Annotated[int, typer.Option("--files", min=0, max=10_000, help="Show so many files, those in trouble first.")] = 50,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
    no_color: NoColor = False,
) -> None:
    """Show state, files with positions, and the definition that runs: each value, secrets masked, and where it comes from."""
    client = find_agent(socket, state_dir, config)
    watched = AgentWatch(client, name)
    definition = client.get(address("connectors", name, "/definition"))
    followed = client.get(address("connectors", name, f"/files?limit={files}"))
    if output is Format.JSON:
        typer.echo(json.dumps({"status": watched.seen.connectors[0], **definition, **followed}, indent=2))
        return
    console = make_console(no_color=no_color)
    _show_state(watched, console)
    console.print()
    _show_files(followed, console)
    console.print()
    _show_values(definition, console)


def _show_state(watched: AgentWatch, console: Console) -> None:
    seen = watched.seen
    console.print(connectors_table(seen.connectors, seen.rates, time.time(), console.width))
    for paragraph in reasons(seen.connectors):
        console.print(paragraph, soft_wrap=True)
    for fact in (fact for one in seen.connectors for fact in exactly_once_facts(one)):
        console.print(Text(fact), soft_wrap=True)


def _show_files(followed: Mapping[str, Any], console: Console) -> None:
    for part in files_parts(followed, console.width, time.time()):
        console.print(part, soft_wrap=isinstance(part, Text))
    if followed["total"] > len(followed["files"]) > 0:
        typer.echo(f"{followed['total'] - len(followed['files']):,} more files; see --files", err=True)


def files_parts(followed: Mapping[str, Any], width: int, now: float) -> list[RenderableType]:
    """Returns files with their positions, and the reasons of those in trouble; `now` in epoch seconds."""
    found = followed["files"]
    if not found:
        return [Text(f"files: {followed['total']}")]
    columns = [
        TableColumn("state", [one["state"] for one in found], left=True),
        TableColumn("position", [position_words(one) for one in found]),
        TableColumn("size", [f"{one['size']:,}" for one in found]),
        TableColumn("unread", [unread_words(one) for one in found], rank=2),
        TableColumn("records", [f"{one['records']:,}" for one in found], rank=3),
        TableColumn("open", ["yes" if one["is_open"] else "no" for one in found], rank=4, left=True),
        TableColumn("read", [age(now - one["read_at"]) + " ago" if one["read_at"] else "never" for one in found], rank=1),
        TableColumn("file", [visible(one["path"]) for one in found], left=True, wraps=True),
    ]
    troubled = [one for one in found if one["why"] and one["state"] in TROUBLED_FILES]
    return [table(columns, width), *(Text(f"{visible(one['path'])}: {visible(one['why'])}") for one in troubled)]


def _show_values(definition: Mapping[str, Any], console: Console) -> None:
    values = definition["values"]
    styles = ["dim" if one["from"] == "default" else "" for one in values]
    columns = [
        TableColumn("option", _styled([one["option"] for one in values], styles), left=True),
        TableColumn("from", _styled([origin_words(one) for one in values], styles), left=True),
        TableColumn("value", _styled([option_words(one["value"]) for one in values], styles), left=True, wraps=True),
    ]
    console.print(Text(visible(definition["path"]), "bold"), soft_wrap=True)
    console.print(table(columns, console.width))


def _styled(texts: Sequence[str], styles: Sequence[str]) -> list[Text]:
    return [Text(text, style) for text, style in zip(texts, styles, strict=True)]
