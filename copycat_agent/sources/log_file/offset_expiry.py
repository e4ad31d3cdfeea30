"""Forgets the rows of files that are not followed: long after they were seen to be gone, or when there are too many.

A file was seen to be gone if its directory could be listed, has no name of it, and is on the file's device; for a missing directory its
nearest existing parent counts. A file that is excluded, or still on disk outside the patterns, stays known as long as it exists: a
forgotten one would be taken for a new file.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from copycat_agent.sources.files.identity import Identity, InodeFinder
from copycat_agent.sources.files.packing import packed

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.model import SourceOffset, SourcePartition
    from copycat_agent.sources.log_file.unfollowed_partitions import UnfollowedPartitions
    from copycat_agent.sources.planner import Changes

KEPT_GONE = 100_000
"""How many settled rows are kept of missing files and of previous generations; beyond that the oldest are forgotten first."""
KEPT_GENERATIONS = 16
"""How many previous generations of one file are kept."""
_AGE_SECONDS = 60.0
"""Longest time between two checks for rows to forget."""
_LOOKS = 10
"""How often within `forget_after` a file that is not followed is checked for existence."""


class OffsetExpiry:
    """Forgets the unfollowed files of one connector."""

    def __init__(self, unfollowed: UnfollowedPartitions, forget_seconds: float, log: Log) -> None:
        self._unfollowed = unfollowed
        self._forget_seconds = forget_seconds
        self._log = log
        self._aged_at = -_AGE_SECONDS
        self._there: dict[SourcePartition, float] = {}
        self._reported: set[str] = set()

    @property
    def is_due(self) -> bool:
        """Whether it is time for `age` to check unfollowed files again."""
        return time.monotonic() - self._aged_at >= min(_AGE_SECONDS, self._forget_seconds / 2) and bool(self._unfollowed.inodes)

    def age(self, changes: Changes) -> None:
        """Records when files were seen to be gone, and forgets them `forget_after` later. Cheap: it checks only now and then.

        A file that is excluded for a while, or whose directory cannot be listed, is not seen to be gone.
        """
        if not self.is_due:
            return
        self._aged_at = now = time.monotonic()
        self._there = {partition: until for partition, until in self._there.items() if until > now}
        whereabouts = InodeFinder()
        for inode in self._unfollowed.inodes:
            self.bound_previous(inode, changes)
            for partition in self._unfollowed.at_inode(inode):
                self._age_one(partition, whereabouts, changes)
        self._bound_gone(whereabouts, changes)

    def bound_previous(self, inode: int, changes: Changes) -> None:
        """Forgets the oldest generations of files that are begun anew again and again, except those whose rest is searched for."""
        partitions = self._unfollowed.at_inode(inode)
        generations: dict[Identity, list[tuple[int, SourcePartition]]] = {}
        for partition in partitions if len(partitions) > KEPT_GENERATIONS else ():
            if self._unfollowed.is_previous(partition):
                identity, generation = Identity.parse(partition.key)
                generations.setdefault(identity, []).append((generation, partition))
        for previous in generations.values():
            for partition in (one for _, one in sorted(previous)[:-KEPT_GENERATIONS] if one not in self._unfollowed.unclaimed):
                self._unfollowed.forget(partition, changes)
                why = f"a file was begun anew more than {KEPT_GENERATIONS} times within forget_after"
                self._tell_bound(why, "let its writer append to it, or rotate it under names that the patterns match")

    def _age_one(self, partition: SourcePartition, whereabouts: InodeFinder, changes: Changes) -> None:
        offset, now_ms = self._unfollowed.known(partition, changes), int(time.time() * 1000)
        if offset is None:
            self._unfollowed.forget(partition, changes)
        elif not offset.gone_ms:
            if self._is_gone(partition, offset, whereabouts):
                changes.offsets[partition] = replace(offset, gone_ms=now_ms)
        elif now_ms - offset.gone_ms > self._forget_seconds * 1000 and self._is_gone(partition, offset, whereabouts):
            self._unfollowed.forget(partition, changes)
            why = "out of reach for forget_after; read from its beginning if it comes back"
            self._unfollowed.lose_rest(partition, offset, 0, why, changes)

    def _is_gone(self, partition: SourcePartition, offset: SourceOffset, whereabouts: InodeFinder) -> bool:
        """Returns whether its file was seen to be gone; for a previous generation, whether its directory, where a copy may be, is known."""
        if partition in self._there:
            return False
        is_there = self._unfollowed.is_there(partition, offset, whereabouts)
        if self._unfollowed.is_previous(partition):
            return is_there is not None
        if is_there:
            self._there[partition] = time.monotonic() + self._forget_seconds / _LOOKS
        return is_there is False

    def _bound_gone(self, whereabouts: InodeFinder, changes: Changes) -> None:
        """Forgets the oldest settled rows of missing files if there are too many."""
        rows = [row for inode in self._unfollowed.inodes for row in self._unfollowed.at_inode(inode) if row not in self._there]
        surplus = len(rows) - KEPT_GONE
        if surplus <= 0:
            return
        saved = [(offset.gone_ms, row, offset) for row in rows if (offset := self._unfollowed.known(row, changes)) and offset.gone_ms]
        settled = [one for one in saved if one[1] not in self._unfollowed.unclaimed and not _has_rest(one[2])]
        surplus = len(settled) - KEPT_GONE
        for _, row, offset in sorted(settled, key=lambda one: one[0]):
            if surplus <= 0:
                return
            if self._is_gone(row, offset, whereabouts):
                self._unfollowed.forget(row, changes)
                self._tell_bound(f"more than {KEPT_GONE:,} files are gone", "lower forget_after, or split the connector's patterns")
            elif row not in self._there:
                continue
            surplus -= 1

    def _tell_bound(self, what: str, hint: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            why = f"{what}: the oldest offsets are forgotten; such a file, if it came back, would be sent again"
            self._log.warning("offsets are forgotten before forget_after", why=why, hint=hint)


def _has_rest(offset: SourceOffset) -> bool:
    start, end, _ = packed.rest(offset)
    return end > start
