"""What a soak found: one row per log, and how the agent's memory and descriptors moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.report import table


@dataclass(frozen=True)
class Outcome:
    """Of one log, in lines. `lost_though_kept` did not arrive and some file still holds them; `lost_bytes` are those of all that
    are lost. `ledger` is what the agent says that it gave up, in bytes by reason.
    """

    name: str
    gapless: bool
    files: int
    written: int
    arrived: int
    lost: int
    lost_though_kept: int
    lost_bytes: int
    repeated: int
    out_of_order: int
    fragments: int
    alien: int
    ledger: dict[str, int]
    examples: list[str]

    @property
    def ledger_bytes(self) -> int:
        """All that the agent gave up."""
        return sum(self.ledger.values())

    def is_exact(self, *, killed: bool) -> bool:
        """At least once, in order, nothing invented, and no false alarm; exactly once unless the agent was killed."""
        wrong = self.lost_though_kept + self.out_of_order + self.alien + (0 if killed else self.repeated)
        if self.gapless:
            wrong += self.lost + self.fragments + self.ledger_bytes
        return not wrong

    def values(self, *, killed: bool) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ledger_bytes": self.ledger_bytes, "exact": self.is_exact(killed=killed)}


def text(result: dict[str, Any]) -> str:
    """Markdown."""
    kills = f"{result['kills']} kills (seed {result['seed']})" if result["kills"] else "no kills"
    load = f"{result['minutes']:g} minutes, {result['rate']:,} lines/s over {len(result['families'])} logs"
    rotations = f"{result['rotations']} rotations of each, one every {result['every_seconds']:g} s"
    drained = f"the last line arrived {result['drain_seconds']:.1f} s after the last write"
    parts = [
        f"{result['caption']}: {load}, {rotations}, {kills}; {drained}. {'Exact.' if result['exact'] else 'NOT exact.'}",
        _families(result["families"]),
        f"All processes of the agent, {result['cpu_share']:.0%} of a core:",
        _curves(result["curves"]),
    ]
    strange = [f"{one['name']}: {example}" for one in result["families"] if not one["exact"] for example in one["examples"]]
    return "\n\n".join([*parts, *(["Examples:\n" + "\n".join(strange)] if strange else [])]) + "\n"


def _families(families: Sequence[dict[str, Any]]) -> str:
    head = (
        "log",
        "files left",
        "written",
        "arrived",
        "lost",
        "of these in a file",
        "repeated",
        "out of order",
        "cut",
        "other",
        "ledger",
        "",
    )
    numbers = ("files", "written", "arrived", "lost", "lost_though_kept", "repeated", "out_of_order", "fragments", "alien")
    rows = (
        [
            one["name"],
            *(f"{one[name]:,}" for name in numbers),
            f"{one['ledger_bytes']:,} of {one['lost_bytes']:,} B",
            "exact" if one["exact"] else "**wrong**",
        ]
        for one in families
    )
    return table(head, rows)


def _curves(curves: dict[str, dict[str, dict[str, float]]]) -> str:
    names = {
        "pss_bytes": "memory (PSS), MiB",
        "driver_bytes": "of it the driver's, MiB",
        "descriptors": "descriptors of the driver",
        "all_descriptors": "descriptors of all",
    }
    head = ("", "first third: least", "median", "most", "last third: least", "median", "most")
    rows = (
        [words, *(_number(value, name) for which in ("first_third", "last_third") for value in curves[name][which].values())]
        for name, words in names.items()
        if curves[name]["first_third"]
    )
    return table(head, rows)


def _number(value: float, name: str) -> str:
    return f"{value / 2**20:.0f}" if name.endswith("bytes") else f"{value:.0f}"
