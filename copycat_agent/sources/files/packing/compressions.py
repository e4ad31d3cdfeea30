"""Codecs of packed files: recognition by the first bytes, and unpacking in bounded steps.

backports.zstd bounds the output of one step, as the standard library's bz2 and lzma do, and reports where a frame ends; the older zstandard
package does not do both.
"""

from __future__ import annotations

import bz2
import lzma
import sys
import zlib
from collections.abc import Callable
from typing import Protocol

import cramjam
import lz4.frame

from copycat_agent.formats import Reader

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC_BYTES = 10
"""How many of a file's first bytes show whether it is packed, and how."""
MEMORY_BYTES = 128 * 2**20
"""The memory limit for unpacking one file: what `zstd -d` allows by default, and twice what `xz -9` needs."""
OUTPUT_BYTES = 2**20
"""Bytes unpacked at a time, however much a few packed bytes hold."""
INPUT_BYTES = 2**16
"""Packed bytes read at a time."""
HEAD_INPUT_BYTES = 2**21
"""The most packed bytes that are read for the first unpacked ones: empty members, and names in headers, may go on for ever."""
_HEAD_STEP_BYTES = 4096

SNAPPY_MAGIC = b"\xff\x06\x00\x00sNaPpY"
LZ4_MAGIC = b"\x04\x22\x4d\x18"
SKIPPABLE_MAGICS = tuple(bytes((first, 0x2A, 0x4D, 0x18)) for first in range(0x50, 0x60))
"""Magic numbers of skippable frames, which hold no data; the same for zstd and lz4."""

_DATA, _SKIPPABLE, _IDENTIFIER = (0, 1), 0x80, 0xFF
_CHUNK_BYTES = 80_000
_SKIP_BYTES = 2**16
_WINDOW_LOG = MEMORY_BYTES.bit_length() - 1
_GZIP = 31  # zlib's code for "gzip header and trailer, the largest window"
_RAW = -15  # and for "neither, the largest window"


class Member(Protocol):
    """One member (gzip), frame (zstd, lz4), stream (bz2, xz) or chunk (snappy) of a packed file, while it is unpacked."""

    @property
    def needs_input(self) -> bool:
        """Whether there is no more output without more packed bytes."""

    @property
    def eof(self) -> bool:
        """Whether its end was reached, checksum included."""

    @property
    def unused_data(self) -> bytes:
        """Packed bytes of the input that come after its end."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Returns up to `max_length` bytes more. Raises one of `ERRORS` if the packed bytes are damaged or need too much memory."""


class _GzipMember:
    """A zlib decompressor with the interface of `Member`."""

    def __init__(self, window_bits: int = _GZIP) -> None:
        self._inner = zlib.decompressobj(window_bits)
        self._is_full = False

    @property
    def needs_input(self) -> bool:
        return not (self.eof or self._is_full or self._inner.unconsumed_tail)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self._is_full = len(out) == max_length  # zlib may have more output, without any input left
        return out


def _xz_stream() -> Member:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY_BYTES)


class _Lz4Frame:
    """An lz4 decompressor, which by itself needs input while it still has output, and after a skippable frame."""

    def __init__(self) -> None:
        self._inner = lz4.frame.LZ4FrameDecompressor()
        self._is_full = False

    @property
    def needs_input(self) -> bool:
        return self._inner.needs_input and not (self.eof or self._is_full)

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data or b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        try:
            out: bytes = self._inner.decompress(data, max_length)
        except RuntimeError as error:
            raise ValueError(str(error).rpartition("ERROR_")[2].replace("_", " ")) from None
        self._is_full = len(out) == max_length
        return out


class _ZstdFrame:
    """A frame of zstd, or of lz4: files of both may begin with a skippable frame, which looks the same and is taken for zstd's."""

    def __init__(self) -> None:
        self._begin = b""
        self._inner: Member | None = None

    @property
    def needs_input(self) -> bool:
        return self._inner is None or self._inner.needs_input

    @property
    def eof(self) -> bool:
        return self._inner is not None and self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return b"" if self._inner is None else self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if self._inner is None:
            self._begin += data
            if self._begin[: len(LZ4_MAGIC)] != LZ4_MAGIC[: len(self._begin)]:
                self._inner = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})
            elif len(self._begin) >= len(LZ4_MAGIC):
                self._inner = _Lz4Frame()
            else:
                return b""
            data = self._begin
        return self._inner.decompress(data, max_length)


