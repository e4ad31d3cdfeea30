"""A split's file as a task reads it: opened through the driver's descriptor or behind a URI, read by position, checked before and after."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Protocol, Unpack, cast

from copycat_agent.errors import FileError
from copycat_agent.formats import TAIL_BYTES, Frame, FrameOptions, Frames, RecordFormat
from copycat_agent.model import Fingerprint, SourceOffset, Split, SplitResult
from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.access import access_of
from copycat_agent.sources.files.reading.address import Info, is_remote
from copycat_agent.templates import Access
from copycat_agent.templates.metadata import RecordOrigin

_LEAST_BYTES = 2**18
"""Reads of fewer bytes are not checked for holes."""
_GUARD_BYTES = 16 * 2**20
"""Bytes before the next data, or the end, that are always read: file systems have reported holes where data had just been written."""
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_NULS = bytes(2**20)
"""The bytes of a usual read in a hole; made once, as a new megabyte of memory costs more than comparing one."""


class FileHoles:
    """The holes of one open file: bytes that were never written. Asks the kernel only if the last read returned NUL bytes."""

    def __init__(self) -> None:
        self._seems_so = False

    def read(self, size: int) -> bytes:
        """Returns `size` NUL bytes."""
        return _NULS[:size] if size <= len(_NULS) else bytes(size)

    def covers(self, fd: int, position: int, size: int) -> bool:
        """Returns whether these bytes exist and were never written."""
        if not self._seems_so or size < _LEAST_BYTES:
            return False
        try:
            following = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # the file system does not support it
                return False
            following = os.fstat(fd).st_size
        return position + size <= following - _GUARD_BYTES

    def note(self, data: bytes) -> None:
        """Takes in the data of a read."""
        if len(data) >= _LEAST_BYTES:
            self._seems_so = not (data[0] or data[-1])


class Handle(Protocol):
    """An open file. Every method raises OSError, with a `strerror` that may be shown. Used by one thread."""

    @property
    def fd(self) -> int:
        """Its descriptor; -1 if it has none or is closed."""

    def stat(self) -> Info | os.stat_result:
        """Returns its present stat. A size of -1: it is no longer the version that was opened."""

    def pread(self, size: int, position: int) -> bytes:
        """Reads as `os.pread`: fewer than `size` bytes do not mean the end, no bytes do."""

    def is_version(self, offset: SourceOffset) -> bool:
        """Returns whether it is the version that `offset` was planned from, if size and modification time alone decide that."""

    def close(self) -> None:
        """Closes the file; may be called again."""


class LocalHandle:
    """A file of this host, or one that the driver holds open."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, _FLAGS)

    def stat(self) -> os.stat_result:
        """Returns its present stat."""
        return os.fstat(self.fd)

    def pread(self, size: int, position: int) -> bytes:
        """Reads by position."""
        return os.pread(self.fd, size, position)

    def is_version(self, offset: SourceOffset) -> bool:
        """Returns True: a file of a host is verified by its bytes, and may have grown since."""
        del offset
        return True

    def close(self) -> None:
        """Closes the file; may be called again."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def open_handle(split: Split) -> Handle:
    """Opens the split's file. Raises OSError."""
    if split.open_path.startswith("/") or not is_remote(split.open_path):
        return LocalHandle(split.open_path)
    from copycat_agent.sources.files.reading.remote_objects import RemoteHandle  # noqa: PLC0415 - imports pyarrow, 0.15 s

    return RemoteHandle(split.open_path)


