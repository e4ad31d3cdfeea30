"""Where a person wants a file to be read on: an offset that the file itself proves, so that it is not taken for another one."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition
from copycat_agent.sources import fingerprint
from copycat_agent.sources.identity import Identity, identify
from copycat_agent.sources.opening import open_regular
from copycat_agent.sources.whereabouts import Whereabouts

if TYPE_CHECKING:
    from copycat_agent.sources.base import Offsets

_BLOCK = 2**20
_LOOK_BACK = 2**20
"""So far from its end a file is searched for the end of its last line."""


class Place(NamedTuple):
    """A partition and the offset it would get. `doubts` say what a person should know before it is saved; none when all is well."""

    partition: SourcePartition
    offset: SourceOffset
    doubts: tuple[str, ...]


def place(connector: str, offsets: Offsets, wanted: str, *, path: str = "", key: str = "") -> Place:
    """The file at `path` (now, or last), or the partition with this key, at `wanted`: `beginning`, `end` or the next byte to read.

    `end` is behind the last whole line. Raises DataError when the file or the position cannot be made out.
    """
    fd, partition, saved = _by_key(connector, offsets, key) if key else _by_path(connector, offsets, path)
    if fd < 0:
        return _unproven(partition, saved, wanted)
    try:
        return _proven(fd, partition, saved, wanted)
    except OSError as error:
        msg = f"{saved.path!a} cannot be read: {error.strerror}"
        raise DataError(msg, "run this as a user who may read it") from error
    finally:
        os.close(fd)


def _by_path(connector: str, offsets: Offsets, path: str) -> tuple[int, SourcePartition, SourceOffset]:
    """The open file (or -1), its partition, and what is saved of it."""
    try:
        fd, info = open_regular(path, follow_symlinks=True)
    except FileNotFoundError:
        return -1, *_only([one for one in offsets.items() if one[1].path == path], f"there is no file {path!a}, and no offset of one")
    except OSError as error:
        msg = f"{path!a} cannot be opened: {error.strerror}"
        raise DataError(msg, "run this as a user who may read it") from error
    identity = identify(fd, info)
    generations = {Identity.parse(one.key)[1]: one for one in offsets if is_file_key(one.key) and Identity.parse(one.key)[0] == identity}
    partition = generations[max(generations)] if generations else SourcePartition(connector, identity.key(0))
    saved = offsets.get(partition, SourceOffset(0))
    return fd, partition, replace(saved, path=path) if not generations else saved


def _by_key(connector: str, offsets: Offsets, key: str) -> tuple[int, SourcePartition, SourceOffset]:
    partition = SourcePartition(connector, key)
    if partition not in offsets or not is_file_key(key):
        msg = f"connector {connector} has no offset with the key {key!a}"
        raise DataError(msg, f"see: copycat offsets show {connector}")
    saved = offsets[partition]
    return _open_by_identity(Identity.parse(key)[0], saved.path), partition, saved


def _open_by_identity(identity: Identity, path: str) -> int:
    """Descriptor of the file under its last name or another one in the same directory, -1 when it is not there."""
    try:
        name = Whereabouts().find(path, identity.device, identity.inode)
        if name is None:
            return -1
        fd, info = open_regular(name, follow_symlinks=False)
    except OSError:
        return -1
    if identify(fd, info) == identity:
        return fd
    os.close(fd)
    return -1


def _only(found: list[tuple[SourcePartition, SourceOffset]], none: str) -> tuple[SourcePartition, SourceOffset]:
    if not found:
        raise DataError(none, "copycat offsets show lists what is saved")
    if len(found) > 1:
        keys = ", ".join(partition.key for partition, _ in found)
        msg = f"{len(found)} files had the name {found[0][1].path!a}"
        raise DataError(msg, f"choose one with --key: {keys}")
    return found[0]


def _proven(fd: int, partition: SourcePartition, saved: SourceOffset, wanted: str) -> Place:
    """The file is there. Raises OSError."""
    read, size = fingerprint.reader(fd), os.fstat(fd).st_size
    position = _last_line_end(fd, size) if wanted == "end" else _number(wanted)
    doubts = []
    if position > size:
        doubts.append(
            f"the file is {size} bytes long: unless it has grown to {position} by then, it is taken for a new one and read from 0"
        )
        proof = Fingerprint()
    else:
        proof = fingerprint.take(read, position)
        if position and read(position - 1, 1) != b"\n":
            line = read(max(0, position - _LOOK_BACK), min(_LOOK_BACK, position)).rfind(b"\n") + 1
            start = max(0, position - _LOOK_BACK) + line
            doubts.append(f"{position} is not just behind a line feed: what is sent begins in the middle of a line (it begins at {start})")
    records = _count_lines(fd, min(position, size)) if position != saved.position else saved.records
    offset = replace(saved, position=position, records=records, done=False, skipping=False, size=size, fingerprint=proof)
    return Place(partition, offset, tuple(doubts))


def _unproven(partition: SourcePartition, saved: SourceOffset, wanted: str) -> Place:
    """The file is not there: nothing can be compared when it comes back."""
    if wanted == "end":
        msg = f"{saved.path!a} is not there: nobody knows its end"
        raise DataError(msg, "give a number, or wait until the file is back")
    position = _number(wanted)
    doubt = f"{saved.path!a} is not there: when it comes back it is read from {position} without a proof that it still is what was read"
    proof = saved.fingerprint if position == saved.position else Fingerprint()
    offset = replace(saved, position=position, records=0, done=False, skipping=False, size=max(saved.size, position), fingerprint=proof)
    return Place(partition, offset, (doubt,) if position else ())


def is_file_key(key: str) -> bool:
    """Whether `key` is one of a file, as `Identity.key` writes it."""
    try:
        identity, generation = Identity.parse(key)
    except ValueError:
        return False
    return identity.key(generation) == key


def _number(wanted: str) -> int:
    if wanted == "beginning":
        return 0
    if not (wanted.isascii() and wanted.isdigit()) or int(wanted) >= 2**63:
        msg = f"{wanted!a} is no position"
        raise DataError(msg, "give the next byte to read, a whole number from 0, or beginning, or end")
    return int(wanted)


def _last_line_end(fd: int, size: int) -> int:
    """Behind the last line feed; the size when there is none far and wide."""
    begin = max(0, size - _LOOK_BACK)
    cut = os.pread(fd, size - begin, begin).rfind(b"\n")
    return begin + cut + 1 if cut >= 0 else 0 if begin == 0 else size


def _count_lines(fd: int, end: int) -> int:
    lines = position = 0
    while position < end:
        block = os.pread(fd, min(_BLOCK, end - position), position)
        if not block:
            break
        lines += block.count(b"\n")
        position += len(block)
    return lines
