"""What a kill loop found: as values for JSON, and as tables."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.kill_loop_findings import Findings, Struck
from benchmarks.kill_loop_plan import window
from copycat_agent.failpoints import NAMES
from tests.rig.verifier import is_complete, is_exact


def result(verdict: Mapping[str, Any], findings: Findings, asked: Mapping[str, Any], repeated_ms: Sequence[int] = ()) -> dict[str, Any]:
    """Everything. `kept`: the promise of the guarantee held. `repeated_ms`: when each repeat was sent."""
    kept = is_exact(verdict) if asked["guarantee"] == "exactly_once" else is_complete(verdict)
    struck = findings.struck
    fired = Counter(one.place for one in struck if one.fired)
    windows: Counter[str] = Counter()
    for place, count in fired.items():
        windows[window(place)] += count
    return {
        **asked,
        "kept": kept and not findings.broken,
        "kills": len(struck),
        "verdict": dict(verdict),
        "repeats_per_kill": repeats([one.at for one in struck], repeated_ms),
        "victims": dict(Counter(one.victim for one in struck)),
        "moments": dict(Counter(one.moment for one in struck)),
        "windows": dict(sorted(windows.items())),
        "failpoints": {name: fired[name] for name in NAMES},
        "failpoints_missed": dict(findings.misses),
        "recovery_seconds": recovery([one.seconds for one in struck]),
        "recovery_seconds_by_victim": _by_victim(struck),
        "stops": len(findings.stops),
        "gave_up": findings.gave_up,
        "broken": findings.broken,
    }


def recovery(seconds: Sequence[float | None]) -> dict[str, float]:
    """Of those that were measured: kills during a start have no recovery of their own."""
    known = sorted(one for one in seconds if one is not None)
    if not known:
        return {"count": 0}
    return {
        "count": len(known),
        "median": round(statistics.median(known), 2),
        "p95": round(known[min(len(known) - 1, int(len(known) * 0.95))], 2),
        "max": round(known[-1], 2),
    }


def repeats(kills: Sequence[float], repeated_ms: Sequence[int]) -> dict[str, float]:
    """Lines that were sent again after each kill (seconds since the epoch) and before the next."""
    moments = sorted(kills)
    counts = [0] * len(moments)
    for moment in repeated_ms:
        counts[max(0, bisect.bisect_right(moments, moment / 1e3) - 1)] += 1
    if not counts:
        return {"kills": 0}
    return {
        "kills": len(counts),
        "with_repeats": sum(map(bool, counts)),
        "mean": round(statistics.mean(counts), 2),
        "median": statistics.median(counts),
        "p95": sorted(counts)[int(len(counts) * 0.95)],
        "max": max(counts),
    }


def _by_victim(struck: Sequence[Struck]) -> dict[str, dict[str, float]]:
    by: dict[str, list[float | None]] = defaultdict(list)
    for one in struck:
        by[one.victim].append(one.seconds)
    return {victim: recovery(seconds) for victim, seconds in sorted(by.items())}


def text(told: Mapping[str, Any]) -> str:
    """Markdown."""
    verdict = told["verdict"]
    lines = [
        f"{told['caption']}; guarantee {told['guarantee']}, seed {told['seed']}, {told['minutes_taken']:.0f} minutes",
        "",
        _summary(told),
        "",
        "| lines for | delivered | lost | duplicated | phantom | corrupt | reordered |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        _row("read_committed", verdict),
        _row("read_uncommitted", {**dict.fromkeys(("duplicated", "reordered"), "-"), **verdict["uncommitted"]}),
        "",
        "| killed | times | recovery median, s | p95 | max |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(_recovery_row(victim, told["victims"][victim], one) for victim, one in told["recovery_seconds_by_victim"].items()),
        _recovery_row("all of these", told["kills"], told["recovery_seconds"]),
        "",
        "| window | kills by failpoints | at |",
        "| --- | ---: | --- |",
        *(f"| {name} | {count} | {_places(name, told)} |" for name, count in told["windows"].items()),
    ]
    again = told["repeats_per_kill"]
    if again.get("max"):
        lines += ["", f"Lines that came again after a kill: median {again['median']:g}, 95 % {again['p95']}, most {again['max']}."]
    if told["broken"]:
        lines += ["", "Broken:", "", *(f"- {one}" for one in told["broken"])]
    lines += ["", f"Kept: {'yes' if told['kept'] else 'NO'}. Examples: {verdict['examples'] or 'none'}"]
    return "\n".join(lines)


def _summary(told: Mapping[str, Any]) -> str:
    return (
        f"{told['kills']} kills, {told['stops']} times something was stopped for a while, {told['rotations']} rotations, "
        f"{told['verdict']['written']:,} lines written, exit 75 {told['gave_up']} times"
    )


def _row(name: str, values: Mapping[str, Any]) -> str:
    return f"| {name} | " + " | ".join(
        str(values[field]) for field in ("delivered", "lost", "duplicated", "phantom", "corrupt", "reordered")
    ) + " |"  # fmt: skip


def _recovery_row(name: str, times: int, one: Mapping[str, Any]) -> str:
    return f"| {name} | {times} | {one.get('median', '-')} | {one.get('p95', '-')} | {one.get('max', '-')} |"


def _places(name: str, told: Mapping[str, Any]) -> str:
    return ", ".join(f"{place} {count}" for place, count in told["failpoints"].items() if count and window(place) == name)
