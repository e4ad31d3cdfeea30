"""Reads Filebeat's registry, from version 7.9 on: the newest snapshot (`NUMBER.json`), and later operations in `log.json`.

Each operation is two lines: `{"op":"set","id":12}`, then `{"k":"key","v":{...}}`; ids increase by one. Operations that are not newer than
the snapshot are ignored. A crash may leave the last operation incomplete: then it was not saved.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from copycat_agent.errors import CopycatError
from copycat_agent.formats import Reader
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition, PeerState, StateFile, files_in, last_said, read_state

_PLACES = ("", "filebeat", "registry/filebeat", "data/registry/filebeat")
_SNAPSHOT = re.compile(r"(\d{1,20})\.json")
_NATIVE = re.compile(r"(\d{1,20})-(\d{1,20})(-.*)?", re.DOTALL)
_FINGERPRINT_BYTES = 1024
"""Default length of filestream's fingerprint."""
_SECONDS_MAX = 2**33
_SHA256 = re.compile(r"[0-9a-f]{64}")
Entries = dict[str, tuple[dict[str, Any], StateFile]]


def read(where: Path) -> PeerState:
    """Returns the positions of inputs `log` and `filestream`. `where` is the registry or Filebeat's data directory. Raises CopycatError."""
    directory = _registry(where)
    _check_version(directory)
    snapshots = [read_state(path) for path in files_in(directory, "*.json") if _SNAPSHOT.fullmatch(path.name)]
    newest = max(snapshots, key=_number_of, default=None)
    entries: Entries = {}
    files = [] if newest is None else [newest]
    if newest is not None:
        entries.update(_of_snapshot(newest))
    if (directory / "log.json").exists():
        log = read_state(directory / "log.json")
        files.append(log)
        _apply(log, 0 if newest is None else _number_of(newest), entries)
    positions, others = [], 0
    for key, (value, file) in entries.items():
        found = _position(file, key, value)
        if found is None:
            others += 1
        else:
            positions.append(found)
    notes = (
        (f"{others} entries of {directory} are of other inputs than log and filestream, or of files that were not begun",) if others else ()
    )
    times = (_time(value.get(name)) for value, _ in entries.values() for name in ("timestamp", "updated"))
    return PeerState(tuple(positions), last_said(max(file.changed_ns for file in files), times), notes)


def _registry(where: Path) -> Path:
    for place in _PLACES:
        directory = where / place
        # A meta.json is no sign of a registry: path.data has one, too.
        if (directory / "log.json").is_file() or (
            directory.is_dir() and any(_SNAPSHOT.fullmatch(one.name) for one in files_in(directory, "*.json"))
        ):
            return directory
    hint = (
        "name the directory with log.json: /var/lib/filebeat/registry/filebeat, or path.data of filebeat.yml; before 7.9 it was another one"
    )
    raise CopycatError(f"{where} is no registry of Filebeat", hint)


def _check_version(directory: Path) -> None:
    if (directory / "meta.json").exists():
        file = read_state(directory / "meta.json")
        meta = file.parsed()
        if not isinstance(meta, dict) or meta.get("version") != "1":
            raise file.broken("another version of the registry than 1, which is that of Filebeat 7.9 to 9")


def _number_of(file: StateFile) -> int:
    match = _SNAPSHOT.fullmatch(file.path.name)
    return int(match[1]) if match else 0


def _of_snapshot(file: StateFile) -> Iterator[tuple[str, tuple[dict[str, Any], StateFile]]]:
    states = file.parsed()
    if not isinstance(states, list):
        raise file.broken("a snapshot is a list of entries")
    for state in states:
        if not isinstance(state, dict):
            raise file.broken(f"an entry is {state!a:.60}, and no map")
        if isinstance(key := state.pop("_key", None), str):
            yield key, (state, file)


