"""Sets the position of a file for a person: makes an offset with the file's own fingerprint, so that it is not taken for another one."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

from copycat_agent.errors import DataError
from copycat_agent.formats import Reader
from copycat_agent.formats.text import Encoding, Layout
from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition
from copycat_agent.sources.base import Offsets
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, InodeFinder, identify
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.packing.unpacking import Unpacker
from copycat_agent.sources.files.paths.regular_files import open_regular
from copycat_agent.sources.log_file.beginning.since import LineStarts

_BLOCK = 2**20
_LOOK_BACK = 2**20
"""How far from its end a file is searched for the end of its last line."""


class StartPosition(NamedTuple):
    """A partition and its new offset. `doubts` are warnings that a person should see before it is saved; none if all is well."""

    partition: SourcePartition
    offset: SourceOffset
    doubts: tuple[str, ...]


class LineRules(NamedTuple):
    """The definition of a line in the connector's options; the defaults are for callers that do not know the definition.

    `notes_time`: its offsets hold modification times, as those of spooled files, which are read only while they are unchanged.
    """

    delimiter: str = "\n"
    encoding: str = "auto"
    unpacks: bool = True
    notes_time: bool = True


def place(
    connector: str,
    offsets: Offsets,
    wanted: str,
    *,
    path: str = "",
    key: str = "",
    rules: LineRules | None = None,
    counts_lines: bool = True,
) -> StartPosition:
    """Sets the file at `path` (its present or last one), or the partition with this key, to `wanted`: `beginning`, `end` or a byte number.

    `end` is after the last whole line; for a packed file, whose bytes are counted unpacked, after its last byte. Raises DataError if the
    file or the position cannot be determined. Without `counts_lines` the lines before it count as none: counting them means reading them
    all.
    """
    fd, partition, saved = _by_key(connector, offsets, key) if key else _by_path(connector, offsets, path)
    if fd < 0:
        return _unproven(partition, saved, wanted)
    try:
        return _proven(_look_into(fd, rules or LineRules()), partition, saved, wanted, counts_lines=counts_lines)
    except OSError as error:
        raise DataError(f"{saved.path!a} cannot be read: {error.strerror}", "run this as a user who may read it") from error
    finally:
        os.close(fd)


def _by_path(connector: str, offsets: Offsets, path: str) -> tuple[int, SourcePartition, SourceOffset]:
    """Returns the open file (or -1), its partition, and its saved offset. Raises DataError."""
    try:
        fd, info = open_regular(path, follow_symlinks=True)
    except FileNotFoundError:
        return -1, *_only([one for one in offsets.items() if one[1].path == path], f"there is no file {path!a}, and no offset of one")
    except OSError as error:
        raise DataError(f"{path!a} cannot be opened: {error.strerror}", "run this as a user who may read it") from error
    identity = identify(fd, info)
    saved_as = {Identity.parse(one.key)[0] for one in offsets if is_file_key(one.key)}
    saved_as = saved_as & {identity} or {one for one in saved_as if one.lasting == identity.lasting}
    generations = {Identity.parse(one.key)[1]: one for one in offsets if is_file_key(one.key) and Identity.parse(one.key)[0] in saved_as}
    if not generations and (ranges := [one.key for one in offsets if _is_range_of(one.key, identity)]):
        os.close(fd)
        msg = f"{path!a} is being read in {len(ranges)} ranges, each with a position of its own"
        raise DataError(msg, "wait until it is read, or have it read from its beginning: copycat offsets reset --path")
    partition = generations[max(generations)] if generations else SourcePartition(connector, identity.key(0))
    saved = offsets.get(partition, SourceOffset(0))
    return fd, partition, replace(saved, path=path) if not generations else saved


def _is_range_of(key: str, identity: Identity) -> bool:
    try:
        saved_as, _ = Identity.parse(key.rpartition(":")[0])
    except ValueError:
        return False
    return saved_as.lasting == identity.lasting and not is_file_key(key)


def _by_key(connector: str, offsets: Offsets, key: str) -> tuple[int, SourcePartition, SourceOffset]:
    partition = SourcePartition(connector, key)
    if partition not in offsets or not is_file_key(key):
        raise DataError(f"connector {connector} has no offset with the key {key!a}", f"see: copycat offsets show {connector}")
    saved = offsets[partition]
    return _open_by_identity(Identity.parse(key)[0], saved.path), partition, saved


def _open_by_identity(identity: Identity, path: str) -> int:
    """Opens the file under its last name or another one in the same directory. Returns the descriptor, -1 if it does not exist."""
    try:
        name = InodeFinder().find(path, identity)
        if name is None:
            return -1
        fd, info = open_regular(name, follow_symlinks=False)
    except OSError:
        return -1
    if identify(fd, info).lasting == identity.lasting:
        return fd
    os.close(fd)
    return -1


def _only(found: list[tuple[SourcePartition, SourceOffset]], none: str) -> tuple[SourcePartition, SourceOffset]:
    if not found:
        raise DataError(none, "copycat offsets show lists what is saved")
    if len(found) > 1:
        keys = ", ".join(partition.key for partition, _ in found)
        raise DataError(f"{len(found)} files had the name {found[0][1].path!a}", f"choose one with --key: {keys}")
    return found[0]


class _Bytes(NamedTuple):
    """The content of an open file: `size` bytes, after unpacking if it is packed, of `disk_size` on disk."""

    read: Reader
    size: int
    layout: Layout
    disk_size: int
    codec: str
    damage: str
    mtime_ns: int


def _look_into(fd: int, rules: LineRules) -> _Bytes:
    """Determines the content of an open file. Raises OSError."""
    raw, info = fingerprint.reader(fd), os.fstat(fd)
    disk_size, mtime_ns = info.st_size, info.st_mtime_ns if rules.notes_time else 0
    encoding = Encoding(rules.encoding, rules.delimiter, is_raw=False)
    codec = compressions.recognise(raw(0, compressions.MAGIC_BYTES), whole=True) if rules.unpacks else ""
    if not codec:
        return _Bytes(raw, disk_size, encoding.of(raw, 0), disk_size, "", "", mtime_ns)
    unpacker = Unpacker(codec)

    def read(position: int, size: int) -> bytes:
        return unpacker.read(raw, position, size)

    while read(unpacker.produced, _BLOCK):
        pass
    return _Bytes(read, unpacker.produced, encoding.of(read, 0), disk_size, codec, unpacker.damage, mtime_ns)


def _proven(held: _Bytes, partition: SourcePartition, saved: SourceOffset, wanted: str, *, counts_lines: bool) -> StartPosition:
    """Returns the place in an existing file. Raises OSError."""
    lines = LineStarts(held.read, held.layout)
    at_end = wanted == "end"
    position = _number(wanted) if not at_end else held.size if held.codec else _last_line_end(lines, held.size)
    doubts = []
    if held.damage:
        doubts.append(f"the file is damaged behind byte {held.size} of what it holds: {held.damage}")
    if position > held.size:
        unless = "unless it has grown" if not held.codec else "unless it holds more"
        doubts.append(
            f"the file is {held.size} bytes long{' unpacked' if held.codec else ''}: {unless} to {position} by then, it is taken for "
            "a new one and read from 0"
        )
        proof = Fingerprint()
    else:
        proof = fingerprint.take(held.read, position)
        if not lines.is_start(position) and not (at_end and held.codec):
            start = lines.last_end(position, _LOOK_BACK) or max(0, position - _LOOK_BACK)
            doubts.append(f"{position} is not just behind a line's end: what is sent begins in the middle of a line (it begins at {start})")
    records = saved.records if position == saved.position else _count_lines(held, min(position, held.size)) if counts_lines else 0
    offset = replace(
        saved, position=position, records=records, done=at_end and bool(held.codec), skipping=False, cut="", size=held.disk_size,
        mtime_ns=held.mtime_ns, fingerprint=proof, compression=held.codec,
    )  # fmt: skip
    return StartPosition(partition, offset, tuple(doubts))


def _unproven(partition: SourcePartition, saved: SourceOffset, wanted: str) -> StartPosition:
    """Returns the place of a missing file: nothing can be compared when it comes back."""
    if wanted == "end":
        raise DataError(f"{saved.path!a} is not there: nobody knows its end", "give a number, or wait until the file is back")
    position = _number(wanted)
    doubt = f"{saved.path!a} is not there: when it comes back it is read from {position} without a proof that it still is what was read"
    proof = saved.fingerprint if position == saved.position else Fingerprint()
    offset = replace(
        saved, position=position, records=0, done=False, skipping=False, cut="", size=max(saved.size, position), fingerprint=proof
    )
    return StartPosition(partition, offset, (doubt,) if position else ())


def is_file_key(key: str) -> bool:
    """Returns whether `key` is a file's key, as `Identity.key` writes it."""
    try:
        identity, generation = Identity.parse(key)
    except ValueError:
        return False
    return identity.key(generation) == key


def _number(wanted: str) -> int:
    if wanted == "beginning":
        return 0
    if not (wanted.isascii() and wanted.isdigit()) or len(wanted) > len(str(2**63)) or int(wanted) >= 2**63:
        raise DataError(f"{wanted!a} is no position", "give the next byte to read, a whole number from 0, or beginning, or end")
    return int(wanted)


def _last_line_end(lines: LineStarts, size: int) -> int:
    """Returns the position after the last delimiter; `size` if there is none within reach."""
    end = lines.last_end(size, _LOOK_BACK)
    return end if end is not None else 0 if size <= _LOOK_BACK else size


def _count_lines(held: _Bytes, end: int) -> int:
    lines = position = 0
    unit, size = held.layout.unit, len(held.layout.delimiter)
    overlap = (size - 1) // unit * unit  # a possible beginning of a delimiter is searched twice, a whole delimiter never
    while position + overlap < end:
        block = held.read(position, min(_BLOCK, end - position))
        lines += len(held.layout.split(block, position)) - 1
        step = held.layout.down(len(block)) - overlap
        if step <= 0:
            break
        position += step
    return lines
