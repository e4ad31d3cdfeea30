"""The saved rows of a connector's spooled files, indexed by inode and by name, and forgotten after a while."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import Fingerprint, SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, InodeFinder, identify, identify_by_name
from copycat_agent.sources.files.packing import packed

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.base import Offsets
    from copycat_agent.sources.files.paths.discovery import MatchedFile
    from copycat_agent.sources.files.paths.regular_files import Opener
    from copycat_agent.sources.planner import Changes

KEPT_GONE = 100_000
"""How many rows of missing files are kept; if there are more, the oldest are forgotten before `forget_after`."""

_LOOK_SECONDS = 60.0
"""Time until it is checked again whether a file is gone, if that could not be seen."""


class FileRow(NamedTuple):
    """A saved offset and its key. `bounds`: those of its range, None for a whole file.

    `identity` is the one in the key. Rows that are handed to cleanup have the file's own, whose device may have another number now.
    """

    partition: SourcePartition
    identity: Identity
    generation: int
    bounds: tuple[int, int] | None
    offset: SourceOffset

    def says_read(self, info: os.stat_result) -> bool:
        """Returns whether its file was read to its end in its present state, by size and modification time."""
        return self.offset.done and (self.offset.size, self.offset.mtime_ns) == (info.st_size, info.st_mtime_ns)

    @property
    def is_doubtful(self) -> bool:
        """Whether a file cannot be proved to be this row's: it was missing, and the file system keeps no birth times."""
        return bool(self.offset.gone_ms) and not self.identity.birth_ns

    @property
    def is_at_its_name(self) -> bool:
        """Whether its file still has its last known name."""
        try:
            return os.lstat(self.offset.path).st_ino == self.identity.inode
        except OSError:
            return False


def part_key(key: str, start: int, end: int) -> str:
    """Returns the key of a range's partition; `key` is its file's."""
    return f"{key}:{start:x}-{end:x}"


def is_part(key: str) -> bool:
    """Returns whether it is a range's key."""
    return "-" in key.rpartition(":")[2]


def is_range_key(key: str) -> bool:
    """Returns whether it is a range's key exactly as `part_key` writes it."""
    try:
        identity, generation, bounds = parse(key)
    except ValueError:
        return False
    return bounds is not None and part_key(identity.key(generation), *bounds) == key


def parse(key: str) -> tuple[Identity, int, tuple[int, int] | None]:
    """Returns identity, generation and bounds of a key. Raises ValueError if it is not one."""
    whole, _, last = key.rpartition(":")
    start, dash, end = last.partition("-")
    if not dash:
        return *Identity.parse(key), None
    return *Identity.parse(whole), (int(start, 16), int(end, 16))


class FileRows:
    """The saved offsets of one connector. Used by one caller at a time. `note` takes in changes that are saved or about to be."""

    def __init__(self, offsets: Offsets, forget_after: float, log: Log) -> None:
        self._forget_ms = int(forget_after * 1000)
        self._log = log
        self._told_early = False
        self._look_at = 0.0
        self._rows: dict[SourcePartition, FileRow] = {}
        self._by_inode: dict[int, dict[SourcePartition, None]] = {}
        self._by_path: dict[str, SourcePartition] = {}
        self._gone: dict[SourcePartition, int] = {}
        for partition, offset in sorted(offsets.items(), key=lambda item: item[1].gone_ms):
            self._add(partition, offset)

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, changes: Changes) -> None:
        """Takes in `changes` that are in the store, or will be before any later ones."""
        for partition in changes.forget:
            self._remove(partition)
        for partition, offset in changes.offsets.items():
            self._add(partition, offset)

    def there(self) -> Iterator[FileRow]:
        """Returns the rows of files that existed when they were last looked for."""
        return (row for row in list(self._rows.values()) if not row.offset.gone_ms)

    def get(self, partition: SourcePartition) -> FileRow | None:
        """Returns the row of this partition, None if it has none."""
        return self._rows.get(partition)

    def at_inode(self, inode: int) -> list[FileRow]:
        """Returns all rows with this inode, ranges included; also those of its former files, and of files on other devices."""
        return [self._rows[one] for one in self._by_inode.get(inode, ())]

    def of_file(self, saved: Identity) -> list[FileRow]:
        """Returns the rows with this identity in their keys, of all generations of the file, ranges included."""
        return [row for row in self.at_inode(saved.inode) if row.identity == saved]

    def done_at(self, path: str, size: int) -> SourceOffset | None:
        """Returns the offset of the file last read to its end under this name, if it had this size and a digest of its whole content."""
        row = self._rows.get(self._by_path.get(path, SourcePartition("", "")))
        if row is None or row.offset.trouble or row.offset.size != size or row.offset.fingerprint.head_bytes != size:
            return None
        return row.offset

    def forget_old(self, changes: Changes, is_gone: Callable[[FileRow, InodeFinder], bool]) -> None:
        """Forgets rows of files that have been gone for long, once their absence is verified."""
        now, oldest = time.monotonic(), int(time.time() * 1000) - self._forget_ms
        surplus = len(self._gone) - KEPT_GONE
        if now < self._look_at:
            return
        whereabouts, is_early = InodeFinder(), False
        for number, (partition, gone_ms) in enumerate(self._gone.items()):
            if gone_ms > oldest and number >= surplus:
                break
            if partition in changes.offsets:  # it is back
                continue
            if is_gone(self._rows[partition], whereabouts):
                changes.forget.add(partition)
                is_early |= gone_ms > oldest
            else:
                self._look_at = now + min(_LOOK_SECONDS, self._forget_ms / 2000)
        if is_early and not self._told_early:
            self._told_early = True
            why = f"more than {KEPT_GONE:,} files are gone: the oldest offsets are forgotten"
            why = f"{why}; such a file, if it came back, would be sent again"
            hint = "lower forget_after, or split the connector's directory"
            self._log.warning("offsets are forgotten before forget_after", why=why, hint=hint)

    def gone(self, row: FileRow, changes: Changes) -> None:
        """Saves the time at which the file was found missing."""
        changes.offsets[row.partition] = replace(row.offset, gone_ms=int(time.time() * 1000))

    def _add(self, partition: SourcePartition, offset: SourceOffset) -> None:
        try:
            identity, generation, bounds = parse(partition.key)
        except ValueError:
            return
        self._rows[partition] = FileRow(partition, identity, generation, bounds, offset)
        self._by_inode.setdefault(identity.inode, {})[partition] = None
        if offset.done and bounds is None:
            self._by_path[offset.path] = partition
        self._gone.pop(partition, None)
        if offset.gone_ms:
            self._gone[partition] = offset.gone_ms

    def _remove(self, partition: SourcePartition) -> None:
        row = self._rows.pop(partition, None)
        if row is None:
            return
        self._gone.pop(partition, None)
        rows = self._by_inode[row.identity.inode]
        del rows[partition]
        if not rows:
            del self._by_inode[row.identity.inode]
        if self._by_path.get(row.offset.path) == partition:
            del self._by_path[row.offset.path]


