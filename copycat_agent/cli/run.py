"""`copycat run`: the agent, in the foreground."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from copycat_agent import logs
from copycat_agent.agent import Agent, Settings
from copycat_agent.cli import exits
from copycat_agent.cli.options import (
    BootstrapServers,
    Config,
    Directory,
    NoColor,
    Quiet,
    StateDir,
    Verbose,
    settle_settings,
    start_logging,
    use_color,
)
from copycat_agent.cli.report import account
from copycat_agent.cli.stopping import Stopping
from copycat_agent.definitions import load_directory, render
from copycat_agent.worker import State, Status

if TYPE_CHECKING:
    from copycat_agent.options import Definition

_LOOK_SECONDS = 0.5

_log = logs.get("agent")


def run(  # noqa: PLR0913, PLR0917 - the command's options
    directory: Directory,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when everything that is there is read.")] = False,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Run only this connector; may be repeated.")] = None,
    config: Config = None,
    state_dir: StateDir = None,
    bootstrap_servers: BootstrapServers = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> None:
    """Read the definitions in DIR and ship what they name to Kafka, until SIGTERM or Ctrl-C.

    Definitions that do not load are reported and the others run; exit 78 when none loads. A first signal settles what is in
    flight and exits 0, or 1 when that could not be saved; a second one exits at once. With --until-idle also a connector that
    failed, and files that could not be read, make it exit 1.
    """
    settings = settle_settings(directory, config, state_dir, bootstrap_servers)
    start_logging(settings.agent, verbose=verbose, quiet=quiet)
    definitions = _definitions(directory, settings, only or [], color=use_color(no_color=no_color))
    stop = Stopping()
    with Agent(settings, until_idle=until_idle) as agent:
        agent.apply(definitions)
        while not (stop.asked or agent.given_up) and not (until_idle and agent.worker.wait(0)):
            agent.wake.wait(_LOOK_SECONDS) if not until_idle else agent.worker.wait(_LOOK_SECONDS)
        if stop.asked:
            _log.info("agent is asked to stop", signal=stop.name)
    if agent.given_up:
        typer.echo(f"error: {agent.given_up}", err=True)
        raise typer.Exit(exits.GAVE_UP)
    statuses = agent.statuses()
    if until_idle:
        typer.echo(account(statuses))
    if code := _exit_code(statuses, until_idle=until_idle, stopped=stop.asked):
        raise typer.Exit(code)


def _exit_code(statuses: Iterable[Status], *, until_idle: bool, stopped: bool) -> int:
    """What became of the connectors, for who started the run. `stopped`: by a signal."""
    for status in statuses:
        if status.unsaved or (until_idle and (status.state is State.FAILED or status.troubled_files)):
            return exits.FAILED
    return exits.INTERRUPTED if until_idle and stopped else exits.GOOD


def _definitions(directory: Path, settings: Settings, only: list[str], *, color: bool) -> list[Definition]:
    """The definitions to run. Problems go to stderr; leaves with 78 or 2 when nothing is left to run."""
    loaded = load_directory(directory, settings.agent)
    for problem in loaded.problems:
        typer.echo(render(problem, color=color) + "\n", err=True, color=color)
    for warning in loaded.warnings:
        typer.echo(render(warning, kind="warning", color=color) + "\n", err=True, color=color)
    unknown = [name for name in only if name not in loaded.definitions]
    if unknown:
        typer.echo(f"error: no definition named {', '.join(unknown)} loads from {directory}", err=True)
        raise typer.Exit(exits.USAGE)
    chosen = [one for one in loaded.definitions.values() if one.enabled and (not only or one.name in only)]
    if not chosen:
        typer.echo(f"error: no definition in {directory} can be run", err=True)
        raise typer.Exit(exits.DEFINITION_ERROR)
    if not any(one.kafka.bootstrap_servers for one in chosen):
        typer.echo(
            "error: no Kafka address is known: set kafka.bootstrap_servers in agent.yaml, or --bootstrap-servers;\n"
            "for a trial, start a broker with: copycat dev-broker",
            err=True,
        )
        raise typer.Exit(exits.DEFINITION_ERROR)
    return chosen
