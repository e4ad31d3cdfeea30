"""The task's part: records of a spooled file, plain or packed, and the digest of the whole file, taken once after its last record.

The digest tells a file that is dropped a second time from another one under its name.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Unpack

from copycat_agent.errors import DamageError
from copycat_agent.formats import Frame, FrameOptions, Frames, LongLine, OnTooLong, RecordFile, RecordFormat, RecordPart, SkippedRest
from copycat_agent.formats.model import FormatOptions
from copycat_agent.formats.records import archived, build_format
from copycat_agent.formats.records.archived import ArchiveFormat
from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing.compressions import OUTPUT_BYTES
from copycat_agent.sources.files.packing.packed import PackedStream
from copycat_agent.sources.files.packing.unpacking import UnpackOptions
from copycat_agent.sources.files.reading.address import is_remote
from copycat_agent.sources.files.reading.stream import Handle, SplitFile, Stream, open_handle
from copycat_agent.sources.spool_dir.rows import is_part

MOST_BYTES = 8 * 2**30
"""The largest file that gets a digest: for larger ones a second read takes too long for what it yields."""
_BLOCK_BYTES = 2**20


def digest_of(handle: Handle, size: int) -> str:
    """Returns BLAKE2b, 128 bits, hex, of the first `size` bytes on disk; "" if there are fewer. Raises OSError."""
    state, position = hashlib.blake2b(digest_size=16), 0
    while position < size:
        data = handle.pread(min(_BLOCK_BYTES, size - position), position)
        if not data:
            return ""
        state.update(data)
        position += len(data)
    return state.hexdigest()


KEPT = 64
"""How many files' memos a process keeps; the least recently used go first."""


