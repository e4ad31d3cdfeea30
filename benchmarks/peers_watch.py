"""What a read_committed reader sees while a tool is killed: when each line came for the first time, and when again."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, TopicPartition

from tests.rig.ledger import parse_line

_POLL_SECONDS = 0.05


@dataclass
class Arrived:
    """One log in one topic with one partition. Times are `time.monotonic()`."""

    seen: set[int] = field(default_factory=set)
    """Numbers of lines."""
    progress: list[tuple[float, int]] = field(default_factory=list)
    """(time, number) whenever a line came that was later than all before."""
    repeats: list[float] = field(default_factory=list)
    """When a line came again."""
    last: float = 0.0
    """When anything came."""

    @property
    def latest(self) -> int:
        """The furthest line that came, -1 before the first."""
        return self.progress[-1][1] if self.progress else -1

    def take(self, moment: float, value: bytes) -> None:
        """A record."""
        self.last = moment
        line = parse_line(value)
        if line is None:
            return
        number = line[2]
        if number in self.seen:
            self.repeats.append(moment)
        self.seen.add(number)
        if number > self.latest:
            self.progress.append((moment, number))

    def recoveries(self, kills: Sequence[tuple[float, int]]) -> list[float]:
        """Seconds from each kill to the first line that was written after it. `kills`: (time, lines written by then).

        A kill that met the tool before it had recovered from the one before is what made that one's time longer: only the last counts.
        """
        ends = [*(moment for moment, _ in kills[1:]), float("inf")]
        found = []
        for (moment, written), end in zip(kills, ends, strict=True):
            back = next((when for when, number in self.progress if when > moment and number >= written), None)
            if back is not None and back <= end:
                found.append(back - moment)
        return found

    def repeats_per_kill(self, kills: Sequence[tuple[float, int]]) -> list[int]:
        """How many lines came again between each kill and the next."""
        moments = [moment for moment, _ in kills]
        counts = [0] * len(moments)
        for moment in self.repeats:
            index = bisect.bisect_right(moments, moment) - 1
            if index >= 0:
                counts[index] += 1
        return counts


@contextmanager
def watch(bootstrap: str, topics: Sequence[str]) -> Iterator[dict[str, Arrived]]:
    """Follow single-partition topics from their beginning, in a thread of its own."""
    found = {topic: Arrived() for topic in topics}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "peers", "isolation.level": "read_committed", "fetch.wait.max.ms": 100}
    )
    consumer.assign([TopicPartition(topic, 0, 0) for topic in topics])
    stop = threading.Event()
    thread = threading.Thread(target=_follow, args=(consumer, found, stop), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        consumer.close()


def _follow(consumer: Consumer, found: dict[str, Arrived], stop: threading.Event) -> None:
    while not stop.is_set():
        for message in consumer.consume(5000, _POLL_SECONDS):
            topic = message.topic()
            if message.error() is None and topic is not None:
                found[topic].take(time.monotonic(), message.value() or b"")
