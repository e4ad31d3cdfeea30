"""Reads one version of an object in blocks, and fetches the next block while one is used."""

from __future__ import annotations

import contextlib
import errno
import queue
import threading
from collections.abc import Callable

BLOCK_BYTES = 4 * 2**20
"""Size of a request in sequential reading: it takes 20 to 100 ms, whatever its size."""
JUMP_BYTES = 2**16
"""Least size of a request after a jump, such as to the end of a Parquet file."""


class ReplacedError(OSError):
    """The object is no longer the version that was found."""


def _nothing() -> None:
    """Stands in for a missing `close`."""


class BlockFile:
    """A `StoredFile` that is read in blocks."""

    def __init__(self, size: int, fetch: Callable[[int, int], bytes], close: Callable[[], None] = _nothing, *, ahead: bool = True) -> None:
        """`fetch(position, size)` returns exactly these bytes of the version that was found, or raises ReplacedError.

        `ahead`: the next block is fetched on a thread of its own.
        """
        self._reads_ahead = ahead
        self._size = size
        self._fetch = fetch
        self._close = close
        self._begin = self._reached = 0
        self._jumps = False
        self._block = self._head = b""
        self._ahead: _PrefetchedBlock | None = None
        self._is_replaced = False

    def read_at(self, position: int, size: int) -> bytes:
        size = min(size, self._size - position)
        if size <= 0:
            return b""
        if position + size <= len(self._head):  # the head is read repeatedly, for fingerprints
            return self._head[position : position + size]
        if not self._begin <= position < self._begin + len(self._block):
            self._block, self._begin = self._next(position, size), position
            if position == 0:
                self._head = self._block[:JUMP_BYTES]
        begin = position - self._begin
        data = self._block[begin : begin + size]
        self._let_go(position, position + len(data))
        return data

    def _let_go(self, begin: int, end: int) -> None:
        """Keeps the last bytes only, once all was read in sequence: files stay open until their records are acknowledged."""
        self._jumps |= begin > self._reached
        self._reached = max(self._reached, end)
        if end == self._size and not self._jumps:
            self._block = self._block[-JUMP_BYTES:]
            self._begin = end - len(self._block)

    def _next(self, position: int, size: int) -> bytes:
        goes_forward = 0 < position == self._begin + len(self._block)
        is_small = self._size <= BLOCK_BYTES
        wanted = min(BLOCK_BYTES if goes_forward or is_small else max(size, JUMP_BYTES), self._size - position)
        ahead, self._ahead = self._ahead, None
        block = ahead.take() if ahead is not None and ahead.position == position else self._checked(position, wanted)
        following = position + len(block)
        if self._reads_ahead and goes_forward and following < self._size:
            with contextlib.suppress(RuntimeError):  # without a thread it is fetched when it is needed
                self._ahead = _PrefetchedBlock(following, min(BLOCK_BYTES, self._size - following), self._checked)
        return block

    def _checked(self, position: int, size: int) -> bytes:
        try:
            data = self._fetch(position, size)
        except (ReplacedError, FileNotFoundError):
            self._is_replaced = True
            raise
        if len(data) != size:
            raise OSError(errno.EIO, f"{len(data)} bytes came of {size} that were asked for")
        return data

    def is_unchanged(self) -> bool:
        return not self._is_replaced

    def close(self) -> None:
        self._ahead, self._block = None, b""
        close, self._close = self._close, _nothing
        close()


class _PrefetchedBlock:
    """A block that a thread is fetching."""

    def __init__(self, position: int, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self.position = position
        self._answer: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(size, fetch), name="fetch", daemon=True).start()

    def _run(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        try:
            self._answer.put(fetch(self.position, size))
        except BaseException as error:  # noqa: BLE001 - `take` raises it
            self._answer.put(error)

    def take(self) -> bytes:
        answer = self._answer.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer
