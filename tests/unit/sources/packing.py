"""Archives for tests: made in this process, by the same formats' own libraries."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
from typing import TYPE_CHECKING

import cramjam

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.formats import Reader


def _zstd(data: bytes) -> bytes:
    """As the command line tool does it: with a checksum."""
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": _zstd,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz4": lambda data: bytes(cramjam.lz4.compress(data)),
}
"""Makes one member, by codec."""
SUFFIX = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2", "xz": ".xz", "lz4": ".lz4", "snappy": ".sz"}


def snappy(data: bytes) -> bytes:
    """A stream, which has no end: it is no member that a second one could follow at any other place."""
    return bytes(cramjam.snappy.compress(data))


SKIPPABLE = b"\x53\x2a\x4d\x18\x05\x00\x00\x00hello"
"""A zstd frame that holds nothing."""


def source(data: bytes) -> Reader:
    """Reads packed bytes that are in memory."""
    return lambda position, size: data[position : position + size]


def random_lines(count: int, width: int = 40) -> bytes:
    """Lines that hardly shrink when they are packed: a number, then hexadecimal digits."""
    return b"".join(b"%09d %s\n" % (number, os.urandom(width // 2).hex().encode()) for number in range(count))


def write_packed(path: Path, data: bytes, codec: str = "gzip") -> Path:
    """An archive with one member."""
    path.write_bytes(PACK[codec](data))
    return path
