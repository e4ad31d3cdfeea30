"""Options that many commands share, and their common logging, colors, messages about definitions and ends with an error."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from copycat_agent import logs
from copycat_agent.display import render

if TYPE_CHECKING:
    from copycat_agent.errors import Problem
    from copycat_agent.options import AgentOptions


class Format(StrEnum):
    """The format of a command's output."""

    TEXT = "text"
    JSON = "json"


class LogFormat(StrEnum):
    """The format of the agent's log."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"


Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of definitions, one connector per *.yaml file.")]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The agent's file; default: agent.yaml beside DIR, if any.")]
StateDir = Annotated[Path | None, typer.Option("--state-dir", metavar="DIR", help="The agent's state directory: offsets, socket.")]
BootstrapServers = Annotated[
    str | None, typer.Option("--bootstrap-servers", metavar="HOST:PORT,...", help="Kafka, over what agent.yaml says.")
]
Socket = Annotated[Path | None, typer.Option("--socket", metavar="PATH", help="The agent's unix socket.")]
OnMaster = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="As `run --master URL` would have it: what that Spark cluster does not run.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log at level debug.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings and errors only.")]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option("--log-format", help="auto is text on a terminal and under journald, else JSON; over agent.yaml.", show_default=False),
]
Output = Annotated[Format, typer.Option("--format", help="text or json.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colors; NO_COLOR does the same.")]


def start_logging(agent: AgentOptions, *, verbose: bool, quiet: bool, log_format: LogFormat | None = None) -> None:
    """Starts logging as in agent.yaml; -v and -q override the level, --log-format the format."""
    level = "debug" if verbose else "warning" if quiet else agent.log.level
    logs.setup(level, log_format or agent.log.format)


def state_directory(state_dir: Path | None, agent: AgentOptions | None) -> Path:
    """Returns the agent's state directory: that of the option, else of agent.yaml, else of systemd, else the user's own. Absolute."""
    chosen = state_dir or (agent and agent.state_dir) or os.environ.get("STATE_DIRECTORY") or Path.home() / ".local/state/copycat"
    return Path(chosen).absolute()


def use_color(*, no_color: bool) -> bool:
    """Returns whether stderr shows colors."""
    return not no_color and not os.environ.get("NO_COLOR") and os.isatty(2)


def say_problems(problems: Iterable[Problem], *, kind: str = "error", color: bool = False) -> None:
    """Writes problems of definitions to stderr, each followed by an empty line. `kind` is `error` or `warning`."""
    for problem in problems:
        typer.echo(render(problem, kind=kind, color=color) + "\n", err=True, color=color)


def leave(words: str, code: int) -> NoReturn:
    """Ends the command with `code`, one of `exits`, and one line on stderr: `error: ` and the words."""
    typer.echo(f"error: {words}", err=True)
    raise typer.Exit(code)
