"""Finding the running agent, for the commands that ask it, and what it has in memory, for `plan` and `explain`."""

from __future__ import annotations

import contextlib
import socket as sockets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from copycat_agent.api import AgentClient, address
from copycat_agent.api.server import runtime_dir
from copycat_agent.cli.common_options import state_directory
from copycat_agent.definitions import load_agent
from copycat_agent.errors import CopycatError
from copycat_agent.model import SavedRow, SourcePartition
from copycat_agent.offsets.document import saved_rows
from copycat_agent.offsets.looking import offsets_of
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.probe import SOCKET_NAME, default_places
from copycat_agent.sources import FileView

if TYPE_CHECKING:
    from copycat_agent.workbench.explaining import PathAnswer

_PROBE_SECONDS = 5.0
AT_WORK = frozenset({"running", "retrying", "blocked", "paused"})
"""States in which a connector follows files."""
_FILES_MAX = 10_000
"""As many as the agent gives in one answer."""


def _complete(context: typer.Context, incomplete: str) -> list[str]:
    """Names of the running agent's connectors; none when there is no agent."""
    asked = context.params
    with contextlib.suppress(CopycatError, OSError):
        client = find_agent(asked.get("socket"), asked.get("state_dir"), asked.get("config"))
        return [one["name"] for one in client.get("/v1/connectors")["connectors"] if one["name"].startswith(incomplete)]
    return []


Name = Annotated[str, typer.Argument(metavar="NAME", help="A connector.", autocompletion=_complete)]
SomeName = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this connector.", autocompletion=_complete)]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Connectors.", autocompletion=_complete)]


def find_agent(socket: Path | None, state_dir: Path | None, config: Path | None) -> AgentClient:
    """The client of the agent that these options mean, or that answers where agents listen by default.

    Does not ask it anything. DefinitionError when `config` is no good; an agent that is not there is told by the first call.
    """
    places = _places(socket, state_dir, config)
    return AgentClient(next((path for path in places if _answers(path)), next(filter(_is_there, places), places[0])))


def _places(socket: Path | None, state_dir: Path | None, config: Path | None) -> list[Path]:
    """Sockets to look at, the likeliest first: as `api.sockets.socket_path` chooses them."""
    if socket:
        return [socket.absolute()]
    agent = load_agent(config) if config else AgentOptions()
    if agent.api.socket:
        return [Path(agent.api.socket)]
    if not (state_dir or config):
        return list(map(Path, default_places()))
    return [directory / SOCKET_NAME for directory in (state_directory(state_dir, agent), runtime_dir()) if directory]


def _answers(path: Path) -> bool:
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # so many ask it that this one would have to wait
            return True
        except OSError:  # too long, not there, nobody listens, not ours
            return False
    return True


def _is_there(path: Path) -> bool:
    """Also what we may not look at: who may not, should hear that, and not that there is no agent."""
    try:
        path.lstat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


class LiveAgent:
    """One agent's answers. Every method raises AgentUnreachableError, and other errors with the agent's own words."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self.directory = str(client.get("/v1")["directory"])
        self.statuses: Mapping[str, Mapping[str, Any]] = {one["name"]: one for one in client.get("/v1/connectors")["connectors"]}

    def offsets(self, definition: Definition) -> dict[SourcePartition, SavedRow]:
        """What is saved for the connector, as `offsets_of` has it."""
        saved: dict[SourcePartition, SavedRow] = {}
        for name in (definition.name, *definition.renamed_from):
            saved |= saved_rows(name, self._client.get(address("offsets", name)))
        return offsets_of(definition, saved)

    def files(self, name: str) -> tuple[tuple[FileView, ...], int]:
        """The files that a connector follows, as many as come in one answer, and how many there are."""
        found = self._client.get(address("connectors", name, f"/files?limit={_FILES_MAX}"))
        return tuple(FileView(**one) for one in found["files"]), found["total"]

    def file(self, answer: PathAnswer) -> FileView | None:
        """Where the agent is in the file of an answer."""
        name = answer.definition.name
        if answer.closeup is None or self.statuses.get(name, {}).get("state") not in AT_WORK:
            return None
        key = answer.closeup.view.key
        return next((one for one in self.files(name)[0] if one.key == key), None)
