"""A remote file as a stream reads it: by large ranges while it goes forward, by small ones where it jumps."""

from __future__ import annotations

import pyarrow as pa

from copycat_agent.model import SourceOffset
from copycat_agent.sources.files.reading.address import Info, parse
from copycat_agent.sources.files.reading.objects import OpenFile, look, opened, translated

BLOCK_BYTES = 8 * 2**20
"""Asked for at a time while reading goes forward: a request to an object store costs 20 to 100 ms, whatever it brings."""
JUMP_BYTES = 2**16
"""Asked for where reading jumps, as to the end of a Parquet file."""


class RemoteHandle:
    """See `handles.Handle`. Its size, time of change and ETag are those of the moment it was opened.

    How the file is now is asked once for each range that was fetched, after it: what came before is then known to be of one version.
    """

    fd = -1

    def __init__(self, uri: str) -> None:
        self._address = parse(uri)
        self._opened = look(self._address)
        self._file = opened(self._address)
        self._etag = _etag(self._file)
        self._is_known = True
        self._now = self._opened
        self._begin = 0
        self._block = self._head = b""

    def stat(self) -> Info:
        """See `Handle.stat`."""
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
        """See `Handle.pread`."""
        if position + size <= len(self._head):  # asked for again and again, to compare; not worth a jump
            return self._head[position : position + size]
        if not self._begin <= position < self._begin + len(self._block):
            self._block, self._begin = self._fetch(position, self._worthwhile(position, size)), position
            self._head = self._head or (self._block[:JUMP_BYTES] if position == 0 else b"")
        begin = position - self._begin
        return self._block[begin : begin + size]

    def _worthwhile(self, position: int, size: int) -> int:
        """How much to fetch for a read that is not in the block."""
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
        """See `Handle.is_version`."""
        return (self._opened.st_size, self._opened.st_mtime_ns) == (offset.size, offset.mtime_ns)

    def close(self) -> None:
        """See `Handle.close`."""
        self._block = b""
        try:
            self._file.close()
        except (pa.ArrowException, OSError):  # it was only read
            return


def _etag(file: OpenFile) -> bytes:
    """What an object store calls this version of it; b"" where it has no such thing."""
    try:
        return (file.metadata() or {}).get("ETag", b"")
    except (pa.ArrowException, OSError):
        return b""
