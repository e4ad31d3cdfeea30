"""Files that were followed last and that no pattern finds now. Found again, counted as lost, or let alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from copycat_agent.model import SourceOffset
from copycat_agent.sources.base import Changes
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.identity import Identity, identify
from copycat_agent.sources.files.packing import packed_files
from copycat_agent.sources.files.paths.discovery import Discovery
from copycat_agent.sources.files.paths.opening import Opener, why_not
from copycat_agent.sources.files.paths.passed_over import PassedOver
from copycat_agent.sources.files.paths.whereabouts import Whereabouts
from copycat_agent.sources.log_file.unfollowed.absent import Absent, Saved

NOBODY_LOOKED = "it was rotated out while nobody looked"
"""Said of such a file that cannot be opened now."""
Follow = Callable[[str, int, os.stat_result, Changes], None]
"""`follow(name, fd, stat, changes)` takes a file up again, and its descriptor. Raises OSError, and then `fd` is the caller's."""
FollowKept = Callable[[Identity, SourceOffset, Changes, bool], bool]
"""`follow_kept(identity, offset, changes, named)` takes up a file that an earlier process has left open, see `Meeting.follow_kept`."""


@dataclass(frozen=True, slots=True)
class Search:
    """Looks for files that left their patterns while nobody held them: the agent was away, or had them closed for room.

    A file under a name that `discovery` may match cannot be read now, and a scan will find it. `followed` are device and inode of
    files that are. `why` is said of what is lost with files that are gone.
    """

    discovery: Discovery
    followed: Container[tuple[int, int]]
    opener: Opener
    follow: Follow
    follow_kept: FollowKept
    why: str
    passed_over: PassedOver

    def look_for(self, absent: Absent, changes: Changes) -> bool:
        """Follow what is found, to its end; what is not found becomes undecided. Whether everything that is there could be opened.

        A file that stands where it stood is let alone: the patterns do not name it any more. So is one whose last name is excluded
        by now; one that was followed and got an excluded name by being renamed is still owed.
        """
        whereabouts, all_opened = Whereabouts(), True
        # The oldest first: of two that had the name the log is written under, the one that is met later goes behind the other.
        for partition, offset in sorted(absent.followed_last(changes), key=_birth):
            identity, _ = Identity.parse(partition.key)
            if self.follow_kept(identity, offset, changes, False):
                continue
            name = None
            try:
                name = self._name_of(identity, offset, whereabouts)
                if name is not None and self.discovery.may_match(name):
                    continue
                is_dropped = not offset.gone_ms and self.discovery.excludes(offset.path)
                left = name is not None and not is_dropped and (name != offset.path or offset.gone_ms > 0)
                if name is not None and left and self._take_up(name, identity, offset, changes):
                    continue
            except OSError as error:
                if self.follow_kept(identity, offset, changes, True):
                    continue
                if name is not None:
                    all_opened = False
                    self.passed_over.warn(name, f"{why_not(error)}; {NOBODY_LOOKED}")
                continue  # its directory may come back, and the file with it
            if name is None and self.follow_kept(identity, offset, changes, True):
                continue
            if name is None or left:
                absent.note_undecided(partition, offset, self.why)  # gone, or with other content
            else:
                changes.offsets[partition] = replace(offset, done=True)  # not named by the patterns any more
        return all_opened

    def _name_of(self, identity: Identity, offset: SourceOffset, whereabouts: Whereabouts) -> str | None:
        """None also where another file has its inode, and is read as what it is. Raises OSError."""
        name = whereabouts.find(offset.path, identity)
        return None if name is not None and _inode_key(name) in self.followed else name

    def _take_up(self, name: str, identity: Identity, offset: SourceOffset, changes: Changes) -> bool:
        """Follow the file if it is still what was read. Raises OSError."""
        fd, info = self.opener.open(name, is_known=True)
        try:
            if identify(fd, info).lasting == identity.lasting and packed_files.is_same(fingerprint.reader(fd), info.st_size, offset):
                self.follow(name, fd, info, changes)
                return True
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
        return False


def _inode_key(path: str) -> tuple[int, int]:
    info = os.lstat(path)
    return info.st_dev, info.st_ino


def _birth(saved: Saved) -> int:
    return Identity.parse(saved[0].key)[0].birth_ns
