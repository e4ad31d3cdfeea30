"""What tests of all sources ask of what is saved: is it told alike everywhere, and is it known after a remount."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from copycat_agent.model import Loss, SourceOffset, SourcePartition, SplitResult
    from copycat_agent.options import SourceOptions
    from copycat_agent.sources.base import SourceKind
    from copycat_agent.sources.planner import Changes


FOREIGN_DEVICE = 0x5000


T = TypeVar("T")


def remount(saved: Mapping[SourcePartition, T]) -> dict[SourcePartition, T]:
    """The same, saved before the files' device got the number that it has now."""
    return {_elsewhere(partition): offset for partition, offset in saved.items()}


def _elsewhere(partition: SourcePartition) -> SourcePartition:
    device, _, rest = partition.key.partition(":")
    return partition._replace(key=f"{int(device, 16) ^ FOREIGN_DEVICE:x}:{rest}") if rest else partition


def told_alike(kind: SourceKind, options: SourceOptions, results: Iterable[SplitResult], changes: Changes) -> None:
    """`kind.saved` against what `changes_of` made of the same results: a transaction tells what the driver saves.

    Only the driver knows names, sizes, and what is gone.
    """
    losses: list[Loss] = []
    for result in results:
        offset, lost = kind.saved(result, options)
        losses += lost
        partition = result.split.partition
        if partition in changes.forget:
            continue  # a range whose file is all read: one row stands for all of them then
        assert _task_s(changes.offsets.get(partition, result.split.offset)) == _task_s(offset)
    assert sorted(map(_plain, losses)) == sorted(map(_plain, changes.losses))


def _task_s(offset: SourceOffset) -> SourceOffset:
    return replace(offset, path="", size=0, gone_ms=0)


def _plain(loss: Loss) -> Loss:
    return loss._replace(at_ms=0)
