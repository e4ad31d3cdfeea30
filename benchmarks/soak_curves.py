"""Memory, descriptors and processor time of an agent, again and again: does any of it grow?"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from benchmarks.measuring import pss

_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, OSError)


@dataclass(frozen=True)
class Look:
    """All processes of the agent together; `descriptors` and `driver_bytes` are the driver's alone. `cpu_seconds` since they started."""

    at: float
    processes: int
    pss_bytes: int
    driver_bytes: int
    descriptors: int
    all_descriptors: int
    cpu_seconds: float


def look(pid: int, begin: float) -> Look:
    """Now. Processes that end meanwhile are left out."""
    processes: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        driver = psutil.Process(pid)
        processes = [driver, *driver.children(recursive=True)]
    memory, descriptors, cpu = [], [], 0.0
    for process in processes:
        with suppress(*_GONE):
            used, opened, times = pss(process.pid), len(list(Path(f"/proc/{process.pid}/fd").iterdir())), process.cpu_times()
            memory.append(used)
            descriptors.append(opened)
            cpu += times.user + times.system
    first = (memory[0], descriptors[0]) if memory else (0, 0)
    return Look(time.monotonic() - begin, len(memory), sum(memory), first[0], first[1], sum(descriptors), cpu)


def curves(looks: Sequence[Look]) -> dict[str, dict[str, dict[str, float]]]:
    """Least, median and most of the first third and of the last third of the time."""
    looks = [one for one in looks if one.processes > 1]
    third = max(1, len(looks) // 3)
    thirds = {"first_third": looks[:third], "last_third": looks[-third:]}
    names = ("pss_bytes", "driver_bytes", "descriptors", "all_descriptors")
    return {name: {which: _spread([getattr(one, name) for one in part]) for which, part in thirds.items()} for name in names}


def cpu_share(looks: Sequence[Look]) -> float:
    """Of one core, between looks; what a process used before it was killed counts up to the last look at it."""
    pairs = list(itertools.pairwise(looks))
    used = sum(max(0.0, after.cpu_seconds - before.cpu_seconds) for before, after in pairs)
    return used / (looks[-1].at - looks[0].at) if pairs else 0.0


def plain(looks: Sequence[Look]) -> list[dict[str, float]]:
    """For JSON."""
    return [asdict(one) for one in looks]


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)} if values else {}
