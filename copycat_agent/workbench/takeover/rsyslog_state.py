"""Reads the state of rsyslog's imfile: a file for each log in its work directory, named by inode, and by a hash of the first 512 bytes.

`imfile-state:INODE[:SIPHASH]` has `filename`, which is wrong once the log was renamed, and `strt_offs`, the beginning of the next line that
was not passed on. `prev_msg_segment` are the lines of an incomplete record, the first of which lies before `strt_offs`.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

from copycat_agent.errors import CopycatError
from copycat_agent.formats import Reader
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition, PeerState, StateFile, files_in, read_state

_NAME = re.compile(r"imfile-state:(\d{1,20})(?::([0-9a-f]{16}))?")
_OLD_NAME = re.compile(r"imfile-state:.*", re.DOTALL)
_HEAD_BYTES = 512
_MASK = 2**64 - 1
_HINT = "name the directory of workDirectory: /var/spool/rsyslog or /var/lib/rsyslog"


def read(where: Path) -> PeerState:
    """Returns the positions of imfile inputs in a work directory. Raises CopycatError."""
    if not where.is_dir():
        raise CopycatError(f"{where} is no directory", _HINT)
    named = [path for path in files_in(where, "*") if _OLD_NAME.fullmatch(path.name)]
    if not named:
        raise CopycatError(f"{where} has no state of imfile", _HINT)
    files = [(match, read_state(path)) for path in named if (match := _NAME.fullmatch(path.name))]
    others = len(named) - len(files)
    notes = (f"{others} states in {where} are of rsyslog before 8.25, or other names than imfile's",) if others else ()
    positions = tuple(_position(file, match) for match, file in files)
    return PeerState(positions, max((file.changed_ns for _, file in files), default=0), notes)


def _position(file: StateFile, name: re.Match[str]) -> PeerPosition:
    inode = file.inode(int(name[1]), "the inode")
    head = None if name[2] is None else HeadProof(_siphash_of, name[2], f"hash of the first {_HEAD_BYTES} bytes")
    try:
        values = file.parsed()
    except CopycatError as error:  # some versions write it in place, so that a crash may truncate it
        return PeerPosition(0, inode=inode, head=head, unusable=f"its state cannot be read: {error.message}")
    if not isinstance(values, dict):
        raise file.broken("its state is a map of fields")
    offset = file.number(values.get("strt_offs"), "strt_offs")
    held = file.text(values.get("prev_msg_segment", ""), "prev_msg_segment")
    path = file.text(values.get("filename"), "filename")
    return PeerPosition(offset, path, inode=inode, head=head, held=held.encode("utf-8", "surrogateescape"), seen_ns=file.changed_ns)


def _siphash_of(read: Reader) -> str | None:
    head = read(0, _HEAD_BYTES)
    return siphash(head, bytes(range(16))).hex() if len(head) == _HEAD_BYTES else None


def siphash(data: bytes, key: bytes) -> bytes:
    """Returns the 64-bit SipHash-2-4, little-endian (Aumasson and Bernstein, 2012); `key` has 16 bytes."""
    k0, k1 = struct.unpack("<QQ", key)
    state: list[int] = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    whole = len(data) // 8
    last = int.from_bytes(data[whole * 8 :], "little") | (len(data) & 0xFF) << 56
    for word in (*struct.unpack(f"<{whole}Q", data[: whole * 8]), last):
        state[3] ^= word
        _round(state)
        _round(state)
        state[0] ^= word
    state[2] ^= 0xFF
    for _ in range(4):
        _round(state)
    mixed: int = state[0] ^ state[1] ^ state[2] ^ state[3]
    return mixed.to_bytes(8, "little")


def _round(v: list[int]) -> None:
    v[0] = (v[0] + v[1]) & _MASK
    v[1] = _left(v[1], 13) ^ v[0]
    v[0] = _left(v[0], 32)
    v[2] = (v[2] + v[3]) & _MASK
    v[3] = _left(v[3], 16) ^ v[2]
    v[0] = (v[0] + v[3]) & _MASK
    v[3] = _left(v[3], 21) ^ v[0]
    v[2] = (v[2] + v[1]) & _MASK
    v[1] = _left(v[1], 17) ^ v[2]
    v[2] = _left(v[2], 32)


def _left(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK
