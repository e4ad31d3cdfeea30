"""Avro's Object Container Files: a header, then blocks of records, each packed by itself and followed by the file's sync marker.

Avro 1.12, "Object Container Files". Nothing here trusts a number in the file: a block that claims to be larger than the limit, or larger
than the file, is damage before a byte is allocated for it. fastavro's own reading of blocks has no such bounds, and cannot begin in the
middle of a file.
"""

from __future__ import annotations

import bisect
import bz2
import json
import lzma
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import cramjam

from copycat_agent.errors import DamageError
from copycat_agent.formats.model import RecordFile

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEADER_BYTES = 2**24
"""The most bytes of a header, including the schema in it."""
_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_COUNTS_BYTES = 18
"""The two numbers before each block are no longer than this, nor is the shortest block, including its marker."""
_FIRST_BYTES = 2**14
_XZ_MEMORY_BYTES = 128 * 2**20
_MARKS_MAX = 4096
_MORE = 0x80
_LONG_BITS = 64
_CRC_BYTES = 4

_UNPACK = (zlib.error, lzma.LZMAError, zstd.ZstdError, cramjam.DecompressionError, OSError, EOFError, MemoryError, ValueError)
"""Errors that unpacking raises for damaged bytes."""


class Header(NamedTuple):
    """The header before the blocks. `schema` is JSON, unchanged; `first` is the byte where the first block begins."""

    schema: str
    codec: str
    sync: bytes
    first: int


class Block(NamedTuple):
    """`total` records from record `record` on, in `size` packed bytes from byte `start`; the file's next block begins at `end`."""

    record: int
    total: int
    start: int
    size: int

    @property
    def end(self) -> int:
        """Returns the byte after its sync marker."""
        return self.start + self.size + _SYNC_BYTES


class BlockMarks:
    """The beginnings of blocks, as (record, byte): the latest one, and an even selection of those before it."""

    def __init__(self, first: int) -> None:
        self._marks = [(0, first)]
        self._latest = 0, first
        self._step = 1
        self._passed = 0

    def note(self, record: int, byte: int) -> None:
        """Notes that a block begins there. Called for each in order, possibly again from any known one on."""
        if record <= self._latest[0]:
            return
        self._latest = record, byte
        self._passed += 1
        if self._passed >= self._step:
            self._marks.append(self._latest)
            self._passed = 0
        if len(self._marks) > _MARKS_MAX:
            self._marks, self._step = self._marks[::2], self._step * 2

    def before(self, record: int) -> tuple[int, int]:
        """Returns the last known block at or before `record`."""
        if self._latest[0] <= record:
            return self._latest
        return self._marks[bisect.bisect_right(self._marks, (record, math.inf)) - 1]


class _TooShort(Exception):  # noqa: N818 - an order to read more
    pass


class _Cursor:
    """Reads Avro's encoding of numbers and bytes, in the header and before each block."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        taken = self.data[self.at : self.at + size]
        if len(taken) < size:
            raise _TooShort
        self.at += size
        return taken

    def long(self) -> int:
        """Reads a zigzag number. Raises ValueError when it has too many bytes."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & ~_MORE) << shift
            if not byte & _MORE:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift >= _LONG_BITS:
                raise ValueError

    def bytes(self) -> bytes:
        size = self.long()
        if size < 0 or size > HEADER_BYTES:
            raise ValueError
        return self.take(size)


class _Decompressor(Protocol):
    """The interface that zlib, bz2, lzma and zstd have in common."""

    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


def damaged(what: str, byte: int, record: int) -> DamageError:
    """Returns the error for a file that cannot be read from there on."""
    return DamageError(f"avro: {what} (byte {byte}, record {record + 1})", "replace the file with a whole one")


def header_of(file: RecordFile) -> Header | None:
    """Returns the file's header; None for an empty file. Raises DamageError."""
    size = _FIRST_BYTES
    while True:
        data = _readable(file, size)
        if not data:
            return None
        if not data.startswith(_MAGIC[: len(data)]):
            raise damaged("it does not begin as an Avro file does", 0, 0)
        try:
            return _header(data)
        except _TooShort:
            if len(data) < size:
                raise damaged("it ends inside its header", len(data), 0) from None
        except (ValueError, KeyError, RecursionError):
            raise damaged("its header is damaged", 4, 0) from None
        if size >= HEADER_BYTES:
            raise damaged(f"its header is longer than {HEADER_BYTES // 2**20} MiB", size, 0)
        size *= 4


