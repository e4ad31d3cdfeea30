"""Prepares files that need a row first: empty ones are marked done, large ones are split, changed ones are set aside."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

from copycat_agent.errors import DamageError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.spool_dir.file_progress import FileRange
from copycat_agent.sources.spool_dir.rows import part_key
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS

if TYPE_CHECKING:
    from copycat_agent.formats import RecordFormat
    from copycat_agent.sources.planner import Changes
    from copycat_agent.sources.spool_dir.admission import Admission
    from copycat_agent.sources.spool_dir.spool_catalog import SpoolCatalog
    from copycat_agent.sources.spool_dir.spool_file import SpoolFile


class Preparation:
    """Prepares one connector's files, one call at a time. Decisions of `prepare` take effect once their changes are saved."""

    def __init__(self, catalog: SpoolCatalog, admission: Admission, form: RecordFormat) -> None:
        self._catalog = catalog
        self._admission = admission
        self._form = form
        self._prepared: list[tuple[Changes, list[SpoolFile]]] = []

    def prepare(self, changes: Changes) -> None:
        """Decides on the files that have to be prepared, and adds their rows to `changes`."""
        prepared = [file for file in self._admission.take_unprepared() if self._admission.follows(file) and self._prepare(file, changes)]
        if prepared:
            self._prepared.append((changes, prepared))

    def _prepare(self, file: SpoolFile, changes: Changes) -> bool:
        """Returns whether the file has rows in the changes, and goes on once they are saved."""
        if file.was_changed:
            self._catalog.put_aside(file, changes)
            self._admission.drop(file)
            return False
        if not self._admission.open(file):
            return False
        if not file.size:
            done = SourceOffset(0, done=True, path=file.path, size=0, mtime_ns=file.mtime_ns)
            file.go_on(file.progress.with_offset(None, done))
            changes.offsets[file.partition] = done
            return True
        ranges = self._cut(file)
        file.close()
        if not ranges:
            self._admission.enqueue(file)
            return False
        file.go_on(file.progress.cut_into(ranges))
        changes.offsets.update({one.partition: one.offset for one in ranges})
        return True

    def _cut(self, file: SpoolFile) -> list[FileRange]:
        try:
            return cut(file, self._form, self._admission.ranges_of(file))
        except (OSError, DamageError):
            return []  # the task that reads it reports the error

    def finish(self, changes: Changes) -> list[SpoolFile]:
        """Queues the files that were split, after the changes are saved. Returns those that are done."""
        prepared = [file for one, files in self._prepared if one is changes for file in files]
        self._prepared = [entry for entry in self._prepared if entry[0] is not changes]
        for file in prepared:
            if file.progress.ranges:
                self._admission.enqueue(file)
        return [file for file in prepared if not file.progress.ranges]


class PlainFile:
    """An open file that is not packed, as a `RecordFile` for formats."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.name = path
        self.size = os.fstat(fd).st_size
        self.memo: dict[str, Any] = {}

    def __call__(self, position: int, size: int, /) -> bytes:
        """Returns up to `size` bytes from `position`. Raises OSError."""
        return os.pread(self._fd, size, position)


def cut(file: SpoolFile, form: RecordFormat, wanted: int) -> list[FileRange]:
    """Splits an open plain file into about `wanted` ranges; none if it is better read as one. Raises OSError, DamageError."""
    cuts = form.cuts(PlainFile(file.fd, file.path), wanted) if wanted else ()
    places = [0, *cuts, ENDLESS if form.counts_records else file.size]
    return [_range(file, start, end) for start, end in itertools.pairwise(places)] if cuts else []


def _range(file: SpoolFile, start: int, end: int) -> FileRange:
    partition = SourcePartition(file.key.connector, part_key(file.partition.key, start, end))
    before = start if file.progress.counts else 0  # where positions are record numbers, a range knows how many records come before it
    return FileRange(partition, start, end, SourceOffset(start, before, path=file.path, size=file.size, mtime_ns=file.mtime_ns))
