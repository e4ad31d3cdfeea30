"""The followed files of one connector: lookup by inode, path and name, and which of them have how much to read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.sources.base import FileState, FileView, Offsets
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.log_file.descriptors import Descriptors
from copycat_agent.sources.log_file.offset_expiry import OffsetExpiry
from copycat_agent.sources.log_file.rotation import RotationOrder, log_of, rotation_family, unpacked_name
from copycat_agent.sources.log_file.unfollowed_partitions import UnfollowedPartitions
from copycat_agent.sources.losses import LostData
from copycat_agent.sources.planner import Changes, TurnQueue

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.log_file.log_options import LogFileOptions
    from copycat_agent.sources.log_file.tracked import TrackedFile


UNJUDGED = "it may be a copy, or the rest, of another file: it is read once that is known"
"""Why a file is not read yet, as a message."""
_PLACES = 64
"""If more files than this have a name, the name is not used to find copies in other directories."""


class UnreadTotals(NamedTuple):
    """Totals of the files that have something to read. `oldest_ms`: since when, epoch milliseconds, 0 if nothing is unread."""

    bytes: int = 0
    troubled_files: int = 0
    blocked_files: int = 0
    oldest_ms: int = 0


def unread_of(files: Iterable[TrackedFile]) -> UnreadTotals:
    """Returns the totals of these files."""
    unread = troubled = blocked = oldest = 0
    for file in files:
        unread += file.backlog
        troubled += file.backoff.errors > 0
        blocked += file.backoff.blocked > 0
        since_ms = file.reading.unread_since_ms
        if since_ms and not 0 < oldest <= since_ms:
            oldest = since_ms
    return UnreadTotals(unread, troubled, blocked, oldest)


def view_of(file: TrackedFile) -> FileView:
    """Returns the view of a file for people."""
    state: FileState = "following"
    if file.backoff.blocked:
        state = "blocked"
    elif file.backoff.errors:
        state = "failing"
    elif file.unread and (file.unjudged or file.waits_for is not None):
        state = "waiting"
    elif file.draining_since is not None:
        state = "gone"
    offset = file.offset
    after = file.waits_for.path if state == "waiting" and file.waits_for is not None else ""
    now = (file.path, file.partition.key, offset.position, file.size, offset.records, state, file.fd >= 0, file.reading.read_at)
    why = f"{UNJUDGED} ({file.provenance.unjudged})" if file.unjudged and file.unread else file.provenance.why
    return FileView(*now, file.backlog, why, after, offset.compression)


class FollowedFiles:
    """The files of one connector. `offsets` are what is saved or about to be.

    `files` is by device and inode; `paths` has the inode last found under each name; `dirty` the files that may have something to read, the
    longest unserved first; `draining` those that no pattern finds any more; `unfollowed` the rows of files not followed.
    """

    def __init__(self, connector: str, options: LogFileOptions, offsets: Offsets, log: Log) -> None:
        self.connector = connector
        self.offsets = dict(offsets)
        self.files: dict[tuple[int, int], TrackedFile] = {}
        self.paths: dict[str, tuple[int, int]] = {}
        self.dirty: TurnQueue[TrackedFile] = TurnQueue()
        self.draining: set[TrackedFile] = set()
        self.descriptors = Descriptors(connector, options.max_open_files)
        self.rotation_order = RotationOrder()
        self.lost = LostData(log)
        self.unpacks = options.compression == "auto"
        self.unfollowed = UnfollowedPartitions(self.offsets, self.lost.add, log)
        self.expiry = OffsetExpiry(self.unfollowed, options.forget_after, log)
        self._log = log
        # Names at the time of meeting; `relatives` looks only newest names up, and a file gets such a name only by being met.
        self._names: dict[TrackedFile, str] = {}
        self._by_name: dict[str, dict[TrackedFile, None]] = {}
        self._take_in()

    def _take_in(self) -> None:
        """Takes in the saved rows. A key that is not a file's was put there by hand, and is ignored with a warning."""
        known = []
        for partition in self.offsets:
            try:
                Identity.parse(partition.key)
                known.append(partition)
            except ValueError:
                hint = f"remove it: copycat offsets reset {self.connector} --key {partition.key}"
                self._log.warning("a saved offset is ignored: its key is not that of a file", key=partition.key, hint=hint)
        self.unfollowed.load(known)

    def add(self, file: TrackedFile) -> None:
        """Follows a file that was just met."""
        self.paths[file.path] = file.inode_key
        self.files[file.inode_key] = file
        self._name(file)
        self.rotation_order.add(file)
        self.note_readable(file)

    def at(self, path: str) -> TrackedFile | None:
        """Returns the file that the last scan found under this name, None if there is none."""
        return self.files.get(self.paths.get(path, (-1, -1)))

    def names_of(self, file: TrackedFile) -> tuple[str, ...]:
        """Returns all names under which the last scan found it; searches all names."""
        return tuple(sorted(path for path, inode_key in self.paths.items() if inode_key == file.inode_key))

    def is_as_seen(self, path: str, *, follow_symlinks: bool) -> bool:
        """Returns whether `path` still is the followed file that the last scan found there, with the same size and times."""
        file = self.at(path)
        if file is None:
            return False
        try:
            info = os.stat(path, follow_symlinks=follow_symlinks)  # noqa: PTH116 - a hot path: every file of every idle connector
        except OSError:
            return False
        seen = file.seen
        is_same = info.st_ino == file.identity.inode and info.st_dev == file.identity.device
        is_same = is_same and info.st_ctime_ns == seen.ctime_ns and not seen.has_other_content(info)
        return is_same and not ((file.unread or file.needs_scan) and file not in self.dirty)  # a look for making room may have seen more

    def draining_at(self, path: str) -> list[TrackedFile]:
        """Returns files that no pattern finds any more and whose last name was this one."""
        return [file for file in self.draining if file.path == path]

    def relatives(self, path: str) -> list[TrackedFile]:
        """Returns files that may have been copied, packed or moved to `path`, by their names.

        Besides those of its logs these are files that were met under the newest name, in whatever directory they are now; if many have that
        name, only those of them that no pattern finds any more.
        """
        log, family, unpacked = log_of(path), rotation_family(path), unpacked_name(path)
        near = [one for name in dict.fromkeys([log, (log[0], family)]) for one in self.rotation_order.files_of(name)]
        same = [one for name in dict.fromkeys([path, unpacked]) for one in self.draining_at(name)]
        if unpacked != path and (original := self.at(unpacked)) is not None:  # its log may be in another directory
            same.append(original)
        alike = self._by_name.get(family, {})
        others = alike if len(alike) <= _PLACES else self.draining & alike.keys()
        return list(dict.fromkeys([*near, *same, *others]))

    def note(self, changes: Changes) -> None:
        """Takes in changes that are in the store, or will be before any later ones."""
        self.offsets.update(changes.offsets)
        for partition in changes.forget:
            self.offsets.pop(partition, None)

    def put_before_successor(self, file: TrackedFile, identity: Identity) -> None:
        """Orders `file` before the file with this identity: it holds what that one held before it was begun anew."""
        known = self.files.get(identity[:2])
        others = (one for one in self.files.values() if one.identity.lasting == identity.lasting)  # its device may have another number
        successor = known if known is not None and known.identity == identity else next(others, None)
        if successor is not None and successor is not file:
            self.rotation_order.put_before(file, successor)

    def replace(self, file: TrackedFile, fresh: TrackedFile) -> None:
        """Follows `fresh` in place of `file`, which begins anew. It takes over the descriptor."""
        fd = file.detach_fd()
        self.rotation_order.replace(file, fresh)
        self.drop(file)
        if fd >= 0:
            fresh.adopt(fd)
        if fresh.draining_since is not None:
            self.draining.add(fresh)
        self.files[fresh.inode_key] = fresh
        self._name(fresh)
        self.note_readable(fresh)

    def _name(self, file: TrackedFile) -> None:
        name = self._names[file] = file.path.rpartition("/")[2]
        self._by_name.setdefault(name, {})[file] = None

    def note_readable(self, file: TrackedFile) -> None:
        """Updates whether there is something to read in `file`."""
        if file.note_unread() and not file.removed:
            self.dirty.add(file)
        else:
            self.dirty.discard(file)

    def drain(self, file: TrackedFile) -> None:
        """Drains a file that no pattern finds any more: it is followed to its end."""
        file.left_patterns()
        self.draining.add(file)

    def remove(self, file: TrackedFile) -> None:
        """Stops following a file; its offset stays saved until it is forgotten."""
        self.drop(file)
        self.unfollowed.add(file.partition, file.offset, file.verified.at_ns)

    def drop(self, file: TrackedFile) -> None:
        """Stops following a file without keeping its offset as an unfollowed row."""
        file.close()
        file.dropped()
        self.dirty.discard(file)
        self.draining.discard(file)
        if self.files.get(file.inode_key) is file:
            del self.files[file.inode_key]
        self.rotation_order.remove(file)
        name = self._names.pop(file)
        del self._by_name[name][file]
        if not self._by_name[name]:
            del self._by_name[name]

    def lose_rest(self, file: TrackedFile, changes: Changes) -> None:
        """Enters the unread rest of a closed file as lost, and stops following it: its inode is another file's now, so it was deleted."""
        if file.backlog:
            why = "the file was deleted while it was closed (see max_open_files)"
            position = file.offset.position
            self.lost.add(file.partition, file.path, position, position + file.backlog, why + packed.words(file.offset), changes)
        changes.offsets[file.partition] = file.remembered(gone=True, done=True)
        self.remove(file)