def _readable(file: RecordFile, size: int) -> bytes:
    """Returns the first `size` bytes, or all there are before a packed file's damage. Raises DamageError when there are none."""
    try:
        return file(0, size)
    except DamageError:
        most = 0
        while step := (size - most) // 2:
            try:
                file(0, most + step)
            except DamageError:
                size = most + step
            else:
                most += step
        return file(0, most or 1)


def _header(data: bytes) -> Header:
    cursor = _Cursor(data)
    cursor.take(len(_MAGIC))
    entries: dict[str, bytes] = {}
    while count := cursor.long():
        if count < 0:
            cursor.long()
        for _ in range(abs(count)):
            name = cursor.bytes().decode()
            entries[name] = cursor.bytes()
    sync = cursor.take(_SYNC_BYTES)
    schema = entries["avro.schema"].decode()
    json.loads(schema)
    return Header(schema, entries.get("avro.codec", b"null").decode(), sync, cursor.at)


def blocks(file: RecordFile, header: Header, marks: BlockMarks, start: int, max_bytes: int) -> Iterator[Block]:
    """Yields the blocks from the one with record `start` on; those before it are skipped by their headers. Raises DamageError.

    The marker after each block was checked, so its size is right.
    """
    record, byte = marks.before(start)
    counts = file(byte, _COUNTS_BYTES)
    while counts:
        block = _block(file, counts, record, byte, max_bytes)
        is_wanted = block.total > 0 and record + block.total > start
        # a packed file may be damaged after a wanted block: that has to wait
        behind = file(block.start + block.size, _SYNC_BYTES + (0 if is_wanted else _COUNTS_BYTES))
        if len(behind) < _SYNC_BYTES:
            raise damaged("it ends inside a block", byte, record)
        if behind[:_SYNC_BYTES] != header.sync:
            raise damaged("the marker behind a block is not the file's", byte, record)
        marks.note(record, byte)
        if is_wanted:
            yield block
        record, byte = record + block.total, block.end
        counts = file(byte, _COUNTS_BYTES) if is_wanted else behind[_SYNC_BYTES:]


def _block(file: RecordFile, counts: bytes, record: int, byte: int, max_bytes: int) -> Block:
    cursor = _Cursor(counts)
    try:
        count, size = cursor.long(), cursor.long()
    except _TooShort:
        if len(counts) < _COUNTS_BYTES:
            raise damaged("it ends inside a block", byte, record) from None
        count = size = -1
    except ValueError:
        count = size = -1
    if count < 0 or size < 0:
        raise damaged("a block is damaged: its size is no number", byte, record)
    if 0 <= file.size < byte + cursor.at + size:
        raise damaged(f"a block of {size} bytes is longer than what is left of the file", byte, record)
    if size > max_bytes:
        raise damaged(f"a block of {size} bytes is over format.max_block_bytes, {max_bytes}", byte, record)
    return Block(record, count, byte + cursor.at, size)


def payload(file: RecordFile, header: Header, block: Block, max_bytes: int) -> bytes:
    """Returns the block's records, unpacked: never more than `max_bytes`. Raises DamageError."""
    data = file(block.start, block.size)
    try:
        unpacked = CODECS[header.codec](data, max_bytes + 1)
    except _UNPACK:
        raise damaged(f"a block cannot be unpacked with {header.codec}", block.start, block.record) from None
    if len(unpacked) > max_bytes:
        raise damaged(f"a block holds more than format.max_block_bytes, {max_bytes}", block.start, block.record)
    return unpacked


def _whole(member: _Decompressor, data: bytes, most: int) -> bytes:
    out = member.decompress(data, most)
    if len(out) < most and not member.eof:
        raise EOFError
    return out


def _snappy(data: bytes, most: int) -> bytes:
    """Unpacks raw snappy followed by a CRC of its content."""
    if len(data) <= _CRC_BYTES:
        raise EOFError
    packed, checksum = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if cramjam.snappy.decompress_raw_len(packed) >= most:
        return bytes(most)  # over the limit, whatever it is
    out = bytes(cramjam.snappy.decompress_raw(packed))
    if zlib.crc32(out).to_bytes(_CRC_BYTES, "big") != checksum:
        raise ValueError
    return out


CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, _: data,
    "deflate": lambda data, most: _whole(zlib.decompressobj(-15), data, most),
    "bzip2": lambda data, most: _whole(bz2.BZ2Decompressor(), data, most),
    "xz": lambda data, most: _whole(lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES), data, most),
    "zstandard": lambda data, most: _whole(zstd.ZstdDecompressor(), data, most),
    "snappy": _snappy,
}
"""Name in `avro.codec`, and a function from packed bytes to a limited number of unpacked ones."""