class SplitFile:
    """The file of a split. Raises FileError, from the constructor and from every method, if it cannot be read now.

    `info` is its stat when it was opened, `head` its first bytes. `handle` is for callers that catch OSError themselves.
    """

    def __init__(self, split: Split, opened: Callable[[Split], Handle] = open_handle) -> None:
        self._name = split.path
        self._unwritten = FileHoles()
        try:
            self.handle = opened(split)
        except OSError as error:
            raise self.trouble("opened", error) from None
        try:
            self.info = self.handle.stat()
            self.head = self.handle.pread(fingerprint.HEAD_BYTES, 0)
        except OSError as error:
            self.handle.close()
            raise self.trouble("read", error) from None
        if split.inode and self.info.st_ino != split.inode:  # the driver has closed its descriptor, and the number is another file's now
            self.handle.close()
            raise FileError(f"{self._name!r} is no longer open in the agent", "the agent tries again")

    def read(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes from `position`; fewer only at the end of the file. Holes are not read from disk."""
        if self._unwritten.covers(self.handle.fd, position, size):
            return self._unwritten.read(size)
        data = self.read_disk(position, size)
        self._unwritten.note(data)
        return data

    def read_disk(self, position: int, size: int) -> bytes:
        """Reads as `read`, without regard to holes."""
        try:
            data = self.handle.pread(size, position)
            while data and len(data) < size:
                more = self.handle.pread(size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise self.trouble("read", error) from None
        return data

    def stat(self) -> Info | os.stat_result:
        """Returns its present stat."""
        try:
            return self.handle.stat()
        except OSError as error:
            raise self.trouble("read", error) from None

    def trouble(self, what: str, error: OSError) -> FileError:
        """Returns the error for a file that cannot be read, opened, ..."""
        return FileError(f"{self._name!r} cannot be {what}: {error.strerror}", "the agent tries again")


class Stream(RecordOrigin):
    """One open file. Reads by position, so nothing depends on the order of calls.

    `offset` is where reading begins; `origin` the index of the split's origin that it was taken from, or -1. `waits`: nothing of it can be
    read for now, not even what it is. All three are set by `is_what_was_read`. Raises FileError, from the constructor and from every
    method, if the file cannot be read now.
    """

    def __init__(self, split: Split, file: SplitFile | None = None) -> None:
        """`file`: the split's file, if it is already open."""
        self.offset = split.offset
        self.origin = -1
        self.waits = False
        self._split = split
        self._intact = split.offset.position  # the bytes before it are compared by their hashes
        self._is_whole = True
        self._file = SplitFile(split) if file is None else file

    @property
    def fd(self) -> int:
        """Its descriptor; -1 if it has none or is closed."""
        return self._file.handle.fd

    def read(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes from `position`; fewer only at the end of the file."""
        data = self._file.read(position, size)
        end = position + len(data)
        if end > self._intact and self._is_whole:
            self._is_whole = self.is_still(end)
            self._intact = end if self._is_whole else self._intact
        return data

    def is_what_was_read(self) -> bool:
        """Returns, before reading, whether the bytes up to the split's offset are those that were read before."""
        return self._file.handle.is_version(self.offset) and fingerprint.holds(self.read, self.offset.fingerprint, self.offset.position)

    def holds(self, position: int, tail: bytes) -> bool:
        """Returns whether the file still begins as it did, and has `tail` before `position`, up to which it was read since."""
        return self.is_still(position) and self._file.read_disk(position - len(tail), len(tail)) == tail

    def size_now(self, known: int) -> tuple[int, int]:
        """Returns the file's present size and, if that is not `known`, a time at which it had it, by its file system's clock, else 0."""
        try:
            now = os.fstat(self.fd)
        except OSError as error:
            raise self._file.trouble("read", error) from None
        return now.st_size, 0 if now.st_size == known else clock.seen_ns(now.st_dev, now.st_ctime_ns)

    def tail(self, position: int) -> bytes:
        """Returns the bytes just before `position`, as many as a fingerprint covers."""
        return self.read(max(0, position - TAIL_BYTES), min(TAIL_BYTES, position))

    def access(self) -> Access | None:
        info = self._file.info
        return access_of(info) if isinstance(info, os.stat_result) else None

    def frames(self, framing: Frames | RecordFormat, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        """Returns the frames that `framing` finds in it, see `Frames.frames`."""
        return cast("Frames", framing).frames(self.read, start, end, **how)

    def bounds(self, limit: int) -> tuple[int, bool]:
        """Returns where framing has to end, `limit` at most, and whether the split's `final` and `flush` apply there."""
        return limit, True

    def is_exhausted(self, limit: int) -> bool:
        """Returns, after reading, whether nothing is left before byte `limit`, and nothing is known to come after it."""
        del limit
        return True

    def is_still(self, position: int) -> bool:
        """Returns, after reading up to `position`, whether the file was neither cut below it nor begun anew meanwhile."""
        head = self._file.head[:position]
        return self._file.stat().st_size >= position and self._file.read_disk(0, len(head)) == head

    @property
    def is_whole(self) -> bool:
        """Whether the file was unchanged at every read."""
        return self._is_whole

    def was_still(self, position: int) -> bool:
        """Returns whether what was read up to `position` was the file's own content, though that has changed since.

        Each piece counts if the file was still unchanged right after the piece was read. So data that was in flight when somebody cut the
        file need not be read again from a copy.
        """
        return position <= self._intact

    def complete(self, result: SplitResult) -> SplitResult:
        """Returns the split's result, with what is known of a packed file. May be called when the file is closed; raises nothing."""
        return result

    def settled(self, position: int) -> None:
        """Records that everything before `position` is settled: it is not read again."""

    def fingerprint(self, position: int, tail: bytes) -> Fingerprint:
        """Returns the fingerprint at `position`, which is settled. `tail` are the last bytes that were read before it."""
        return fingerprint.of(self._file.head[:position], tail)

    def close(self) -> None:
        """Closes the file; may be called again."""
        self._file.handle.close()