Place = tuple[int, int]
"""Device and inode: unique among files that exist now."""


class Remounts:
    """Finds the rows of a file that was read when its device had another number.

    A reboot (device mapper, NVMe) and every mount (NFS, btrfs, loop devices) may change device numbers. The keys of rows stay the same. It
    is the same file if inode and birth time are equal, and what was read is still there.
    """

    def __init__(self, rows: FileRows, opener: Opener, leave: Callable[[Place, Identity, Identity], None]) -> None:
        """`leave(place, saved, now)`: the file with rows of `saved` is at `now`, and not at `place` any more. Raises OSError: not yet."""
        self._rows = rows
        self._opener = opener
        self._leave = leave
        self._present: dict[Place, MatchedFile] = {}
        self._places: dict[Identity, Place] = {}
        self._numbers: dict[int, set[int]] = {}

    def begin_scan(self, found: Iterable[MatchedFile]) -> None:
        """Takes in the files that exist now."""
        self._present = {(one.stat.st_dev, one.stat.st_ino): one for one in found}

    def place_of(self, saved: Identity) -> Place:
        """Returns where the file with rows of this identity is, if it exists."""
        return self._places.get(saved, saved[:2])

    def numbers_of(self, device: int) -> set[int]:
        """Returns the numbers that this device may have now."""
        return {device, *self._numbers.get(device, ())}

    def rows_of(self, identity: Identity, found: MatchedFile) -> list[FileRow]:
        """Returns all rows of this file, whatever its device number was then. Raises OSError if that cannot be determined now."""
        rows = self._rows.of_file(identity)
        others: dict[Identity, list[FileRow]] = {}
        for row in sorted(self._rows.at_inode(identity.inode), key=lambda row: (row.offset.gone_ms > 0, -row.offset.gone_ms)):
            if not rows and row.identity.birth_ns == identity.birth_ns and not self._is_elsewhere(row.identity, found):
                others.setdefault(row.identity, []).append(row)
        return self._proven(identity, found, others) if others else rows

    def _is_elsewhere(self, saved: Identity, found: MatchedFile) -> bool:
        """Returns whether the file of this identity is another existing one: `found` is on a copy of its file system."""
        other = self._present.get(self.place_of(saved))
        if other is None or other.path == found.path:
            return False
        now = identify_by_name(other.path, other.stat, follow_symlinks=False)
        return now is not None and now._replace(device=saved.device) == saved

    def _proven(self, identity: Identity, found: MatchedFile, others: Mapping[Identity, list[FileRow]]) -> list[FileRow]:
        fd, info = self._opener.open(found.path, is_known=True)
        try:
            if identify(fd, info) != identity:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), found.path)
            for saved, rows in others.items():
                newest = max(row.generation for row in rows)
                if all(_is_same(fd, info, found.path, row) for row in rows if row.generation == newest):
                    self._move(saved, identity)
                    return rows
        finally:
            os.close(fd)
        return []

    def _move(self, saved: Identity, now: Identity) -> None:
        """Records that the file with rows of identity `saved` is at `now`. Raises OSError while it is read under its former number."""
        self._leave(self.place_of(saved), saved, now)
        self._places[saved] = now[:2]
        self._numbers.setdefault(saved.device, set()).add(now.device)


def _is_same(fd: int, info: os.stat_result, path: str, row: FileRow) -> bool:
    """Returns whether the open file, with the row's inode and birth time, still holds the bytes that were read. Raises OSError.

    Without birth times it has to be unchanged, under its name, and must never have been missing: inodes are reused.
    """
    offset, proof = row.offset, row.offset.fingerprint
    is_unchanged = (offset.size, offset.mtime_ns) == (info.st_size, info.st_mtime_ns)
    if not row.identity.birth_ns and (offset.gone_ms or offset.path != path or not is_unchanged):
        return False
    if not proof.head_bytes:
        return is_unchanged or offset.position == (row.bounds or (0, 0))[0]
    if offset.done and proof.head_bytes == offset.size:  # the digest of the whole file: comparing it takes too long outside a task
        offset = replace(offset, fingerprint=Fingerprint(0, "", proof.tail_bytes, proof.tail))
    return packed.is_same(fingerprint.reader(fd), info.st_size, offset)
