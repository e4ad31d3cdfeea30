"""Saved offsets whose files are not there: they may come back, under any name, and are forgotten when they do not."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources import fingerprint
from copycat_agent.sources.identity import Identity

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.sources.base import Changes, Lose, Offsets

_AGE_SECONDS = 60.0
"""Longest time between two looks at what has to be forgotten."""


class Recalled(NamedTuple):
    """What is known of a file that was met: its partition, None when it is new, and then the generation to begin."""

    partition: SourcePartition | None
    offset: SourceOffset
    generation: int


class Absent:
    """Partitions of files that are not being followed. `offsets` is the catalog's live view of what is saved."""

    def __init__(self, offsets: Offsets, forget_seconds: float, lose: Lose, log: Log) -> None:
        self._offsets = offsets
        self._forget_seconds = forget_seconds
        self._lose = lose
        self._log = log
        self._aged_at = -_AGE_SECONDS
        self._by_inode: dict[int, list[SourcePartition]] = {}

    def add(self, partition: SourcePartition) -> None:
        """A partition whose file is not followed (any more)."""
        identity, _ = Identity.parse(partition.key)
        self._by_inode.setdefault(identity.inode, []).append(partition)

    def recall(self, fd: int, info: os.stat_result, identity: Identity, changes: Changes) -> Recalled:
        """The saved offset of this very file, if it still holds what was read from it. Raises OSError, and then nothing has changed."""
        generation = 0
        partitions = self._by_inode.get(identity.inode, [])
        for partition in list(partitions):
            saved, saved_generation = Identity.parse(partition.key)
            offset = self._known(partition, changes)
            if offset is None:
                self._drop(identity.inode, partition)
            elif _may_be_same(saved, identity, offset):
                same = info.st_size >= offset.position and fingerprint.holds(fingerprint.reader(fd), offset.fingerprint, offset.position)
                self._drop(identity.inode, partition)
                if same:
                    self._lose_rest(partition, offset, info.st_size, "the file was cut while the agent did not run", changes)
                    if offset.gone_ms or offset.done or offset.size > info.st_size:
                        offset = changes.offsets[partition] = replace(offset, gone_ms=0, done=False, size=info.st_size)
                    return Recalled(partition, offset, saved_generation)
                changes.forget.add(partition)
                self._lose_rest(partition, offset, 0, "the file was rewritten while the agent did not run", changes)
                if saved == identity:
                    generation = saved_generation + 1
                    self._log.warning("file begun anew while the agent was away, reading from its beginning", path=offset.path)
        return Recalled(None, SourceOffset(0), generation)

    def followed_last(self, changes: Changes) -> list[tuple[SourcePartition, SourceOffset]]:
        """Those that were being followed when the agent last looked: neither let go nor given up."""
        known = [partition for partitions in self._by_inode.values() for partition in partitions]
        saved = [(partition, self._known(partition, changes)) for partition in known]
        return [(partition, offset) for partition, offset in saved if offset is not None and not offset.done]

    def age(self, changes: Changes) -> None:
        """Note when files went, and forget them `forget_after` later. Cheap: it looks only now and then."""
        now = time.monotonic()
        if now - self._aged_at < min(_AGE_SECONDS, self._forget_seconds / 2):
            return
        self._aged_at = now
        now_ms = int(time.time() * 1000)
        for inode, partitions in list(self._by_inode.items()):
            for partition in list(partitions):
                offset = self._known(partition, changes)
                if offset is not None and not offset.gone_ms:
                    changes.offsets[partition] = replace(offset, gone_ms=now_ms)
                elif offset is None or now_ms - offset.gone_ms > self._forget_seconds * 1000:
                    self._drop(inode, partition)
                    changes.forget.add(partition)
                    if offset is not None:
                        self._lose_rest(
                            partition, offset, 0, "out of reach for forget_after; read from its beginning if it comes back", changes
                        )

    def _known(self, partition: SourcePartition, changes: Changes) -> SourceOffset | None:
        return changes.offsets.get(partition) or self._offsets.get(partition)

    def _lose_rest(self, partition: SourcePartition, offset: SourceOffset, size: int, why: str, changes: Changes) -> None:
        """What was known to be there and not read, beyond the first `size` bytes. Of a file that is done nothing is left to lose."""
        start = max(offset.position, size)
        if offset.size > start and not offset.done:
            self._lose(partition, offset.path, start, offset.size, why, changes)

    def _drop(self, inode: int, partition: SourcePartition) -> None:
        partitions = self._by_inode[inode]
        partitions.remove(partition)
        if not partitions:
            del self._by_inode[inode]


def _may_be_same(saved: Identity, met: Identity, offset: SourceOffset) -> bool:
    """Inodes are equal. Another device number is the same file only with its birth time and something read to prove it."""
    if saved.birth_ns != met.birth_ns:
        return False
    return saved.device == met.device or bool(met.birth_ns and offset.fingerprint.head_bytes)
