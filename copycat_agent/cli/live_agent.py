"""What the running agent has in memory, for `plan` and `explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from copycat_agent.api import AgentClient, address
from copycat_agent.model import SavedRow, SourcePartition
from copycat_agent.offsets.document import saved_rows
from copycat_agent.offsets.looking import offsets_of
from copycat_agent.options import Definition
from copycat_agent.sources import FileView

if TYPE_CHECKING:
    from copycat_agent.workbench.explaining import PathAnswer

AT_WORK = frozenset({"running", "retrying", "blocked", "paused"})
"""States in which a connector follows files."""
_FILES_MAX = 10_000
"""As many as the agent gives in one answer."""


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
