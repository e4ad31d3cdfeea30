"""How options of the command line, agent.yaml and the environment are weighed, for the commands that need an agent's parts."""

from __future__ import annotations

from pathlib import Path

from copycat_agent.agent import Settings
from copycat_agent.api.server import socket_path
from copycat_agent.cli.common_options import state_directory
from copycat_agent.definitions import find_agent_file, load_agent


def overrides(servers: str | None) -> dict[str, object]:
    """What the command line says over agent.yaml, by dotted option; None says nothing."""
    return {"kafka.bootstrap_servers": tuple(one.strip() for one in servers.split(",") if one.strip()) if servers else None}


def settle_settings(
    directory: Path, config: Path | None, state_dir: Path | None, servers: str | None, socket: Path | None = None
) -> Settings:
    """Options of the command line over agent.yaml over the environment over defaults. Raises DefinitionError."""
    agent = load_agent(find_agent_file(directory, config), overrides(servers))
    kept_in = state_directory(state_dir, agent)
    return Settings(agent, kept_in, socket_path(socket, agent.api.socket, kept_in))
