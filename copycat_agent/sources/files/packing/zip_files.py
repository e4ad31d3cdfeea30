"""Zip files: the members, by the directory at the end, and the content as a tar, so that readers of members know one kind of archive.

The directory is authoritative, as for `unzip`: local headers are ignored otherwise. Members are read in the order of their positions. The
tar depends only on the zip's bytes, so positions in it stay valid.
"""

from __future__ import annotations

import stat
import struct
import tarfile
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from copycat_agent.formats import Reader
from copycat_agent.formats.tar_members import NAMES_BYTES, TAR_BLOCK
from copycat_agent.sources.files.packing.compressions import INPUT_BYTES, OUTPUT_BYTES, ZIP_METHODS

ZIP = "zip"
"""The name of this codec (`SourceOffset.compression`)."""

_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_BYTES = 20
_ENTRY = struct.Struct("<4s4B4HL2L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_END_MAGIC, _LOCAL_MAGIC = b"PK\x05\x06", b"PK\x03\x04"
_LONGEST_COMMENT = 2**16
_FULL = 0xFFFFFFFF
"""The placeholder of a number that does not fit into a four-byte field."""
_ENCRYPTED, _UTF_8, _STORED = 0x1, 0x800, 0


class ZipError(ValueError):
    """An invalid zip file, with a message that may be shown."""


class UnreadableNowError(Exception):
    """Packed bytes could not be read, because of `why`."""

    def __init__(self, why: BaseException) -> None:
        super().__init__(why)
        self.why = why


class ZipMember(NamedTuple):
    """One entry of the directory. `start` is where its local header begins, `limit` where the next one does, or the directory."""

    name: str
    start: int
    limit: int
    packed_bytes: int
    size_bytes: int
    crc: int
    method: int
    is_encrypted: bool
    is_file: bool

    @property
    def words(self) -> str:
        """Its name, for messages."""
        return f"member {self.name!r:.200}"


def is_zip(head: bytes) -> bool:
    """Returns whether a file that begins with `head` is a zip file, possibly an empty one."""
    return head.startswith((_LOCAL_MAGIC, _END_MAGIC))


def members(read: Reader, size: int, most: int) -> list[ZipMember]:
    """Returns the members of a file of `size` bytes, `most` at most. Raises ZipError if it is damaged, and the errors of `read`."""
    begin, directory, total = _directory(read, size)
    read, place = _in_blocks(read), directory
    if total > most:
        raise ZipError(f"it has {total} members, more than unpack.max_members, {most}")
    found: list[ZipMember] = []
    names = 0
    for _ in range(total):
        head = read(place, _ENTRY.size)
        if len(head) < _ENTRY.size or head[:4] != b"PK\x01\x02":
            raise ZipError("its directory is damaged")
        member, length = _member(read, place, _ENTRY.unpack(head), begin)
        names += len(member.name)
        if names > NAMES_BYTES:
            raise ZipError(f"the names of its members have more than {NAMES_BYTES} bytes")
        found.append(member)
        place += length
    found.sort(key=lambda one: one.start)
    starts = [*(one.start for one in found), directory]
    return [one._replace(limit=limit) for one, (_, limit) in zip(found, pairwise(starts), strict=True)]


def _in_blocks(read: Reader) -> Reader:
    """Returns a reader that is fast for many small consecutive ranges."""
    begin, block = 0, b""

    def stretch(position: int, size: int) -> bytes:
        nonlocal begin, block
        if not begin <= position <= position + size <= begin + len(block):
            begin, block = position, read(position, max(size, INPUT_BYTES))
        return block[position - begin : position - begin + size]

    return stretch


def _directory(read: Reader, size: int) -> tuple[int, int, int]:
    """Returns how many bytes come before the archive, where its directory begins, and how many members that has."""
    begin = max(0, size - _LONGEST_COMMENT - _END.size)
    tail = read(begin, size - begin)
    place = tail.rfind(_END_MAGIC)
    while place >= 0:
        if len(tail) - place >= _END.size and _END.unpack_from(tail, place)[-1] == len(tail) - place - _END.size:
            break
        place = tail.rfind(_END_MAGIC, 0, place)
    else:
        raise ZipError("it ends before its directory")
    _, disk, first_disk, _, total, length, offset, _ = _END.unpack_from(tail, place)
    end = begin + place
    if end >= _LOCATOR_BYTES and read(end - _LOCATOR_BYTES, 4) == b"PK\x06\x07":
        end -= _LOCATOR_BYTES + _END_64.size
        found = read(max(0, end), _END_64.size)
        if end < 0 or found[:4] != b"PK\x06\x06":
            raise ZipError("its directory is damaged")
        _, _, _, _, disk, first_disk, _, total, length, offset = _END_64.unpack(found)
    if disk or first_disk:
        raise ZipError("it is one of several parts")
    before = end - length - offset
    if before < 0:
        raise ZipError("its directory is damaged")
    return before, before + offset, total


def _member(read: Reader, place: int, entry: tuple[int, ...], before: int) -> tuple[ZipMember, int]:
    """Returns the member of the `entry` at `place`, and the length of the entry."""
    _, _, made_by, _, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes, comment_bytes, _, _, attributes, start = entry
    rest = read(place + _ENTRY.size, name_bytes + extra_bytes)
    name, extra = rest[:name_bytes], rest[name_bytes:]
    size, packed, start = _long_numbers(extra, size, packed, start)
    text = name.decode("utf-8", "surrogateescape") if flags & _UTF_8 else name.decode("cp437")
    kind = stat.S_IFMT(attributes >> 16) if made_by == 3 else 0  # noqa: PLR2004 - made on a Unix: attributes hold the mode
    is_file = not text.endswith("/") and kind in (0, stat.S_IFREG)
    length = _ENTRY.size + name_bytes + extra_bytes + comment_bytes
    return ZipMember(text, before + start, 0, packed, size, crc, method, bool(flags & _ENCRYPTED), is_file), length


def _long_numbers(extra: bytes, *numbers: int) -> Iterator[int]:
    """Yields the numbers, with those that do not fit into an entry taken from the Zip64 field."""
    place, found = 0, b""
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, place)
        if kind == 1:
            found = extra[place + 4 : place + 4 + length]
        place += 4 + length
    for number in numbers:
        if number == _FULL and len(found) >= 8:  # noqa: PLR2004 - bytes of a number
            yield int.from_bytes(found[:8], "little")
            found = found[8:]
        else:
            yield number


