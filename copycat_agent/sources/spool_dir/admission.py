"""From a file that is there to one that a task may read: it has to be complete, it has to be what it was, and somebody must open it."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.files.packing import compressions
from copycat_agent.sources.files.paths.opening import SPARE, is_open_for_writing, why_not

if TYPE_CHECKING:
    from copycat_agent.sources.planner import TurnQueue
    from copycat_agent.sources.spool_dir.catalog import Catalog
    from copycat_agent.sources.spool_dir.listing import Listing
    from copycat_agent.sources.spool_dir.ready import Ready
    from copycat_agent.sources.spool_dir.spool_file import SpoolFile
    from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions

AGAIN_SECONDS = 0.5
"""When a file that is not where it was is asked for again; a scan finds it before, under another name, or forgets it."""
WRITER_SECONDS = 60.0
"""So long a file that does not change is waited for because somebody has it open for writing; who forgets to close it holds up nobody."""
MOST_OPEN = 512
"""Files that one connector opens at a time."""


class Admission:
    """For one connector, in its thread. `empty`, `large` and `changed` are files that a scan has to settle: they need rows saved."""

    def __init__(
        self, options: SpoolDirOptions, catalog: Catalog, ready: Ready, queue: TurnQueue[SpoolFile], listing: Listing, *, cuts: bool
    ) -> None:
        """`cuts`: large files may be cut into ranges."""
        self._options = options
        self._catalog = catalog
        self._ready = ready
        self._queue = queue
        self._listing = listing
        self._cuts = cuts
        self._awaiting: dict[SpoolFile, None] = {}
        self._opened: set[SpoolFile] = set()
        self.empty: list[SpoolFile] = []
        self.large: list[SpoolFile] = []
        self.changed: list[SpoolFile] = []
        self.needs_look = False
        """Whether a file is not where it was."""

    @property
    def has_news(self) -> bool:
        """Whether a scan has something to settle."""
        return bool(self.empty or self.large or self.changed)

    def admit(self, file: SpoolFile) -> None:
        """Put it in line if it is complete, else have it looked at again in time. It is not in flight."""
        self._queue.discard(file)
        self._awaiting.pop(file, None)
        if file.is_set_aside or not self.follows(file):
            self._ready.forget(file)
            return
        if file.is_begun and self._options.on_changed_file == "stop" and _was_changed(file):
            self.changed.append(file)
            return
        why = self._ready.why_not(file)
        if not why:
            self._enter(file)
            return
        file.wait(why)
        if left := self._ready.seconds_left(file):
            self._ready.look_at(file, left)
        else:
            self._awaiting[file] = None

    def _enter(self, file: SpoolFile) -> None:
        file.complete()
        if file.has_old_parts and not file.flights:
            file.begin_anew()
        if not (file.size or file.is_begun):
            self.empty.append(file)
        elif self._cuts and file.cuttable:
            self.large.append(file)
        else:
            self._queue.add(file)

    def look_for_done_files(self) -> None:
        """A directory has changed: the word that a file is complete may have come."""
        for file in list(self._awaiting):
            self.admit(file)

    def ripen(self) -> float:
        """Look at the files whose time has come. Returns when to ask again, as `time.monotonic()` tells it."""
        for file in self._ready.due():
            if not file.flights and self.follows(file):
                self._look_again(file)
        return self._ready.next_at

    def follows(self, file: SpoolFile) -> bool:
        """Whether it is still the one of its inode: one that went away is not, whatever has its name or its inode now."""
        return self._catalog.files.get(file.inode_key) is file

    def later(self, file: SpoolFile, seconds: float) -> None:
        """It has its next turn after so long."""
        self._queue.discard(file)
        self._ready.look_at(file, seconds)

    def drop(self, file: SpoolFile) -> None:
        """Nothing is to be done for it any more."""
        self._queue.discard(file)
        self._awaiting.pop(file, None)
        self._ready.forget(file)
        file.close()

    def lose(self, file: SpoolFile) -> None:
        """It went away."""
        self.drop(file)
        self._catalog.vanish(file)

    def _look_again(self, file: SpoolFile) -> None:
        try:
            info = os.fstat(file.fd) if file.fd >= 0 else os.lstat(file.path)
        except OSError:
            info = None
        if info is None or (info.st_dev, info.st_ino) != file.inode_key:
            self._seek(file)
            return
        file.observe(info)
        self.admit(file)

    def _seek(self, file: SpoolFile) -> None:
        """It is not where it was: a look finds it or forgets it.

        Where its whole directory is gone no look can tell, so it counts as an error: no run to the end waits for it for ever.
        """
        self.needs_look = True
        file.fail("it is not where it was, and its directory cannot be listed")
        self._ready.look_at(file, AGAIN_SECONDS)

    def room(self) -> int:
        """How many more files may be opened. Files that are begun give way when it would be none: each is opened again for its turn."""
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        allowed = MOST_OPEN if soft == resource.RLIM_INFINITY else min(MOST_OPEN, soft - SPARE)
        self._opened = {file for file in self._opened if file.fd >= 0}
        if len(self._opened) >= allowed:
            for file in [one for one in self._opened if not (one.flights or one.gone)]:
                file.close()
                self._opened.discard(file)
        return max(1, allowed - len(self._opened))

    def open(self, file: SpoolFile) -> bool:
        """Have it open for its turn. False when it cannot be, or is not ready any more: then it comes again by itself."""
        return self.follows(file) and self._open(file)

    def _open(self, file: SpoolFile) -> bool:
        if file.fd >= 0:
            return self._is_as_it_was(file)
        try:
            fd, info = self._listing.opener.open(file.path, is_known=True)
        except FileNotFoundError:
            self._seek(file)
            return False
        except OSError as error:
            self._refuse(file, error)
            return False
        if identify(fd, info) != file.identity:
            os.close(fd)
            self.needs_look = True
            self.lose(file)
            return False
        file.fd = fd
        self._opened.add(file)
        if self._is_as_it_was(file) and not self._has_writer(file) and self._recognise(file):
            return True
        file.close()
        return False

    def _is_as_it_was(self, file: SpoolFile) -> bool:
        """Whether nobody has changed it since it was found complete; else it has to become so again."""
        try:
            if file.observe(os.fstat(file.fd)):
                return True
        except OSError as error:
            self._refuse(file, error)
            return False
        self.admit(file)
        return False

    def _has_writer(self, file: SpoolFile) -> bool:
        """Whether somebody has it open for writing, as far as the kernel tells; then it is looked at again later.

        Not asked where the definition says that nothing is waited for, or that a done file decides. For an empty file there is nothing
        to be missed by waiting: what makes a report creates the file first, and may write for the first time much later.
        """
        quiet = time.monotonic() - file.seen.unchanged_since
        is_over = file.size and quiet > self._ready.min_age + WRITER_SECONDS
        if is_over or not self._ready.min_age or not is_open_for_writing(file.fd):
            return False
        file.wait("somebody has it open for writing", has_writer=True)
        self._ready.look_at(file, min(1.0, self._ready.min_age))
        return True

    def _recognise(self, file: SpoolFile) -> bool:
        """How it is packed, from its first bytes or by definition. What does not fit is found by who unpacks it. False: not readable."""
        wanted = self._options.compression
        if file.is_begun or file.parts or wanted == "none":
            return True
        try:
            head = os.pread(file.fd, compressions.MAGIC_BYTES, 0)
        except OSError as error:
            self._refuse(file, error)
            return False
        codec = (compressions.recognise(head, whole=True) or "") if wanted == "auto" else wanted
        file.offset = replace(file.offset, compression=codec)
        return True

    def _refuse(self, file: SpoolFile, error: OSError) -> None:
        """It cannot be read now."""
        why = why_not(error)
        self._listing.passed_over.warn(file.path, why)
        self._ready.look_at(file, file.back_off(why))


def _was_changed(file: SpoolFile) -> bool:
    known = file.parts[0].offset if file.parts else file.offset
    return (known.size, known.mtime_ns) != file.version
