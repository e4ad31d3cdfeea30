"""`copycat tap`: records as they are sent."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from copycat_agent.api import AgentClient, address
from copycat_agent.cli.client import Name, find_agent
from copycat_agent.cli.options import Config, Format, NoColor, Output, Socket, StateDir
from copycat_agent.cli.shown import visible
from copycat_agent.cli.watching import make_console
from copycat_agent.templates import time_text

_SLICE_SECONDS = 10.0
"""One request lasts so long: the agent notices within it that nobody listens any more."""
_LIMIT = 1_000


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
        pass  # it is how one leaves
    if not shown:
        typer.echo(f"{name} sent nothing in this time", err=True)


def head(record: Mapping[str, Any]) -> str:
    """Where it goes and where it comes from, in a line."""
    parts = [record["topic"], f"key {_text(record, 'key')}", f"{visible(record['path'])}:{record['start']}"]
    if record["timestamp_ms"] is not None:
        parts.append(time_text(record["timestamp_ms"]))
    return "  ".join(parts)


def body(record: Mapping[str, Any]) -> str:
    """Headers, then the value, a line each."""
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
    """UTF-8 as it is, other bytes as escapes, `-` for none."""
    if name in record:
        return "-" if record[name] is None else visible(record[name], backslash=True)
    return visible(base64.b64decode(record[f"{name}_base64"]).decode(errors="surrogateescape"), backslash=True)
