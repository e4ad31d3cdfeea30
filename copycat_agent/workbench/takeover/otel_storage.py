"""OpenTelemetry's filelog receiver with `storage: file_storage`: a bbolt file for each receiver, with what it knows of files.

The keys `...knownFiles` hold the number of files, then a JSON object for each: the first bytes themselves (up to 1,000), the offset, and
the path where `include_file_path` is set. A file is known by its first bytes alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from copycat_agent.errors import CopycatError
from copycat_agent.formats import Reader
from copycat_agent.workbench.takeover import bolt
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition, PeerState, StateFile, files_in, read_state

_KEY = re.compile(rb"(.*\.)?knownFiles\d*", re.DOTALL)
_BUCKET = b"default"
_FILES = "receiver_file*"
"""As file_storage names what a receiver `filelog` or `file_log` keeps: `receiver_filelog_NAME`."""
_HINT = "name the directory of file_storage, /var/lib/otelcol/file_storage unless it says otherwise, or the receiver's file in it"


def read(where: Path) -> PeerState:
    """The positions of filelog receivers. `where`: the directory of file_storage, or one file of it. Raises CopycatError."""
    paths = [path for path in files_in(where, _FILES) if path.is_file()] if where.is_dir() else [where]
    if not paths:
        raise CopycatError(f"{where} has no file of a filelog receiver", _HINT)
    files = [read_state(path) for path in paths]
    positions = tuple(one for file in files for one in _positions(file))
    return PeerState(positions, max(file.changed_ns for file in files))


def _positions(file: StateFile) -> Iterator[PeerPosition]:
    for key, value in bolt.entries(file, _BUCKET):
        if _KEY.fullmatch(key):
            yield from (_position(file, one) for one in _known(file, value))


def _known(file: StateFile, value: bytes) -> list[dict[str, Any]]:
    """The files that a key holds."""
    if not value[:1].isdigit():
        raise file.broken("positions in another form than JSON", "turn off the gate filelog.protobufCheckpointEncoding, and start it once")
    count, *documents = [file.parsed(line, "positions are ") for line in value.splitlines() if line.strip()]
    if count != len(documents) or not all(isinstance(one, dict) for one in documents):
        raise file.broken(f"{count!a:.60} files were to follow, {len(documents)} do")
    return documents


def _position(file: StateFile, values: dict[str, Any]) -> PeerPosition:
    position = file.number(values.get("Offset"), "an Offset")
    attributes, fingerprint = values.get("FileAttributes"), values.get("Fingerprint")
    given = attributes.get("log.file.path", "") if isinstance(attributes, dict) else ""
    path = file.text(given, "a log.file.path")
    told = fingerprint.get("first_bytes", fingerprint.get("FirstBytes")) if isinstance(fingerprint, dict) else None
    head = _decoded(file, told)
    if not head:
        return PeerPosition(position, path, unusable="the receiver knew none of its first bytes")
    return PeerPosition(position, path, head=HeadProof(partial(_first, len(head)), head, f"first {len(head):,} bytes"))


def _decoded(file: StateFile, told: object) -> bytes:
    try:
        return base64.b64decode(file.text("" if told is None else told, "first_bytes"), validate=True)
    except (binascii.Error, ValueError):
        raise file.broken(f"first_bytes is {json.dumps(told)[:60]}, and no base64") from None


def _first(size: int, read: Reader) -> bytes:
    return read(0, size)
