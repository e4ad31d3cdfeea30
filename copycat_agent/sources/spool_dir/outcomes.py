"""Takes in what tasks have read of spooled files: how far each is settled, whether it is done, what is lost, what comes next."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.errors import BlockedError, FatalError, FileError
from copycat_agent.formats.records import build_format
from copycat_agent.model import Loss, SourceOffset, SplitResult
from copycat_agent.sources.planner import Changes, Planner, UnsavedChanges
from copycat_agent.sources.spool_dir.file_progress import set_aside
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS
from copycat_agent.sources.spool_dir.views import ColumnDrift

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.logs import Log
    from copycat_agent.sources.base import Saved
    from copycat_agent.sources.spool_dir.admission import Admission
    from copycat_agent.sources.spool_dir.spool_catalog import SpoolCatalog
    from copycat_agent.sources.spool_dir.spool_file import FileOrRange, SpoolFile
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions


def offset_to_save(result: SplitResult, *, stop: bool = False) -> SourceOffset:
    """Returns the offset to save. `done` if nothing is left of the file, or nothing readable: then `trouble` says why.

    `stop`: a bad file is not given up, and its offset stays before the damage.
    """
    if result.origin >= 0:  # the same content was sent before
        former, now = result.split.origins[result.origin], result.split.offset
        return replace(former, path=now.path, size=now.size, mtime_ns=now.mtime_ns, done=True, gone_ms=0, trouble="")
    if result.damage and not stop:
        return replace(result.offset, done=True, trouble=result.damage)
    is_over = result.at_end and not (result.error or result.changed or result.damage)
    assert not is_over or result.split.end in (ENDLESS, result.offset.position), "what is done is settled to its end"
    return replace(result.offset, done=is_over)


def saved(result: SplitResult, options: SpoolDirOptions) -> Saved:
    """Returns what `SpoolResults.changes_of` would save of a result, as far as its task can tell: the offset, and the losses."""
    stop = options.on_bad_file == "stop"
    offset, losses = offset_to_save(result, stop=stop), result.losses
    if result.changed and offset.position and options.on_changed_file == "stop":
        offset = set_aside(offset)
    if result.damage and not stop:
        loss = damage_loss(result, counts_records=getattr(build_format(options.format), "counts_records", False))
        losses = losses if loss is None else (*losses, loss)
    return offset, losses


def damage_loss(result: SplitResult, *, counts_records: bool) -> Loss | None:
    """Returns the loss of a damaged file, as far as it can be known; None if nothing is left after the damage."""
    offset = result.offset
    unknown = counts_records or bool(offset.compression)
    read = result.packed_position if unknown else offset.position
    unread = max(0, offset.size - read)
    if not unread:
        return None
    behind = f" behind record {offset.records}" if counts_records else ""
    words = f"; {unread} bytes on the disk{behind} were not read, what they hold is not known" if unknown else ""
    start, why = offset.position, f"{result.damage}{words}"
    return Loss(result.split.partition, result.split.path, start, start + unread, unread, 0, "damaged", why, int(time.time() * 1000))


def bad_file(result: SplitResult, *, counts_records: bool) -> FatalError:
    """Returns the error with which the connector stops at a bad file."""
    offset = result.offset
    where = f"record {offset.records + 1}" if counts_records else f"byte {offset.position}, after {offset.records} records"
    hint = "repair it or move it away, then: copycat ctl restart NAME; with on_bad_file: quarantine it would be set aside"
    return FatalError(f"{result.split.path!r} cannot be read beyond {where}: {result.damage}", hint)


class SpoolResults:
    """The results of one connector, one call at a time. `changes_of` only computes the rows to save; `finish` changes the state."""

    def __init__(
        self,
        options: SpoolDirOptions,
        planner: Planner[FileOrRange],
        unsaved: UnsavedChanges,
        catalog: SpoolCatalog,
        admission: Admission,
        log: Log,
        *,
        counts_records: bool,
    ) -> None:
        self._options = options
        self._planner = planner
        self._unsaved = unsaved
        self._catalog = catalog
        self._admission = admission
        self._log = log
        self._counts_records = counts_records
        self._drift = ColumnDrift(log)
        self._stop = options.on_bad_file == "stop"

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        """Returns the changes to save for the results."""
        changes = Changes()
        for result in results:
            file = self._planner.in_flight[result.split.partition].file
            changes.losses.extend(result.losses)
            offset = self._offset(result, file)
            if offset != result.split.offset:
                assert offset.position >= result.split.offset.position, "an offset never moves back"
                changes.offsets[result.split.partition] = offset
            loss = damage_loss(result, counts_records=self._counts_records) if result.damage and not self._stop else None
            changes.losses.extend([] if loss is None else [loss])
            self._join(file, changes)
            self._catalog.forget_former(file, changes)
        return changes

    def _offset(self, result: SplitResult, file: SpoolFile) -> SourceOffset:
        offset = offset_to_save(result, stop=self._stop)
        is_begun = offset.position > result.split.offset.position or file.progress.is_begun
        if result.changed and is_begun and self._options.on_changed_file == "stop":
            offset = set_aside(offset)
        return replace(offset, gone_ms=int(time.time() * 1000)) if file.gone and offset.done else offset

    def _join(self, file: SpoolFile, changes: Changes) -> None:
        """Replaces the rows of a split file's ranges with the file's own row once all of them are read."""
        whole = file.progress.joined(lambda one: changes.offsets.get(one) or self._unsaved.offset_of(one))
        if whole is not None:
            for one in file.partitions:
                changes.offsets.pop(one, None)
                changes.forget.add(one)
            changes.offsets[file.partition] = whole

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> tuple[list[SpoolFile], FatalError | None]:
        """Takes in the results once `changes` are saved. Returns the finished files, and the error that stops the connector, if any."""
        done: list[SpoolFile] = []
        failure: FatalError | None = None
        for result in sorted(results, key=_got_on):  # files without progress are queued before those with progress
            reading = self._planner.release(result.split.partition)
            file = reading.file
            if (offset := changes.offsets.get(reading.partition)) is not None:
                file.got_on(file.progress.with_offset(reading.part, offset, result.packed_position))
            if result.damage:
                self._tell_damage(result)
            whole = changes.offsets.get(file.partition)
            if whole is not None and whole.done:
                file.got_on(file.progress.cut_into(()).with_offset(None, whole))
                done.append(file)
            elif result.damage and self._stop:
                failure = bad_file(result, counts_records=self._counts_records)
            else:
                self._next(file, result, offset)
            self._drift.note(result.split.path, result.schema)
            if not (file.progress.is_begun or self._is_read(file)):
                file.close()
        return done, failure

    def _is_read(self, file: SpoolFile) -> bool:
        return self._planner.reads_any(file.partitions)

    def _tell_damage(self, result: SplitResult) -> None:
        path, offset = result.split.path, result.offset
        self._log.error("bad file, what comes before is sent", path=path, offset=offset.position, records=offset.records, why=result.damage)

    def _next(self, file: SpoolFile, result: SplitResult, offset: SourceOffset | None) -> None:
        """Decides what comes next for a file that is not read to its end. `offset` is the saved offset of the result."""
        if file.is_set_aside:
            self._admission.drop(file)
        elif isinstance(result.error, FileError):
            delay = file.fail(result.error.message)
            self._log.warning("file cannot be read, the others go on", path=file.path, why=result.error.message, retry_s=delay)
            self._admission.later(file, delay)
        elif isinstance(result.error, BlockedError):
            self._admission.later(file, file.block())
        elif result.changed:
            self._changed(file, result, offset)
        else:
            if result.error is None:
                file.recover()
            self._admission.admit(file)

    def _changed(self, file: SpoolFile, result: SplitResult, offset: SourceOffset | None) -> None:
        """Handles a file that was written to since it was planned, or does not hold the bytes that were read before."""
        if offset is not None and offset.trouble:
            file.set_aside(offset.trouble)
            self._catalog.tell_aside(file, offset.trouble)
            self._admission.drop(file)
            return
        planned = (result.split.offset.size, result.split.offset.mtime_ns)
        try:
            info = os.fstat(file.fd)
            is_same = (info.st_size, info.st_mtime_ns) == planned
            file.observe(info)
        except OSError:
            is_same = False
        path, position = file.path, file.progress.position
        self._log.warning("file was changed while it was read, it is read on when it is ready again", path=path, offset=position)
        if (is_same or file.progress.ranges) and not self._is_read(file):
            file.begin_anew()
        self._admission.admit(file)


def _got_on(result: SplitResult) -> bool:
    return result.offset.position > result.split.offset.position