class TarOfZip:
    """Converts a zip of `size` bytes and at most `most` members into a tar, piece by piece; the reader may differ each time."""

    def __init__(self, size: int, most: int) -> None:
        self._size = size
        self._source: Reader | None = None
        self._pieces = _as_tar(self._packed, size, most)

    def more(self, source: Reader) -> tuple[int, bytes]:
        """Returns how many packed bytes are taken, and the next piece of the tar; all of them and b"" at its end.

        Raises ZipError and codec errors if it is damaged, and UnreadableNowError; after that nothing more comes.
        """
        self._source = source
        return next(self._pieces, (self._size, b""))

    def _packed(self, position: int, size: int) -> bytes:
        assert self._source is not None, "read by `more` alone"
        try:
            return self._source(position, size)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is not about the file's content
            raise UnreadableNowError(error) from None


def _as_tar(read: Reader, size: int, most: int) -> Iterator[tuple[int, bytes]]:
    """Yields the files among its members as a tar, in pieces, each with how many packed bytes were taken by then.

    It begins with an empty header, so that it is recognised as a tar even without members. Raises ZipError and codec errors if it is
    damaged, and the errors of `read`; after that nothing more comes.
    """
    mark = tarfile.TarInfo()
    mark.type = tarfile.XGLTYPE
    yield 1, mark.tobuf(tarfile.USTAR_FORMAT)
    for member in members(read, size, most):
        if not member.is_file:
            continue
        if member.is_encrypted:
            raise ZipError(f"{member.words} is encrypted")
        if member.method != _STORED and member.method not in ZIP_METHODS:
            raise ZipError(f"{member.words} is packed by method {member.method}, which is not known here")
        header = tarfile.TarInfo(member.name)
        header.size = member.size_bytes
        yield member.start, header.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        yield from _content(read, member)
        yield member.limit, bytes(-member.size_bytes % TAR_BLOCK)
    yield size, bytes(2 * TAR_BLOCK)


def _content(read: Reader, member: ZipMember) -> Iterator[tuple[int, bytes]]:
    position, stop = _stretch(read, member)
    inner = None if member.method == _STORED else ZIP_METHODS[member.method]()
    left, crc = member.size_bytes, 0
    while position < stop or (inner is not None and not (inner.eof or inner.needs_input)):
        data = b""
        if inner is None or inner.needs_input:
            data = read(position, min(INPUT_BYTES, stop - position))
            if not data:
                raise ZipError(f"it ends within {member.words}")
            position += len(data)
        out = data if inner is None else inner.decompress(data, OUTPUT_BYTES)
        left, crc = left - len(out), zlib.crc32(out, crc)
        if left < 0:
            raise ZipError(f"{member.words} holds more than it says")
        if out:
            yield position, out
        if inner is not None and inner.eof:
            break
    if left or crc != member.crc:
        raise ZipError(f"{member.words} is damaged")


def _stretch(read: Reader, member: ZipMember) -> tuple[int, int]:
    """Returns where its packed bytes begin and end."""
    head = read(member.start, _LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != _LOCAL_MAGIC:
        raise ZipError(f"{member.words} is not where the directory says")
    begin = member.start + _LOCAL.size + sum(_LOCAL.unpack(head)[-2:])
    if begin + member.packed_bytes > member.limit:
        raise ZipError(f"{member.words} lies over another one")
    return begin, begin + member.packed_bytes
