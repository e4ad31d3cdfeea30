"""`copycat doctor`: checks whether host and Kafka are as the definitions need them, and how to repair what is not."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable
from itertools import groupby
from typing import Annotated

import typer

from copycat_agent import logs
from copycat_agent.api.server import socket_path
from copycat_agent.cli import exits
from copycat_agent.cli.check import spark_for
from copycat_agent.cli.common_options import BootstrapServers, Config, Directory, Format, NoColor, OnMaster, Output, Socket, StateDir
from copycat_agent.cli.running import resolve_settings
from copycat_agent.definitions import load_directory
from copycat_agent.display import printable
from copycat_agent.workbench.doctor import CheckStep, CheckVerdict, DoctorTarget, examine, find_user, only_unreachable, worst

_COLORS = {CheckVerdict.OK: "green", CheckVerdict.WARN: "yellow", CheckVerdict.FAIL: "red", CheckVerdict.SKIP: "bright_black"}
_NAME_WIDTH = 12


def doctor(  # noqa: PLR0913, PLR0917 - the command's options
    directory: Directory,
    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="Judge access for this user; default: who asks.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only what is not good.")] = False,
    config: Config = None,
    state_dir: StateDir = None,
    bootstrap_servers: BootstrapServers = None,
    socket: Socket = None,
    master: OnMaster = None,
    output: Output = Format.TEXT,
    no_color: NoColor = False,
) -> None:
    """Look at everything the definitions in DIR need from this host and from Kafka, and say how to repair what is not good.

    Changes nothing; works while an agent runs and while none does. Starts Java only for sources that Spark reads, such as jdbc, and with
    --master, where one executor is asked for and given back. Exits 0 when all is good, 3 with warnings only, 69 when all that failed is
    that no broker answers, 78 when no definition loads, 1 for any other failure.
    """
    settings = resolve_settings(directory, config, state_dir, bootstrap_servers)
    logs.setup("error")
    loaded = load_directory(directory, settings.agent)
    where = socket_path(socket, settings.agent.api.socket, settings.state_dir)
    subject = DoctorTarget(settings.agent, loaded, settings.state_dir, where, find_user(user), master)
    with spark_for(loaded.definitions.values(), settings.agent.spark):
        steps = examine(subject)
    if output is Format.JSON:
        typer.echo(json.dumps([_entry(step) for step in steps], indent=2))
    else:
        _write(steps, quiet=quiet, color=not no_color and not os.environ.get("NO_COLOR") and sys.stdout.isatty())
    raise typer.Exit(exits.DEFINITION_ERROR if not loaded.definitions else _exit_code(steps))


def _exit_code(steps: list[CheckStep]) -> int:
    if only_unreachable(steps):
        return exits.BROKER_UNREACHABLE
    return {CheckVerdict.FAIL: exits.FAILED, CheckVerdict.WARN: exits.DEGRADED}.get(worst(steps), exits.GOOD)


def _write(steps: list[CheckStep], *, quiet: bool, color: bool) -> None:
    """Writes the report, section by section, and a line of counts."""
    shown = [step for step in steps if not quiet or step.verdict in (CheckVerdict.WARN, CheckVerdict.FAIL)]
    for section, members in groupby(shown, key=lambda step: step.section):
        typer.echo(typer.style(printable(section), bold=True) if color else printable(section))
        for step in members:
            _write_step(step, color=color)
    typer.echo(_count(steps))


def _write_step(step: CheckStep, *, color: bool) -> None:
    label = f"{step.verdict.upper():<4}"
    label = typer.style(label, fg=_COLORS[step.verdict]) if color else label
    typer.echo(f"  {label}  {step.name:<{_NAME_WIDTH}} {printable(step.text)}")
    for number, line in enumerate(step.fix.splitlines()):
        typer.echo(f"{'':8}{'fix:' if not number else '':<{_NAME_WIDTH}} {printable(line)}")


def _count(steps: Iterable[CheckStep]) -> str:
    found = [step.verdict for step in steps]
    failed, warned, good = (found.count(one) for one in (CheckVerdict.FAIL, CheckVerdict.WARN, CheckVerdict.OK))
    return f"{failed} failed, {warned} {'warning' if warned == 1 else 'warnings'}, {good} good" + (
        f", {found.count(CheckVerdict.SKIP)} not looked at" if CheckVerdict.SKIP in found else ""
    )


def _entry(step: CheckStep) -> dict[str, object]:
    """Returns the step for programs. Odd bytes of paths are escaped."""
    fields = dataclasses.asdict(step)
    return {name: printable(value) if isinstance(value, str) and name != "fix" else value for name, value in fields.items()}
