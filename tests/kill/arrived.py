"""What Kafka has of the files that were dropped, and whether cleanup ever ran ahead of it."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.kill.drops import parse_mark
from tests.rig.background import Background
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kill.drops import Drops

_LOOK_SECONDS = 0.05


class Arrived(Background):
    """Follows a topic with one partition and the directory of finished files, from a thread. Use it as a context manager.

    Each time it first lists what is finished, then reads all that Kafka has by then: a file of which a record is missing at that
    moment was cleaned up too early.
    """

    def __init__(self, bootstrap: str, topic: str, drops: Drops, finished: Path) -> None:
        self.counts: dict[str, Counter[int]] = {}
        """File -> record -> how often it arrived."""
        self.early: list[str] = []
        """Files that were cleaned up before Kafka had all of them, with what was missing."""
        self.settled: dict[str, int] = {}
        """File -> records that had arrived when it was first seen among the finished ones."""
        self.unknown = 0
        """Records that nobody wrote."""
        self.disordered = 0
        """Records that arrived for the first time after a later one of their file."""
        self._drops = drops
        self._finished = finished
        self._partition = TopicPartition(topic, 0, 0)
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "drops", "log_level": 0, "fetch.wait.max.ms": 20})
        self._consumer.assign([self._partition])
        self._position = 0
        self._lock = threading.Lock()
        super().__init__("arrived")

    @property
    def total(self) -> int:
        """Records so far, repeats included."""
        return self._position

    @property
    def lost(self) -> dict[str, int]:
        """File -> how many of its records never arrived."""
        missing = {name: count - len(self.counts.get(name, ())) for name, count in self._drops.expected.items()}
        return {name: count for name, count in missing.items() if count}

    @property
    def repeated(self) -> int:
        """How many arrived once more."""
        return sum(count.total() - len(count) for count in self.counts.values())

    def look(self) -> None:
        """Compare what is finished now with what Kafka has now."""
        with self._lock:
            new = [path.name for path in self._finished.rglob("*") if path.name in self._drops.expected and path.name not in self.settled]
            self._read()
            for name in new:
                count = self.counts.get(name, Counter())
                self.settled[name] = count.total()
                if len(count) < self._drops.expected[name]:
                    self.early.append(f"{name}: {len(count)} of {self._drops.expected[name]} records")

    def wait_records(self, count: int, deadline: float = 180.0) -> None:
        """Return when so many more records arrived: the clock of these tests."""
        goal = self._position + count
        wait_until(lambda: self._error or self._position >= goal, deadline, lambda: f"{self._position} records, wanted {goal}")

    def _close(self) -> None:
        self._consumer.close()

    def _work(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self.look()

    def _read(self) -> None:
        """All up to what is the end now."""
        end = wait_until(self._ends, 60, "the broker does not tell the ends")[0]
        while self._position < end:
            for message in self._consumer.consume(10_000, timeout=0.02):
                if message.error() is None:
                    self._take(message.value() or b"")
                    self._position = (message.offset() or 0) + 1

    def _ends(self) -> list[int]:
        """Empty while a new topic's partition has no leader."""
        with suppress(KafkaException):
            return [self._consumer.get_watermark_offsets(self._partition, timeout=60)[1]]
        return []

    def _take(self, value: bytes) -> None:
        found = parse_mark(self._drops.run, value)
        if found is None or found[1] >= (self._drops.expected | self._drops.truncated).get(found[0], 10**9):
            self.unknown += 1
            return
        file, number = found
        count = self.counts.setdefault(file, Counter())
        self.disordered += number not in count and number != len(count)
        count[number] += 1
