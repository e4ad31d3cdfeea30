"""All files of a spool directory that are not read yet: which are new, which were read before, which are gone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.model import SourceOffset
from copycat_agent.sources.files.identity import identify_by_name
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.opening import why_not
from copycat_agent.sources.losses import Lost
from copycat_agent.sources.spool_dir.ranges import parts_of
from copycat_agent.sources.spool_dir.remounts import Remounts
from copycat_agent.sources.spool_dir.settling import set_aside
from copycat_agent.sources.spool_dir.spool_file import FileKey, Observed, SetAside, SpoolFile
from copycat_agent.sources.spool_dir.spool_stream import ENDLESS

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.model import SourcePartition
    from copycat_agent.sources.base import Changes
    from copycat_agent.sources.files.identity import Whereabouts
    from copycat_agent.sources.files.paths.discovery import Found
    from copycat_agent.sources.spool_dir.listing import Listing
    from copycat_agent.sources.spool_dir.rows import Row, Rows
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

_WENT = "the file went away before it was read to its end"


class Catalog:
    """The connector's files, by inode. `rows` are what is saved; `listing` looks at the directory.

    Which file is it? One with a row of its device, inode and birth is that row's, under whatever name; of another device, see `remounts`.
    A done row whose size and time of change are still the file's means that it is read; when they are not, it is another generation, read
    from its beginning.
    """

    def __init__(self, connector: str, options: SpoolDirOptions, rows: Rows, listing: Listing, log: Log, *, counts: bool) -> None:
        """`counts`: positions are record numbers."""
        self._connector = connector
        self._options = options
        self._rows = rows
        self._listing = listing
        self._log = log
        self._counts = counts
        self._known_done: dict[tuple[int, int], tuple[int, SourcePartition]] = {}
        self.files: dict[tuple[int, int], SpoolFile] = {}
        self.done: dict[SourcePartition, Row] = {}
        self._remounts = Remounts(rows, listing.opener, self.files, self.vanish)
        self.paths: set[str] = set()
        self.lost = Lost(log)

    def scan(self, found: Sequence[Found], changes: Changes) -> tuple[list[SpoolFile], list[Row]]:
        """Compare what is there with what is known. Returns the files that are new or not what they were, and rows whose file is gone.

        The latter are done rows of which no look has found the file (any more).
        """
        present: set[tuple[int, int]] = set()
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
        self.paths = {file.path for file in self.files.values()}
        return news, gone

    def let_go(self, file: SpoolFile) -> bool:
        """Nothing of it is to be read any more. False when it was let go before."""
        self.paths.discard(file.path)
        return self.files.pop(file.inode_key, None) is not None

    def _observe(self, found: Found, known: tuple[int, SourcePartition] | None, changes: Changes) -> SpoolFile | None:
        """One file that is there. It is returned when it has to be looked at: nothing, or something else, was known of it.

        `known`: as which row's file the last look knew the one that had its inode then, and its time of status change.
        """
        inode_key = (found.stat.st_dev, found.stat.st_ino)
        file = self.files.get(inode_key)
        if file is not None:
            if file.flights:
                file.path, file.gone = found.path, False
                return None  # who reads it tells what has become of it
            same = file.path == found.path and file.version == (found.stat.st_size, found.stat.st_mtime_ns)
            if same or self._is(file, found):
                file.path, file.gone = found.path, False
                return None if file.observe(found.stat) else file
            self.vanish(file)
        try:
            row = self._done_row(found, known)
            if row is None:
                return self._meet(found, changes)
        except FileNotFoundError:
            return None
        except OSError as error:  # it may be one that was read
            self._listing.passed_over.warn(found.path, why_not(error))
            return None
        self._known_done[inode_key] = found.stat.st_ctime_ns, row.partition
        self._keep_done(row, found, changes)
        return None

    def _done_row(self, found: Found, known: tuple[int, SourcePartition] | None) -> Row | None:
        """The row that says that this very file is read, as it is now; None for any other.

        Size and time are not enough: a new file gets the inode of one that was deleted, and programs set times. Nobody can set the time
        of status change, so as long as that is the same nothing has to be asked. Raises OSError.
        """
        if known is not None and known[0] == found.stat.st_ctime_ns and (row := self._rows.get(known[1])) and _is_read(row, found.stat):
            return row
        if not any(_is_read(row, found.stat) for row in self._rows.at_inode(found.stat.st_ino) if row.bounds is None):
            return None
        identity = identify_by_name(found.path, found.stat, follow_symlinks=False)
        rows = self._remounts.rows_of(identity, found) if identity is not None else []
        row = max((row for row in rows if row.bounds is None), key=lambda row: row.generation, default=None)
        return row if row is not None and _is_read(row, found.stat) and not _is_doubtful(row) else None

    def _is(self, file: SpoolFile, found: Found) -> bool:
        """Whether it is the same file under another name."""
        return identify_by_name(found.path, found.stat, follow_symlinks=False) == file.identity

    def _keep_done(self, row: Row, found: Found, changes: Changes) -> None:
        if row.offset.gone_ms or row.offset.path != found.path:
            now = replace(row.offset, gone_ms=0, path=found.path)
            changes.offsets[row.partition] = now
            row = row._replace(offset=now)
        self.done[row.partition] = row._replace(identity=row.identity._replace(device=found.stat.st_dev))

    def _meet(self, found: Found, changes: Changes) -> SpoolFile | None:
        identity = identify_by_name(found.path, found.stat, follow_symlinks=False)
        if identity is None:
            return None  # it went away, or another one has its name: the next look knows
        info = found.stat
        rows = self._remounts.rows_of(identity, found)
        if found.stat.st_nlink > 1 and not rows and not self._may_be_taken(found):
            return None
        generation = max((row.generation for row in rows), default=0)
        key = FileKey(self._connector, identity, generation, rows[0].identity if rows else None)
        file = SpoolFile(key, found.path, Observed.of(info), SourceOffset(0, path=found.path), self._counts)
        self._recall(file, [row for row in rows if row.generation == generation], changes)
        if not file.is_begun:
            file.former = self._rows.done_at(found.path, info.st_size)
        self.files[file.inode_key] = file
        return file

    def _may_be_taken(self, found: Found) -> bool:
        """Of a file with several links, which the opener judges. Raises OSError."""
        fd, info = self._listing.opener.open(found.path)
        os.close(fd)
        return os.path.samestat(info, found.stat)  # else the next look knows

    def _recall(self, file: SpoolFile, rows: list[Row], changes: Changes) -> None:
        """What is saved of this generation of the file."""
        if not rows:
            return
        self._take(file, rows)
        if not file.is_begun:
            if file.has_old_parts:
                file.begin_anew()
            return
        known = file.parts[0].offset if file.parts else file.offset
        if self._options.on_changed_file == "stop" and (known.trouble or not _is_at(known, file)):
            self.put_aside(file, changes)
        elif file.has_old_parts:
            file.begin_anew()

    def _take(self, file: SpoolFile, rows: list[Row]) -> None:
        """What its rows say, when it is still that: else it is another generation."""
        whole = next((row.offset for row in rows if row.bounds is None), None)
        if whole is not None and whole.done:
            if self._may_go_on(whole, file):
                file.offset = replace(whole, done=False)
            else:
                file.begin_anew()
                return
        elif any(map(_is_doubtful, rows)):
            file.begin_anew()
            return
        else:
            file.parts = parts_of(rows)
            file.offset = whole if whole is not None and not file.parts else file.offset
        if file.is_begun and self._is_of_other_unit(file):
            why = "its format is another one than when a part of it was sent, and positions mean something else now"
            self._log.warning("file is read from its beginning", path=file.path, why=why)
            file.begin_anew()

    def _is_of_other_unit(self, file: SpoolFile) -> bool:
        """Whether what is settled is a record's number and the format wants a byte, or the other way round.

        There are no bytes before a record's number, so such rows have hashes of the head only. Those that a person has set have none.
        """
        proof = file.offset.fingerprint
        if file.parts:
            return self._counts != (file.parts[-1].end == ENDLESS)
        if proof.tail_bytes:
            return self._counts
        return bool(proof.head_bytes) and not self._counts

    def _may_go_on(self, done: SourceOffset, file: SpoolFile) -> bool:
        """Whether a file that was read has only been added to, as far as can be told now; who reads it on compares what was read."""
        grown = file.size > done.size and not (done.compression or done.trouble)
        return grown and self._options.on_changed_file == "continue" and done.fingerprint.head_bytes > 0

    def put_aside(self, file: SpoolFile, changes: Changes) -> None:
        """It was changed after a part of it was sent, and is not read on; saved and told."""
        file.former = None
        offset = set_aside(file.parts[0].offset if file.parts else file.offset)
        partition = file.parts[0].partition if file.parts else file.partition
        file.state = SetAside(offset.trouble)
        if file.parts:
            file.parts[0].offset = offset
        else:
            file.offset = offset
        if partition not in changes.offsets or changes.offsets[partition] != offset:
            changes.offsets[partition] = replace(offset, path=file.path)
            why, _, hint = offset.trouble.partition("; ")
            self._log.error("file set aside, the others go on", path=file.path, why=why, offset=file.position, hint=hint)

    def _miss(self, present: set[tuple[int, int]], changes: Changes) -> list[Row]:
        """Files and rows that nothing was found of. What a directory held that cannot be listed now is not known to be missing."""
        for file in [one for key, one in self.files.items() if key not in present]:
            if not (file.flights or file.fd >= 0) and _is_on_another_device(file):
                self.let_go(file)  # its file system was mounted again: under its new number it is another one of `files`
                continue
            if not self._listing.is_missing(file.path, {file.identity.device}):
                continue
            if file.flights or file.fd >= 0:
                file.gone = True  # it is read to its end all the same
            else:
                self.vanish(file)
        gone = []
        for row in self._rows.there():
            place = self._remounts.place_of(row.identity)
            if place in present or place in self.files or row.partition in changes.offsets or row.partition in changes.forget:
                continue
            if not self._listing.is_missing(row.offset.path, self._remounts.numbers_of(row.identity.device)):
                continue
            if not _stands(row):  # else it is excluded by now
                gone.append(row)
        return gone

    def is_gone(self, row: Row, whereabouts: Whereabouts) -> bool:
        """Whether it is seen that no name in its directory leads to the file of a row. What cannot be listed is not seen."""
        return whereabouts.seen(row.offset.path, row.identity, self._remounts.numbers_of(row.identity.device)) is False

    def vanish(self, file: SpoolFile) -> None:
        """It is not there any more, and was not read to its end."""
        self.let_go(file)
        file.close()
        file.gone = True
        if not file.is_begun:
            self._log.warning("file went away before it was read", path=file.path, bytes=file.size)

    def lose(self, row: Row, changes: Changes) -> None:
        """The file of a row that is not done is gone: what was not read of it is lost. It is entered once, with the row's `gone_ms`."""
        offset = row.offset
        if offset.done or not (offset.position or row.bounds):
            return
        start, end, words = packed.rest(offset)
        if row.bounds is not None:
            end = row.bounds[1]
        if end > start:
            self.lost.add(row.partition, offset.path, start, end, f"{_WENT}{words}", changes)


def _is_read(row: Row, info: os.stat_result) -> bool:
    return row.offset.done and (row.offset.size, row.offset.mtime_ns) == (info.st_size, info.st_mtime_ns)


def _is_on_another_device(file: SpoolFile) -> bool:
    try:
        return os.lstat(file.path).st_dev != file.identity.device
    except OSError:
        return False


def _is_at(offset: SourceOffset, file: SpoolFile) -> bool:
    return (offset.size, offset.mtime_ns) == file.version


def _stands(row: Row) -> bool:
    """Whether the file of a row has the name still that it had last."""
    try:
        return os.lstat(row.offset.path).st_ino == row.identity.inode
    except OSError:
        return False


def _is_doubtful(row: Row) -> bool:
    """Whether nobody can tell if a file is this row's: it had gone, and the file system keeps no times of birth."""
    return bool(row.offset.gone_ms) and not row.identity.birth_ns
