"""What the experiments of `benchmarks/scale` work with: an agent with one connector, its topic, lines that know their age."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.measuring import Meter
from benchmarks.soak_curves import Look, look
from tests.rig.agent import AgentProcess

NAME = "scale"
"""Of the connector."""


def stamped(path: Path) -> None:
    """Append a line that says when it was written."""
    with path.open("ab", buffering=0) as file:
        file.write(b"@%d\n" % time.monotonic_ns())


@dataclass
class Setup:
    """One experiment's directory, agent and topic. The agent is not started."""

    logs: Path
    agent: AgentProcess
    bootstrap: str
    topic: str

    def define(self, include: str, **sections: dict[str, Any]) -> None:
        """The connector, over `logs / include`."""
        source = {"type": "log_file", "include": [f"{self.logs}/{include}"], **sections.pop("source", {})}
        self.agent.define(NAME, {"source": source, "record": {"topic": self.topic, "partition": "file"}, **sections})

    def look(self) -> Look:
        """At the agent, now."""
        return look(self.agent.pid, 0.0)

    def cpu_share(self, seconds: float) -> float:
        """Of one core, over the next `seconds`."""
        with Meter([self.agent.pid], memory=False) as meter:
            before, begin = meter.usage(), time.monotonic()
            time.sleep(seconds)
            return (meter.usage().cpu_seconds - before.cpu_seconds) / (time.monotonic() - begin)


@contextmanager
def setup(work: Path, bootstrap: str, name: str, partitions: int = 1) -> Iterator[Setup]:
    """An experiment of its own below `work / name`."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    bounded = {"retention.bytes": str(2**29), "segment.bytes": str(2**27)}  # nobody reads a backlog's records
    admin.create_topics([NewTopic(name, partitions, 1, config=bounded)])[name].result(30)
    logs = work / name / "logs"
    logs.mkdir(parents=True)
    with AgentProcess(work / name / "agent", bootstrap) as agent:
        yield Setup(logs, agent, bootstrap, name)


@dataclass
class Reader:
    """Reads one partition in a thread of its own: how many records came, and how old stamped lines were. A context manager."""

    bootstrap: str
    topic: str
    partition: int = 0
    count: int = 0
    seconds: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "scale", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(self.topic, self.partition, 0)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def wait_for(self, enough: Callable[[], bool], seconds: float = 1200.0) -> float:
        """Until `enough`; returns how many seconds that took. Raises TimeoutError."""
        begin = time.monotonic()
        while not enough():
            if time.monotonic() - begin > seconds:
                raise TimeoutError(f"{self.count} records and {len(self.seconds)} stamped lines after {seconds} s")
            time.sleep(0.005)
        return time.monotonic() - begin

    def percentiles(self) -> dict[str, float]:
        """Milliseconds from append to consumer, of the stamped lines so far."""
        ordered = sorted(self.seconds)
        p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        return {"lines": len(ordered), "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3, "max_ms": ordered[-1] * 1e3}

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(2000, 0.02):
                value = message.value() or b""
                if message.error() is None:
                    self.count += 1
                    if value.startswith(b"@"):
                        self.seconds.append((time.monotonic_ns() - int(value[1:])) / 1e9)
