"""Packed files: what the driver knows of one from its offset and its first bytes, and how a task reads it by unpacked bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Unpack

from copycat_agent.formats import Frame, FrameOptions, Frames, Reader, RecordFormat
from copycat_agent.model import Fingerprint, Loss, SourceOffset, Split, SplitResult
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing import unpacking
from copycat_agent.sources.files.packing.compressions import HEAD_INPUT_BYTES, MAGIC_BYTES, OUTPUT_BYTES, head_of, recognise
from copycat_agent.sources.files.packing.unpacking import UnpackOptions, unpacker_of
from copycat_agent.sources.files.packing.zip_files import ZIP, is_zip
from copycat_agent.sources.files.reading.stream import SplitFile, Stream


def compression_of(read: Reader) -> str:
    """Returns how a file is packed, "" if it is not, or is too short to tell. Raises OSError."""
    return recognise(read(0, MAGIC_BYTES)) or ""


def is_same(read: Reader, size: int, offset: SourceOffset) -> bool:
    """Returns whether a file of `size` bytes still holds what was read; if it is packed, judging by its head only. Raises OSError."""
    if offset.compression == ZIP:
        proof = replace(offset.fingerprint, tail_bytes=0, tail="")
        return is_zip(read(0, MAGIC_BYTES)) and fingerprint.holds(partial(unpacker_of(ZIP, size).read, read), proof, offset.position)
    if not offset.compression:
        return size >= offset.position and fingerprint.holds(read, offset.fingerprint, offset.position)
    if size and recognise(read(0, MAGIC_BYTES)) not in (offset.compression, None):
        return False
    proof = replace(offset.fingerprint, tail_bytes=0, tail="")
    if not proof.head_bytes:
        return True
    head = head_of(read, offset.compression, proof.head_bytes)
    if len(head) < proof.head_bytes and size > HEAD_INPUT_BYTES:
        return True  # it cannot be determined here; the task that reads it compares as well
    return fingerprint.holds(lambda position, count: head[position : position + count], proof, offset.position)


def recalled(offset: SourceOffset, size: int) -> SourceOffset:
    """Returns the offset of a file that was away and is `size` bytes long. A packed one that was read and has the same size stays done."""
    is_read = bool(offset.compression) and offset.done and offset.size == size
    if not offset.gone_ms and offset.done == is_read and offset.size <= size:
        return offset
    return replace(offset, gone_ms=0, done=is_read, size=size)


def rest(offset: SourceOffset, kept: int = 0) -> tuple[int, int, str]:
    """Returns the range of a file that is lost beyond its first `kept` bytes, empty for none, and words to add to the reason."""
    if offset.done:
        return offset.position, offset.position, ""
    if offset.compression:
        return offset.position, offset.position + (0 if kept else offset.size), words(offset)
    start = max(offset.position, kept)
    return start, max(start, offset.size), ""


def words(offset: SourceOffset) -> str:
    """Returns words to add to the reason why bytes were lost; "" for a file that is not packed."""
    return f" (packed as {offset.compression}: these are packed bytes, how many they hold is not known)" if offset.compression else ""


def damage_loss(result: SplitResult) -> Loss:
    """Returns the loss of a packed file that cannot be unpacked to its end."""
    offset = result.offset
    unread = max(0, offset.size - result.packed_position)
    detail = f"{result.damage}; {unread} packed bytes were not read, how many they hold is not known"
    at_ms = int(time.time() * 1000)
    end = offset.position + unread
    return Loss(result.split.partition, result.split.path, offset.position, end, unread, 0, "damaged", detail, at_ms)


def saved(result: SplitResult, options: object) -> tuple[SourceOffset, tuple[Loss, ...]]:
    """Returns the offset and losses that the driver would save of a result: with damage, the rest of the file is lost."""
    del options
    if not result.damage:
        return result.offset, result.losses
    return replace(result.offset, done=True), (*result.losses, damage_loss(result))


class _End(NamedTuple):
    """Where the unpacked bytes end, -1 while that is not known, and whether damage does."""

    position: int = -1
    is_damage: bool = False


class PackedStream(Stream):
    """A packed file, by unpacked bytes. If it ends too early, more is waited for, until the split is `final`: then that is damage."""

    def __init__(self, split: Split, file: SplitFile | None = None) -> None:
        super().__init__(split, file)
        self._final = split.final and self._file.info.st_size <= split.offset.size  # else data was just added to it
        self._settled = split.offset.position
        self._is_sound = True
        self._is_closed = False
        self._end = _End()
        try:
            codec, size = split.offset.compression, self._file.info.st_size
            self._unpacker = unpacking.PROCESS.take(split.partition, codec, self._file.read_disk, size, self.limits)
        except BaseException:
            super().close()
            raise
        self._unpacker.keep(self._settled)

    @property
    def limits(self) -> UnpackOptions | None:
        """The limits of its content; None for no limits."""
        return None

    @property
    def _origins(self) -> tuple[SourceOffset, ...]:
        return self._split.origins if self._split.offset.position == 0 else ()

    @property
    def _is_short(self) -> bool:
        return self._unpacker.has_ended and not self._unpacker.is_whole

    def read(self, position: int, size: int) -> bytes:
        """Returns up to `size` unpacked bytes from `position`; fewer only if nothing more can be unpacked now."""
        return self._unpacker.read(self._file.read_disk, position, size)

    def is_what_was_read(self) -> bool:
        """Returns whether it holds what was read before. An archive that ends before that, unfinished or damaged, is waited for."""
        if self._origins or self.offset.done:
            self._find_origin()
            self.waits |= self.offset.done  # it is read as the rest of another one, or not at all
            return True
        holds = super().is_what_was_read()
        self.waits = not holds and self._is_short and self._may_hold(self.offset)
        return holds or self.waits

    def _find_origin(self) -> None:
        """Continues after the first of the split's origins whose bytes it holds; waits while that is not known and it may grow."""
        known = [(one.position, index) for index, one in enumerate(self._origins) if one.position and one.fingerprint.head_bytes]
        held = []
        for position, index in sorted(known):
            one = self._origins[index]
            if fingerprint.holds(self.read, one.fingerprint, position):
                if not self._holds_more(index):
                    held.append(index)
            elif self._is_short and not self._damage() and self._may_hold(one):
                self.waits = True
                return
        if held:
            self.origin = min(held)
            one = self._origins[self.origin]
            self.offset = replace(
                self.offset,
                position=one.position,
                records=one.records,
                skipping=one.skipping,
                cut=one.cut,
                done=False,
                fingerprint=one.fingerprint,
            )

    def _holds_more(self, index: int) -> bool:
        """Returns whether it now holds more than the file of the origin with this index."""
        size = self._split.origin_sizes[index] if self._split.origin_sizes else -1
        return size >= 0 and bool(self.read(size, 1))

    def _may_hold(self, offset: SourceOffset) -> bool:
        """Returns whether what was unpacked so far agrees with `offset`, and is too little to prove it."""
        size, head = offset.fingerprint.head_bytes, self._unpacker.head
        if len(head) >= size and size and fingerprint.digest(head[:size]) != offset.fingerprint.head:
            return False
        return self._unpacker.produced < offset.position

    def complete(self, result: SplitResult) -> SplitResult:
        """Adds what is known of the archive. If its end was reached, the offset has the packed size up to which it was read."""
        unpacker, offset = self._unpacker, result.offset
        settled = unpacker.taken if result.at_end else max(0, unpacker.taken - OUTPUT_BYTES)  # at most one block is read ahead
        result = replace(result, origin=self.origin, packed_position=settled)
        if not result.at_end or result.changed or result.error:
            return result
        if offset.done:  # so far it is not the rest of another one; that may show before all of it is taken
            return replace(result, offset=replace(offset, size=max(unpacker.taken, self._file.info.st_size)))
        if damage := self._damage():
            size = max(self._file.info.st_size, unpacker.taken)
            return replace(result, damage=damage, offset=replace(offset, size=size))
        offset = replace(offset, size=unpacker.taken)
        if not unpacker.is_whole:
            return replace(result, offset=offset)
        is_read = offset.position == unpacker.produced
        return replace(result, unpacked_size=unpacker.produced, offset=replace(offset, done=is_read))

    def _damage(self) -> str:
        unpacker = self._unpacker
        if unpacker.damage:
            return f"{unpacker.damage}, at packed byte {unpacker.taken}"
        if self._final and self._is_short:
            return f"{unpacker.codec}: it ends before its end marker, at packed byte {unpacker.taken}"
        return ""

    def bounds(self, limit: int) -> tuple[int, bool]:
        """Returns where framing has to end, and whether that is the end: it is known only once it is reached. Damage is no end."""
        if self._unpacker.is_whole or self._damage():
            self._end = _End(self._unpacker.produced, not self._unpacker.is_whole)
        end, is_damage = self._end  # final: reading far back makes the unpacker begin anew
        return (limit, False) if end < 0 else (min(limit, end), self._final and end <= limit and not is_damage)

    def _ends_group(self, end: int, how: FrameOptions) -> bool:
        """Returns whether an open group of whole lines before `end` is a record: also before damage, after which nothing is read."""
        return how.get("flush", False) or self._end == (end, True)

    def frames(self, framing: Frames | RecordFormat, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        how["flush"] = self._ends_group(end, how)
        return super().frames(framing, start, end, **how)

    def is_exhausted(self, limit: int) -> bool:
        """Returns whether everything was unpacked, and nothing is left before byte `limit`."""
        return self._unpacker.has_ended and self._unpacker.produced <= limit

    def is_still(self, position: int) -> bool:
        """Returns whether it is the file that was read; if size or modification time have changed, the ends of its packed bytes decide."""
        del position
        file, now = self._file, self._file.stat()
        if (now.st_size, now.st_mtime_ns) != (file.info.st_size, file.info.st_mtime_ns):
            same_head = file.read_disk(0, len(file.head)) == file.head
            self._is_sound = same_head and self._unpacker.goes_on(file.read_disk, now.st_size)
        return self._is_sound

    def settled(self, position: int) -> None:
        """Records that nothing before `position` is read again."""
        self._settled = position
        self._unpacker.keep(position)

    def fingerprint(self, position: int, tail: bytes) -> Fingerprint:
        """Returns the fingerprint at `position`, which is settled."""
        return fingerprint.of(self._unpacker.head[:position], tail)

    def close(self) -> None:
        """Closes the file. The unpacker's state is kept for the next batch."""
        if self._is_closed:
            return
        self._is_closed = True
        super().close()
        unpacker = self._unpacker
        is_over = unpacker.damage or (unpacker.is_whole and unpacker.produced == self._settled)
        if self._is_sound and not is_over:
            unpacking.PROCESS.give_back(self._split.partition, unpacker)
