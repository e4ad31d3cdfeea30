"""Reads the keys of one bucket of a bbolt file (version 2), which OpenTelemetry's file_storage uses.

A file consists of pages. The first two are metas; the valid one with the higher transaction counts, and names the page of the root bucket.
A branch page refers to pages. A leaf page has keys with values, or with buckets, of which small ones contain their page. Numbers are
little-endian. Everything is checked against the file's size, and no page is visited twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from copycat_agent.errors import CopycatError
from copycat_agent.workbench.takeover.peer_state import StateFile

_PAGE = struct.Struct("<QHHI")
_META = struct.Struct("<IIIIQQQQQQ")
_LEAF = struct.Struct("<IIII")
_BRANCH = struct.Struct("<IIQ")
_BUCKET = struct.Struct("<QQ")
_MAGIC, _VERSION = 0xED0CDAED, 2
_IS_BRANCH, _IS_LEAF, _IS_BUCKET = 0x01, 0x02, 0x01
_PAGE_SIZES = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
_DEEPEST = 64
_COPIES = 3
"""Limit of the bytes copied, in sizes of the file: a page, its keys and values, and those of a bucket within it."""
_FNV_BASIS, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 2**64 - 1
Entry = tuple[int, bytes, bytes]
"""Flags, key and value."""


class _Meta(NamedTuple):
    transaction: int
    page_size: int
    root: int


def entries(file: StateFile, bucket: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of a top-level bucket in order, nothing if it is missing. Raises CopycatError for any other file."""
    tree = _BoltPages(file)
    try:
        for flags, key, value in tree.walk(tree.meta.root):
            if key == bucket and flags & _IS_BUCKET:
                yield from ((name, held) for kind, name, held in tree.inside(value) if not kind & _IS_BUCKET)
    except struct.error:
        raise tree.wrong("it ends in the middle") from None


class _BoltPages:
    """The pages of a file. Methods raise CopycatError for invalid pages, and struct.error for a truncated file."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._seen: set[int] = set()
        self._left = len(file.content)
        metas = [meta for at in (0, *_PAGE_SIZES) if (meta := self._meta(at)) is not None]
        if not metas:
            raise self.wrong("no page of it says where its keys are")
        self.meta = max(metas)

    def _meta(self, at: int) -> _Meta | None:
        data = self._file.content[at + _PAGE.size : at + _PAGE.size + _META.size]
        if len(data) < _META.size:
            return None
        magic, version, page_size, _, root, _, _, _, transaction, checksum = _META.unpack(data)
        is_valid = (magic, version) == (_MAGIC, _VERSION) and page_size in _PAGE_SIZES and checksum == _fnv(data[:-8])
        return _Meta(transaction, page_size, root) if is_valid and at in (0, page_size) else None

    def walk(self, number: int, depth: int = 0) -> Iterator[Entry]:
        """Yields every entry of a page, or of the pages below it."""
        if number in self._seen or depth > _DEEPEST:
            raise self.wrong(f"page {number} is met twice")
        self._seen.add(number)
        begin = min(number * self.meta.page_size, len(self._file.content))
        _, flags, count, overflow = _PAGE.unpack_from(self._file.content, begin)
        size = min((overflow + 1) * self.meta.page_size, len(self._file.content) - begin)
        self._spend(size)
        page = self._file.content[begin : begin + size]
        if flags & _IS_BRANCH:
            for index in range(count):
                yield from self.walk(_BRANCH.unpack_from(page, _PAGE.size + index * _BRANCH.size)[2], depth + 1)
        else:
            yield from self._leaf(page)

    def inside(self, value: bytes) -> Iterator[Entry]:
        """Yields the entries of a bucket, whose value names its root page, or is followed by its page."""
        root, _ = _BUCKET.unpack_from(value)
        yield from self.walk(root) if root else self._leaf(value[_BUCKET.size :])

    def _leaf(self, page: bytes) -> Iterator[Entry]:
        _, flags, count, _ = _PAGE.unpack_from(page)
        if not flags & _IS_LEAF:
            raise self.wrong(f"a page is of kind {flags:#x}, where keys should be")
        for index in range(count):
            at = _PAGE.size + index * _LEAF.size
            kind, offset, key_size, value_size = _LEAF.unpack_from(page, at)
            key_at = at + offset
            self._spend(0 if kind & _IS_BUCKET else key_size + value_size)
            found = page[key_at : key_at + key_size + value_size]
            if len(found) < key_size + value_size:
                raise self.wrong("a key is cut")
            yield kind, found[:key_size], found[key_size:]

    def _spend(self, size: int) -> None:
        """Limits the bytes copied: pages and keys of a hostile file may overlap."""
        self._left -= size
        if self._left < -_COPIES * len(self._file.content):
            raise self.wrong("its pages lie over one another")

    def wrong(self, why: str) -> CopycatError:
        """Returns the error for a file that cannot be read."""
        return self._file.broken(f"not a file of file_storage, or damaged: {why}")


def _fnv(data: bytes) -> int:
    """Returns the 64-bit FNV-1a hash."""
    found = _FNV_BASIS
    for byte in data:
        found = ((found ^ byte) * _FNV_PRIME) & _MASK
    return found
