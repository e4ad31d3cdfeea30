"""What arrived of the logs of a soak, line by line, while it arrives."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from benchmarks.soak_writer import line_of
from tests.rig.ledger import parse_line

_MOST = 255
_EXAMPLES = 5


@dataclass
class Arrived:
    """Of one log. `seen` counts each line's arrivals, `fragments` are the beginnings of lines that were cut, `alien` all other records."""

    seen: bytearray = field(default_factory=bytearray)
    records: int = 0
    out_of_order: int = 0
    latest: int = -1
    fragments: int = 0
    alien: int = 0
    examples: list[str] = field(default_factory=list)

    def take(self, run: str, name: str, value: bytes) -> None:
        """One record, in the order of the topic."""
        self.records += 1
        line = parse_line(value)
        if line is None or line[:2] != (run, name):
            self._take_other(run, name, value)
            return
        number = line[2]
        if number >= len(self.seen):
            self.seen.extend(bytes(max(65536, number + 1 - len(self.seen))))
        if not self.seen[number]:
            self.out_of_order += number < self.latest
        self.seen[number] = min(_MOST, self.seen[number] + 1)
        self.latest = max(self.latest, number)

    def repeated(self) -> int:
        """Arrivals beyond the first of each line."""
        return sum(self.seen) - sum(map(bool, self.seen))

    def missing(self, written: int) -> list[int]:
        """Lines of the first `written` that did not arrive."""
        seen = self.seen.ljust(written, b"\0")
        found, at = [], seen.find(b"\0")
        while 0 <= at < written:
            found.append(at)
            at = seen.find(b"\0", at + 1)
        return found

    def beyond(self, written: int) -> int:
        """Lines that arrived and were not written, or their write() did not return."""
        return sum(map(bool, self.seen[written:]))

    def _take_other(self, run: str, name: str, value: bytes) -> None:
        parts = value.split(b"|", 3)
        if len(parts) > 2 and parts[2].isdigit() and line_of(run, name, int(parts[2])).startswith(value):
            self.fragments += 1
        else:
            self.alien += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(repr(value[:40]))


class Account:
    """A consumer of all topics, in a thread of its own until `stop`. One topic with one partition per log."""

    def __init__(self, bootstrap: str, run: str, topics: dict[str, str]) -> None:
        """`topics`: name of the log -> topic."""
        self.logs = {name: Arrived() for name in topics}
        self._run = run
        self._names = {topic: name for name, topic in topics.items()}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "soak", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in self._names])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, name="account", daemon=True)

    @property
    def records(self) -> int:
        """So far."""
        return sum(log.records for log in self.logs.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(5000, 0.2):
                if message.error() is None:
                    name = self._names[message.topic() or ""]
                    self.logs[name].take(self._run, name, message.value() or b"")


def still_there(run: str, name: str, files: Iterable[Path], numbers: Sequence[int]) -> list[int]:
    """Those of the lines `numbers` that some file holds."""
    wanted = {line_of(run, name, number)[:-1] for number in numbers}
    found: list[int] = []
    for path in files:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            lines = (line.rstrip(b"\n") for line in file)
            found += [int(line.split(b"|", 3)[2]) for line in lines if line in wanted]
    return sorted(set(found))
