"""What a kill loop has done and seen so far: saved after every kill, so that a run can be gone on with."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.kill_loop_plan import Kill


@dataclass
class Struck:
    """One kill that was done. `place`: the failpoint; `fired`: the process died there by itself.

    `seconds`: until a record was read that was written after the kill; None when the next kill came before that.
    """

    number: int
    victim: str
    moment: str
    at: float
    place: str = ""
    fired: bool = False
    seconds: float | None = None

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass
class Findings:
    """What was seen besides the verdict over the lines. Anything in `broken` breaks a promise."""

    struck: list[Struck] = field(default_factory=list)
    planned: int = 0
    """How many of the plan are done, or wait for a start."""
    pending: list[Kill] = field(default_factory=list)
    misses: Counter[str] = field(default_factory=Counter)
    """Failpoints that an agent was armed with and did not come to in time."""
    stops: list[float] = field(default_factory=list)
    gave_up: int = 0
    """How often the agent ended by itself (exit 75: Spark died three times in a row), and was started again."""
    broken: list[str] = field(default_factory=list)


def values(findings: Findings) -> dict[str, Any]:
    """For JSON."""
    return {
        "struck": [one.values() for one in findings.struck],
        "planned": findings.planned,
        "misses": dict(findings.misses),
        "stops": findings.stops,
        "gave_up": findings.gave_up,
        "broken": findings.broken,
    }


def restored(saved: dict[str, Any]) -> Findings:
    """What `values` gave. Kills that waited for a start are planned anew, with other numbers."""
    struck = [Struck(**one) for one in saved["struck"]]
    return Findings(struck, saved["planned"], [], Counter(saved["misses"]), saved["stops"], saved["gave_up"], saved["broken"])
