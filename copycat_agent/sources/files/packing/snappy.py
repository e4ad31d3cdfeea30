"""Snappy streams, chunk by chunk: the library at hand unpacks only whole files, which nothing bounds.

See snappy's `framing_format.txt`. Each chunk is handed to the library as a stream of its own, which never holds more than 64 KiB.
"""

from __future__ import annotations

from collections.abc import Callable

import cramjam

MAGIC = b"\xff\x06\x00\x00sNaPpY"

_DATA, _SKIPPABLE, _IDENTIFIER = (0, 1), 0x80, 0xFF
_CHUNK_BYTES = 80_000
_SKIP_BYTES = 2**16


class SnappyChunk:
    """See `packed.Member`. One chunk: a stream has no end of its own, so it may end behind any of them.

    It asks for `_needed` bytes at a time and hands them to `_next`, which returns unpacked ones and sets what it needs next.
    """

    def __init__(self) -> None:
        self._packed = bytearray()
        self._out = memoryview(b"")
        self._needed = 4
        self._next: Callable[[bytes], bytes] = self._begin
        self._ended = False
        self._head = b""
        self._left = 0

    @property
    def eof(self) -> bool:
        """See `packed.Member`: once all it holds is taken."""
        return self._ended and not self._out

    @property
    def needs_input(self) -> bool:
        """See `packed.Member`."""
        return not (self._ended or self._out or len(self._packed) >= self._needed)

    @property
    def unused_data(self) -> bytes:
        """See `packed.Member`."""
        return bytes(self._packed)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """See `packed.Member`."""
        self._packed += data
        if self._packed and not self._head and _DATA[-1] < self._packed[0] < _SKIPPABLE:
            raise ValueError("what follows is no chunk of snappy's framing format")
        while not (self._out or self._ended) and len(self._packed) >= self._needed:
            taken = bytes(memoryview(self._packed)[: self._needed])
            del self._packed[: self._needed]
            self._out = memoryview(self._next(taken))
        out, self._out = self._out[:max_length], self._out[max_length:]
        return bytes(out)

    def _begin(self, head: bytes) -> bytes:
        """The chunk's kind and size."""
        self._head, self._left = head, int.from_bytes(head[1:], "little")
        if _SKIPPABLE <= head[0] < _IDENTIFIER:
            return self._skip(b"")
        if self._left > _CHUNK_BYTES or (head[0] == _IDENTIFIER and head != MAGIC[:4]):
            raise ValueError("a chunk is damaged")
        self._needed, self._next = self._left, self._chunk
        return b""

    def _skip(self, data: bytes) -> bytes:
        self._left -= len(data)
        self._ended = not self._left
        self._needed, self._next = min(self._left, _SKIP_BYTES), self._skip
        return b""

    def _chunk(self, data: bytes) -> bytes:
        self._ended = True
        chunk = self._head + data
        if self._head[0] != _IDENTIFIER:
            return bytes(cramjam.snappy.decompress(MAGIC + chunk))
        if chunk != MAGIC:
            raise ValueError("a chunk is damaged")
        return b""
