"""Members of lz4 and snappy files, block by block: the library at hand unpacks only whole files, which nothing bounds.

"LZ4 Frame Format Description" 1.6.4 and snappy's `framing_format.txt`. Each block is handed to the library inside a small frame of
its own, so that what is decoded stays in its C and never holds more than a block: 4 MiB of lz4, 64 KiB of snappy.
"""

from __future__ import annotations

import struct
from typing import Protocol

import cramjam

LZ4_MAGIC = b"\x04\x22\x4d\x18"
SNAPPY_MAGIC = b"\xff\x06\x00\x00sNaPpY"
SKIPPABLE_MAGICS = tuple(bytes((first, 0x2A, 0x4D, 0x18)) for first in range(0x50, 0x60))

_END_MARK = bytes(4)
_STORED = 1 << 31
_HISTORY_BYTES = 2**16
_LEAST_CODE = 4
_DATA, _SKIPPABLE, _IDENTIFIER = (0, 1), 0x80, 0xFF
_CHUNK_BYTES = 80_000
_STRIPE = 16
_M = 2**32 - 1
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393


class _Step(Protocol):
    """Takes the bytes that were asked for, returns unpacked ones, and sets what it needs next."""

    def __call__(self, data: bytes, /) -> bytes: ...


class _Framed:
    """A `Member` that asks for `_needed` bytes at a time and hands them to `_next`, until that sets `_ended`."""

    def __init__(self, needed: int, first: _Step) -> None:
        self._packed = bytearray()
        self._out = memoryview(b"")
        self._needed = needed
        self._next = first
        self._ended = False

    @property
    def eof(self) -> bool:
        """See `Member`: once all it holds is taken."""
        return self._ended and not self._out

    @property
    def needs_input(self) -> bool:
        """See `Member`."""
        return not (self._ended or self._out or len(self._packed) >= self._needed)

    @property
    def unused_data(self) -> bytes:
        """See `Member`."""
        return bytes(self._packed)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """See `Member`."""
        self._packed += data
        while not (self._out or self._ended) and len(self._packed) >= self._needed:
            taken = bytes(memoryview(self._packed)[: self._needed])
            del self._packed[: self._needed]
            self._out = memoryview(self._next(taken))
        out, self._out = self._out[:max_length], self._out[max_length:]
        return bytes(out)

    def _ask(self, needed: int, then: _Step) -> None:
        self._needed, self._next = needed, then


class Lz4Frame(_Framed):
    """A frame, or a skippable one. Not lz4's legacy frames, nor ones that need a dictionary."""

    def __init__(self) -> None:
        super().__init__(1, self._magic)
        self._seen = b""
        self._left = self._size = self._maximum = 0
        self._is_linked = self._has_sums = False
        self._content_size = -1
        self._header = b""
        self._history = b""
        self._sum: Xxh32 | None = None

    def _magic(self, data: bytes) -> bytes:
        self._seen += data
        if len(self._seen) < len(LZ4_MAGIC):
            if not any(magic.startswith(self._seen) for magic in (LZ4_MAGIC, *SKIPPABLE_MAGICS)):
                raise ValueError("what follows is no lz4 frame")
        elif self._seen == LZ4_MAGIC:
            self._ask(2, self._flags)
        elif self._seen in SKIPPABLE_MAGICS:
            self._ask(4, self._skippable)
        else:
            raise ValueError("what follows is no lz4 frame")
        return b""

    def _skippable(self, data: bytes) -> bytes:
        self._left = int.from_bytes(data, "little")
        return self._skip(b"")

    def _skip(self, data: bytes) -> bytes:
        self._left -= len(data)
        self._ended = not self._left
        self._ask(min(self._left, _HISTORY_BYTES), self._skip)
        return b""

    def _flags(self, data: bytes) -> bytes:
        flags, block = data
        code = block >> 4
        if flags >> 6 != 1 or flags & 2 or block & 0x8F or code < _LEAST_CODE:
            raise ValueError("the frame's header is damaged, or of another version")
        if flags & 1:
            raise ValueError("the frame needs a dictionary, which nobody has here")
        self._is_linked, self._has_sums = not flags & 0x20, bool(flags & 0x10)
        self._sum = Xxh32() if flags & 4 else None
        self._maximum = 1 << (8 + 2 * code)
        own = bytes((0x40 if self._is_linked else 0x60, block))
        self._header = LZ4_MAGIC + own + _header_sum(own)
        self._seen = data
        self._ask(9 if flags & 8 else 1, self._rest_of_header)
        return b""

    def _rest_of_header(self, data: bytes) -> bytes:
        if _header_sum(self._seen + data[:-1]) != data[-1:]:
            raise ValueError("the frame's header is damaged")
        if len(data) > 1:
            self._content_size = int.from_bytes(data[:8], "little")
        self._ask(4, self._block_size)
        return b""

    def _block_size(self, data: bytes) -> bytes:
        if data == _END_MARK:
            if self._content_size not in (-1, self._size):
                raise ValueError("the frame holds less or more than its header says")
            self._ask(4 if self._sum else 0, self._content_sum)
            return b""
        size = int.from_bytes(data, "little") & ~_STORED
        if size > self._maximum:
            raise ValueError("a block is damaged")
        self._seen = data
        self._ask(size + 4 * self._has_sums, self._block)
        return b""

    def _block(self, data: bytes) -> bytes:
        if self._has_sums:
            data, checksum = data[:-4], data[-4:]
            if Xxh32().add(data).digest() != checksum:
                raise ValueError("a block is damaged")
        out = data if self._seen[3] & 0x80 else self._decoded(data)
        self._size += len(out)
        if self._is_linked:
            self._history = (self._history + out[-_HISTORY_BYTES:])[-_HISTORY_BYTES:]
        if self._sum:
            self._sum.add(out)
        self._ask(4, self._block_size)
        return out

    def _decoded(self, data: bytes) -> bytes:
        """The block as a frame of its own, behind what it may refer to, stored."""
        before = self._history
        stored = struct.pack("<I", len(before) | _STORED) + before if before else b""
        return bytes(cramjam.lz4.decompress(b"".join((self._header, stored, self._seen, data, _END_MARK))))[len(before) :]

    def _content_sum(self, data: bytes) -> bytes:
        if self._sum and self._sum.digest() != data:
            raise ValueError("its checksum is wrong")
        self._ended = True
        return b""


