"""Columns that come and go between files: told, never in the way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.errors import BlockedError, FatalError, FileError
from copycat_agent.model import SourceOffset, SplitResult
from copycat_agent.sources.files.backoff import READY
from copycat_agent.sources.spool_dir import ranges
from copycat_agent.sources.spool_dir.settling import bad_file, damage_loss, set_aside, settled
from copycat_agent.sources.spool_dir.spool_file import SetAside, Taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.formats import RecordFormat
    from copycat_agent.logs import Log
    from copycat_agent.model import Schema
    from copycat_agent.sources.base import Changes
    from copycat_agent.sources.planner import Planner
    from copycat_agent.sources.spool_dir.admission import Admission
    from copycat_agent.sources.spool_dir.catalog import Catalog
    from copycat_agent.sources.spool_dir.rows import Rows
    from copycat_agent.sources.spool_dir.spool_file import FileOrRange, Part, SpoolFile
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions


TELL_SECONDS = 60.0
"""Least time between two warnings of one connector."""
_NAMED = 20
"""Columns that are named."""


class Drift:
    """Remembers the columns of the last file that was read."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._last: tuple[str, frozenset[str]] | None = None
        self._told_at = -TELL_SECONDS

    def note(self, path: str, schema: Schema | None) -> None:
        """A file with this schema was read. Warns when its columns are not those of the file before it."""
        if schema is None:
            return
        columns = frozenset(column.name for column in schema.columns)
        before, self._last = self._last, (path, columns)
        if before is None or before[1] == columns or self._clock() - self._told_at < TELL_SECONDS:
            return
        self._told_at = self._clock()
        new, missing = sorted(columns - before[1]), sorted(before[1] - columns)
        self._log.warning("columns differ between files", path=path, before=before[0], new=_listed(new), missing=_listed(missing))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" or "none"


class Outcomes:
    """For one connector, in its thread."""

    def __init__(
        self,
        options: SpoolDirOptions,
        form: RecordFormat,
        planner: Planner[FileOrRange],
        catalog: Catalog,
        rows: Rows,
        admission: Admission,
        log: Log,
    ) -> None:
        self._options = options
        self._form = form
        self._planner = planner
        self._catalog = catalog
        self._rows = rows
        self._admission = admission
        self._log = log
        self._drift = Drift(log)
        self._stop = options.on_bad_file == "stop"

    def settle(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """What the results ask to be saved goes to `changes`."""
        for result in results:
            file, part = self._planner.in_flight[result.split.partition]
            changes.losses.extend(result.losses)
            offset = self._offset(result, file)
            if offset != result.split.offset:
                assert offset.position >= result.split.offset.position, "an offset never moves back"
                changes.offsets[result.split.partition] = offset
            if result.damage:
                self._tell_damage(result, changes)
            if part is not None:
                part.brought = offset
                ranges.join(file, changes)
            self._forget_former(file, changes)

    def _offset(self, result: SplitResult, file: SpoolFile) -> SourceOffset:
        offset = settled(result, stop=self._stop)
        is_begun = offset.position > result.split.offset.position or file.is_begun
        if result.changed and is_begun and self._options.on_changed_file == "stop":
            offset = set_aside(offset)
        return replace(offset, gone_ms=int(time.time() * 1000)) if file.gone and offset.done else offset

    def _tell_damage(self, result: SplitResult, changes: Changes) -> None:
        path, offset = result.split.path, result.offset
        self._log.error("bad file, what comes before is sent", path=path, offset=offset.position, records=offset.records, why=result.damage)
        loss = None if self._stop else damage_loss(result, counts_records=self._form.counts_records)
        if loss is not None:
            changes.losses.append(loss)

    def _forget_former(self, file: SpoolFile, changes: Changes) -> None:
        """Once a generation has a row of its own, those before it are of no use."""
        if file.partition not in changes.offsets:
            return
        for row in self._rows.at_inode(file.identity.inode):
            if row.identity == file.key.saved and row.generation < file.key.generation:
                changes.forget.add(row.partition)

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> tuple[list[SpoolFile], FatalError | None]:
        """`changes` are saved. Returns the files that are done, and why the connector has to stop, if so."""
        done: list[SpoolFile] = []
        failure: FatalError | None = None
        for result in sorted(results, key=_got_on):  # who got nothing is in line again before who did
            file, part = self._planner.land(result.split.partition)
            file.flights -= 1
            self._take_over(file, part, result, changes)
            whole = changes.offsets.get(file.partition)
            if whole is not None and whole.done:
                file.offset, file.parts = whole, []
                done.append(file)
            elif result.damage and self._stop:
                failure = bad_file(result, counts_records=self._form.counts_records)
            else:
                self._next(file, part, result)
            self._drift.note(result.split.path, result.schema)
            if not (file.flights or file.is_begun):
                file.close()
        return done, failure

    def _take_over(self, file: SpoolFile, part: Part | None, result: SplitResult, changes: Changes) -> None:
        offset = changes.offsets.get(result.split.partition)
        if part is not None:
            part.in_flight = False
            part.offset = offset or part.offset
            if part.partition in changes.forget:  # all of them are read, and one row stands for all
                part.offset = replace(part.offset, done=True)
        elif offset is not None:
            file.offset = offset
        if offset is not None:
            file.taken = Taken(max(file.taken.packed_bytes, result.packed_position), time.time())

    def _next(self, file: SpoolFile, part: Part | None, result: SplitResult) -> None:
        """It is not read to its end: what it does next."""
        if file.is_set_aside:
            self._admission.drop(file)
        elif isinstance(result.error, FileError):
            delay = file.back_off(result.error.message)
            self._log.warning("file cannot be read, the others go on", path=file.path, why=result.error.message, retry_s=delay)
            self._admission.later(file, delay)
        elif isinstance(result.error, BlockedError):
            self._admission.later(file, file.block())
        elif result.changed:
            self._changed(file, part, result)
        else:
            if result.error is None:
                file.backoff = READY
            self._admission.admit(file)

    def _changed(self, file: SpoolFile, part: Part | None, result: SplitResult) -> None:
        """It is not what was planned: it was written to, or holds other bytes than were read before."""
        offset = file.offset if part is None else part.offset
        if offset.trouble:
            file.state = SetAside(offset.trouble)
            why, _, hint = offset.trouble.partition("; ")
            self._log.error("file set aside, the others go on", path=file.path, why=why, offset=file.position, hint=hint)
            self._admission.drop(file)
            return
        planned = (result.split.offset.size, result.split.offset.mtime_ns)
        try:
            info = os.fstat(file.fd)
            is_same = (info.st_size, info.st_mtime_ns) == planned
            file.observe(info)
        except OSError:
            is_same = False
        self._log.warning("file was changed while it was read, it is read on when it is ready again", path=file.path, offset=file.position)
        if (is_same or file.parts) and not file.flights:
            file.begin_anew()
        self._admission.admit(file)


def _got_on(result: SplitResult) -> bool:
    return result.offset.position > result.split.offset.position
