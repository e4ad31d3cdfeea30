"""Logs that trickle: from append to consumer, and what following them costs."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from confluent_kafka import Consumer, TopicPartition

from benchmarks.measuring import Meter, Usage
from benchmarks.tools import TOOLS, Job, Process, end

_WARM_SECONDS = 3.0
_LIMIT_SECONDS = 120.0
_SETTLE_SECONDS = 2.0

Mark = Callable[[Literal["busy", "settling", "idle", "end"]], None]


@dataclass(frozen=True)
class Latency:
    """Milliseconds from append to consumer, and processor use as a share of one core."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_share: float
    idle_cpu_share: float


def measure(tool: str, job: Job, per_second: int, seconds: float, idle_seconds: float) -> Latency:
    """Append `per_second` lines a second, one write each, for `seconds`, after a warm-up; then watch the tool idle.

    The job's one path is a file, or a pattern of files that are there and take turns.
    """
    return measured(lambda: TOOLS[tool].start(job), job, per_second, seconds, idle_seconds)


def median(found: Sequence[Latency]) -> Latency:
    """Column by column."""
    return Latency(*(statistics.median(getattr(one, field.name) for one in found) for field in fields(Latency)))


def measured(
    start: Callable[[], list[Process]], job: Job, per_second: int, seconds: float, idle_seconds: float, mark: Mark = lambda _: None
) -> Latency:
    """`measure` for whatever `start` starts. `mark` is called where each stretch begins and ends."""
    (pattern,), (topic,) = job.paths, job.topics
    paths = sorted(pattern.parent.glob(pattern.name)) or [pattern]
    paths[0].write_text("")
    processes = start()
    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": "benchmark", "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, 0)])
    delays: list[float] = []
    stop = threading.Event()
    reader = threading.Thread(target=_read, args=(consumer, delays, stop))
    try:
        _until_it_follows(paths[0], consumer)
        reader.start()
        with Meter([process.pid for process in processes], memory=False) as meter:
            _append(paths, per_second, max(_WARM_SECONDS, 2 * len(paths) / per_second))
            mark("busy")
            before, begin, warm = meter.usage(), time.monotonic(), len(delays)
            _append(paths, per_second, seconds)
            share = _share(meter, before, begin)
            mark("settling")
            time.sleep(_SETTLE_SECONDS)
            mark("idle")
            before, begin = meter.usage(), time.monotonic()
            time.sleep(idle_seconds)
            idle = _share(meter, before, begin)
            mark("end")
    finally:
        stop.set()
        if reader.ident:
            reader.join()
        end(processes)
        consumer.close()
    ordered = sorted(delays[warm:])
    return Latency(ordered[len(ordered) // 2] * 1e3, ordered[int(len(ordered) * 0.99)] * 1e3, ordered[-1] * 1e3, share, idle)


def _share(meter: Meter, before: Usage, begin: float) -> float:
    return (meter.usage().cpu_seconds - before.cpu_seconds) / (time.monotonic() - begin)


def _append(paths: Sequence[Path], per_second: int, seconds: float) -> None:
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("ab", buffering=0)) for path in paths]
        begin = time.monotonic()
        for number, file in zip(range(int(per_second * seconds)), itertools.cycle(files), strict=False):
            pause = begin + number / per_second - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            file.write(b"%d %s\n" % (time.monotonic_ns(), b"x" * 150))


def _until_it_follows(path: Path, consumer: Consumer) -> None:
    deadline = time.monotonic() + _LIMIT_SECONDS
    with path.open("ab", buffering=0) as file:
        file.write(b"0 first\n")
    while consumer.poll(0.5) is None:
        if time.monotonic() > deadline:
            msg = "the first line did not arrive"
            raise TimeoutError(msg)


def _read(consumer: Consumer, delays: list[float], stop: threading.Event) -> None:
    while not stop.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            written = int((message.value() or b"0").split(b" ", 1)[0])
            delays.append((time.monotonic_ns() - written) / 1e9)
