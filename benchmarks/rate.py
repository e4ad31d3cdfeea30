"""Large files, from their first byte to the last acknowledged record."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from benchmarks.measuring import Arrivals, Meter
from benchmarks.tools import TOOLS, Job, Process, end

_LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Rate:
    """What one tool did. Rates and costs count from the first record that arrived, so without the start-up."""

    lines_per_second: float
    cpu_seconds_per_million: float
    first_record_seconds: float
    start_cpu_seconds: float
    peak_bytes: float


def measure(tool: str, job: Job, count: int) -> Rate:
    """Ship `count` lines of each file and stop the tool. Raises TimeoutError when they do not arrive."""
    return measured(lambda: TOOLS[tool].start(job), job.bootstrap, job.topics, count * len(job.paths))


def measured(start: Callable[[], list[Process]], bootstrap: str, topics: Sequence[str], count: int) -> Rate:
    """Start a tool, wait until there are `count` records in the topics, and stop it. Raises TimeoutError when they do not arrive."""
    arrivals = Arrivals(bootstrap, topics)
    begin = time.monotonic()
    processes = start()
    try:
        with Meter([process.pid for process in processes]) as meter:
            first = arrivals.wait_for(1, _LIMIT_SECONDS)
            already, at_first = arrivals.count(), meter.usage()
            last = arrivals.wait_for(count, _LIMIT_SECONDS)
            at_last = meter.usage()
        sent = count - already
        cpu = at_last.cpu_seconds - at_first.cpu_seconds
        return Rate(sent / (last - first), cpu / sent * 1e6, first - begin, at_first.cpu_seconds, at_last.peak_bytes)
    finally:
        end(processes)
        arrivals.close()


def median(found: Sequence[Rate]) -> Rate:
    """Column by column."""
    return Rate(*(statistics.median(getattr(one, field.name) for one in found) for field in fields(Rate)))
