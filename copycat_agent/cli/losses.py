"""`copycat losses`: lists what was lost, where, when and why."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from copycat_agent.cli import exits
from copycat_agent.cli.agent_client import SomeName
from copycat_agent.cli.common_options import Config, Format, Output, Socket, StateDir, leave
from copycat_agent.cli.offsets_access import Totals, access
from copycat_agent.cli.offsets_view import columns
from copycat_agent.display import visible
from copycat_agent.model import Loss
from copycat_agent.templates import time_text


def losses(
    name: SomeName = None,
    limit: Annotated[int, typer.Option("--limit", min=0, max=10_000, help="Show so many entries, the newest first.")] = 50,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Show the loss ledger: bytes that were destroyed before they were read, over-long lines, records that were passed over.

    About the newest 10,000 entries of each connector are kept; the totals hold all there ever were. Exits 0 also when there are some.
    """
    with access(socket, state_dir, config) as store:
        entries, totals = store.losses(name, limit)
        if name is not None and not totals and name not in (names := store.known()):
            leave(f"there is no connector {visible(name)}; known here: {', '.join(names) or 'none'}", exits.FAILED)
    if output is Format.JSON:
        sums = [{"connector": one, "reason": reason, **total._asdict()} for (one, reason), total in sorted(totals.items())]
        typer.echo(json.dumps({"losses": [_values(one) for one in entries], "totals": sums}, indent=2))
        return
    if not totals:
        typer.echo(f"nothing was given up{f' by {name}' if name else ''}", err=True)
        return
    if entries:
        typer.echo(
            "\n".join(columns([("when (UTC)", "connector", "bytes", "records", "reason", "range", "path", "detail"), *map(_row, entries)]))
        )
        typer.echo()
    typer.echo("\n".join(columns([("total", "reason", "bytes", "records", "entries"), *_rows(totals)])))
    shown, known = len(entries), sum(total.entries for total in totals.values())
    if shown < known:
        typer.echo(f"{shown} of {known} entries are shown; see --limit", err=True)


def _row(loss: Loss) -> tuple[str, ...]:
    when = time_text(loss.at_ms, "seconds").replace("T", " ").removesuffix("Z")
    numbers = f"{loss.size_bytes:,}", f"{loss.records:,}" if loss.records else "unknown"
    return when, loss.partition.connector, *numbers, loss.reason, f"{loss.start}-{loss.end}", visible(loss.path), visible(loss.detail)


def _rows(totals: Totals) -> list[tuple[str, ...]]:
    return [
        (name, reason, f"{total.size_bytes:,}", f"{total.records:,}", f"{total.entries:,}")
        for (name, reason), total in sorted(totals.items())
    ]


def _values(loss: Loss) -> dict[str, Any]:
    """Returns the loss for programs, with odd bytes of the path escaped: any JSON library takes it."""
    fields = loss._asdict() | {"path": visible(loss.path)}
    return {"connector": loss.partition.connector, "key": loss.partition.key} | {
        key: value for key, value in fields.items() if key != "partition"
    }
