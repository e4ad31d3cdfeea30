"""Options that many commands share, and how they, agent.yaml and the environment are weighed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from copycat_agent import logs
from copycat_agent.agent import Settings
from copycat_agent.definitions import find_agent_file, load_agent
from copycat_agent.options import AgentOptions

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of definitions, one connector per *.yaml file.")]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="The agent's file; default: agent.yaml beside DIR.")]
StateDir = Annotated[Path | None, typer.Option("--state-dir", metavar="DIR", help="Where offsets are kept.")]
BootstrapServers = Annotated[
    str | None, typer.Option("--bootstrap-servers", metavar="HOST:PORT,...", help="Kafka, over what agent.yaml says.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log at level debug.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Log warnings and errors only.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colors; NO_COLOR does the same.")]


def settle_settings(directory: Path, config: Path | None, state_dir: Path | None, servers: str | None) -> Settings:
    """Options of the command line over agent.yaml over the environment over defaults. Raises DefinitionError."""
    addresses = tuple(one.strip() for one in servers.split(",") if one.strip()) if servers else None
    agent = load_agent(find_agent_file(directory, config), {"kafka.bootstrap_servers": addresses})
    chosen = state_dir or agent.state_dir or os.environ.get("STATE_DIRECTORY") or Path.home() / ".local/state/copycat"
    return Settings(agent, Path(chosen).absolute())


def start_logging(agent: AgentOptions, *, verbose: bool, quiet: bool) -> None:
    """Log as agent.yaml says; -v and -q override the level."""
    level = "debug" if verbose else "warning" if quiet else agent.log.level
    logs.setup(level, agent.log.format)


def use_color(*, no_color: bool) -> bool:
    """Whether stderr shows colors."""
    return not no_color and not os.environ.get("NO_COLOR") and os.isatty(2)
