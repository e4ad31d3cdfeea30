"""What a run costs: processor time and memory of a process with everything it started, and what has arrived in a topic."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

_SAMPLE_SECONDS = 0.1


@dataclass(frozen=True)
class Usage:
    """Processor seconds since the start and the most memory (proportional set size) so far, of all processes together."""

    cpu_seconds: float
    peak_bytes: int


class Meter:
    """Samples some processes and all that they started, until closed. Processes that ended keep what they had used when last seen."""

    def __init__(self, pids: Sequence[int], *, memory: bool = True) -> None:
        """`memory` False: only processor time, without the disturbance of looking at memory."""
        self._memory = memory
        self._roots = [psutil.Process(pid) for pid in pids]
        self._cpu: dict[int, float] = {}
        self._peak = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._sample_until_stopped, daemon=True)
        self._thread.start()

    def usage(self) -> Usage:
        """Up to now."""
        self._sample(memory=False)
        with self._lock:
            return Usage(sum(self._cpu.values()), self._peak)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample_until_stopped(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._sample(memory=self._memory)

    def _sample(self, *, memory: bool) -> None:
        total = 0
        for process in self._family():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, OSError):
                times = process.cpu_times()
                with self._lock:
                    self._cpu[process.pid] = times.user + times.system
                if memory:
                    total += pss(process.pid)
        with self._lock:
            self._peak = max(self._peak, total)

    def _family(self) -> list[psutil.Process]:
        family = list(self._roots)
        for root in self._roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                family += root.children(recursive=True)
        return family


def pss(pid: int) -> int:
    """Bytes of memory of one process, what it shares counted in part. Raises OSError."""
    with Path(f"/proc/{pid}/smaps_rollup").open() as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))


class Arrivals:
    """How many records some single-partition topics have."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark"})
        self._partitions = [TopicPartition(topic, 0) for topic in topics]

    def count(self) -> int:
        """Records in all of them now."""
        return sum(map(self._end, self._partitions))

    def wait_for(self, count: int, seconds: float) -> float:
        """Wait until there are `count` records; returns the time (`time.monotonic()`). Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while self.count() < count:
            if time.monotonic() > deadline:
                msg = f"{self.count()} of {count} records after {seconds} s"
                raise TimeoutError(msg)
            time.sleep(0.01)
        return time.monotonic()

    def close(self) -> None:
        """Free the consumer."""
        self._consumer.close()

    def _end(self, partition: TopicPartition) -> int:
        """As readers of committed records see it. 0 for a new topic that the client has not heard of yet."""
        try:
            return int(self._consumer.get_watermark_offsets(partition, timeout=30)[1])
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # noqa: SLF001 - it has no other name
                raise
            return 0
