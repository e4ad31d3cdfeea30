"""Reads the state of Vector's file source: `DATA_DIR/COMPONENT/checkpoints.json`, positions by fingerprint, without names.

A fingerprint is the CRC-64 (ECMA-182) of the first line with its line feed, or device and inode (`fingerprint.strategy`). A complete
`checkpoints.new.json` beside it is newer: Vector was stopped before it renamed the file, and would also begin with it.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from pathlib import Path

from copycat_agent.errors import CopycatError
from copycat_agent.formats import Reader
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition, PeerState, StateFile, files_in, last_said, read_state

_STABLE, _YOUNGER = "checkpoints.json", "checkpoints.new.json"
_POLYNOMIAL = 0x42F0E1EBA9EA3693
_MASK = 2**64 - 1
_LINE_BYTES = 102_400
"""Vector's default of `max_line_bytes`, the most bytes of the first line that are hashed."""
_OTHER = "Vector tells the file apart by {}, which cannot be compared here: only the checksum of the first line, device and inode can"


def read(where: Path) -> PeerState:
    """Returns the positions of file sources. `where` is `data_dir`, or the directory of one component. Raises CopycatError."""
    if not where.is_dir():
        raise CopycatError(f"{where} is no directory", "name data_dir: /var/lib/vector")
    directories = [one for one in (where, *files_in(where, "*")) if (one / _STABLE).is_file() or (one / _YOUNGER).is_file()]
    if not directories:
        raise CopycatError(f"{where} has no checkpoints of Vector", f"name data_dir, in which COMPONENT/{_STABLE} is: /var/lib/vector")
    files = [_newest(directory) for directory in directories]
    positions = [one for file in files for one in _positions(file)]
    times = (_time(one.get("modified")) for file in files for one in file.parsed()["checkpoints"])
    return PeerState(tuple(positions), last_said(max(file.changed_ns for file in files), times))


def _newest(directory: Path) -> StateFile:
    """Returns the file that Vector would begin with."""
    if (directory / _YOUNGER).is_file():
        younger = read_state(directory / _YOUNGER)
        try:
            _positions(younger)
        except CopycatError:
            if not (directory / _STABLE).is_file():
                raise
        else:
            return younger
    return read_state(directory / _STABLE)


def _positions(file: StateFile) -> list[PeerPosition]:
    values = file.parsed()
    if not isinstance(values, dict) or values.get("version") != "1" or not isinstance(values.get("checkpoints"), list):
        raise file.broken("no checkpoints of version 1, the only one that Vector has had")
    return [_position(file, one, number) for number, one in enumerate(values["checkpoints"], 1)]


def _position(file: StateFile, values: object, number: int) -> PeerPosition:
    if not isinstance(values, dict) or not isinstance(values.get("fingerprint"), dict) or len(values["fingerprint"]) != 1:
        raise file.broken(f"checkpoint {number} is {values!a:.60}, and has no fingerprint")
    position = file.number(values.get("position"), f"the position of checkpoint {number}")
    ((kind, told),) = values["fingerprint"].items()
    if kind in ("first_lines_checksum", "first_line_checksum"):
        checksum = file.inode(told, f"the checksum of checkpoint {number}")
        return PeerPosition(position, head=HeadProof(_first_line, checksum, "checksum of the first line"), seen_ns=file.changed_ns)
    if kind == "dev_inode":
        if not isinstance(told, list) or len(told) != 2:  # noqa: PLR2004 - device and inode
            raise file.broken(f"checkpoint {number} is not of a device and an inode")
        device, inode = (file.inode(one, f"a number of checkpoint {number}") for one in told)
        return PeerPosition(position, device=device, inode=inode, seen_ns=file.changed_ns)
    return PeerPosition(position, unusable=_OTHER.format(kind))


def _time(told: object) -> int:
    """Returns when a position last moved, from RFC 3339 to epoch nanoseconds, rounded up to a second; 0 for any other value."""
    try:
        return (int(datetime.fromisoformat(str(told)).timestamp()) + 1) * 1_000_000_000
    except (ValueError, OverflowError):
        return 0


def _first_line(read: Reader) -> int | None:
    """Returns the hash of the first line; None for a file without a complete line, for which Vector has no checkpoint."""
    head = read(0, _LINE_BYTES)
    end = head.find(b"\n") + 1
    return crc64(head[: end or _LINE_BYTES]) if end or len(head) == _LINE_BYTES else None


def crc64(data: bytes) -> int:
    """Returns the CRC-64/ECMA-182: most significant bit first, initial value 0, no final XOR."""
    table, found = _table(), 0
    for byte in data:
        found = ((found << 8) & _MASK) ^ table[(found >> 56) ^ byte]
    return found


@cache
def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        found = byte << 56
        for _ in range(8):
            found = ((found << 1) ^ _POLYNOMIAL if found >> 63 else found << 1) & _MASK
        table.append(found)
    return tuple(table)
