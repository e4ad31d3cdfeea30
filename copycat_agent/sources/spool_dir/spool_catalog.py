"""All files of a spool directory that are not read yet: which are new, which were read before, which are gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files.identity import Identity, InodeFinder, identify_by_name
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.regular_files import why_not
from copycat_agent.sources.losses import LostData
from copycat_agent.sources.spool_dir.file_progress import FileProgress, ranges_of, set_aside
from copycat_agent.sources.spool_dir.rows import FileRow, FileRows, Place, Remounts
from copycat_agent.sources.spool_dir.spool_file import FileKey, FileOrRange, Observation, SpoolFile

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.files.paths.discovery import MatchedFile
    from copycat_agent.sources.planner import Changes, Planner
    from copycat_agent.sources.spool_dir.listing import Listing
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

_WENT = "the file went away before it was read to its end"


class SpoolCatalog:
    """The connector's files, by inode. `rows` are the saved rows; `listing` looks at the directory.

    A file belongs to the row with its device, inode and birth time, under whatever name; `Remounts` knows the files whose device number has
    changed. A done row with the file's current size and modification time means that it is read; if they differ, the file is another
    generation, read from its beginning.
    """

    def __init__(
        self,
        connector: str,
        options: SpoolDirOptions,
        rows: FileRows,
        listing: Listing,
        planner: Planner[FileOrRange],
        log: Log,
        *,
        counts: bool,
    ) -> None:
        """`counts`: positions are record numbers."""
        self._connector = connector
        self._options = options
        self._rows = rows
        self._listing = listing
        self._planner = planner
        self._log = log
        self._counts = counts
        self._remounts = Remounts(rows, listing.opener, self._leave)
        self._known_done: dict[Place, tuple[int, SourcePartition]] = {}
        self._paths: set[str] = set()
        self.files: dict[Place, SpoolFile] = {}
        self.done: dict[SourcePartition, FileRow] = {}
        self.lost = LostData(log)

    def scan(self, found: Sequence[MatchedFile], changes: Changes) -> tuple[list[SpoolFile], list[FileRow]]:
        """Compares the files found with those known. Returns the files that are new or changed, and the rows of files that are gone.

        The rows include done rows whose file no scan has found.
        """
        present: set[Place] = set()
        news: list[SpoolFile] = []
        self.done, before = {}, self._known_done
        self._known_done = {}
        self._remounts.begin_scan(found)
        for one in found:
            inode_key = (one.stat.st_dev, one.stat.st_ino)
            present.add(inode_key)
            if (file := self._observe(one, before.get(inode_key), changes)) is not None:
                news.append(file)
        gone = self._miss(present, changes)
        self._paths = {file.path for file in self.files.values()}
        return news, gone

    def knows(self, path: str) -> bool:
        """Returns whether the last scan found an unread file at `path`."""
        return path in self._paths

    def finish(self, file: SpoolFile) -> FileRow | None:
        """Finishes a file that is read to its end and saved. Returns its row if it still exists and was not finished before."""
        if not self._let_go(file) or file.gone:
            return None
        row = self.done[file.partition] = FileRow(file.partition, file.identity, file.key.generation, None, file.progress.offset)
        return row

    def forget_former(self, file: SpoolFile, changes: Changes) -> None:
        """Forgets the rows of earlier generations once this generation has a row of its own."""
        if file.partition in changes.offsets:
            rows = self._rows.of_file(file.key.saved)
            changes.forget.update(row.partition for row in rows if row.generation < file.key.generation)

    def cleaned(self, row: FileRow, changes: Changes) -> None:
        """Marks a done row's file as removed. Has no effect if the file was read on since, or renamed: then it still exists."""
        now = self._rows.get(row.partition)
        if now is None or now.offset != row.offset or row.partition in changes.offsets:
            return
        self.done.pop(row.partition, None)
        if row.partition not in changes.forget:
            self._rows.gone(row, changes)

    def _let_go(self, file: SpoolFile) -> bool:
        """Removes a file of which nothing more is to be read. Returns False if it was removed before."""
        self._paths.discard(file.path)
        return self.files.pop(file.inode_key, None) is not None

    def _is_read(self, file: SpoolFile) -> bool:
        return self._planner.reads_any(file.partitions)

    def _leave(self, place: Place, saved: Identity, now: Identity) -> None:
        """Drops the file at `place`: the file with rows of identity `saved` is now at `now`. Raises OSError while a task reads it."""
        before = self.files.get(place)
        if before is not None and before.inode_key != now[:2] and before.key.saved == saved:
            if self._is_read(before):
                raise OSError(errno.EBUSY, "its file system was mounted again while it is being read")
            self.vanish(before)

    def _observe(self, found: MatchedFile, known: tuple[int, SourcePartition] | None, changes: Changes) -> SpoolFile | None:
        """Compares one file that exists with what is known. Returns it if it is new or has changed, and so has to be checked.

        `known`: the status change time and the row that the last scan had for a done file at this inode.
        """
        inode_key = (found.stat.st_dev, found.stat.st_ino)
        file = self.files.get(inode_key)
        if file is not None:
            same = file.path == found.path and file.seen.version == (found.stat.st_size, found.stat.st_mtime_ns)
            is_read = not same and self._is_read(file)
            if same or is_read or identify_by_name(found.path, found.stat, follow_symlinks=False) == file.identity:
                file.found(found.path)
                return None if is_read or file.observe(found.stat) else file  # a task's result says how it has changed
            self.vanish(file)
        try:
            row = self._done_row(found, known)
            if row is None:
                return self._meet(found, changes)
        except FileNotFoundError:
            return None
        except OSError as error:  # it may be a file that was read
            self._listing.passed_over.warn(found.path, why_not(error))
            return None
        self._known_done[inode_key] = found.stat.st_ctime_ns, row.partition
        self._keep_done(row, found, changes)
        return None

    def _done_row(self, found: MatchedFile, known: tuple[int, SourcePartition] | None) -> FileRow | None:
        """Returns the row which says that this very file is read, in its present state; None for any other file.

        Size and modification time are not enough: a new file gets the inode of a deleted one, and programs set times. Nobody can set the
        status change time, so as long as that is the same nothing has to be checked. Raises OSError.
        """
        if known is not None and known[0] == found.stat.st_ctime_ns and (row := self._rows.get(known[1])) and row.says_read(found.stat):
            return row
        if not any(row.says_read(found.stat) for row in self._rows.at_inode(found.stat.st_ino) if row.bounds is None):
            return None
        identity = identify_by_name(found.path, found.stat, follow_symlinks=False)
        rows = self._remounts.rows_of(identity, found) if identity is not None else []
        row = max((row for row in rows if row.bounds is None), key=lambda row: row.generation, default=None)
        return row if row is not None and row.says_read(found.stat) and not row.is_doubtful else None

    def _keep_done(self, row: FileRow, found: MatchedFile, changes: Changes) -> None:
        if row.offset.gone_ms or row.offset.path != found.path:
            now = replace(row.offset, gone_ms=0, path=found.path)
            changes.offsets[row.partition] = now
            row = row._replace(offset=now)
        self.done[row.partition] = row._replace(identity=row.identity._replace(device=found.stat.st_dev))

    def _meet(self, found: MatchedFile, changes: Changes) -> SpoolFile | None:
        identity = identify_by_name(found.path, found.stat, follow_symlinks=False)
        if identity is None:
            return None  # it went away, or another file has its name: the next scan finds out
        rows = self._remounts.rows_of(identity, found)
        if found.stat.st_nlink > 1 and not rows and not self._may_be_taken(found):
            return None
        generation = max((row.generation for row in rows), default=0)
        key = FileKey(self._connector, identity, generation, rows[0].identity if rows else None)
        file = SpoolFile(key, found.path, Observation.of(found.stat), FileProgress(SourceOffset(0, path=found.path), self._counts))
        self._recall(file, [row for row in rows if row.generation == generation], changes)
        if not file.progress.is_begun:
            file.may_repeat(self._rows.done_at(found.path, found.stat.st_size))
        self.files[file.inode_key] = file
        return file

    def _may_be_taken(self, found: MatchedFile) -> bool:
        """Returns whether the opener admits a file with several links. Raises OSError."""
        fd, info = self._listing.opener.open(found.path)
        os.close(fd)
        return os.path.samestat(info, found.stat)  # else the next scan finds out

    def _recall(self, file: SpoolFile, rows: list[FileRow], changes: Changes) -> None:
        """Sets a file's progress from the saved rows of this generation."""
        progress = self._saved(file, rows)
        if progress is None:
            file.begin_anew()
            return
        file.go_on(progress)
        is_changed = file.was_changed or bool(progress.first_offset.trouble)
        if progress.is_begun and is_changed and self._options.on_changed_file == "stop":
            self.put_aside(file, changes)
        elif file.has_old_ranges:
            file.begin_anew()

    def _saved(self, file: SpoolFile, rows: list[FileRow]) -> FileProgress | None:
        """Returns the progress in the file's rows; None if it is not the file that they describe any more."""
        whole = next((row.offset for row in rows if row.bounds is None), None)
        progress = file.progress.cut_into(ranges_of(rows))
        if whole is not None and whole.done:
            if not self._may_go_on(whole, file):
                return None
            progress = file.progress.with_offset(None, replace(whole, done=False))
        elif any(row.is_doubtful for row in rows):
            return None
        elif whole is not None and not progress.ranges:
            progress = progress.with_offset(None, whole)
        if progress.is_begun and progress.is_of_other_unit:
            why = "its format is another one than when a part of it was sent, and positions mean something else now"
            self._log.warning("file is read from its beginning", path=file.path, why=why)
            return None
        return progress

    def _may_go_on(self, done: SourceOffset, file: SpoolFile) -> bool:
        """Returns whether a finished file seems to have only grown; the task that reads on compares the content that was read."""
        grown = file.size > done.size and not (done.compression or done.trouble)
        return grown and self._options.on_changed_file == "continue" and done.fingerprint.head_bytes > 0

    def put_aside(self, file: SpoolFile, changes: Changes) -> None:
        """Sets aside a file that was changed after a part of it was sent: it is not read on. Saves and logs that."""
        first, offset = FileOrRange(file, file.progress.first), set_aside(file.progress.first_offset)
        file.go_on(file.progress.with_offset(first.part, offset))
        if changes.offsets.get(first.partition) != offset:
            changes.offsets[first.partition] = replace(offset, path=file.path)
            self.tell_aside(file, offset.trouble)
        file.set_aside(offset.trouble)

    def tell_aside(self, file: SpoolFile, why: str) -> None:
        """Logs that the file is not read on."""
        why, _, hint = why.partition("; ")
        self._log.error("file set aside, the others go on", path=file.path, why=why, offset=file.progress.position, hint=hint)

    def _miss(self, present: set[Place], changes: Changes) -> list[FileRow]:
        """Handles files and rows that the scan did not find. A file is not missing if its directory could not be listed."""
        for file in [one for key, one in self.files.items() if key not in present]:
            is_held = file.fd >= 0 or self._is_read(file)
            if not is_held and _is_on_another_device(file):
                self._let_go(file)  # its file system was mounted again: `files` has it under the new device number
                continue
            if not self._listing.is_missing(file.path, {file.identity.device}):
                continue
            if is_held:
                file.went()  # it is read to its end all the same
            else:
                self.vanish(file)
        gone = []
        for row in self._rows.there():
            place = self._remounts.place_of(row.identity)
            if place in present or place in self.files or row.partition in changes.offsets or row.partition in changes.forget:
                continue
            if not self._listing.is_missing(row.offset.path, self._remounts.numbers_of(row.identity.device)):
                continue
            if not row.is_at_its_name:  # else it is excluded now
                gone.append(row)
        return gone

    def leave(self, changes: Changes) -> None:
        """Called when the connector stops. Enters the losses of files that have no name any more and are only open."""
        for file in self.files.values():
            rows = self._rows.of_file(file.key.saved) if file.gone and file.progress.is_begun else ()
            for row in rows:
                if row.generation == file.key.generation and not row.offset.done:
                    self.lose(row, changes)
                    self._rows.gone(row._replace(offset=changes.offsets.get(row.partition, row.offset)), changes)

    def is_gone(self, row: FileRow, whereabouts: InodeFinder) -> bool:
        """Returns whether no name in its directory leads to a row's file. False if the directory cannot be listed."""
        return whereabouts.seen(row.offset.path, row.identity, self._remounts.numbers_of(row.identity.device)) is False

    def vanish(self, file: SpoolFile) -> None:
        """Forgets a file that has disappeared before it was read to its end."""
        self._let_go(file)
        file.close()
        file.went()
        if not file.progress.is_begun:
            self._log.warning("file went away before it was read", path=file.path, bytes=file.size)

    def lose(self, row: FileRow, changes: Changes) -> None:
        """Enters the unread rest of a missing file as lost, unless its row is done. It is entered once, with the row's `gone_ms`."""
        offset = row.offset
        if offset.done or not (offset.position or row.bounds):
            return
        start, end, words = packed.rest(offset)
        if row.bounds is not None:
            end = row.bounds[1]
        if end > start:
            self.lost.add(row.partition, offset.path, start, end, f"{_WENT}{words}", changes)


def _is_on_another_device(file: SpoolFile) -> bool:
    try:
        return os.lstat(file.path).st_dev != file.identity.device
    except OSError:
        return False
