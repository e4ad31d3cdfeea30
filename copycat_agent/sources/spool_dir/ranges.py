"""A large file cut into ranges that are read side by side (`delivery.ordering: none`).

Each range has a row of its own, whose key says where it begins and ends. All rows are saved in one transaction before the first
byte is read, so that a start finds the same ranges whatever was killed when. When all are read, the file's own row takes their place.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.spool_dir.rows import part_key
from copycat_agent.sources.spool_dir.spool_file import Part, SpoolFile
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.formats import RecordFormat
    from copycat_agent.sources.base import Changes
    from copycat_agent.sources.spool_dir.rows import Row

LEAST_BYTES = 16 * 2**20
"""Smaller ranges cost more than they bring."""
PER_TASK = 4
"""Ranges per task at most: some take longer than others."""


class PlainFile:
    """An open file that is not packed. See `RecordFile`."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd = fd
        self.name = path
        self.size = os.fstat(fd).st_size
        self.memo: dict[str, Any] = {}

    def __call__(self, position: int, size: int, /) -> bytes:
        """See `RecordFile`. Raises OSError."""
        return os.pread(self._fd, size, position)


def cut(file: SpoolFile, form: RecordFormat, tasks: int, least_bytes: int = LEAST_BYTES) -> list[Part]:
    """The ranges of an open plain file of which nothing is read; none when it is better read in one go. Raises OSError, DamageError."""
    wanted = min(tasks * PER_TASK, file.size // least_bytes)
    if wanted < 2:  # noqa: PLR2004 - one range is no range
        return []
    cuts = form.cuts(PlainFile(file.fd, file.path), wanted)
    places = [0, *cuts, ENDLESS if form.counts_records else file.size]
    return [_part(file, start, end) for start, end in itertools.pairwise(places)] if cuts else []


def _part(file: SpoolFile, start: int, end: int) -> Part:
    partition = SourcePartition(file.key.connector, part_key(file.partition.key, start, end))
    before = start if file.counts else 0  # where positions are record numbers, a range knows how many go before it
    return Part(partition, start, end, SourceOffset(start, before, path=file.path, size=file.size, mtime_ns=file.mtime_ns))


def parts_of(rows: Sequence[Row]) -> list[Part]:
    """The ranges that are saved of one file, in order."""
    parts = [Part(row.partition, *row.bounds, row.offset) for row in rows if row.bounds is not None]
    return sorted(parts, key=lambda part: part.start)


def join(file: SpoolFile, changes: Changes) -> SourceOffset | None:
    """The file's own offset once all of its ranges are read, whose rows it replaces; None while some are not."""
    offsets = [part.brought or part.offset for part in file.parts]  # changes are saved in the order in which they come
    if not all(offset.done for offset in offsets):
        return None
    trouble = next((offset.trouble for offset in offsets if offset.trouble), "")
    last = offsets[-1]
    records = last.records if file.counts else sum(offset.records for offset in offsets)
    position = last.position if file.counts else file.size
    whole = SourceOffset(position, records, done=True, path=last.path, size=last.size, mtime_ns=last.mtime_ns, trouble=trouble)
    for part in file.parts:
        changes.offsets.pop(part.partition, None)
        changes.forget.add(part.partition)
    changes.offsets[file.partition] = whole
    return whole
