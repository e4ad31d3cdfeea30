"""Who is killed next, and when: the same for the same seed, whatever happened before."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from copycat_agent.failpoints import NAMES

Victim = Literal["driver", "jvm", "worker", "daemon", "planner", "all", "broker"]
"""`planner`: the process in which a data source plans, or journalctl."""
Moment = Literal["start", "random", "failpoint"]
"""`start`: while what was killed last is still coming up. `failpoint`: the process kills itself there."""

ROUND: tuple[Victim, ...] = ("driver",) * 7 + ("jvm",) * 4 + ("worker",) * 4 + ("planner",) + ("daemon",) * 2 + ("all",) * 2
"""So many of each in every 20 kills, in another order each time."""
FILE_PLACES = frozenset({"files-uploaded", "files-claimed", "files-checked", "files-published"})
"""Failpoints that there are where files are written."""
WORKER_PLACES = frozenset({"begun", "sending", "positions-sent", "committing", "committed"}) | FILE_PLACES
"""Failpoints that a task's process comes to; the driver comes to the others."""
LANE_PLACES = (WORKER_PLACES - FILE_PLACES) | {"fenced", "claimed", "recovering"}
"""Failpoints that there are with exactly_once only."""
SPOOL_PLACES = frozenset({"moved", "cleaned"})
"""Failpoints of spool directories."""
START_SECONDS = 5.0
"""An agent that starts is killed within so many seconds: it ships after about 5."""
PAUSE_SECONDS = 2.0
"""Between recovery and the next kill at a random time, at most: two transactions, more or less."""
_MOST_NTH = {"start": 1, "fenced": 2, "claimed": 2, "recovering": 1}
_START_SHARE = 0.3
_FAILPOINT_SHARE = 0.5
"""Of the kills of drivers and workers that are not during a start."""
_BROKER_EVERY = 40
_STOP_EVERY = 25


@dataclass(frozen=True)
class Kill:
    """One kill that is planned. `delay_seconds`: how long after recovery, or, during a start, after the kill before. `nth`: of a failpoint.

    `stop_seconds`: before it, some process is stopped (SIGSTOP) for so long, and goes on.
    """

    number: int
    victim: Victim
    moment: Moment
    delay_seconds: float
    nth: int = 1
    stop_seconds: float = 0.0


def planned(seed: int, number: int) -> Kill:
    """Kill `number` of the run with this seed."""
    if number % _BROKER_EVERY == _BROKER_EVERY - 1:
        return Kill(number, "broker", "random", random.Random(f"{seed}/{number}").uniform(0, PAUSE_SECONDS))
    order = random.Random(f"{seed}/round/{number // len(ROUND)}").sample(ROUND, len(ROUND))
    dice = random.Random(f"{seed}/{number}")
    victim = order[number % len(ROUND)]
    moment: Moment = "random"
    if dice.random() < _START_SHARE:
        moment = "start"
    elif victim in {"driver", "worker"} and dice.random() < _FAILPOINT_SHARE:
        moment = "failpoint"
    delay = dice.uniform(0, START_SECONDS if moment == "start" else PAUSE_SECONDS)
    stop = dice.uniform(1, 8) if number % _STOP_EVERY == _STOP_EVERY - 1 else 0.0
    return Kill(number, victim, moment, delay, dice.choice((1, 2, 3, 5, 8, 13)), stop)


def places(victim: Victim, guarantee: str, *, has_spool: bool = True, into_files: bool = False) -> list[str]:
    """Failpoints that such a process comes to. `has_spool`: whether some source is a spool directory."""
    names = [name for name in NAMES if (name in WORKER_PLACES) == (victim == "worker") and (has_spool or name not in SPOOL_PLACES)]
    if into_files:
        return [name for name in names if name not in LANE_PLACES]
    return [name for name in names if name not in FILE_PLACES and (guarantee == "exactly_once" or name not in LANE_PLACES)]


def spelled(place: str, nth: int) -> str:
    """For the variable. Some places a process comes to once or twice only."""
    return f"{place}:{min(nth, _MOST_NTH.get(place, nth))}"


def window(place: str) -> str:
    """W0 to W18."""
    return NAMES[place].partition(":")[0]
