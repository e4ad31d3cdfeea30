"""bbolt's file, written as its format is documented: so large that the root bucket holds a page, or the pages are below a branch."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

SIZE = 4096
_BASIS, _PRIME = 0xCBF29CE484222325, 0x100000001B3


def checksum(data: bytes) -> int:
    """FNV-1a."""
    found = _BASIS
    for byte in data:
        found = ((found ^ byte) * _PRIME) % 2**64
    return found


def meta(number: int, root: int, transaction: int) -> bytes:
    """A meta page."""
    body = struct.pack("<IIIIQQQQQ", 0xED0CDAED, 2, SIZE, 0, root, 0, 2**64 - 1, 9, transaction)
    return (struct.pack("<QHHI", number, 4, 0, 0) + body + struct.pack("<Q", checksum(body))).ljust(SIZE, b"\0")


def leaf(number: int, entries: Sequence[tuple[int, bytes, bytes]]) -> bytes:
    """A page of entries, with as many pages behind it as they take."""
    heads, held = b"", b""
    for index, (flags, key, value) in enumerate(entries):
        offset = (len(entries) - index) * 16 + len(held)
        heads += struct.pack("<IIII", flags, offset, len(key), len(value))
        held += key + value
    size = 16 + len(heads) + len(held)
    pages = -(-size // SIZE)
    return (struct.pack("<QHHI", number, 2, len(entries), pages - 1) + heads + held).ljust(pages * SIZE, b"\0")


def branch(number: int, pages: Sequence[int]) -> bytes:
    """A page that leads to others."""
    heads = b"".join(struct.pack("<IIQ", 0, 0, page) for page in pages)
    return (struct.pack("<QHHI", number, 1, len(pages), 0) + heads).ljust(SIZE, b"\0")


def inline(entries: Mapping[bytes, bytes]) -> bytes:
    """A file whose bucket `default` is small enough to be in the root's page."""
    inner = leaf(0, [(0, key, value) for key, value in entries.items()]).rstrip(b"\0")
    return meta(0, 2, 4) + meta(1, 2, 5) + leaf(2, [(1, b"default", struct.pack("<QQ", 0, 0) + inner)])


def branched(entries: Mapping[bytes, bytes]) -> bytes:
    """A file whose bucket is a branch with a leaf for each key; the younger meta is damaged."""
    pages, numbers, number = b"", [], 4
    for key, value in entries.items():
        page = leaf(number, [(0, key, value)])
        numbers.append(number)
        pages, number = pages + page, number + len(page) // SIZE
    damaged = bytearray(meta(1, 99, 7))
    damaged[40] ^= 1
    return meta(0, 2, 6) + bytes(damaged) + leaf(2, [(1, b"default", struct.pack("<QQ", 3, 0))]) + branch(3, numbers) + pages
