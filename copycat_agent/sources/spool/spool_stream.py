"""A spooled file as a task reads it: it must not change, and its format may count records instead of bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Unpack

from copycat_agent.errors import DamageError
from copycat_agent.formats import TAIL_BYTES, Frame, Frames, RecordFormat
from copycat_agent.model import SourceOffset, Split, SplitResult
from copycat_agent.sources.packing.packed_stream import PackedStream
from copycat_agent.sources.spool.memos import MEMOS
from copycat_agent.sources.stream import How, Stream

ENDLESS = 2**62
"""End of a split whose length, in the unit of its positions, is not known."""


class _Spooled(Stream):
    """What packed and plain spooled files have in common. See `Stream`."""

    def __init__(self, split: Split, form: RecordFormat) -> None:
        super().__init__(split)
        self._form = form
        self.name = split.path
        self.memo = MEMOS.of(split.partition, self._version())

    @property
    def size(self) -> int:
        """See `RecordFile.size`."""
        return self._info.st_size

    def _version(self) -> tuple[int, int, int]:
        return self._info.st_ino, self._info.st_size, self._info.st_mtime_ns

    def __call__(self, position: int, size: int, /) -> bytes:
        """See `RecordFile`."""
        return self.read(position, size)

    def is_what_was_read(self) -> bool:
        """See `Stream.is_what_was_read`: nobody has written to it since it was planned, either."""
        return self._is_as(self.offset) and super().is_what_was_read()

    def _is_as(self, offset: SourceOffset) -> bool:
        return (self._info.st_size, self._info.st_mtime_ns) == (offset.size, offset.mtime_ns)

    def tail(self, position: int) -> bytes:
        """See `Stream.tail`: there is none before a record's number."""
        return b"" if self._form.counts_records else super().tail(position)

    def frames(self, framing: Frames | RecordFormat, start: int, end: int, **how: Unpack[How]) -> Iterator[Frame]:
        """See `Stream.frames`."""
        del framing
        return self._form.frames(self, start, end, **how)

    def is_still(self, position: int) -> bool:
        """See `Stream.is_still`: nobody has written to it while it was read."""
        del position
        try:
            now = os.fstat(self._fd)
        except OSError as error:
            raise self._trouble("read", error) from None
        return (now.st_size, now.st_mtime_ns) == (self._info.st_size, self._info.st_mtime_ns)


class SpoolStream(_Spooled):
    """A plain file."""


class PackedSpoolStream(_Spooled, PackedStream):
    """A packed file, by unpacked bytes."""

    @property
    def size(self) -> int:
        """See `RecordFile.size`."""
        return self._end

    def __call__(self, position: int, size: int, /) -> bytes:
        """See `RecordFile`: where it cannot be unpacked further is no end."""
        data = self.read(position, size)
        if len(data) < size and self._form.finds_end and (damage := self._damage()):
            raise DamageError(damage)
        return data

    def bounds(self, limit: int) -> tuple[int, bool]:
        """See `Stream.bounds`."""
        return (limit, True) if self._form.finds_end else super().bounds(limit)

    def complete(self, result: SplitResult) -> SplitResult:
        """See `Stream.complete`. Whether the file is done, and as what, is its source's question; its size is that of the plan."""
        found = super().complete(result)
        damage = result.damage or found.damage
        offset = replace(found.offset, size=result.offset.size, done=result.offset.done)
        return replace(found, damage=damage, offset=offset)


def open_spooled(split: Split, form: RecordFormat) -> Stream:
    """The split's file, packed or not. Raises FileError."""
    return PackedSpoolStream(split, form) if split.offset.compression else SpoolStream(split, form)


__all__ = ["ENDLESS", "TAIL_BYTES", "PackedSpoolStream", "SpoolStream", "open_spooled"]
