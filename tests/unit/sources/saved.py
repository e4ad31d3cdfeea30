"""What a transaction says of a split is what the driver saves of it, whatever the result: asked of every result of these tests."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from copycat_agent.model import Loss, SourceOffset, SplitResult
    from copycat_agent.options import SourceOptions
    from copycat_agent.sources.base import Changes, SourceKind


def told_alike(kind: SourceKind, options: SourceOptions, results: Iterable[SplitResult], changes: Changes) -> None:
    """`kind.saved` against what `settle` made of the same results. Only the driver knows names, sizes, and what is gone."""
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
