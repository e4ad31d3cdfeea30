"""A split's file as a task reads it: its bytes by position, checked before and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack, cast

from copycat_agent.formats import TAIL_BYTES, Frame, Frames, How, RecordFormat
from copycat_agent.model import Fingerprint, Split, SplitResult
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.reading.split_file import SplitFile


class Stream:
    """One open file. Reads by position, so nothing depends on the order of calls.

    `offset` is where reading begins; `origin` the index of the split's origin that it was taken from, or -1. `waits`: nothing of it
    can be read for now, not even what it is. All three are settled by `is_what_was_read`.
    Raises FileError, from the constructor and from every method, when the file cannot be read now.
    """

    def __init__(self, split: Split) -> None:
        self.offset = split.offset
        self.origin = -1
        self.waits = False
        self._split = split
        self._intact = split.offset.position  # what is read of the bytes before it is compared with their hashes
        self._is_whole = True
        self._file = SplitFile(split)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        data = self._file.read(position, size)
        end = position + len(data)
        if end > self._intact and self._is_whole:
            self._is_whole = self.is_still(end)
            self._intact = end if self._is_whole else self._intact
        return data

    def is_what_was_read(self) -> bool:
        """Before reading: whether the bytes up to the split's offset are those that were read before."""
        return self._file.handle.is_version(self.offset) and fingerprint.holds(self.read, self.offset.fingerprint, self.offset.position)

    def tail(self, position: int) -> bytes:
        """Returns the bytes just before `position`, as many as a fingerprint covers."""
        return self.read(max(0, position - TAIL_BYTES), min(TAIL_BYTES, position))

    def frames(self, framing: Frames | RecordFormat, start: int, end: int, **how: Unpack[How]) -> Iterator[Frame]:
        """Returns the frames that `framing` finds in it, see `Frames.frames`."""
        return cast("Frames", framing).frames(self.read, start, end, **how)

    def bounds(self, limit: int) -> tuple[int, bool]:
        """Returns where framing has to end, `limit` at most, and whether the split's `final` and `flush` hold there."""
        return limit, True

    def is_exhausted(self, limit: int) -> bool:
        """After reading: whether nothing was left before byte `limit`, and nothing lies behind it as far as is known."""
        del limit
        return True

    def is_still(self, position: int) -> bool:
        """After reading up to `position`: whether the file was neither cut below it nor begun anew meanwhile."""
        head = self._file.head[:position]
        return self._file.stat().st_size >= position and self._file.read_disk(0, len(head)) == head

    @property
    def is_whole(self) -> bool:
        """Whether the file was still the one that it had been, whenever something was read of it."""
        return self._is_whole

    def was_still(self, position: int) -> bool:
        """Whether what was read up to `position` was the file's own, though it is not what was read any more.

        Each piece is, when the file still was as it had been right after the piece was read. So what was on its way when somebody
        cut the file need not be read again from a copy.
        """
        return position <= self._intact

    def complete(self, result: SplitResult) -> SplitResult:
        """Returns the split's result, with what is known of a packed file. May be called when the file is closed; raises nothing."""
        return result

    def fingerprint(self, position: int, tail: bytes) -> Fingerprint:
        """Returns the fingerprint at `position`, which is settled. `tail` are the last bytes that were read before it."""
        return fingerprint.of(self._file.head[:position], tail)

    def close(self) -> None:
        """Close the file; once is enough."""
        self._file.handle.close()
