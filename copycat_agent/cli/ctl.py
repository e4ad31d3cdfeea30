"""`copycat ctl` and `copycat health`: commands to the running agent, and its health (most probes end in `probe.quick`)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from copycat_agent import probe
from copycat_agent.api import address
from copycat_agent.cli import exits
from copycat_agent.cli.agent_client import Names, find_agent
from copycat_agent.cli.common_options import Config, Format, NoColor, Output, Socket, StateDir, say_problems, use_color
from copycat_agent.display import visible
from copycat_agent.errors import BusyError, Problem, UnknownConnectorError
from copycat_agent.logs import LEVELS

ctl = typer.Typer(no_args_is_help=True, help="Tell the running agent what to do, and wait until it is done.")


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


def _command(verb: str, words: str) -> Callable[..., None]:
    def run(names: Names, output: Output = Format.TEXT, socket: Socket = None, state_dir: StateDir = None, config: Config = None) -> None:
        client = find_agent(socket, state_dir, config)
        done: list[dict[str, Any]] = []
        failed = False
        for name in names:
            try:
                done.append(client.post(address("connectors", name, f"/{verb}")))
            except (UnknownConnectorError, BusyError) as error:
                failed = True
                typer.echo(f"error: {name}: {error}", err=True)
                continue
            failed = failed or done[-1]["state"] == "failed" or done[-1]["unsaved"]
            if output is Format.TEXT:
                typer.echo(_outcome(done[-1]))
        if output is Format.JSON:
            typer.echo(json.dumps(done, indent=2))
        if failed:
            raise typer.Exit(exits.FAILED)

    run.__doc__ = words
    return run


def _outcome(one: dict[str, Any]) -> str:
    why = f": {visible(one['reason'])}" if one["reason"] else ""
    unsaved = "; offsets could not be saved, what they cover will be sent again" if one["unsaved"] else ""
    return f"{one['name']}: {one['state'].upper()}{why}{unsaved}"


_COMMANDS = {
    "pause": "Stop reading, settle what is in flight, keep files open. Holds over restarts of the agent, until resume.",
    "resume": "End a pause or a stop. A connector that failed is started again.",
    "stop": "Settle what is in flight and let go of all files. Holds over restarts of the agent, until resume.",
    "restart": "Stop and start again, also when it has failed.",
}


def reload(
    output: Output = Format.TEXT, socket: Socket = None, state_dir: StateDir = None, config: Config = None, no_color: NoColor = False
) -> None:
    """Read the definitions now and make them run; prints what changed: + added, ~ changed, - removed, ! kept as it was.

    Exits 1 when a file does not load: its last good version goes on.
    """
    done = find_agent(socket, state_dir, config).post("/v1/reload")
    if output is Format.JSON:
        typer.echo(json.dumps(done, indent=2))
    else:
        for line in done["lines"]:
            typer.echo(visible(line))
        say_problems((Problem(**problem) for problem in done["problems"]), color=use_color(no_color=no_color))
        if not done["lines"] and not done["problems"]:
            typer.echo("nothing has changed", err=True)
    if not done["clean"]:
        raise typer.Exit(exits.FAILED)


def log(
    level: Annotated[str, typer.Argument(metavar="LEVEL", help=f"{', '.join(LEVELS)}.")],
    duration: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="So long, such as 10m; then as before.")] = None,
    output: Output = Format.TEXT,
    socket: Socket = None,
    state_dir: StateDir = None,
    config: Config = None,
) -> None:
    """Log from LEVEL up, for a while or until the agent ends. Nothing of it is saved: a new start logs as agent.yaml says."""
    if level not in LEVELS:
        raise typer.BadParameter(f"{level!r:.40} is none of {', '.join(LEVELS)}")
    from copycat_agent.options import seconds_of  # noqa: PLC0415 - 0.15 s, which the other commands of this module do without

    try:
        seconds = None if duration is None else seconds_of(duration)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    done = find_agent(socket, state_dir, config).post("/v1/log", {"level": level, "seconds": seconds})
    if output is Format.JSON:
        typer.echo(json.dumps(done, indent=2))
    else:
        until = f" until {time.strftime('%H:%M:%S', time.localtime(done['until']))}" if done["until"] else " until the agent ends"
        typer.echo(f"the log is at level {done['level']}{until}")


for _verb, _words in _COMMANDS.items():
    ctl.command(name=_verb)(_command(_verb, _words))
ctl.command()(reload)
ctl.command()(log)
