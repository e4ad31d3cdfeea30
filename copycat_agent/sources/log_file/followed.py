"""The files of one connector that are followed: where to find them, which of them have something to read, and which are held open."""

from __future__ import annotations

import errno
import heapq
import os
import resource
from collections.abc import Collection
from typing import TYPE_CHECKING

from copycat_agent.sources.base import Changes, Offsets
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.files.paths.opening import SPARE
from copycat_agent.sources.log_file.absent import Absent
from copycat_agent.sources.log_file.forgetting import Forgetting
from copycat_agent.sources.log_file.generations import Generations, log_of, rotation_family
from copycat_agent.sources.log_file.tracked import TrackedFile
from copycat_agent.sources.losses import Lost
from copycat_agent.sources.planner import TurnQueue

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.base import Keeper
    from copycat_agent.sources.log_file.log_options import LogFileOptions
    from copycat_agent.sources.log_file.tracked import TrackedFile


class OpenFiles(set["TrackedFile"]):
    """The open files of a connector, as `TrackedFile` adds and discards them. `keeper` keeps them for the next process.

    `are_many`: some were closed for room. Then they are kept only when they have left their patterns: to tell the service manager of
    every file that is opened for its turn would cost more than reading it.
    """

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.keeper: Keeper | None = None
        self.are_many = False
        self._owner = owner

    def add(self, file: TrackedFile, /) -> None:
        """Add a file that was just opened."""
        super().add(file)
        if self.keeper is not None and not self.are_many:
            self.keeper.keep(self._owner, file.identity.name, file.fd)

    def discard(self, file: TrackedFile, /) -> None:  # type: ignore[override]  # nothing else is ever in it
        """Remove a file that was closed, or whose descriptor was given away."""
        super().discard(file)
        if self.keeper is not None:
            self.keeper.release(self._owner, file.identity.name)

    def keep_first(self, file: TrackedFile) -> None:
        """Have the keeper prefer this file: nothing but its descriptor leads to it."""
        if self.keeper is not None and file.fd >= 0:
            self.keeper.keep(self._owner, file.identity.name, file.fd, first=True)

    def left(self, identity: Identity) -> int | None:
        """Returns the descriptor of a file that an earlier process of the agent had open, which stays the keeper's; None for none."""
        return None if self.keeper is None else self.keeper.find(identity.name)

    def looked(self) -> None:
        """Tell the keeper that the connector has looked at everything, and needs no file but those that are open now."""
        if self.keeper is not None:
            self.keeper.looked(self._owner, {file.identity.name for file in self})

    def survives(self, file: TrackedFile) -> bool:
        """Whether the agent stops, and the next process will have `file` open."""
        return self.keeper is not None and self.keeper.survives(file.identity.name)


class Descriptors:
    """The open files of one connector. A `TrackedFile` enters and leaves `opened` by itself.

    Never closed for room: files in flight (a task opens them through the driver's descriptor) and files that could not be
    opened again, because they have lost their name. So `max_open_files` bounds what matches; followed leftovers come on top,
    and one file while it is looked at for the first time.
    """

    def __init__(self, connector: str, wanted: int) -> None:
        """`wanted` is `max_open_files`; the process's own limit may allow fewer."""
        self.opened = OpenFiles(connector)
        self._wanted = wanted
        self._shrunk = (0, 0)

    @property
    def limit(self) -> int:
        """How many may be open now, at least one."""
        most, (most_then, share) = _process_limit(), self._shrunk
        allowed = min(most - SPARE, share) if most == most_then else most - SPARE
        return max(1, min(self._wanted, allowed))

    def shrink(self) -> bool:
        """Hold half as many files until the limit of the process changes: it may open no more. Returns whether any was closed."""
        before = len(self.opened)
        self._shrunk = _process_limit(), before // 2
        self.make_room(0, unread=True)
        return len(self.opened) < before

    def make_room(self, wanted: int, keep: Collection[TrackedFile] = (), *, unread: bool) -> int:
        """Close what is not needed so that `wanted` more may be opened; returns how many may.

        Files that are read go first, the longest unused first; files with something unread only when `unread`.
        """
        surplus = len(self.opened) + wanted - self.limit
        if surplus > 0:
            self.opened.are_many = True
            closable = [file for file in self.opened if not file.in_flight and file.gone_since is None and file not in keep]
            for file in heapq.nsmallest(surplus, closable, key=lambda file: (file.unread, file.schedule.turn)):
                if file.has_its_name() and (unread or not file.unread):
                    file.close()
        return max(0, min(wanted, self.limit - len(self.opened)))


def _process_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def close_if_stale(file: TrackedFile) -> bool:
    """After an error: close the file when its descriptor will never work again. Returns whether it did.

    Its turn opens it by its name then, and its identity tells whether it is the same; when the name is gone, a scan searches
    for it as for any file that went away while it was closed. Trouble that may pass (EIO) leaves the descriptor alone: it may be
    the only way to a deleted file.
    """
    if file.fd < 0 or file.in_flight or not _is_stale(file.fd):
        return False
    file.close()
    return True


def _is_stale(fd: int) -> bool:
    """As a task meets it: opened through the driver's descriptor, looked at and read."""
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.fstat(fd)
            os.pread(again, 1, 0)
        finally:
            os.close(again)
    except OSError as error:
        return error.errno == errno.ESTALE
    return False


_PLACES = 64
"""A name that more files have says nothing about where copies of one are put."""


