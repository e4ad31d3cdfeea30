"""One large file, from its first byte to the last acknowledged record."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.measuring import Arrivals, Meter
from benchmarks.tools import TOOLS, Job, end

_LIMIT_SECONDS = 300.0


@dataclass(frozen=True)
class Rate:
    """What one tool did. Rates and costs count from the first record that arrived, so without the start-up."""

    tool: str
    lines_per_second: float
    first_record_seconds: float
    cpu_seconds_per_million: float
    start_cpu_seconds: float
    peak_bytes: int


def measure(tool: str, job: Job, count: int) -> Rate:
    """Ship `count` lines and stop the tool. Raises TimeoutError when they do not arrive."""
    arrivals = Arrivals(job.bootstrap, job.topic)
    begin = time.monotonic()
    process = TOOLS[tool](job)
    try:
        with Meter(process.pid) as meter:
            first = arrivals.wait_for(1, _LIMIT_SECONDS)
            already, at_first = arrivals.count(), meter.usage()
            last = arrivals.wait_for(count, _LIMIT_SECONDS)
            at_last = meter.usage()
        sent = count - already
        cpu = at_last.cpu_seconds - at_first.cpu_seconds
        return Rate(tool, sent / (last - first), first - begin, cpu / sent * 1e6, at_first.cpu_seconds, at_last.peak_bytes)
    finally:
        end(process)
        arrivals.close()