def _apply(file: StateFile, newest: int, entries: Entries) -> None:
    """Applies the operations of a log that are newer than the snapshot."""
    content = file.content.rstrip(b"\0")  # a crash of the host may leave NUL bytes at the end
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    whole = len(lines) - len(lines) % 2
    if whole and not content.endswith(b"\n") and whole == len(lines) and not _is_json(lines[-1][1]):
        whole -= 2
    for (number, first), (_, second) in zip(lines[0:whole:2], lines[1:whole:2], strict=True):
        action, operation = file.parsed(first, f"line {number} is "), file.parsed(second, f"line {number + 1} is ")
        if not (isinstance(action, dict) and isinstance(operation, dict) and isinstance(operation.get("k"), str)):
            raise file.broken(f"lines {number} and {number + 1} are no operation")
        count = file.number(action.get("id"), f"the id in line {number}", 2**64 - 1)
        if count <= newest:
            continue
        if count != newest + 1:
            raise file.broken(f"operation {count} in line {number} follows on {newest}: one between is missing")
        newest = count
        if action.get("op") == "set" and isinstance(operation.get("v"), dict):
            entries[operation["k"]] = operation["v"], file
        elif action.get("op") == "remove":
            entries.pop(operation["k"], None)
        else:
            raise file.broken(f"line {number} is neither set nor remove")


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _position(file: StateFile, key: str, value: dict[str, Any]) -> PeerPosition | None:
    """Returns a position; None for an entry that is no file, was not begun, or is about to be removed."""
    if value.get("ttl") == 0:
        return None
    if key.startswith("filebeat::logs::"):
        return _of_log(file, key, value)
    if key.startswith("filestream::"):
        return _of_filestream(file, key, value)
    return None


def _of_log(file: StateFile, key: str, value: dict[str, Any]) -> PeerPosition:
    path, position = file.text(value.get("source"), f"source of {key!a:.200}"), file.number(value.get("offset"), f"offset of {key!a:.200}")
    state = value.get("FileStateOS")
    if not isinstance(state, dict):
        return PeerPosition(position, path)
    inode = file.inode(state.get("inode"), f"inode of {key!a:.200}")
    device = file.inode(state.get("device"), f"device of {key!a:.200}")
    return PeerPosition(position, path, device, inode, seen_ns=_time(value.get("timestamp")))


def _of_filestream(file: StateFile, key: str, value: dict[str, Any]) -> PeerPosition | None:
    cursor, meta = value.get("cursor"), value.get("meta")
    if not isinstance(cursor, dict) or "offset" not in cursor:
        return None
    position = file.number(cursor["offset"], f"offset of {key!a:.200}")
    source = meta.get("source", "") if isinstance(meta, dict) else ""
    path = file.text(source, f"source of {key!a:.200}")
    kind, told = _identity(key)
    seen_ns = _time(value.get("updated"))
    if kind == "native" and (match := _NATIVE.fullmatch(told)):
        return PeerPosition(position, path, int(match[2]), int(match[1]), seen_ns=seen_ns)
    if kind == "inode_marker" and (match := re.match(r"(\d{1,20})-", told)):
        return PeerPosition(position, path, inode=int(match[1]), seen_ns=seen_ns)
    if kind == "fingerprint" and _SHA256.fullmatch(told):
        head = HeadProof(_sha256, told, f"SHA-256 of the first {_FINGERPRINT_BYTES:,} bytes")
        return PeerPosition(position, path, head=head, seen_ns=seen_ns)
    if kind == "path":
        return PeerPosition(position, path or told)
    return PeerPosition(position, path, unusable=f"Filebeat tells the file apart by {kind or 'nothing'}, which cannot be compared here")


def _time(told: object) -> int:
    """Returns when an entry was last changed, in epoch nanoseconds, rounded up to a second; 0 if unknown.

    Filebeat writes `[nanoseconds and zone, seconds]`.
    """
    seconds = told[1] if isinstance(told, list) and len(told) == 2 else 0  # noqa: PLR2004 - see above
    return (seconds + 1) * 1_000_000_000 if type(seconds) is int and 0 < seconds < _SECONDS_MAX else 0


def _identity(key: str) -> tuple[str, str]:
    """Returns how the file is identified, and its identity: `native`, `123-64768` of `filestream::ID::native::123-64768`."""
    for kind in ("native", "fingerprint", "path", "inode_marker"):
        _, sign, after = key.partition(f"::{kind}::")
        if sign:
            return kind, after
    return "", ""


def _sha256(read: Reader) -> str | None:
    head = read(0, _FINGERPRINT_BYTES)
    return hashlib.sha256(head).hexdigest() if len(head) == _FINGERPRINT_BYTES else None
