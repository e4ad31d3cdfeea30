"""Going on where another shipper stopped: its positions, judged by the files that are there, as offsets of ours.

`PEERS` read a peer's state (`peer_state`), `taking` decides for each position whether the file that is there proves it (`proving`), and
says what the agent will do with that file, as its own source says it. Nothing of the peer's is changed, and nothing of ours: who calls
saves the offsets.
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
from copycat_agent.workbench.takeover.peer_state import PeerState, unreadable
from copycat_agent.workbench.takeover.taking import Heir, Judgement, Takeover, take_over

__all__ = ["PEERS", "Heir", "Judgement", "PeerState", "Takeover", "take_over"]

Read = Callable[[Path], PeerState]


def _refusing(read: Read) -> Read:
    """The reader, for which a state that the kernel refuses is an error with words; often it belongs to another user."""

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
"""By name: reads a peer's state, a file or a directory. Raises `CopycatError` that names the file for what cannot be read."""
