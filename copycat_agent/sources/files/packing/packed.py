"""Packed files: which they are, by their first bytes, and how each kind is unpacked in bounded steps. Door to zstd and lz4."""

from __future__ import annotations

import bz2
import lzma
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import cramjam
import lz4.frame

from copycat_agent.formats import Reader
from copycat_agent.model import Loss, SourceOffset, SplitResult
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing import snappy

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC_BYTES = 10
"""So many of a file's first bytes tell whether it is packed, and how."""
MEMORY_BYTES = 128 * 2**20
"""What unpacking one file may take: what `zstd -d` allows by default, and twice what `xz -9` needs."""
OUTPUT_BYTES = 2**20
"""Bytes unpacked at a time, however much a few packed bytes hold."""
INPUT_BYTES = 2**16
"""Packed bytes read at a time."""
HEAD_INPUT_BYTES = 2**21
"""No more packed bytes are looked at for the first unpacked ones: members that hold nothing, and names in headers, may go on for ever."""
_HEAD_STEP_BYTES = 4096

LZ4_MAGIC = b"\x04\x22\x4d\x18"
SKIPPABLE_MAGICS = tuple(bytes((first, 0x2A, 0x4D, 0x18)) for first in range(0x50, 0x60))
"""Of frames that hold nothing of a file, zstd's and lz4's alike."""

_WINDOW_LOG = MEMORY_BYTES.bit_length() - 1
_GZIP = 31  # zlib's word for "gzip header and trailer, the largest window"


class Member(Protocol):
    """One member (gzip), frame (zstd, lz4), stream (bz2, xz) or chunk (snappy) of a packed file, while it is unpacked."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing more comes without more packed bytes."""

    @property
    def eof(self) -> bool:
        """Whether its end was reached, checksum and all."""

    @property
    def unused_data(self) -> bytes:
        """Packed bytes that were handed over and stand behind its end."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Up to `max_length` bytes more. Raises one of `ERRORS` when the packed bytes are damaged or need too much memory."""


class _GzipMember:
    """zlib's object, in the shape of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(_GZIP)
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
        self._is_full = len(out) == max_length  # zlib may hold more, without any input left
        return out


def _xz_stream() -> Member:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY_BYTES)


class _Lz4Frame:
    """lz4's object, which asks for input while it still holds output, and for more behind a frame to be skipped."""

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
    """A frame of zstd, or of lz4: files of both may begin with a frame to be skipped, which looks the same and is taken for zstd's."""

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
"""What damaged bytes raise: bz2 says OSError and ValueError."""

CODECS: dict[str, Callable[[], Member]] = {
    "gzip": _GzipMember,
    "zstd": _ZstdFrame,
    "bz2": bz2.BZ2Decompressor,
    "xz": _xz_stream,
    "lz4": _Lz4Frame,
    "snappy": snappy.SnappyChunk,
}
"""Name of each kind (`SourceOffset.compression`) and how its next member is begun."""

UNPADDED = frozenset({"snappy"})
"""Kinds whose members may begin with a zero, which is no padding then."""

_BZ2 = tuple(b"BZh%d" % level + block for level in range(1, 10) for block in (b"1AY&SY", b"\x17rE8P\x90"))
_MAGICS: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("gzip", (b"\x1f\x8b\x08",)),
    ("zstd", (b"\x28\xb5\x2f\xfd", *SKIPPABLE_MAGICS)),
    ("bz2", _BZ2),
    ("xz", (b"\xfd7zXZ\x00",)),
    ("lz4", (LZ4_MAGIC,)),
    ("snappy", (snappy.MAGIC,)),
)
_BEGINNINGS = frozenset(magic[:2] for _, magics in _MAGICS for magic in magics)


def recognise(head: bytes, *, whole: bool = False) -> str | None:
    """How a file that begins with `head` (`MAGIC_BYTES` of it, or all there is) is packed: a codec, "" for lines.

    None when there is too little of it to tell. `whole`: nobody will add to it, so two bytes of a magic are taken for one.
    """
    if len(head) > 1 and head[:2] not in _BEGINNINGS:  # of 100,000 files nearly all are lines
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
    """Up to `size` of the first unpacked bytes; fewer when `HEAD_INPUT_BYTES` hold no more, or are damaged. Raises OSError of `read`."""
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


def compression_of(read: Reader) -> str:
    """How a file is packed, "" for lines and for one that is too short to tell. Raises OSError."""
    return recognise(read(0, MAGIC_BYTES)) or ""


def is_same(read: Reader, size: int, offset: SourceOffset) -> bool:
    """Whether a file of `size` bytes still holds what was read from it, as far as its head tells when it is packed. Raises OSError."""
    if not offset.compression:
        return size >= offset.position and fingerprint.holds(read, offset.fingerprint, offset.position)
    if size and recognise(read(0, MAGIC_BYTES)) not in (offset.compression, None):
        return False
    proof = replace(offset.fingerprint, tail_bytes=0, tail="")
    if not proof.head_bytes:
        return True
    head = head_of(read, offset.compression, proof.head_bytes)
    if len(head) < proof.head_bytes and size > HEAD_INPUT_BYTES:
        return True  # it cannot be told here; the task that reads it compares as well
    return fingerprint.holds(lambda position, count: head[position : position + count], proof, offset.position)


def recalled(offset: SourceOffset, size: int) -> SourceOffset:
    """The offset of a file that was away and is `size` bytes long: a packed one of unchanged size that was read needs no reading."""
    is_read = bool(offset.compression) and offset.done and offset.size == size
    if not offset.gone_ms and offset.done == is_read and offset.size <= size:
        return offset
    return replace(offset, gone_ms=0, done=is_read, size=size)


def rest(offset: SourceOffset, kept: int = 0) -> tuple[int, int, str]:
    """What is lost of a file that nobody can read any more, beyond the first `kept` bytes: a range, empty for none, and words."""
    if offset.done:
        return offset.position, offset.position, ""
    if offset.compression:
        return offset.position, offset.position + (0 if kept else offset.size), words(offset)
    start = max(offset.position, kept)
    return start, max(start, offset.size), ""


def words(offset: SourceOffset) -> str:
    """To be added to why bytes were lost; "" for a file that is not packed."""
    return f" (packed as {offset.compression}: these are packed bytes, how many they hold is not known)" if offset.compression else ""


def damage_loss(result: SplitResult) -> Loss:
    """What is not read of a packed file that cannot be unpacked to its end."""
    offset = result.offset
    unread = max(0, offset.size - result.packed_position)
    detail = f"{result.damage}; {unread} packed bytes were not read, how many they hold is not known"
    at_ms = int(time.time() * 1000)
    end = offset.position + unread
    return Loss(result.split.partition, result.split.path, offset.position, end, unread, 0, "damaged", detail, at_ms)


def saved(result: SplitResult, options: object) -> tuple[SourceOffset, tuple[Loss, ...]]:
    """See `SourceKind.saved`."""
    del options
    if not result.damage:
        return result.offset, result.losses
    return replace(result.offset, done=True), (*result.losses, damage_loss(result))
