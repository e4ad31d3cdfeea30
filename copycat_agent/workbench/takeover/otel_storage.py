"""Reads the state of OpenTelemetry's filelog receiver with `storage: file_storage`: a bbolt file for each receiver.

Keys `...knownFiles` have each file's first bytes (up to 1,000), its offset, and with `include_file_path` its path: as the number of files
followed by a JSON object for each, in later versions as protobuf (`checkpoint.MetadataList`). A file is identified by its first bytes
alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from copycat_agent.errors import CopycatError
from copycat_agent.formats import Reader
from copycat_agent.workbench.takeover import bolt
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition, PeerState, StateFile, files_in, read_state

_KEY = re.compile(rb"(.*\.)?knownFiles\d*", re.DOTALL)
_BUCKET = b"default"
_FILES = "receiver_file*"
"""File names of receivers `filelog` and `file_log`: `receiver_filelog_NAME`."""
_VARINT, _BYTES, _FIXED, _VARINT_BYTES = 0, 2, {1: 8, 5: 4}, 10
"""Wire types of protobuf, those of fixed size with that; and the most bytes of a number."""
_HINT = "name the directory of file_storage, /var/lib/otelcol/file_storage unless it says otherwise, or the receiver's file in it"


def read(where: Path) -> PeerState:
    """Returns the positions of filelog receivers. `where` is the directory of file_storage, or a file in it. Raises CopycatError."""
    paths = [path for path in files_in(where, _FILES) if path.is_file()] if where.is_dir() else [where]
    if not paths:
        raise CopycatError(f"{where} has no file of a filelog receiver", _HINT)
    files = [read_state(path) for path in paths]
    positions = tuple(one for file in files for one in _positions(file))
    return PeerState(positions, max(file.changed_ns for file in files))


def _positions(file: StateFile) -> Iterator[PeerPosition]:
    for key, value in bolt.entries(file, _BUCKET):
        if _KEY.fullmatch(key):
            yield from _known(file, value)


def _known(file: StateFile, value: bytes) -> Iterator[PeerPosition]:
    """Yields the positions in the value of a key."""
    if value[:1].isdigit():
        yield from _of_json(file, value)
        return
    for number, one in _fields(file, value):
        if number != 1 or not isinstance(one, bytes):
            raise file.broken("positions are neither JSON nor a list of files in protobuf")
        fields = dict(_fields(file, one))
        head = dict(_fields(file, _part(file, fields, 1))).get(1, b"")
        yield _position(file, fields.get(2, 0), file.parsed(_part(file, fields, 4) or b"{}", "attributes are "), head)


def _of_json(file: StateFile, value: bytes) -> Iterator[PeerPosition]:
    count, *documents = [file.parsed(line, "positions are ") for line in value.splitlines() if line.strip()]
    if count != len(documents) or not all(isinstance(one, dict) for one in documents):
        raise file.broken(f"{count!a:.60} files were to follow, {len(documents)} do")
    for one in documents:
        fingerprint = one.get("Fingerprint")
        told = fingerprint.get("first_bytes", fingerprint.get("FirstBytes")) if isinstance(fingerprint, dict) else None
        yield _position(file, one.get("Offset"), one.get("FileAttributes"), _decoded(file, told))


def _position(file: StateFile, offset: object, attributes: object, head: object) -> PeerPosition:
    position = file.number(offset, "an Offset")
    given = attributes.get("log.file.path", "") if isinstance(attributes, dict) else ""
    path = file.text(given, "a log.file.path")
    if not isinstance(head, bytes) or not head:
        return PeerPosition(position, path, unusable="the receiver knew none of its first bytes")
    return PeerPosition(
        position, path, head=HeadProof(partial(_first, len(head)), head, f"first {len(head):,} bytes"), seen_ns=file.changed_ns
    )


def _decoded(file: StateFile, told: object) -> bytes:
    try:
        return base64.b64decode(file.text("" if told is None else told, "first_bytes"), validate=True)
    except (binascii.Error, ValueError):
        raise file.broken(f"first_bytes is {json.dumps(told)[:60]}, and no base64") from None


def _part(file: StateFile, fields: dict[int, int | bytes], number: int) -> bytes:
    """Returns a field of bytes; b"" if it is missing."""
    found = fields.get(number, b"")
    if not isinstance(found, bytes):
        raise file.broken(f"field {number} of a file is a number")
    return found


def _fields(file: StateFile, data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields numbers and values of a protobuf message's fields: bytes, or integers as on the wire."""
    at = 0
    while at < len(data):
        tag, at = _varint(file, data, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(file, data, at)
            yield tag >> 3, value
            continue
        if kind not in (_BYTES, *_FIXED):
            raise file.broken(f"positions are neither JSON nor protobuf (wire type {kind})")
        size, at = _varint(file, data, at) if kind == _BYTES else (_FIXED[kind], at)
        if len(data) < at + size:
            raise file.broken("a field of protobuf is cut")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(file: StateFile, data: bytes, at: int) -> tuple[int, int]:
    """Returns a varint (7 bits per byte, least significant first), and where it ends."""
    found = 0
    for index, byte in enumerate(data[at : at + _VARINT_BYTES]):
        found |= (byte & 0x7F) << 7 * index
        if byte < 0x80:  # noqa: PLR2004 - no more follow
            return found, at + index + 1
    raise file.broken("a number of protobuf is cut")


def _first(size: int, read: Reader) -> bytes:
    return read(0, size)
