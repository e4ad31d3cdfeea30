"""Copies files to another device in steps: write to a temporary name, sync, give it the final name, delete the original.

Steps are short so that nothing waits for a copy of 10 GB. A crash leaves either a part with one name, which is begun anew, or one that has
its final name too: then only the original is left to delete. Under its final name a file is always complete.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.spool_dir.cleanup.folders import PREFIX, ChangedError, CleanupDelayedError, Folder, Unsynced, folder
from copycat_agent.sources.spool_dir.cleanup.moves import (
    NO_LINK,
    Choose,
    CleanupItem,
    NameState,
    delete,
    free_name,
    is_numbered,
    item_at,
    linked,
    move,
    rename_new,
    seen,
)
from copycat_agent.sources.spool_dir.cleanup.target_notes import Retention

STEP_SECONDS = 0.2
MARK_BYTES = 4 * 2**20
"""The largest done file: it is copied in one call."""
_CHUNK_BYTES = 2**20
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | os.O_NOFOLLOW
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_TRIES = 16


class Copies:
    """The copies of one connector, one file at a time. Used by one caller at a time."""

    def __init__(self, connector: str) -> None:
        self._prefix = f"{PREFIX}{connector}-"
        self._current: _Copy | None = None

    def part_name(self, item: CleanupItem) -> str:
        """Returns the name of a copy until it is complete."""
        return f"{self._prefix}{item.key}.part"

    def carry(self, home: Folder, item: CleanupItem, root: Folder, goal: Folder, choose: Choose) -> str:
        """Does the next step of a copy. Returns the name in `goal` once the original is deleted. `root`: the target, which holds the parts.

        Raises CleanupDelayedError while there is more to copy, ChangedError, OSError.
        """
        part = self.part_name(item)
        info = root.look(part)
        if info is not None and info.st_nlink > 1 and (name := linked(goal, item.name, info)):
            return self._end(home, item, root, name)
        copy = self._copy_of(home, item, root)
        try:
            if not copy.step(time.monotonic() + STEP_SECONDS):
                raise CleanupDelayedError(f"is being copied to {goal.path}, {copy.position:,} of {item.size:,} bytes", 0.0)
            copy.finish()
        except (OSError, ChangedError):
            self.close()
            raise
        self.close()
        if seen(home, item.name, item) is not NameState.IT:
            root.remove(part)
            raise ChangedError("it was replaced or written to while it was copied")
        return self._end(home, item, root, _name(root, part, goal, choose))

    def _copy_of(self, home: Folder, item: CleanupItem, root: Folder) -> _Copy:
        if self._current is not None and self._current.item != item:
            raise CleanupDelayedError(f"waits until {self._current.item.name} is copied", 0.0)
        if self._current is None:
            self._current = _Copy(home, item, root, self.part_name(item))
        return self._current

    def _end(self, home: Folder, item: CleanupItem, root: Folder, name: str) -> str:
        delete(home, item, unless_written=False)
        home.sync()
        root.remove(self.part_name(item))
        return name

    def forget(self, root: Folder, item: CleanupItem) -> None:
        """Removes the part of a file whose original is gone: the copy has its final name, or is not needed."""
        if self._current is not None and self._current.item == item:
            self.close()
        root.remove(self.part_name(item))

    def carry_mark(self, home: Folder, item: CleanupItem, root: Folder, goal: Folder, choose: Choose) -> str:
        """Copies a done file in one call. One with the same bytes and times in `goal` is this one, copied before a crash."""
        if item.size > MARK_BYTES:
            raise CleanupDelayedError(f"its done file is too large to be copied: {item.size:,} bytes, {MARK_BYTES:,} at most")
        name = next((other for other in goal.names() if is_numbered(item.name, other) and _is_same(home, item, goal, other)), "")
        if not name:
            copy = _Copy(home, item, root, self.part_name(item))
            try:
                while not copy.step(time.monotonic() + STEP_SECONDS):
                    pass
                copy.finish()
            finally:
                copy.close()
            name = choose()
            rename_new(root, self.part_name(item), goal, name)
            goal.sync()
        home.remove(item.name)
        return name

    def keep_only(self, items: set[CleanupItem]) -> None:
        """Ends a copy that is not among `items`, so that it does not block the others."""
        if self._current is not None and self._current.item not in items:
            self.close()

    def sweep(self, root: Folder) -> None:
        """Deletes parts that a crash left unfinished. One with a final name stays: it says that only the original has to be deleted."""
        for name in root.names():
            if name.startswith(self._prefix) and name.endswith(".part"):
                info = root.look(name)
                if info is not None and info.st_nlink == 1:
                    root.remove(name)

    def close(self) -> None:
        """Ends the current copy; the next call begins it anew."""
        if self._current is not None:
            self._current.close()
            self._current = None


class _Copy:
    """One copy in progress. Methods raise OSError."""

    def __init__(self, home: Folder, item: CleanupItem, root: Folder, part: str) -> None:
        self.item = item
        self.position = 0
        self._from = os.open(item.name, _READ, dir_fd=home.fd)
        self._to = -1
        try:
            info = os.fstat(self._from)
            root.remove(part)
            self._to = os.open(part, _WRITE, 0o600, dir_fd=root.fd)
        except OSError:
            self.close()
            raise
        if (identify(self._from, info), info.st_size) != (item.identity, item.size):
            self.close()
            raise ChangedError("another file has its name")

    def step(self, until: float) -> bool:
        """Copies until `until`, by time.monotonic(), then syncs the data. Returns whether everything is copied."""
        while self.position < self.item.size:
            data = memoryview(os.pread(self._from, min(_CHUNK_BYTES, self.item.size - self.position), self.position))
            if not data:
                raise ChangedError("it was cut while it was copied")
            while data:
                written = os.write(self._to, data)
                self.position += written
                data = data[written:]
            if time.monotonic() > until:
                break
        os.fdatasync(self._to)
        return self.position == self.item.size

    def finish(self) -> None:
        """Sets owner, mode and times of the original, and syncs everything to disk."""
        info = os.fstat(self._from)
        with suppress(PermissionError):  # only root may give files away
            os.fchown(self._to, info.st_uid, info.st_gid)
        with suppress(PermissionError):  # a file system without modes
            os.fchmod(self._to, info.st_mode & 0o777)
        os.utime(self._to, ns=(info.st_atime_ns, self.item.mtime_ns))
        os.fsync(self._to)
        if os.fstat(self._to).st_size != self.item.size:
            raise OSError(errno.EIO, "the copy has another size than the original", self.item.name)

    def close(self) -> None:
        for fd in (self._from, self._to):
            if fd >= 0:
                os.close(fd)
        self._from = self._to = -1


def _is_same(home: Folder, item: CleanupItem, goal: Folder, name: str) -> bool:
    """Returns whether the small file in `goal` is a copy of this one."""
    info = goal.look(name)
    if info is None or not stat.S_ISREG(info.st_mode) or (info.st_size, info.st_mtime_ns) != (item.size, item.mtime_ns):
        return False
    return _content(home, item.name) == _content(goal, name)


def _content(folder: Folder, name: str) -> bytes:
    with open(os.open(name, _READ, dir_fd=folder.fd), "rb") as stream:  # noqa: PTH123 - a descriptor
        return stream.read(MARK_BYTES + 1)


def _name(root: Folder, part: str, goal: Folder, choose: Choose) -> str:
    """Gives the complete copy its final name, as a hard link to `part` if the file system allows it."""
    for _ in range(_TRIES):
        name = choose()
        with suppress(FileExistsError):
            _link_or_rename(root, part, goal, name)
            goal.sync()
            return name
    raise FileExistsError(errno.EEXIST, "every name that was tried is taken", goal.path)


def _link_or_rename(root: Folder, part: str, goal: Folder, name: str) -> None:
    """Links or renames the part. Without hard links a crash before the original is deleted leaves a second copy, but loses nothing."""
    try:
        os.link(part, name, src_dir_fd=root.fd, dst_dir_fd=goal.fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINK:
            raise
        rename_new(root, part, goal, name)


class FilePlacement:
    """Puts files into `goal`, the directory `rest` below the target `root`, and notes them for deletion after `retain`."""

    def __init__(self, root: Folder, rest: str, goal: Folder, retention: Retention | None, copies: Copies) -> None:
        self.root = root
        self.goal = goal
        self._rest = rest
        self._retention = retention
        self._copies = copies

    def file(self, home: Folder, item: CleanupItem, choose: Choose) -> str:
        """Puts a file there. Returns its name. Raises CleanupDelayedError while a copy goes on, ChangedError, OSError."""
        return self._put(home, item, choose, self._copies.carry)

    def done_file(self, path: str, unsynced: Unsynced) -> None:
        """Puts a done file there in one call; "" means none. Raises CleanupDelayedError, OSError."""
        for home, item in _done_file(path, unsynced):
            self._put(home, item, lambda: free_name(self.goal, item.name), self._copies.carry_mark)  # noqa: B023 - there is one at most

    def _put(
        self, home: Folder, item: CleanupItem, choose: Choose, carry: Callable[[Folder, CleanupItem, Folder, Folder, Choose], str]
    ) -> str:
        is_copied = home.mount != self.goal.mount

        def chosen() -> str:
            name = choose()
            self.note(name, self.root.look(self._copies.part_name(item)) if is_copied else home.look(item.name))
            return name

        return carry(home, item, self.root, self.goal, chosen) if is_copied else move(home, item, self.goal, chosen)

    def note(self, name: str, info: os.stat_result | None = None) -> None:
        """Notes the file that has this name, or is about to get it, for deletion after `retain`."""
        info = info or self.goal.look(name)
        if self._retention is not None and info is not None:
            path = f"{self._rest}/{name}" if self._rest else name
            self._retention.note(self.root, path, (info.st_ino, info.st_size, info.st_mtime_ns))


def remove_done_file(path: str, unsynced: Unsynced) -> None:
    """Deletes a done file; "" means none. Raises OSError."""
    for home, item in _done_file(path, unsynced):
        home.remove(item.name)


def _done_file(path: str, unsynced: Unsynced) -> Iterator[tuple[Folder, CleanupItem]]:
    """Yields the done file and its directory, which will be synced; nothing if it does not exist."""
    above, _, name = path.rpartition("/")
    try:
        home = folder(above or "/") if name else None
    except FileNotFoundError:
        home = None
    if home is not None:
        with home:
            if item := item_at(home, name):
                unsynced.add(home)
                yield home, item
