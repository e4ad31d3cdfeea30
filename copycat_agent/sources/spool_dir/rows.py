"""What the store knows of a connector's spooled files, found by inode and by name; and when it forgets them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.sources.files.identity import Identity, Whereabouts

if TYPE_CHECKING:
    from copycat_agent.sources.base import Changes, Offsets

KEPT_GONE = 100_000
"""Rows of files that are gone; the oldest are forgotten before `forget_after` when there are more."""

_LOOK_SECONDS = 60.0
"""How soon it is looked again whether a file is gone that was not seen to be."""


class Row(NamedTuple):
    """A saved offset and whose it is. `bounds`: of the range that it belongs to, None for that of a whole file.

    `identity` is the one in the key. Of rows that are handed to cleanup it is the file's own, whose device may have another number by now.
    """

    partition: SourcePartition
    identity: Identity
    generation: int
    bounds: tuple[int, int] | None
    offset: SourceOffset


def part_key(key: str, start: int, end: int) -> str:
    """Key of a range's partition; `key` is its file's."""
    return f"{key}:{start:x}-{end:x}"


def is_part(key: str) -> bool:
    """Whether it is a range's key."""
    return "-" in key.rpartition(":")[2]


def is_range_key(key: str) -> bool:
    """Whether it is one as `part_key` writes it."""
    try:
        identity, generation, bounds = parse(key)
    except ValueError:
        return False
    return bounds is not None and part_key(identity.key(generation), *bounds) == key


def parse(key: str) -> tuple[Identity, int, tuple[int, int] | None]:
    """Identity, generation and bounds of a key. Raises ValueError for anything else."""
    whole, _, last = key.rpartition(":")
    start, dash, end = last.partition("-")
    if not dash:
        return *Identity.parse(key), None
    return *Identity.parse(whole), (int(start, 16), int(end, 16))


class Rows:
    """The saved offsets of one connector. Used by its thread only. Changes come in by `note`, once they are saved or about to be."""

    def __init__(self, offsets: Offsets, forget_after: float) -> None:
        self._forget_ms = int(forget_after * 1000)
        self._look_at = 0.0
        self._rows: dict[SourcePartition, Row] = {}
        self._by_inode: dict[int, dict[SourcePartition, None]] = {}
        self._by_path: dict[str, SourcePartition] = {}
        self._gone: dict[SourcePartition, int] = {}
        for partition, offset in sorted(offsets.items(), key=lambda item: item[1].gone_ms):
            self._add(partition, offset)

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, changes: Changes) -> None:
        """`changes` are in the store, or will be before anything that comes later is."""
        for partition in changes.forget:
            self._remove(partition)
        for partition, offset in changes.offsets.items():
            self._add(partition, offset)

    def there(self) -> Iterator[Row]:
        """Rows of files that were there when they were last looked for."""
        return (row for row in list(self._rows.values()) if not row.offset.gone_ms)

    def get(self, partition: SourcePartition) -> Row | None:
        """The row of this partition."""
        return self._rows.get(partition)

    def at_inode(self, inode: int) -> list[Row]:
        """All rows of files with this inode, ranges included; those of other files that had it before, or on other devices, too."""
        return [self._rows[one] for one in self._by_inode.get(inode, ())]

    def done_at(self, path: str, size: int) -> SourceOffset | None:
        """What was last read to its end under this name, if it was so long and its content is known by its digest."""
        row = self._rows.get(self._by_path.get(path, SourcePartition("", "")))
        if row is None or row.offset.trouble or row.offset.size != size or row.offset.fingerprint.head_bytes != size:
            return None
        return row.offset

    def forget_old(self, changes: Changes, is_gone: Callable[[Row, Whereabouts], bool]) -> bool:
        """Rows of files that have been gone for long, and are seen to be. Whether any are forgotten because there are too many."""
        now, oldest = time.monotonic(), int(time.time() * 1000) - self._forget_ms
        surplus = len(self._gone) - KEPT_GONE
        if now < self._look_at:
            return False
        whereabouts, is_early = Whereabouts(), False
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
        return is_early

    def gone(self, row: Row, changes: Changes) -> None:
        """The file is not there any more."""
        changes.offsets[row.partition] = replace(row.offset, gone_ms=int(time.time() * 1000))

    def _add(self, partition: SourcePartition, offset: SourceOffset) -> None:
        try:
            identity, generation, bounds = parse(partition.key)
        except ValueError:
            return
        self._rows[partition] = Row(partition, identity, generation, bounds, offset)
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
