"""Takes over the positions of another shipper (a *peer*) as offsets, after checking them against the files that are there.

`PEERS` read a peer's state (`peer_state`). `file_matching` decides for each position whether the present file proves it (`proving`), and
tells what the agent will do with that file. The peer's state is not changed, and the caller saves the offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from copycat_agent.workbench.takeover import (
    connect_offsets,
    filebeat_registry,
    fluent_bit_database,
    flume_positions,
    otel_storage,
    rsyslog_state,
    vector_checkpoints,
)
from copycat_agent.workbench.takeover.file_matching import FileDecision, Successor, Takeover, take_over
from copycat_agent.workbench.takeover.peer_state import PeerState, unreadable

__all__ = ["PEERS", "FileDecision", "PeerState", "Successor", "Takeover", "take_over"]

Read = Callable[[Path], PeerState]


def _refusing(read: Read) -> Read:
    """Returns the reader, with OSError translated to CopycatError: a peer's state often belongs to another user."""

    def reader(where: Path) -> PeerState:
        try:
            return read(where)
        except OSError as error:
            raise unreadable(Path(error.filename or where), error) from None

    return reader


_READERS: Mapping[str, Read] = {
    "filebeat": filebeat_registry.read,
    "fluent-bit": fluent_bit_database.read,
    "vector": vector_checkpoints.read,
    "connect": connect_offsets.read,
    "rsyslog": rsyslog_state.read,
    "flume": flume_positions.read,
    "otel": otel_storage.read,
}
PEERS: Mapping[str, Read] = {name: _refusing(read) for name, read in _READERS.items()}
"""Functions that read a peer's state, a file or a directory, by the peer's name. They raise CopycatError, which names the file."""
