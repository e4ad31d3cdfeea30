"""Searches outside the patterns for missing files and for unclaimed unread bytes, and enters what is not found as lost.

Bytes that were cut away stay a row until a copy claims them; only then is the rest entered as lost.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, InodeFinder, identify
from copycat_agent.sources.files.packing import compressions, packed
from copycat_agent.sources.files.paths.discovery import Discovery, PassedOver
from copycat_agent.sources.files.paths.regular_files import Opener, why_not
from copycat_agent.sources.log_file.file_intake import FileIntake
from copycat_agent.sources.log_file.followed import FollowedFiles
from copycat_agent.sources.log_file.rotation import is_rotated, log_of, logs_of, rotation_family
from copycat_agent.sources.log_file.succession.newcomers import Newcomers
from copycat_agent.sources.log_file.succession.rules import HOLDS_REST
from copycat_agent.sources.log_file.tracked import OpenedFile
from copycat_agent.sources.log_file.unfollowed_partitions import Saved
from copycat_agent.sources.planner import Changes

NOBODY_LOOKED = "it was rotated out while nobody looked"
"""Why such a file is wanted, in the warning that it cannot be opened."""
_FEW_LOGS = 16
"""Comparing up to this many prefixes is faster than parsing the names of a large directory."""


class UnclaimedSearch:
    """Searches for files that left their patterns while they were not open: the agent was not running, or had closed them for room."""

    def __init__(self, followed: FollowedFiles, opener: Opener, discovery: Discovery, intake: FileIntake, passed_over: PassedOver) -> None:
        self._followed = followed
        self._opener = opener
        self._discovery = discovery
        self._intake = intake
        self._passed_over = passed_over
        self._whereabouts = InodeFinder()
        self.why = "the file went away while the agent did not run"
        """Why there may be such files, given as the reason of their losses; "" if there are none."""

    def look(self, changes: Changes) -> None:
        """Follows the files that are found, to their ends; the others become unclaimed.

        The next scan searches again if not every existing file could be opened. A file under a name that a pattern matches cannot be read
        now, and a scan will find it.
        """
        self._whereabouts = InodeFinder()
        # The oldest first: of two that had the live name of a log, the one that is met later is ordered after the other.
        rows = sorted(self._followed.unfollowed.followed_last(changes), key=_birth)
        # Checked row by row: the file of one row may have been taken up by another one, saved with another device number.
        are_open = [self._look_for(*row, changes) for row in rows if self._followed.unfollowed.has(row[0])]
        if all(are_open):
            self.why = ""

    def _look_for(self, partition: SourcePartition, offset: SourceOffset, changes: Changes) -> bool:
        """Searches for one file. Returns False if it cannot be opened.

        A file that is unmoved is left alone: the patterns do not name it any more. So is one whose last name is excluded now; one that was
        followed and got an excluded name by being renamed still has to be read.
        """
        identity, name = Identity.parse(partition.key)[0], None
        if self._follow_kept(identity, offset, changes, named=False):
            return True
        try:
            name = self._name_of(identity, offset)
            is_dropped = not offset.gone_ms and self._discovery.excludes(offset.path)
            left = name is not None and not is_dropped and (name != offset.path or offset.gone_ms > 0)
            is_found = name is not None and (self._discovery.may_match(name) or (left and self._take_up(name, identity, offset, changes)))
        except OSError as error:
            if self._follow_kept(identity, offset, changes, named=True) or name is None:
                return True  # if it has none, its directory may come back, and the file with it
            self._passed_over.warn(name, f"{why_not(error)}; {NOBODY_LOOKED}")
            return False
        if is_found or (name is None and self._follow_kept(identity, offset, changes, named=True)):
            return True
        if name is None or left:
            self._followed.unfollowed.note_unclaimed(partition, offset, self.why)  # gone, or with other content
        else:
            changes.offsets[partition] = replace(offset, done=True)  # not named by the patterns any more
        return True

    def _follow_kept(self, identity: Identity, offset: SourceOffset, changes: Changes, *, named: bool) -> bool:
        """Follows a kept descriptor. Leaves files alone that the patterns exclude, or do not name any more."""
        path, newest = offset.path, "/".join(log_of(offset.path))
        is_wanted = self._discovery.may_match(path) or (offset.gone_ms > 0 and not self._discovery.excludes(newest))
        return is_wanted and self._intake.follow_kept(identity, path, changes, named=named)

    def _name_of(self, identity: Identity, offset: SourceOffset) -> str | None:
        """Returns its present name; None if it has none, or if another file has its inode and is followed. Raises OSError."""
        name = self._whereabouts.find(offset.path, identity)
        return None if name is not None and _inode_key(name) in self._followed.files else name

    def _take_up(self, name: str, identity: Identity, offset: SourceOffset, changes: Changes) -> bool:
        """Follows the file if it still holds what was read. Returns whether it does. Raises OSError."""
        with OpenedFile(*self._opener.open(name, is_known=True)) as opened:
            read, size = fingerprint.reader(opened.fd), opened.info.st_size
            if identify(opened.fd, opened.info).lasting != identity.lasting or not packed.is_same(read, size, offset):
                return False
            self._intake.follow_left(name, opened, changes)
            return True


def _inode_key(path: str) -> tuple[int, int]:
    info = os.lstat(path)
    return info.st_dev, info.st_ino


def _birth(saved: Saved) -> int:
    return Identity.parse(saved[0].key)[0].birth_ns


class UnclaimedRanges:
    """Decides on unclaimed ranges, after a whole scan has searched the matching files for them."""

    def __init__(self, followed: FollowedFiles, newcomers: Newcomers, opener: Opener, discovery: Discovery, intake: FileIntake) -> None:
        self._followed = followed
        self._newcomers = newcomers
        self._opener = opener
        self._discovery = discovery
        self._intake = intake

    def awaited(self) -> set[str]:
        """Returns the rotation families of files that are not judged yet: unclaimed ranges of these cannot be decided on."""
        return self._newcomers.awaited() if self._followed.unfollowed.unclaimed else set()

    def decide(self, changes: Changes, awaited: Collection[str]) -> None:
        """Follows files that have an unclaimed range; enters ranges as lost that will not be found. Called after a scan.

        `awaited`: its value at the end of the scan. Families awaited since then delay a loss, but not the search.
        """
        unfollowed, listings, awaited_since = self._followed.unfollowed, _Listings(), self.awaited()
        fresh, unfollowed.fresh = unfollowed.fresh, set()
        for partition in list(unfollowed.unclaimed):
            offset = unfollowed.known(partition, changes)
            if offset is None:
                unfollowed.forget(partition, changes)
                continue
            name = rotation_family(offset.path)
            if name in awaited or self._find(partition, offset, listings, changes):
                continue
            if partition not in fresh and name not in awaited_since:  # a scan that began after it was cut has met every copy that matches
                unfollowed.give_up_rest(partition, offset, self._newcomers.copied(partition), changes)

    def _find(self, partition: SourcePartition, offset: SourceOffset, listings: _Listings, changes: Changes) -> bool:
        """Returns whether a file outside the patterns has the rest; that file is then followed."""
        if not offset.position or not offset.fingerprint.head_bytes:
            return False
        related = (name for name in listings.related_to(offset.path) if is_rotated(name))
        outside = [name for name in related if not (self._discovery.may_match(name) or self._discovery.excludes(name))]
        return any(self._take_up(name, partition, offset, changes) for name in outside)

    def _take_up(self, name: str, partition: SourcePartition, offset: SourceOffset, changes: Changes) -> bool:
        try:
            with OpenedFile(*self._opener.open(name)) as opened:
                file = self._intake.follow_rest(name, opened, changes) if self._may_hold(opened, offset) else None
        except OSError:
            return False
        if file is None:
            return False
        if file.is_packed:
            self._newcomers.archives.expect(file, changes)
        else:
            self._newcomers.take_rest(file, partition, offset, changes, HOLDS_REST)
            changes.offsets[file.partition] = file.remembered(gone=True)
        return True

    def _may_hold(self, opened: OpenedFile, offset: SourceOffset) -> bool:
        """Returns whether the open file holds what was read; for a packed one, whether it begins like that. Raises OSError."""
        read = fingerprint.reader(opened.fd)
        codec = packed.compression_of(read)
        if codec:
            return fingerprint.digest(compressions.head_of(read, codec, offset.fingerprint.head_bytes)) == offset.fingerprint.head
        return opened.info.st_size >= offset.position and fingerprint.holds(read, offset.fingerprint, offset.position)


class _Listings:
    """The names in directories, each listed once."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}

    def related_to(self, path: str) -> list[str]:
        """Returns paths in the same directory whose names are related to this one."""
        directory, name = path.rpartition("/")[0], rotation_family(path)
        begin = name.rpartition(".")[0] or name  # cheaper than `rotation_family` for each name
        if directory not in self._names:
            try:
                self._names[directory] = sorted(os.listdir(directory))  # noqa: PTH208 - names are enough
            except OSError:
                self._names[directory] = []
        names = [one for one in self._names[directory] if one.startswith(begin) and rotation_family(one) == name]
        return [f"{directory}/{one}" for one in names]


def members(rotations: Mapping[tuple[str, str], object]) -> dict[tuple[str, str], list[str]]:
    """Returns the paths of the files of each log, by `log_of`. Each directory is listed once; one that cannot be listed is empty."""
    bases: dict[str, set[str]] = {}
    for directory, base in rotations:
        bases.setdefault(directory, set()).add(base)
    found: dict[tuple[str, str], list[str]] = {}
    for directory, wanted in bases.items():
        for path in _names(directory, wanted):
            for name in logs_of(path):
                if name in rotations:
                    found.setdefault(name, []).append(path)
    return found


def _names(directory: str, bases: set[str]) -> Iterator[str]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names are enough
    except OSError:
        return
    prefixes = tuple(base.rpartition(".")[0] or base for base in bases) if len(bases) <= _FEW_LOGS else ("",)
    yield from (f"{directory}/{name}" for name in names if name.startswith(prefixes))
