"""Accesses pyarrow's file systems: lists, stats and reads files. Every error is an OSError with a plain message.

Credentials are where the SDK of each store looks for them: environment, its own files, the role of the host. None is ever in a URI.
"""

from __future__ import annotations

import errno
import re
from functools import lru_cache
from typing import Protocol, Self

import pyarrow as pa
from pyarrow import fs

from copycat_agent.errors import BlockedError, CopycatError, FatalError, RetriableError
from copycat_agent.model import SourceOffset
from copycat_agent.sources.files.paths.matching import path_regex
from copycat_agent.sources.files.reading.address import Address, Info, parse_address
from copycat_agent.sources.files.reading.file_systems import file_system_at

WILD = "*["
"""The characters that make an address a pattern; `?` begins the options."""

_FORBIDDEN = re.compile(
    r"ACCESS_DENIED|FORBIDDEN|INVALID_ACCESS_KEY|SIGNATURE|EXPIRED|UNRECOGNIZED_CLIENT|HTTP (?:Status|response code) 40[13]|PERMISSION",
    re.IGNORECASE,
)
_MISSING = re.compile(r"NO_SUCH_BUCKET|NO_SUCH_KEY|RESOURCE_NOT_FOUND|NOT_FOUND|404")
_CAUSE = re.compile(r"AWS Error (.+?) during (\w+) operation")


class OpenFile(Protocol):
    """The part of pyarrow's random access files that is used."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Returns bytes at `offset`; fewer only at the file's end."""

    def size(self) -> int:
        """Returns the size when it was opened."""

    def metadata(self) -> dict[str, bytes] | None:
        """Returns the store's metadata of it."""

    def close(self) -> None:
        """Closes the file."""


class RemoteFile:
    """One file that a listing found."""

    __slots__ = ("address", "mtime_ns", "size")

    def __init__(self, address: Address, size: int, mtime_ns: int) -> None:
        self.address = address
        self.size = size
        self.mtime_ns = mtime_ns


@lru_cache(maxsize=16)
def file_system(root: str) -> fs.FileSystem:
    """Returns the file system behind `Address.root`, cached: it holds the connections. Raises what pyarrow raises."""
    return file_system_at(root)


def opened(address: Address) -> OpenFile:
    """Opens a random access file of pyarrow. Raises OSError."""
    try:
        file: OpenFile = file_system(address.root).open_input_file(address.inside)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise translated(error) from None
    return file


def look(address: Address) -> Info:
    """Returns the file's present size and modification time. Raises OSError, FileNotFoundError if there is none."""
    found = _found(address, address.inside)
    return Info(found.size or 0, found.mtime_ns or 0)


def _found(address: Address, inside: str) -> fs.FileInfo:
    try:
        found = file_system(address.root).get_file_info(inside)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise translated(error) from None
    if found.type == fs.FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, "there is no such file")
    return found


def list_files(address: Address) -> list[RemoteFile]:
    """Returns the file at an address; all files below it if that is a directory or a prefix; those that match if it is a pattern.

    Sorted by name. Raises FatalError if there is none, BlockedError if it is not allowed, RetriableError if the store does not answer.
    """
    try:
        found = _matching(address) if any(one in address.path for one in WILD) else _below(address)
    except OSError as error:
        raise _as_ours(address, error) from None
    files = [one for one in found if one.type == fs.FileType.File and not one.path.endswith("/")]
    if not files:
        raise FatalError(f"there is no file at {address.shown}", "look at the name; * stands for a part of a name, ** for any directories")
    return [RemoteFile(address.at(one.path), one.size or 0, one.mtime_ns or 0) for one in sorted(files, key=lambda one: one.path)]


def _below(address: Address) -> list[fs.FileInfo]:
    inside = address.inside.rstrip("/")
    found = _found(address, inside)
    return [found] if found.type == fs.FileType.File else _walk(address, inside, recursive=True)


def _matching(address: Address) -> list[fs.FileInfo]:
    fixed = re.split(r"[*\[]", address.inside, maxsplit=1)[0].rpartition("/")[0]
    levels = address.inside[len(fixed) :].strip("/")
    regex = path_regex(address.inside)
    found = _walk(address, fixed or "/", recursive="/" in levels or "**" in levels)
    return [one for one in found if regex.match("/" + one.path.strip("/"))]