class SnappyChunk(_Framed):
    """One chunk: a stream has no end of its own, so it may end behind any of them."""

    def __init__(self) -> None:
        super().__init__(1, self._kind)
        self._kind_byte = 0
        self._left = 0
        self._head = b""

    def _kind(self, data: bytes) -> bytes:
        self._kind_byte = data[0]
        if _DATA[-1] < self._kind_byte < _SKIPPABLE:
            raise ValueError("what follows is no chunk of snappy's framing format")
        self._ask(3, self._length)
        return b""

    def _length(self, data: bytes) -> bytes:
        self._left, self._head = int.from_bytes(data, "little"), bytes((self._kind_byte,)) + data
        if _SKIPPABLE <= self._kind_byte < _IDENTIFIER:
            return self._skip(b"")
        if self._left > _CHUNK_BYTES or (self._kind_byte == _IDENTIFIER and self._head != SNAPPY_MAGIC[:4]):
            raise ValueError("a chunk is damaged")
        self._ask(self._left, self._chunk)
        return b""

    def _skip(self, data: bytes) -> bytes:
        self._left -= len(data)
        self._ended = not self._left
        self._ask(min(self._left, _HISTORY_BYTES), self._skip)
        return b""

    def _chunk(self, data: bytes) -> bytes:
        self._ended = True
        chunk = self._head + data
        if self._kind_byte == _IDENTIFIER:
            if chunk != SNAPPY_MAGIC:
                raise ValueError("a chunk is damaged")
            return b""
        return bytes(cramjam.snappy.decompress(SNAPPY_MAGIC + chunk))


class Xxh32:
    """The 32-bit xxHash, seed 0, as lz4 uses it: about 12 MB/s, for no library at hand has it."""

    def __init__(self) -> None:
        self._lanes = (_P1 + _P2) & _M, _P2, 0, -_P1 & _M
        self._rest = b""
        self._size = 0

    def add(self, data: bytes) -> Xxh32:
        """Take more bytes in. Returns itself."""
        self._size += len(data)
        data = self._rest + data
        whole = len(data) & ~15
        self._rest = data[whole:]
        one, two, three, four = self._lanes
        for a, b, c, d in struct.iter_unpack("<4I", memoryview(data)[:whole]):
            one = (one + a * _P2) & _M
            one = ((one << 13 | one >> 19) & _M) * _P1 & _M
            two = (two + b * _P2) & _M
            two = ((two << 13 | two >> 19) & _M) * _P1 & _M
            three = (three + c * _P2) & _M
            three = ((three << 13 | three >> 19) & _M) * _P1 & _M
            four = (four + d * _P2) & _M
            four = ((four << 13 | four >> 19) & _M) * _P1 & _M
        self._lanes = one, two, three, four
        return self

    def digest(self) -> bytes:
        """Of all bytes so far, in the order lz4 writes it."""
        value = sum(_turned(lane, bits) for lane, bits in zip(self._lanes, (1, 7, 12, 18), strict=True)) if self._size >= _STRIPE else _P5
        value = (value + self._size) & _M
        rest, words = self._rest, len(self._rest) & ~3
        for (word,) in struct.iter_unpack("<I", rest[:words]):
            value = _turned((value + word * _P3) & _M, 17) * _P4 & _M
        for byte in rest[words:]:
            value = _turned((value + byte * _P5) & _M, 11) * _P1 & _M
        value = (value ^ value >> 15) * _P2 & _M
        value = (value ^ value >> 13) * _P3 & _M
        return struct.pack("<I", value ^ value >> 16)


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _M


def _header_sum(data: bytes) -> bytes:
    return Xxh32().add(data).digest()[1:2]
