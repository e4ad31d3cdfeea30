"""What framing yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

TAIL_BYTES = 256
"""Bytes before a position that its fingerprint covers."""

Reader = Callable[[int, int], bytes]
"""`read(position, size)`: up to `size` bytes from `position`; fewer only at the end of the file. Raises OSError."""


class Row(NamedTuple):
    """One record within a chunk: bytes `start` up to, not including, `end`, delimiter included. `ordinal` lines go before it."""

    value: bytes
    start: int
    end: int
    ordinal: int


class Chunk(NamedTuple):
    """A run of complete records, read at once.

    `raw` are the stretches between delimiters as they stand in the file; `values` are the records made of them, without a
    trailing CR and, where empty lines are skipped, without those. `raw` and `values` are the same list when nothing differs.
    `tail` are the last bytes before `end`, for the fingerprint.
    """

    raw: list[bytes]
    values: list[bytes]
    start: int
    end: int
    delimiter: bytes
    strip_cr: bool
    skip_empty: bool
    tail: bytes
    partial: bool = False

    def rows(self) -> Iterator[Row]:
        """The records with their places in the file; skipped empty lines are left out."""
        position = self.start
        for index, raw in enumerate(self.raw):
            end = min(position + len(raw) + len(self.delimiter), self.end)
            value = raw[:-1] if self.strip_cr and raw.endswith(b"\r") else raw
            if value or not self.skip_empty:
                yield Row(value, position, end, index)
            position = end

    def tail_before(self, index: int) -> bytes:
        """Up to `TAIL_BYTES` of the chunk's bytes before its `index`-th stretch."""
        stretches = self.raw[max(0, index - TAIL_BYTES) : index]
        return b"".join(stretch + self.delimiter for stretch in stretches)[-TAIL_BYTES:]


class LongLine(NamedTuple):
    """A line longer than the limit. `head` are its first bytes, up to the limit; `end` is how far it has been passed.

    `complete` is False when its delimiter has not been seen yet: the next frame, perhaps of a later split, is `SkippedRest`.
    """

    head: bytes
    start: int
    end: int
    complete: bool
    tail: bytes


class SkippedRest(NamedTuple):
    """More of a line that was reported as `LongLine` before."""

    start: int
    end: int
    complete: bool
    tail: bytes


Frame = Chunk | LongLine | SkippedRest