class ReadMemos:
    """Memos by partition, and version of the file and of what reads it. Thread-safe; one memo is used by one batch at a time."""

    def __init__(self) -> None:
        self._memos: dict[SourcePartition, tuple[object, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def of(self, partition: SourcePartition, version: object) -> dict[str, Any]:
        """Returns the memo of this version; empty if it is new here."""
        with self._lock:
            known, memo = self._memos.pop(partition, (version, {}))
            if known != version:
                memo = {}
            self._memos[partition] = version, memo
            while len(self._memos) > KEPT:
                del self._memos[next(iter(self._memos))]
            return memo


MEMOS = ReadMemos()
"""The memos of this process."""


class LimitedFormat:
    """A `RecordFormat` with limits for unpacking, and for archives if they are opened; everything else is the format's own."""

    def __init__(self, options: FormatOptions, limits: UnpackOptions) -> None:
        form = build_format(options)
        form = ArchiveFormat(form, limits.max_members) if limits.archives else form
        self._form = form
        self.rules = options, limits  # with other ones, no memo and no unpacker of a file is continued
        self.limits = limits
        self.on_too_long: OnTooLong = form.on_too_long
        self.counts_records = form.counts_records
        self.finds_end = form.finds_end
        self.makes_fields = form.makes_fields
        self.alone = getattr(form, "alone", None)  # only some formats can, see `dlq.rows`
        self.as_is = bool(getattr(form, "as_is", False))

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        return self._form.frames(file, start, end, **how)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        return self._form.cuts(file, parts)


ENDLESS = 2**62
"""End of a split whose length, in the unit of its positions, is not known."""


class _SpooledStream(Stream):
    """The common part of packed and plain spooled files: a `Stream` of records, and the `RecordFile` that their format reads."""

    def __init__(self, split: Split, form: RecordFormat, file: SplitFile | None = None) -> None:
        self._form = form
        super().__init__(split, file)
        info = self._file.info
        version = info.st_ino, info.st_size, info.st_mtime_ns, getattr(form, "rules", None)
        self.memo = MEMOS.of(split.partition, version)

    @property
    def name(self) -> str:
        return self._split.path

    @property
    def size(self) -> int:
        return self._file.info.st_size

    def member(self, position: int) -> str:
        return archived.name_at(self.memo, position)

    @property
    def _finds_end(self) -> bool:
        return self._form.finds_end or archived.finds_end(self.memo)

    def __call__(self, position: int, size: int, /) -> bytes:
        """Returns up to `size` bytes from `position`. Raises FileError."""
        return self.read(position, size)

    def is_what_was_read(self) -> bool:
        """Returns whether the file holds what was read of it, and is unchanged since it was planned. Also detects a repeat."""
        if not self._is_as(self.offset.size, self.offset.mtime_ns):
            return False
        if self._split.origins:
            self.origin = self._find_former()
            self.waits = self.origin >= 0
            return True
        proof = self.offset.fingerprint
        is_long = proof.head_bytes > fingerprint.HEAD_BYTES
        if is_long or proof.head_bytes == self.offset.size:  # of the whole file: it has grown, or its done row was not saved
            is_same = self._digest(proof.head_bytes) == proof.head
            if is_long or is_same:
                return is_same
        return super().is_what_was_read()

    def _find_former(self) -> int:
        """Returns the index of the former file with the same bytes; -1 if there is none."""
        digest = self._digest(self._file.info.st_size)
        return next((index for index, one in enumerate(self._split.origins) if digest and one.fingerprint.head == digest), -1)

    def _digest(self, size: int) -> str:
        try:
            return digest_of(self._file.handle, size)
        except OSError as error:
            raise self._file.trouble("read", error) from None

    def _is_as(self, size: int, mtime_ns: int) -> bool:
        """Returns whether it had this size and modification time when it was opened."""
        return (self._file.info.st_size, self._file.info.st_mtime_ns) == (size, mtime_ns)

    def tail(self, position: int) -> bytes:
        """Returns the bytes before `position`; b"" if positions are record numbers."""
        return b"" if self._form.counts_records else super().tail(position)

    def frames(self, framing: Frames | RecordFormat, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        del framing
        return self._form.frames(self, start, end, **how)

    def is_still(self, position: int) -> bool:
        """Returns whether the file is unchanged since it was opened."""
        del position
        now = self._file.stat()
        return self._is_as(now.st_size, now.st_mtime_ns)

    def _whole(self, result: SplitResult) -> SplitResult:
        """Returns the result with the digest of the whole file, once it is read to its end, as its fingerprint's head."""
        if self.origin >= 0:
            return replace(result, origin=self.origin)
        is_over = result.at_end and not (result.changed or result.error or result.damage)
        size = self._file.info.st_size
        if not is_over or size > MOST_BYTES or is_part(self._split.partition.key) or is_remote(self._split.open_path):
            return result
        try:
            handle = open_handle(self._split)  # the handle of the read is closed by now
        except OSError:
            return result
        try:
            digest = digest_of(handle, size)
            now = handle.stat()
        except OSError:
            return result
        finally:
            handle.close()
        changed = not self._is_as(now.st_size, now.st_mtime_ns)
        whole = Fingerprint(size, digest, result.offset.fingerprint.tail_bytes, result.offset.fingerprint.tail)
        return replace(result, changed=changed, offset=result.offset if changed else replace(result.offset, fingerprint=whole))


class SpoolStream(_SpooledStream):
    """A plain file."""

    def complete(self, result: SplitResult) -> SplitResult:
        """Returns the result with the digest of the whole file, once it is read to its end."""
        return self._whole(result)


class PackedSpoolStream(_SpooledStream, PackedStream):
    """A packed file, by unpacked bytes."""

    @property
    def limits(self) -> UnpackOptions | None:
        found: UnpackOptions | None = getattr(self._form, "limits", None)
        return found

    @property
    def _origins(self) -> tuple[SourceOffset, ...]:
        return ()  # it is not the rest of another file

    @property
    def size(self) -> int:
        return self._end.position

    def __call__(self, position: int, size: int, /) -> bytes:
        """Returns unpacked bytes. If unpacking fails, fewer than `size` bytes are not the end, but damage: raises DamageError."""
        data = self.read(position, size)
        if len(data) < size and self._finds_end and (damage := self._damage()):
            raise DamageError(damage)
        return data

    def frames(self, framing: Frames | RecordFormat, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        """Yields the frames. On damage it also yields the whole records before it, which the failed read did not return."""
        reached, skipping, cut = start, how.get("skipping", False), how.get("cut", "")
        how["flush"] = self._ends_group(end, how)
        try:
            for frame in super().frames(framing, start, end, **how):
                reached, skipping = frame.end, isinstance(frame, LongLine | SkippedRest) and not frame.complete
                cut = frame.cut.text() if isinstance(frame, RecordPart) and frame.cut else ""
                yield frame
        except DamageError:
            readable = min(end, self._unpacker.produced)
            if self._damage() and readable > reached and not self._form.counts_records:
                how["skipping"], how["final"], how["flush"] = skipping or bool(cut), False, True
                if "cut" in how or cut:
                    how["cut"] = cut
                yield from super().frames(framing, reached, readable, **how)
            raise

    def bounds(self, limit: int) -> tuple[int, bool]:
        """Returns the bounds of a packed file; a format that finds the end needs none."""
        return (limit, True) if self._finds_end else super().bounds(limit)

    def is_exhausted(self, limit: int) -> bool:
        """Returns whether nothing is left. A format that finds the end may not have read the archive's end: it is read here."""
        while self._finds_end and self.read(self._unpacker.produced, OUTPUT_BYTES):
            pass
        return super().is_exhausted(limit)

    def complete(self, result: SplitResult) -> SplitResult:
        """Returns the result with the damage that was met. The source decides whether the file is done, and how."""
        found = super().complete(result)
        damage = result.damage or found.damage
        offset = replace(found.offset, size=result.offset.size, done=result.offset.done)
        return self._whole(replace(found, damage=damage, offset=offset))


def open_spooled(split: Split, form: RecordFormat) -> Stream:
    """Opens the split's file, packed or not. Raises FileError."""
    return PackedSpoolStream(split, form) if split.offset.compression else SpoolStream(split, form)
