"""Finds the running agent, for commands that query it. They import nothing else of the agent, so that they start fast."""

from __future__ import annotations

import contextlib
import socket as sockets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from copycat_agent.api import AgentClient
from copycat_agent.api.server import runtime_dir
from copycat_agent.cli.common_options import state_directory
from copycat_agent.errors import CopycatError
from copycat_agent.probe import SOCKET_NAME, default_places

if TYPE_CHECKING:
    from copycat_agent.options import AgentOptions

_PROBE_SECONDS = 5.0


def _complete(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of the running agent's connectors that begin with `incomplete`; none if there is no agent."""
    asked = context.params
    with contextlib.suppress(CopycatError, OSError):
        client = find_agent(asked.get("socket"), asked.get("state_dir"), asked.get("config"))
        return [one["name"] for one in client.get("/v1/connectors")["connectors"] if one["name"].startswith(incomplete)]
    return []


Name = Annotated[str, typer.Argument(metavar="NAME", help="A connector.", autocompletion=_complete)]
SomeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this connector.", autocompletion=_complete)]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Connectors.", autocompletion=_complete)]


def find_agent(socket: Path | None, state_dir: Path | None, config: Path | None) -> AgentClient:
    """Returns a client of the agent that these options select, or that answers at a default socket.

    Makes no request: a missing agent is reported by the first call. Raises DefinitionError if `config` is invalid.
    """
    places = _places(socket, state_dir, config)
    return AgentClient(next((path for path in places if _answers(path)), next(filter(_is_there, places), places[0])))


def _places(socket: Path | None, state_dir: Path | None, config: Path | None) -> list[Path]:
    """Returns the sockets to try, the likeliest first, in the order of `api.sockets.socket_path`."""
    if socket:
        return [socket.absolute()]
    agent = _options(config) if config else None
    if agent and agent.api.socket:
        return [Path(agent.api.socket)]
    if not (state_dir or config):
        return list(map(Path, default_places()))
    return [directory / SOCKET_NAME for directory in (state_directory(state_dir, agent), runtime_dir()) if directory]


def _options(config: Path) -> AgentOptions:
    from copycat_agent.definitions import load_agent  # noqa: PLC0415 - 0.6 s, which nearly all do without

    return load_agent(config)


def _answers(path: Path) -> bool:
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # its queue of connections is full
            return True
        except OSError:  # too long, missing, not listening, or not permitted
            return False
    return True


def _is_there(path: Path) -> bool:
    """Returns whether the path exists, also if it may not be checked: the user should see that error, not that there is no agent."""
    try:
        path.lstat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True
