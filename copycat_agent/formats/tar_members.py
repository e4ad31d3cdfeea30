"""Archives (tar): their members, found by going from header to header. Nothing is ever written to disk, under any name."""

from __future__ import annotations

import bisect
import tarfile
from typing import NamedTuple

from copycat_agent.errors import DamageError
from copycat_agent.formats.text import Reader

TAR_BLOCK = 512
NAMES_BYTES = 4 * 2**20
"""The most bytes of all members' names together: kept while the archive is read."""
_NAME_BYTES = 4096
_EXTENDED_BYTES = 2**20
_DIGITS = 19
_LINK_NAME, _NAME, _EXTENDED, _EXTENDED_OF_ALL = b"K", b"L", (b"x", b"X"), b"g"
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
_NO_FILES = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)


class TarMember(NamedTuple):
    """A file in an archive: its bytes `begin` up to, not including, `end`."""

    begin: int
    end: int
    name: str


class TarMembers:
    """The files of one archive, as far as it was read. Used by one batch at a time.

    `end` is where the archive's end mark begins, None while that was not reached.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: list[TarMember] = []
        self._count = self._names = 0
        self._next = 0
        self.end: int | None = None

    def behind(self, read: Reader, position: int, stop: int) -> TarMember | None:
        """Returns the first file with bytes from `position` on; None if the archive has none, or its header ends after `stop`.

        Raises DamageError if a header is damaged, and what `read` raises.
        """
        index = bisect.bisect_right(self._found, position, key=lambda one: one.end)
        while index == len(self._found):
            if self.end is not None or self._next + TAR_BLOCK > stop or not self._look(read):
                return None
            if self._found and self._found[-1].end <= position:
                index = len(self._found)
        return self._found[index]

    def name_at(self, position: int) -> str:
        """Returns the name of the file with this byte; "" if none is known."""
        index = bisect.bisect_right(self._found, position, key=lambda one: one.end)
        found = self._found[index] if index < len(self._found) else None
        return found.name if found is not None and found.begin <= position else ""

    def _look(self, read: Reader) -> bool:
        """Reads the headers of one more member. Returns False at the archive's end."""
        name, size, place = "", -1, self._next
        while (info := self._header(read, place)) is not None:
            place += TAR_BLOCK
            if info.type == _NAME:
                name = _content(read, place, info.size, _NAME_BYTES).rstrip(b"\0").decode("utf-8", "surrogateescape")
            elif info.type in _EXTENDED:
                name, size = _extended(_content(read, place, info.size, _EXTENDED_BYTES), name)
            elif info.type not in (_LINK_NAME, _EXTENDED_OF_ALL):
                self._add(info, name or info.name, size if size >= 0 else info.size, place)
                return True
            place += _blocks(info.size)
        self.end = place
        return False

    def _header(self, read: Reader, place: int) -> tarfile.TarInfo | None:
        """Returns the header at `place`; None for the end mark."""
        block = read(place, TAR_BLOCK)
        if len(block) < TAR_BLOCK:
            raise DamageError(f"the archive ends before its end mark, at byte {place + len(block)}")
        if not block.strip(b"\0"):
            return None
        self._count += 1
        if self._count > 3 * self._most:  # a member has up to three: its name, its extended header, and its own
            raise DamageError(f"the archive has more than unpack.max_members, {self._most}")
        info = header_of(block)
        if info is None or info.size < 0:
            raise DamageError(f"the archive has a damaged header at byte {place}")
        return info

    def _add(self, info: tarfile.TarInfo, name: str, size: int, begin: int) -> None:
        """Adds the member whose content begins at `begin`. Links, directories and devices have none."""
        if info.type in _FILES:
            self._names += len(name)
            if len(name) > _NAME_BYTES or self._names > NAMES_BYTES:
                raise DamageError(f"the names of the archive's members are too long, at byte {begin}")
            if len(self._found) >= self._most:
                raise DamageError(f"the archive has more than unpack.max_members, {self._most}")
            self._found.append(TarMember(begin, begin + size, name))
        elif info.type not in _NO_FILES:
            raise DamageError(f"member {name!r:.200} of the archive is of a kind that cannot be read, {info.type!r}")
        else:
            size = 0
        self._next = begin + _blocks(size)


def header_of(block: bytes) -> tarfile.TarInfo | None:
    """Returns the header in a block; None if its checksum is wrong."""
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return None


def is_archive(block: bytes) -> bool:
    """Returns whether a file that begins with this block is a tar. An archive without members is not told from zeros."""
    return len(block) == TAR_BLOCK and header_of(block) is not None


def _blocks(size: int) -> int:
    return -(-size // TAR_BLOCK) * TAR_BLOCK


def _content(read: Reader, place: int, size: int, most: int) -> bytes:
    """Returns data of a header, such as a long name."""
    content = read(place, size) if size <= most else b""
    if len(content) < size:
        raise DamageError(f"the archive has a header that is too long, at byte {place}")
    return content


def _extended(content: bytes, name: str) -> tuple[str, int]:
    """Returns the name, if there is one, and the size, else -1, of a POSIX header's records: `LENGTH KEY=VALUE`."""
    size, place = -1, 0
    while place < len(content) and content[place]:
        digits = content[place : place + _DIGITS].partition(b" ")[0]
        end = place + int(digits) if digits.isdigit() else place
        if not place + len(digits) < end <= len(content):
            raise DamageError("the archive has a damaged extended header")
        key, _, value = content[place + len(digits) + 1 : end].rstrip(b"\n").partition(b"=")
        place = end
        if key == b"path":
            name = value.decode("utf-8", "surrogateescape")
        elif key == b"size" and value.isdigit() and len(value) <= _DIGITS:
            size = int(value)
        elif key.startswith(b"GNU.sparse."):
            raise DamageError("the archive has a sparse file, which cannot be read")
    return name, size
