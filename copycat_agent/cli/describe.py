"""`copycat describe`: what one connector does, why, and where it is."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from copycat_agent.api import address
from copycat_agent.cli.client import Name, find_agent
from copycat_agent.cli.guarantee_view import exactly_once_facts
from copycat_agent.cli.options import Config, Format, NoColor, Output, Socket, StateDir
from copycat_agent.cli.shown import age, size, visible, without_nulls
from copycat_agent.cli.status_view import connectors_table, reasons
from copycat_agent.cli.tables import Column, table
from copycat_agent.cli.watching import Watch, make_console

_FROM = {"default": "default", "command line": "command line", "changed": "the file as it was; it has changed since"}

_TROUBLED = ("failing", "blocked")
"""States of files whose reason is told."""


def describe(
    name: Name,
    files: Annotated[int, typer.Option("--files", min=0, max=10_000, help="Show so many files.")] = 50,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
    no_color: NoColor = False,
) -> None:
    """Show state, files with positions, and the definition that runs: each value, secrets masked, and where it comes from."""
    client = find_agent(socket, state_dir, config)
    watched = Watch(client, name)
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


def _show_state(watched: Watch, console: Console) -> None:
    seen = watched.seen
    console.print(connectors_table(seen.connectors, seen.rates, time.time(), console.width))
    for paragraph in reasons(seen.connectors):
        console.print(paragraph, soft_wrap=True)
    for fact in (fact for one in seen.connectors for fact in exactly_once_facts(one)):
        console.print(Text(fact), soft_wrap=True)


def _show_files(followed: Mapping[str, Any], console: Console) -> None:
    found, now = followed["files"], time.time()
    if not found:
        console.print(f"files: {followed['total']}")
        return
    columns = [
        Column("state", [one["state"] for one in found], left=True),
        Column("position", [one.get("cursor") or f"{one['position']:,}{' records' if one['counts_records'] else ''}" for one in found]),
        Column("size", [f"{one['size']:,}" for one in found]),
        Column("unread", [size(one["unread"]) for one in found], rank=2),
        Column("records", [f"{one['records']:,}" for one in found], rank=3),
        Column("open", ["yes" if one["is_open"] else "no" for one in found], rank=4, left=True),
        Column("read", [age(now - one["read_at"]) + " ago" if one["read_at"] else "never" for one in found], rank=1),
        Column("file", [visible(one["path"]) for one in found], left=True, wraps=True),
    ]
    console.print(table(columns, console.width))
    for one in found:
        if one["why"] and one["state"] in _TROUBLED:
            console.print(Text(f"{visible(one['path'])}: {visible(one['why'])}"), soft_wrap=True)
    if followed["total"] > len(found):
        typer.echo(f"{followed['total'] - len(found):,} more files; see --files", err=True)


def _show_values(definition: Mapping[str, Any], console: Console) -> None:
    values = definition["values"]
    styles = ["dim" if one["from"] == "default" else "" for one in values]
    columns = [
        Column("option", [Text(one["option"], style) for one, style in zip(values, styles, strict=True)], left=True),
        Column("from", [Text(_origin(one), style) for one, style in zip(values, styles, strict=True)], left=True),
        Column("value", [Text(_value(one["value"]), style) for one, style in zip(values, styles, strict=True)], left=True, wraps=True),
    ]
    console.print(Text(visible(definition["path"]), "bold"), soft_wrap=True)
    console.print(table(columns, console.width))


def _origin(one: Mapping[str, Any]) -> str:
    return _FROM.get(one["from"]) or f"{visible(os.path.basename(one['path']))}:{one['line']}"  # noqa: PTH119 - a text


def _value(value: object) -> str:
    """As YAML would have it on one line; `-` for nothing."""
    if value is None:
        return "-"
    return visible(value) if isinstance(value, str) else visible(json.dumps(without_nulls(value), ensure_ascii=False))