class Followed:
    """The files of one connector. `offsets` are what is saved or about to be.

    `files` by device and inode; `paths` says what the last look found under each name; `dirty` those that may have something
    to read, the longest unserved first; `gone` those that no pattern finds any more; `absent` what is saved of files that nobody follows.
    """

    def __init__(self, connector: str, options: LogFileOptions, offsets: Offsets, log: Log) -> None:
        self.connector = connector
        self.offsets = dict(offsets)
        self.files: dict[tuple[int, int], TrackedFile] = {}
        self.paths: dict[str, tuple[int, int]] = {}
        self.dirty: TurnQueue[TrackedFile] = TurnQueue()
        self.gone: set[TrackedFile] = set()
        self.descriptors = Descriptors(connector, options.max_open_files)
        self.generations = Generations()
        self.lost = Lost(log)
        self.unpacks = options.compression == "auto"
        self.absent = Absent(self.offsets, self.lost.add, log)
        self.forgetting = Forgetting(self.absent, options.forget_after, log)
        self._log = log
        self._names: dict[TrackedFile, str] = {}  # as they were met; newest names are looked up, and are those of files met anew
        self._by_name: dict[str, dict[TrackedFile, None]] = {}
        self._take_in()

    def _take_in(self) -> None:
        """What is saved of files that nobody has met yet. A key that is none of a file's was put there by hand, and is let alone."""
        known = []
        for partition in self.offsets:
            try:
                Identity.parse(partition.key)
                known.append(partition)
            except ValueError:
                hint = f"remove it: copycat offsets reset {self.connector} --key {partition.key}"
                self._log.warning("a saved offset is passed over, its key is none of a file", key=partition.key, hint=hint)
        self.absent.load(known)

    def add(self, file: TrackedFile) -> None:
        """Follow a file that was just met."""
        self.paths[file.path] = file.inode_key
        self.files[file.inode_key] = file
        self._name(file)
        self.generations.add(file)
        self.touch(file)

    def is_as_seen(self, path: str, *, follow_symlinks: bool) -> bool:
        """Whether a look at `path` finds the followed file that the last scan found there, with the same size and times."""
        file = self.files.get(self.paths[path])
        if file is None:
            return False
        try:
            info = os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116 - a hot path: every file of every idle connector
        except OSError:
            return False
        seen = file.seen
        is_same = info.st_ino == file.identity.inode and info.st_dev == file.identity.device
        return is_same and info.st_ctime_ns == seen.changed_ns and not seen.has_other_content(info)

    def gone_at(self, path: str) -> list[TrackedFile]:
        """Returns files that no pattern finds any more and that had this name last."""
        return [file for file in self.gone if file.path == path]

    def relatives(self, path: str) -> list[TrackedFile]:
        """Returns files that may have been copied, packed or moved to `path`, by their names; of other directories only newest ones."""
        directory, base = log_of(path)
        others = self._by_name.get(rotation_family(path), {})
        near = self.files.get(self.paths.get(f"{directory}/{rotation_family(path)}", (-1, -1)))
        found = dict.fromkeys([*self.generations.line((directory, base)), *([near] if near else []), *self.gone_at(path)])
        return [
            *found,
            *(one for one in others if one not in found and len(others) <= _PLACES and one.path.rpartition("/")[0] != directory),
        ]

    def put_before_successor(self, file: TrackedFile, identity: Identity) -> None:
        """`file` holds what the one with this identity held before it was begun anew, and is read first."""
        known = self.files.get(identity[:2])
        others = (one for one in self.files.values() if one.identity.lasting == identity.lasting)  # its device may have another number
        successor = known if known is not None and known.identity == identity else next(others, None)
        if successor is not None and successor is not file:
            self.generations.put_before(file, successor)

    def replace(self, file: TrackedFile, fresh: TrackedFile) -> None:
        """Follow `fresh` in place of `file`, which begins anew. It takes over the descriptor."""
        fd = file.hand_over()
        self.generations.replace(file, fresh)
        self.drop(file)
        if fd >= 0:
            fresh.adopt(fd)
        if fresh.gone_since is not None:
            self.gone.add(fresh)
        self.files[fresh.inode_key] = fresh
        self._name(fresh)
        self.touch(fresh)

    def _name(self, file: TrackedFile) -> None:
        name = self._names[file] = file.path.rpartition("/")[2]
        self._by_name.setdefault(name, {})[file] = None

    def touch(self, file: TrackedFile) -> None:
        """Note whether there is something to read in `file`."""
        if file.note_unread() and not file.removed:
            self.dirty.add(file)
        else:
            self.dirty.discard(file)

    def drain(self, file: TrackedFile) -> None:
        """Follow a file to its end: no pattern finds it any more."""
        file.left_patterns()
        self.gone.add(file)

    def remove(self, file: TrackedFile) -> None:
        """Stop following a file; its offset stays saved until it is forgotten."""
        self.drop(file)
        self.absent.add(file.partition, file.offset)

    def drop(self, file: TrackedFile) -> None:
        """Stop following a file, whose offset is nobody's any more."""
        file.close()
        file.dropped()
        self.dirty.discard(file)
        self.gone.discard(file)
        if self.files.get(file.inode_key) is file:
            del self.files[file.inode_key]
        self.generations.remove(file)
        name = self._names.pop(file)
        del self._by_name[name][file]
        if not self._by_name[name]:
            del self._by_name[name]

    def lose_rest(self, file: TrackedFile, changes: Changes) -> None:
        """Enter what is unread of a closed file as lost, and stop following it: its inode is another file's now, so it was deleted."""
        if file.backlog:
            why = "the file was deleted while it was closed (see max_open_files)"
            position = file.offset.position
            self.lost.add(file.partition, file.path, position, position + file.backlog, why + packed.words(file.offset), changes)
        changes.offsets[file.partition] = file.remembered(gone=True, done=True)
        self.remove(file)