def _walk(address: Address, directory: str, *, recursive: bool) -> list[fs.FileInfo]:
    try:
        return list(file_system(address.root).get_file_info(fs.FileSelector(directory, recursive=recursive)))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise translated(error) from None


def _as_ours(address: Address, error: OSError) -> CopycatError:
    msg = f"{address.shown} cannot be listed: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return FatalError(msg, "look at the names of bucket and directory")
    if isinstance(error, PermissionError):
        return BlockedError(msg, "give this user the right to list and read, or its environment other credentials")
    if error.errno == errno.EINVAL:
        return FatalError(msg, "see the options of pyarrow's file systems")
    return RetriableError(msg, "look at the network and at endpoint_override, region and scheme in the address")


def translated(error: Exception) -> OSError:
    """Returns pyarrow's error as an OSError whose `strerror` may be shown: it names the operation, never what was sent."""
    text = str(error)
    if isinstance(error, FileNotFoundError) or _MISSING.search(text):
        what = "there is no such bucket" if "BUCKET" in text else "there is no such file"
        return FileNotFoundError(errno.ENOENT, what)
    cause = _CAUSE.search(text)
    words = f"{cause[1]} during {cause[2]}" if cause else text.splitlines()[0][:200] if text else type(error).__name__
    if isinstance(error, PermissionError) or _FORBIDDEN.search(text):
        return PermissionError(errno.EACCES, f"it is not allowed ({words})")
    if isinstance(error, pa.ArrowInvalid):
        return OSError(errno.EINVAL, words)
    return OSError(errno.EIO, words)


BLOCK_BYTES = 8 * 2**20
"""The size of requests while reading goes forward: a request to an object store costs 20 to 100 ms, whatever its size."""
JUMP_BYTES = 2**16
"""The least size of requests where reading jumps, as to the end of a Parquet file."""


class RemoteHandle:
    """An open object. Its size, modification time and ETag are those of the moment it was opened.

    Its present version is checked once for each range that was fetched, after it: everything before is then known to be of one version.
    """

    fd = -1

    def __init__(self, uri: str) -> None:
        self._address = parse_address(uri)
        self._opened = look(self._address)
        self._file = opened(self._address)
        self._etag = _etag(self._file)
        self._is_known = True
        self._now = self._opened
        self._begin = 0
        self._block = self._head = b""

    def stat(self) -> Info:
        """Returns its present stat."""
        if not self._is_known:
            self._now = self._opened if self._is_same() else Info(-1, 0)
            self._is_known = True
        return self._now

    def _is_same(self) -> bool:
        try:
            if not self._etag:
                return look(self._address) == self._opened
            with opened(self._address) as again:
                return (_etag(again), again.size()) == (self._etag, self._opened.st_size)
        except FileNotFoundError:
            return False

    def pread(self, size: int, position: int) -> bytes:
        """Reads by position."""
        if position + size <= len(self._head):  # read again and again, to compare; not worth a jump
            return self._head[position : position + size]
        if not self._begin <= position < self._begin + len(self._block):
            self._block, self._begin = self._fetch(position, self._worthwhile(position, size)), position
            self._head = self._head or (self._block[:JUMP_BYTES] if position == 0 else b"")
        begin = position - self._begin
        return self._block[begin : begin + size]

    def _worthwhile(self, position: int, size: int) -> int:
        """Returns how much to fetch for a read that is not in the block."""
        goes_forward = position == self._begin + len(self._block) and position > 0
        is_small = self._opened.st_size <= BLOCK_BYTES
        return min(BLOCK_BYTES if goes_forward or is_small else max(size, JUMP_BYTES), max(0, self._opened.st_size - position))

    def _fetch(self, position: int, size: int) -> bytes:
        if not size:
            return b""
        try:
            data = self._file.read_at(size, position)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise translated(error) from None
        self._is_known = False
        return data

    def is_version(self, offset: SourceOffset) -> bool:
        """Returns whether size and modification time are those that the offset was planned from."""
        return (self._opened.st_size, self._opened.st_mtime_ns) == (offset.size, offset.mtime_ns)

    def close(self) -> None:
        """Closes the file; may be called again."""
        self._block = b""
        try:
            self._file.close()
        except (pa.ArrowException, OSError):  # it was only read
            return


def _etag(file: OpenFile) -> bytes:
    """Returns the object store's ETag of this version; b"" if it has none."""
    try:
        return (file.metadata() or {}).get("ETag", b"")
    except (pa.ArrowException, OSError):
        return b""
