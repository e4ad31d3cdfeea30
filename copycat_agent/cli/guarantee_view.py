"""What is promised, in the words of every view; and the lanes of connectors that promise exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from copycat_agent.cli.shown import visible

WORDS: Mapping[str, str] = {"at_least_once": "at least once", "exactly_once": "exactly once"}
EXACTLY_ONCE = "exactly_once"
READERS = "for consumers with isolation.level=read_committed"


def guarantee_of(connector: Mapping[str, Any]) -> str:
    """What a connector of the running agent promises, in words."""
    return WORDS[connector.get("guarantee", "at_least_once")]


def exactly_once_facts(connector: Mapping[str, Any]) -> Iterator[str]:
    """Lines about a connector of the running agent that promises exactly once; none about others."""
    if connector.get("guarantee") != EXACTLY_ONCE:
        return
    yield (
        f"exactly once, {READERS}: each record is there once. Others also see what was given up. Each transaction takes one offset "
        "of every partition that it writes to, so a consumer's lag in offsets need not come down to 0."
    )
    place = connector["place"]
    if place is None:
        yield "positions: not read yet"
        return
    lanes = ", ".join(f"{lane['number']} at step {lane['seq']:,}" for lane in connector["lanes"])
    where = f"partition {place['partition']} of {place['topic']}, cluster {visible(connector['cluster'])}"
    yield f"positions: {where}; lanes: {lanes or 'not open'}"
    yield f"transactions since the start: {_outcomes(connector['lane_outcomes'])}"


def _outcomes(counted: Mapping[str, int]) -> str:
    """`12 committed, 1 given up, 0 whose outcome had to be asked for; lanes were opened once`."""
    opened = counted.get("openings", 0)
    times = "once" if opened == 1 else f"{opened:,} times"
    return (
        f"{counted.get('committed', 0):,} committed, {counted.get('undone', 0):,} given up, "
        f"{counted.get('unknown', 0):,} whose outcome had to be asked for; lanes were opened {times}"
    )
