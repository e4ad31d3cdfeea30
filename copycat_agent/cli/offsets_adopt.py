"""`copycat offsets adopt`: a person decides which positions an exactly-once connector goes on from."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from copycat_agent.cli import exits
from copycat_agent.cli.client import Name
from copycat_agent.cli.offsets_access import Access, access, checked_name
from copycat_agent.cli.offsets_text import GOES_ON
from copycat_agent.cli.options import Config, Format, Output, Socket, StateDir
from copycat_agent.cli.shown import visible
from copycat_agent.errors import DataError, UnknownConnectorError
from copycat_agent.offsets.identity import is_uuid
from copycat_agent.transactions.opening import Adopt


def adopt(  # noqa: PLR0913, PLR0917 - the command's options
    name: Name,
    from_topic: Annotated[
        bool, typer.Option("--from-topic", help="Go on from the positions in Kafka, not from those of this host.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="UUID",
            help="With --from-topic: take over the positions of this agent, whose state directory is gone, beside one's own.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Stop a connector that runs meanwhile.")] = False,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Decide which positions a connector with exactly_once goes on from, when it has refused to start.

    From those of this host: what was sent up to there is not sent again, whatever Kafka says. With --from-topic from those in Kafka: what
    lies behind them is sent again. It holds from the connector's next start: copycat ctl restart NAME. With --agent a state directory is
    made where there is none: say it before the new agent starts for the first time, as the agent's user.
    """
    if agent and not from_topic:
        typer.echo("error: --agent goes with --from-topic: its positions are nowhere else", err=True)
        raise typer.Exit(exits.USAGE)
    if agent and not is_uuid(agent):
        msg = f"{agent!a:.60} is not the uuid of an agent"
        raise DataError(msg, "keys in __copycat_offsets begin with it, and so do transactional ids, behind copycat.")
    which: Adopt = "topic" if from_topic else "local"
    with access(socket, state_dir, config, create=bool(agent)) as store:  # whose state directory is gone has none
        lanes = _lanes(store, checked_name(name), agent)
        means = _taken_over(name, agent) if agent else _means(name, which, lanes)
        if sys.stdin.isatty() and not yes:
            typer.confirm(f"{means}\ngo on?", abort=True, err=True)
        identity = store.adopt(name, which, agent or "", force=force)
    if output is Format.JSON:
        typer.echo(json.dumps({"connector": name, "from": which, "agent": agent or "", "identity": identity}, indent=2))
        return
    typer.echo(means)
    if identity:
        typer.echo(f"this agent is {identity} from now on")
    typer.echo(f"it holds when {name} starts next: copycat ctl restart {name}")


def _lanes(store: Access, name: str, agent: str | None) -> Mapping[str, Any] | None:
    """What is known of the connector's lanes. UnknownConnectorError for one that nobody knows."""
    lanes = store.lanes(name)
    if lanes is None and not agent and name not in (known := store.known()):
        msg = f"no offsets are saved for {visible(name)}"
        raise UnknownConnectorError(msg, f"there are some for: {', '.join(known)}" if known else "there are none at all")
    return lanes


def _means(name: str, which: Adopt, lanes: Mapping[str, Any] | None) -> str:
    words = f"{name} goes on from {GOES_ON[which]}"
    if which == "topic":
        return f"{words}: what is behind them is sent again, even where this host has seen it committed"
    if lanes is None or not lanes["copied"]:
        return f"{words}: what is before them is not sent again, whatever Kafka says"
    return (
        f"{words}, and so does every other exactly-once connector here: this agent gets an identity of its own, and leaves the one that it"
        " shares with another host, where nothing changes. What this host has sent is not sent again; what the other one has sent of the"
        " same files is"
    )


def _taken_over(name: str, agent: str) -> str:
    return (
        f"{name} takes over what Kafka says of {name} of agent {agent}: files that are the same here, by device, inode and first bytes, are"
        " read on from there. That agent must never start again: it would find its lanes taken, and refuse"
    )
