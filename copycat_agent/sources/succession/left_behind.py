"""Files that were followed last and that no pattern finds now. Found again, counted as lost, or let alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from copycat_agent.model import SourceOffset
from copycat_agent.sources import fingerprint
from copycat_agent.sources.base import Changes
from copycat_agent.sources.identity import Identity, identify
from copycat_agent.sources.packing import packed_files
from copycat_agent.sources.paths.discovery import Discovery
from copycat_agent.sources.paths.opening import Opener
from copycat_agent.sources.paths.whereabouts import Whereabouts
from copycat_agent.sources.succession.absent import Absent

Follow = Callable[[str, int, os.stat_result, Changes], None]
"""`follow(name, fd, stat, changes)` takes a file up again, and its descriptor. Raises OSError, and then `fd` is the caller's."""


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
    why: str

    def look_for(self, absent: Absent, changes: Changes) -> None:
        """Follow what is found, to its end; what is not found becomes undecided.

        A file that stands where it stood is let alone: the patterns do not name it any more. So is one whose last name is excluded
        by now; one that was followed and got an excluded name by being renamed is still owed.
        """
        whereabouts = Whereabouts()
        for partition, offset in absent.followed_last(changes):
            identity, _ = Identity.parse(partition.key)
            try:
                name = whereabouts.find(offset.path, identity.device, identity.inode)
                if name is not None and (identity.device, identity.inode) in self.followed:
                    name = None  # another file has its inode, and is read as what it is
                if name is not None and self.discovery.may_match(name):
                    continue
                is_dropped = not offset.gone_ms and self.discovery.excludes(offset.path)
                left = name is not None and not is_dropped and (name != offset.path or offset.gone_ms > 0)
                if name is not None and left and self._take_up(name, identity, offset, changes):
                    continue
            except OSError:
                continue  # its directory may come back, and the file with it
            if name is None or left:
                absent.note_undecided(partition, offset, self.why)  # gone, or with other content
            else:
                changes.offsets[partition] = replace(offset, done=True)  # not named by the patterns any more

    def _take_up(self, name: str, identity: Identity, offset: SourceOffset, changes: Changes) -> bool:
        """Follow the file if it is still what was read. Raises OSError."""
        fd, info = self.opener.open(name)
        try:
            if identify(fd, info) == identity and packed_files.is_same(fingerprint.reader(fd), info.st_size, offset):
                self.follow(name, fd, info, changes)
                return True
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
        return False
