"""What was not read of a file that has it no more: looked for in copies that no pattern matches, and entered as lost when nobody has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.base import Changes
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.packing import packed, packed_files
from copycat_agent.sources.log_file.followed import Followed
from copycat_agent.sources.log_file.rotation import is_rotated, kin
from copycat_agent.sources.log_file.succession.origins import Origins

if TYPE_CHECKING:
    from copycat_agent.sources.files.paths.discovery import Discovery
    from copycat_agent.sources.files.paths.opening import Opener
    from copycat_agent.sources.log_file.tracked import TrackedFile

FollowRest = Callable[[str, int, os.stat_result, Changes], "TrackedFile | None"]
"""See `Meeting.follow_rest`."""


class Rests:
    """Decides on what is undecided (see `Absent`), once a whole scan has looked for it among the files that match."""

    def __init__(self, followed: Followed, origins: Origins, opener: Opener, discovery: Discovery, follow: FollowRest) -> None:
        self._followed = followed
        self._origins = origins
        self._opener = opener
        self._discovery = discovery
        self._follow = follow

    def awaited(self) -> set[str]:
        """Names (see `kin`) of which files are not judged yet, so that nothing can be said about rests of others with these."""
        return self._origins.awaited() if self._followed.absent.undecided else set()

    def decide(self, changes: Changes, awaited: Collection[str]) -> None:
        """Follow what is found; enter as lost what is not, and is not about to be. A scan has just ended.

        `awaited`: as it was then. What is awaited since is waited for before anything is lost, and not before it is looked for.
        """
        absent, listings, awaited_since = self._followed.absent, _Listings(), self.awaited()
        fresh, absent.fresh = absent.fresh, set()
        for partition in list(absent.undecided):
            offset = absent.known(partition, changes)
            if offset is None:
                absent.forget(partition, changes)
                continue
            name = kin(offset.path)
            if name in awaited or self._find(partition, offset, listings, changes):
                continue
            if partition not in fresh and name not in awaited_since:  # a scan that began after it was cut has met every copy that matches
                absent.settle(partition, offset, self._origins.copied(partition), changes)

    def _find(self, partition: SourcePartition, offset: SourceOffset, listings: _Listings, changes: Changes) -> bool:
        """Whether a file outside the patterns has the rest; it is followed then."""
        if not offset.position or not offset.fingerprint.head_bytes:
            return False
        for name in listings.kin_of(offset.path):
            is_outside = is_rotated(name) and not (self._discovery.may_match(name) or self._discovery.excludes(name))
            if is_outside and self._take_up(name, partition, offset, changes):
                return True
        return False

    def _take_up(self, name: str, partition: SourcePartition, offset: SourceOffset, changes: Changes) -> bool:
        try:
            fd, info = self._opener.open(name)
        except OSError:
            return False
        try:
            file = self._follow(name, fd, info, changes) if self._may_hold(fd, info, offset) else None
        except OSError:
            file = None
        if file is None:
            os.close(fd)
            return False
        if file.is_packed:
            self._origins.archives.expect(file, changes)
        else:
            self._origins.take_rest(file, partition, offset, changes)
            changes.offsets[file.partition] = file.remembered(gone=True)
        return True

    def _may_hold(self, fd: int, info: os.stat_result, offset: SourceOffset) -> bool:
        """Whether the open file holds what was read; of a packed one whether it begins so. Raises OSError."""
        read = fingerprint.reader(fd)
        codec = packed_files.compression_of(read)
        if codec:
            return fingerprint.digest(packed.head_of(read, codec, offset.fingerprint.head_bytes)) == offset.fingerprint.head
        return info.st_size >= offset.position and fingerprint.holds(read, offset.fingerprint, offset.position)


class _Listings:
    """Names in directories, each listed once."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}

    def kin_of(self, path: str) -> list[str]:
        """Paths in the same directory whose names are related to this one."""
        directory, name = path.rpartition("/")[0], kin(path)
        begin = name.rpartition(".")[0] or name  # cheaper than what `kin` does with each name
        if directory not in self._names:
            try:
                self._names[directory] = sorted(os.listdir(directory))  # noqa: PTH208 - names are enough
            except OSError:
                self._names[directory] = []
        names = [one for one in self._names[directory] if one.startswith(begin) and kin(one) == name]
        return [f"{directory}/{one}" for one in names]
