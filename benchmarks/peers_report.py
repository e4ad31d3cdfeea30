"""What each tool lost and repeated under the same kills, as a Markdown table and as values for JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.report import table
from tests.rig.ledger import Verdict


@dataclass(frozen=True)
class Told:
    """One tool, one log. `repeats`: lines that came again after each kill; `recoveries`: see `peers_watch.Arrived`; both read_committed.

    `is_settled`: nothing came any more at the end; else what is lost may only be late.
    `load`: the machine's load average over the last five minutes, of which the tool is a part.
    """

    tool: str
    log: str
    kills: int
    rotations: int
    ended_by_itself: int
    is_settled: bool
    committed: Verdict
    uncommitted: Verdict
    repeats: Sequence[int]
    recoveries: Sequence[float]
    load: float

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


_HEAD = (
    "tool", "log", "written", "lost", "repeated", "most after one kill", "corrupt", "invented", "out of order",
    "repeated, read_uncommitted", "recovery, median", "longest", "of kills", "load",
)  # fmt: skip


def tables(found: Sequence[Told], titles: Mapping[str, str]) -> str:
    """A row for each tool and log. Counts are lines as a read_committed reader finds them, but for one column."""
    return table(_HEAD, (_row(one, titles[one.tool]) for one in found))


def _row(one: Told, title: str) -> list[str]:
    seen = one.committed
    times = [f"{statistics.median(one.recoveries):.1f} s", f"{max(one.recoveries):.1f} s"] if one.recoveries else ["-", "-"]
    lost = f"{seen.lost:,}" if one.is_settled else f"{seen.lost:,} not yet there"
    return [
        title, one.log, f"{seen.written:,}", lost, f"{seen.duplicated:,}", f"{max(one.repeats, default=0):,}",
        f"{seen.corrupt:,}", f"{seen.phantom:,}", f"{seen.reordered:,}", f"{one.uncommitted.duplicated:,}", *times,
        f"{len(one.recoveries)} of {one.kills}", f"{one.load:.1f}",
    ]  # fmt: skip
