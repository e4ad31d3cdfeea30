"""Files that may have something to read, the longest unserved first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from copycat_agent.sources.base import Changes, Offsets
from copycat_agent.sources.files.identity import Identity
from copycat_agent.sources.files.packing import packed
from copycat_agent.sources.log_file.descriptors import Descriptors
from copycat_agent.sources.log_file.generations import Generations
from copycat_agent.sources.log_file.rotation import family, kin
from copycat_agent.sources.log_file.tracked import TrackedFile
from copycat_agent.sources.log_file.unfollowed.absent import Absent
from copycat_agent.sources.log_file.unfollowed.forgetting import Forgetting
from copycat_agent.sources.losses import Lost

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.log_file.log_options import LogFileOptions
    from copycat_agent.sources.log_file.tracked import TrackedFile


class Queue:
    """An ordered set. Who is put in stands at the end; who is served goes there again. All methods take constant time."""

    def __init__(self) -> None:
        self._files: dict[TrackedFile, None] = {}

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[TrackedFile]:
        return iter(self._files)

    def __contains__(self, file: object) -> bool:
        return file in self._files

    def add(self, file: TrackedFile) -> None:
        """Put `file` at the end; one that stands in the queue keeps its place."""
        self._files[file] = None

    def discard(self, file: TrackedFile) -> None:
        """Take `file` out, if it is in."""
        self._files.pop(file, None)

    def served(self, file: TrackedFile) -> None:
        """It was `file`'s turn: all others come before it now."""
        if self._files.pop(file, 0) is None:
            self._files[file] = None


STARTED = "started"
"""Key of the row that says that this connector has looked at its directories before; its position is epoch milliseconds, its size when it
looked last (see `last_look`)."""

_PLACES = 64
"""A name that more files have says nothing about where copies of one are put."""


class Followed:
    """The files of one connector. `offsets` are what is saved or about to be.

    `files` by device and inode; `paths` says what the last look found under each name; `dirty` those that may have something
    to read; `gone` those that no pattern finds any more; `absent` what is saved of files that nobody follows.
    """

    def __init__(self, connector: str, options: LogFileOptions, offsets: Offsets, log: Log) -> None:
        self.connector = connector
        self.offsets = dict(offsets)
        self.files: dict[tuple[int, int], TrackedFile] = {}
        self.paths: dict[str, tuple[int, int]] = {}
        self.dirty = Queue()
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
                if partition.key != STARTED:
                    hint = f"remove it: copycat offsets reset {self.connector} --key {partition.key}"
                    self._log.warning("a saved offset is passed over, its key is none of a file", key=partition.key, hint=hint)
        self.absent.load(known)

    def add(self, file: TrackedFile) -> None:
        """`file` has just been met."""
        self.paths[file.path] = file.inode_key
        self.files[file.inode_key] = file
        self._name(file)
        self.generations.add(file)
        self.touch(file)

    def gone_at(self, path: str) -> list[TrackedFile]:
        """Files that no pattern finds any more and that had this name last."""
        return [file for file in self.gone if file.path == path]

    def relatives(self, path: str) -> list[TrackedFile]:
        """Files that may have been copied, packed or moved to `path`, as far as names tell; in other directories only newest ones."""
        directory, base = family(path)
        others = self._by_name.get(kin(path), {})
        near = self.files.get(self.paths.get(f"{directory}/{kin(path)}", (-1, -1)))
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
        """`fresh` is `file` begun anew, and has its descriptor from now on."""
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
        """A closed file whose inode is another file's now: it was deleted, with all that was unread."""
        if file.backlog:
            why = "the file was deleted while it was closed (see max_open_files)"
            position = file.offset.position
            self.lost.add(file.partition, file.path, position, position + file.backlog, why + packed.words(file.offset), changes)
        changes.offsets[file.partition] = file.remembered(gone=True, done=True)
        self.remove(file)
