"""Reads `positionFile` of Flume's source TAILDIR, a list of `{"inode": ..., "pos": ..., "file": ...}`, rewritten every few seconds.

A crash may have truncated it. It has no device, so an inode is taken on the device where a definition finds it. `flume_tracker` reads the
state of spooldir.
"""

from __future__ import annotations

from pathlib import Path

from copycat_agent.errors import CopycatError
from copycat_agent.workbench.takeover import flume_tracker
from copycat_agent.workbench.takeover.peer_state import PeerPosition, PeerState, StateFile, read_state

_HINT = "name the file of the source's positionFile: ~/.flume/taildir_position.json unless it says otherwise"
_NAME = "taildir_position.json"
_CHANNEL = "what is in Flume's channel counts as read: see that it was empty (ChannelSize 0) when Flume stopped"


def read(where: Path) -> PeerState:
    """Returns the positions of a source. `where` is TAILDIR's position file or its directory, or the directory of spooldir.

    Raises CopycatError.
    """
    if (tracker := flume_tracker.directory_of(where)) is not None:
        return PeerState(*flume_tracker.read(tracker), (_CHANNEL,))
    path = where / _NAME if where.is_dir() else where
    if not path.exists() and path != where:
        raise CopycatError(f"{where} has no {_NAME}, and is no spoolDir", _HINT)
    file = read_state(path)
    values = file.parsed()
    if not isinstance(values, list):
        raise file.broken("positions of TAILDIR are a list", _HINT)
    return PeerState(tuple(_position(file, one, number) for number, one in enumerate(values, 1)), file.changed_ns, (_CHANNEL,))


def _position(file: StateFile, values: object, number: int) -> PeerPosition:
    if not isinstance(values, dict):
        raise file.broken(f"position {number} is {values!a:.60}, and no map", _HINT)
    return PeerPosition(
        file.number(values.get("pos"), f"pos of position {number}"),
        file.text(values.get("file"), f"file of position {number}"),
        inode=file.inode(values.get("inode"), f"inode of position {number}"),
    )