class _SnappyChunk:
    """One chunk of snappy's framing format (`framing_format.txt`): a stream has no end marker, so it may end after any chunk.

    The available library unpacks only whole files, without a limit. So each chunk, of 64 KiB at most, is passed to it as a stream of its
    own.

    It needs `_needed` bytes at a time and passes them to `_next`, which returns unpacked ones and sets what it needs next.
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
        """Whether it has ended, and all its output is taken."""
        return self._ended and not self._out

    @property
    def needs_input(self) -> bool:
        """Whether there is no more output without more input."""
        return not (self._ended or self._out or len(self._packed) >= self._needed)

    @property
    def unused_data(self) -> bytes:
        """The bytes after its end."""
        return bytes(self._packed)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Takes packed bytes, and returns up to `max_length` unpacked ones."""
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
        """Reads the chunk's kind and size."""
        self._head, self._left = head, int.from_bytes(head[1:], "little")
        if _SKIPPABLE <= head[0] < _IDENTIFIER:
            return self._skip(b"")
        if self._left > _CHUNK_BYTES or (head[0] == _IDENTIFIER and head != SNAPPY_MAGIC[:4]):
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
            return bytes(cramjam.snappy.decompress(SNAPPY_MAGIC + chunk))
        if chunk != SNAPPY_MAGIC:
            raise ValueError("a chunk is damaged")
        return b""


ERRORS: tuple[type[Exception], ...] = (
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    cramjam.DecompressionError,
    OSError,
    EOFError,
    MemoryError,
    ValueError,
)
"""The errors of damaged bytes: bz2 raises OSError and ValueError."""

CODECS: dict[str, Callable[[], Member]] = {
    "gzip": _GzipMember,
    "zstd": _ZstdFrame,
    "bz2": bz2.BZ2Decompressor,
    "xz": _xz_stream,
    "lz4": _Lz4Frame,
    "snappy": _SnappyChunk,
}
"""The name of each codec (`SourceOffset.compression`), with a function that begins its next member."""

ZIP_METHODS: dict[int, Callable[[], Member]] = {8: lambda: _GzipMember(_RAW), 12: bz2.BZ2Decompressor, 93: _ZstdFrame}
"""Compression methods of zip members by their numbers, with a function that begins one."""

UNPADDED = frozenset({"snappy"})
"""Codecs whose members may begin with a zero, which is not padding."""

_BZ2 = tuple(b"BZh%d" % level + block for level in range(1, 10) for block in (b"1AY&SY", b"\x17rE8P\x90"))
_MAGICS: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("gzip", (b"\x1f\x8b\x08",)),
    ("zstd", (b"\x28\xb5\x2f\xfd", *SKIPPABLE_MAGICS)),
    ("bz2", _BZ2),
    ("xz", (b"\xfd7zXZ\x00",)),
    ("lz4", (LZ4_MAGIC,)),
    ("snappy", (SNAPPY_MAGIC,)),
)
_BEGINNINGS = frozenset(magic[:2] for _, magics in _MAGICS for magic in magics)


def recognise(head: bytes, *, whole: bool = False) -> str | None:
    """Returns the codec of a file that begins with `head` (`MAGIC_BYTES` of it, or its whole content), "" if it is not packed.

    None if there are too few bytes to tell. `whole`: the file is complete, so two bytes of a magic number count as packed.
    """
    if len(head) > 1 and head[:2] not in _BEGINNINGS:  # of 100,000 files nearly all are not packed
        return ""
    for codec, magics in _MAGICS:
        if head.startswith(magics):
            return codec
    begun = [codec for codec, magics in _MAGICS if any(magic.startswith(head) for magic in magics)]
    if not begun:
        return ""
    if not whole:
        return None
    return begun[0] if len(head) > 1 else ""


def head_of(read: Reader, codec: str, size: int) -> bytes:
    """Returns up to `size` of the first unpacked bytes; fewer if `HEAD_INPUT_BYTES` hold no more, or are damaged. May raise OSError."""
    member, out, position, is_between = CODECS[codec](), b"", 0, False
    while len(out) < size:
        data = b""
        if member.eof:
            data, member, is_between = member.unused_data, CODECS[codec](), True
        if not data and member.needs_input:
            data = read(position, min(_HEAD_STEP_BYTES, HEAD_INPUT_BYTES - position))
            position += len(data)
            if not data:
                break
        if is_between and codec not in UNPADDED:
            data = data.lstrip(b"\0")  # padding
            if not data:
                continue
            is_between = False
        try:
            out += member.decompress(data, size - len(out))
        except ERRORS:
            break
    return out
