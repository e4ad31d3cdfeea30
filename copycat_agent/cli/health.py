"""`copycat health`: whether the running agent is alive, or ready, for probes. Most calls never come here, see `probe.quick`."""

from __future__ import annotations

from typing import Annotated

import typer

from copycat_agent import probe
from copycat_agent.cli.client import find_agent
from copycat_agent.cli.options import Config, Socket, StateDir


def health(
    live: Annotated[bool, typer.Option("--live", help="Whether it is alive: when it is not, only a restart helps.")] = False,
    ready: Annotated[bool, typer.Option("--ready", help="Whether it is ready; the default.")] = False,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Say whether the running agent is ready, or with --live alive; exits 0 when it is, else 1 with the reason.

    For probes: it answers as /readyz and /livez do, whether Kafka is there or not. `copycat status` says how things go.
    """
    if live and ready:
        raise typer.BadParameter("--live or --ready, one of them")
    raise typer.Exit(probe.report([str(find_agent(socket, state_dir, config).socket_path)], live=live))
