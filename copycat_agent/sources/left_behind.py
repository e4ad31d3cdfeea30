"""At a start: files that were followed last and that no pattern finds now. Found again, counted as lost, or let alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from copycat_agent.model import SourceOffset
from copycat_agent.sources import fingerprint
from copycat_agent.sources.absent import Absent
from copycat_agent.sources.base import Changes
from copycat_agent.sources.identity import Identity, identify
from copycat_agent.sources.tracked import open_regular
from copycat_agent.sources.whereabouts import Whereabouts

Follow = Callable[[str, int, os.stat_result, Changes], None]
"""`follow(name, fd, stat, changes)` takes a file up again, and its descriptor. Raises OSError, and then `fd` is the caller's."""
Lose = Callable[[str, int, int, str], None]
"""`lose(path, start, end, why)`: these bytes can never be read."""


def search(absent: Absent, may_match: Callable[[str], bool], follow: Follow, lose: Lose, changes: Changes) -> None:
    """Files that left their patterns while they were followed, or while the agent was away, are followed to their end.

    A file that stands where it stood is let alone: it is the patterns that do not name it any more. `may_match` says whether a
    name is one of theirs; such a file cannot be read now, and a scan will find it.
    """
    whereabouts = Whereabouts()
    for partition, offset in absent.followed_last():
        identity, _ = Identity.parse(partition.key)
        try:
            name = whereabouts.find(offset.path, identity.device, identity.inode)
            if name is not None and may_match(name):
                continue
            left = name is not None and (name != offset.path or offset.gone_ms > 0)
            if name is not None and left and _take_up(name, identity, offset, follow, changes):
                continue
        except OSError:
            continue  # its directory may come back, and the file with it
        if name is None and offset.size > offset.position:
            lose(offset.path, offset.position, offset.size, "the file went away while the agent did not run")
        changes.offsets[partition] = replace(offset, done=True)  # gone, other content, or not named by the patterns any more


def _take_up(name: str, identity: Identity, offset: SourceOffset, follow: Follow, changes: Changes) -> bool:
    """Follow the file if it is still what was read. Raises OSError."""
    fd, info = open_regular(name, follow_symlinks=False)
    try:
        same = identify(fd, info) == identity and info.st_size >= offset.position
        if same and fingerprint.holds(fingerprint.reader(fd), offset.fingerprint, offset.position):
            follow(name, fd, info, changes)
            return True
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return False
