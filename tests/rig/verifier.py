"""What arrived, read while it arrives, by both kinds of readers: the verdict over a run of any length, in one byte for each line.

`View` is one reader, `Verifier` has two of them: what read_committed sees is what counts; what read_uncommitted sees besides are
records of aborted transactions.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.rig.background import Background
from tests.rig.ledger import parse_line
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.rig.kafka import Isolation

_MOST = 255
_EXAMPLES = 10
_POLL_SECONDS = 0.1


@dataclass
class Seen:
    """Arrivals of one file's lines. `counts` has a byte for each line."""

    counts: bytearray = field(default_factory=bytearray)
    latest: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(lambda: -1))
    """Topic and partition -> the furthest line."""
    reordered: int = 0

    def take(self, place: tuple[str, int] | None, number: int) -> bool:
        """Line `number` arrived at `place`, None where its order does not count. Returns whether it had before."""
        if number >= len(self.counts):
            self.counts.extend(bytes(max(256, len(self.counts) // 4, number + 1 - len(self.counts))))
        again = self.counts[number] > 0
        if place is not None:
            self.reordered += not again and number < self.latest[place]
            self.latest[place] = max(number, self.latest[place])
        self.counts[number] = min(_MOST, self.counts[number] + 1)
        return again

    def missing(self, written: int) -> list[int]:
        """Which of the first `written` lines did not arrive."""
        counts = bytes(self.counts[:written]).ljust(written, b"\0")
        return [number for number, count in enumerate(counts) if not count]

    def beyond(self, written: int) -> int:
        """Arrivals of lines that were not written, or whose write() did not return."""
        return sum(self.counts[written:])


@dataclass
class Later:
    """`seconds`: how long after it was asked for the first line arrived that was written later; None while there is none."""

    written: Mapping[str, int]
    since: float
    seconds: float | None = None


class View(Background):
    """Follows some topics from their beginning, in a thread of its own. Use it as a context manager."""

    def __init__(self, bootstrap: str, topics: Sequence[str], run: str, isolation: Isolation, *, ordered: bool = True) -> None:
        self.isolation = isolation
        self._ordered = ordered
        self.files: dict[str, Seen] = defaultdict(Seen)
        self.delivered = self.corrupt = self.alien = self.bytes = self.duplicated = 0
        self.examples: list[str] = []
        """Where something arrived that should not have."""
        self.excused: set[str] = set()
        """Files of which lines may be missing."""
        self.repeated_ms: list[int] = []
        """When each repeat was sent (its record's timestamp)."""
        self._run = run
        self._topics = topics
        self._consumer = _consumer(bootstrap, isolation)
        self._read: dict[tuple[str, int], int] = {}
        self._later: Later | None = None
        self._lock = threading.Lock()
        super().__init__(f"view-{isolation}")

    def await_after(self, written: Mapping[str, int]) -> Later:
        """Knows when the first line has arrived that is none of the first `written` of its file: it was written later than now."""
        with self._lock:
            self._later = Later(dict(written), time.monotonic())
            return self._later

    def has_all(self, written: Mapping[str, int]) -> bool:
        """Whether every line arrived. Quick: most files are looked at by one `find`."""
        with self._lock:
            return all(not count or self.files[name].counts.find(b"\0", 0, count) < 0 <= len(self.files[name].counts) - count
                       for name, count in written.items() if name not in self.excused)  # fmt: skip

    def has(self, file: str, number: int) -> bool:
        """Whether this line arrived."""
        with self._lock:
            return bool(self.files[file].counts[number : number + 1].strip(b"\0"))

    def read_to(self, ends: Mapping[tuple[str, int], int], deadline: float = 60.0) -> None:
        """Return when everything below `ends` was read; AssertionError at the deadline."""
        wait_until(
            lambda: self._error or all(self._read.get(place, 0) >= end for place, end in ends.items()),
            deadline, lambda: f"{self.isolation} read up to {self._read}, wanted {ends}",
        )  # fmt: skip

    def verdict(self, written: Mapping[str, int]) -> dict[str, Any]:
        """As plain values. Lines of files that are not in `written` were never written."""
        with self._lock:
            missing = {name: self.files[name].missing(count) for name, count in written.items() if name not in self.excused}
            lost = [f"{name}|{number}" for name, numbers in missing.items() for number in numbers]
            beyond = sum(seen.beyond(written.get(name, 0)) for name, seen in self.files.items())
            return {
                "delivered": self.delivered,
                "bytes": self.bytes,
                "lost": len(lost),
                "duplicated": self.duplicated,
                "phantom": self.alien + beyond,
                "corrupt": self.corrupt,
                "reordered": sum(seen.reordered for seen in self.files.values()),
                "examples": [*self.examples, *(f"lost: {one}" for one in lost[:_EXAMPLES])],
            }

    def by_source(self, source_of: Callable[[str], str]) -> dict[str, dict[str, int]]:
        """What has arrived so far, by what `source_of` says of each file: lines, those that came again, and those out of order."""
        told: dict[str, dict[str, int]] = {}
        with self._lock:
            for name, seen in self.files.items():
                one = told.setdefault(source_of(name), {"lines": 0, "repeated": 0, "out of order": 0})
                lines = len(seen.counts) - seen.counts.count(0)
                one["lines"] += lines
                one["repeated"] += sum(seen.counts) - lines
                one["out of order"] += seen.reordered
        return told

    def lost_by_source(self, written: Mapping[str, int], source_of: Callable[[str], str]) -> dict[str, int]:
        """Lines that have not arrived, by what `source_of` says of each file."""
        told: dict[str, int] = defaultdict(int)
        with self._lock:
            for name, count in written.items():
                told[source_of(name)] += 0 if name in self.excused else len(self.files[name].missing(count))
        return dict(told)

    def _close(self) -> None:
        self._consumer.close()

    def _work(self) -> None:
        self._consumer.assign([TopicPartition(*place, 0) for place in partitions(self._consumer, self._topics)])
        while not self._stop.is_set():
            messages = self._consumer.consume(5000, timeout=0.05)
            with self._lock:
                for message in messages:
                    self._look(message)

    def _look(self, message: Message) -> None:
        """A record, or the client's word that a partition is read to its end, markers of transactions included."""
        error = message.error()
        place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
        if error is None and offset >= self._read.get(place, 0):  # a client that has lost its way may begin again
            self._take(message, place)
            self._read[place] = offset + 1
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._read[place] = max(offset, self._read.get(place, 0))

    def _take(self, message: Message, place: tuple[str, int]) -> None:
        self.delivered += 1
        value = message.value() or b""
        line = parse_line(value)
        if line is None:
            self.corrupt += 1
            self._note("corrupt", place, message)
        elif line[0] != self._run:
            self.alien += 1
            self._note("of another run", place, message)
        else:
            self._take_line(line[1], line[2], place, message)

    def _take_line(self, file: str, number: int, place: tuple[str, int], message: Message) -> None:
        if self.files[file].take(place if self._ordered else None, number):
            self.duplicated += 1
            self.repeated_ms.append(message.timestamp()[1])
            self._note(f"again {file}|{number}", place, message)
        else:
            self.bytes += len(message.value() or b"") + 1
        if self._later is not None and number >= self._later.written.get(file, 0):
            self._later.seconds = time.monotonic() - self._later.since
            self._later = None

    def _note(self, what: str, place: tuple[str, int], message: Message) -> None:
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{what}: {place[0]}/{place[1]}/{message.offset()}")


class Verifier:
    """Both views on the same topics. Use it as a context manager; `finish` gives the verdict."""

    def __init__(self, bootstrap: str, topics: Sequence[str], run: str, *, ordered: bool = True) -> None:
        """`ordered`: whether lines of a file have to arrive in their order."""
        self.committed = View(bootstrap, topics, run, "read_committed", ordered=ordered)
        self.uncommitted = View(bootstrap, topics, run, "read_uncommitted", ordered=ordered)
        self._bootstrap = bootstrap
        self._topics = topics

    def wait_all(self, written: Mapping[str, int], deadline: float = 60.0, quiet: float = 60.0) -> bool:
        """True when readers of committed records have every line; False when nothing came for `quiet` seconds, or at the deadline."""
        end = time.monotonic() + deadline
        delivered, moved = -1, time.monotonic()
        while not self.committed.has_all(written):
            now = time.monotonic()
            if self.committed.delivered != delivered:
                delivered, moved = self.committed.delivered, now
            if now > end or now - moved > quiet:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def excuse(self, file: str) -> None:
        """Lines of this file may be missing: somebody else says which."""
        for view in (self.committed, self.uncommitted):
            view.excused.add(file)

    def catch_up(self, deadline: float = 60.0) -> None:
        """Return when readers of committed records have all there is by now."""
        self.committed.read_to(wait_until(lambda: ends(self._bootstrap, self._topics, "read_committed"), deadline), deadline)

    def finish(self, written: Mapping[str, int], deadline: float = 90.0) -> dict[str, Any]:
        """The verdict over all that the topics hold, up to the high watermark, once no transaction is open any more (AssertionError).

        `written`: file -> its lines. Nothing may be produced any more.
        """
        ends = wait_until(self._settled, deadline, "a transaction stays open: the last stable offset is not the high watermark")
        for view in (self.committed, self.uncommitted):
            view.read_to(ends)
        uncommitted = self.uncommitted.verdict(written)
        verdict = {"written": sum(written.values()), **self.committed.verdict(written)}
        verdict["aborted"] = uncommitted["delivered"] - verdict["delivered"]
        verdict["uncommitted"] = {name: uncommitted[name] for name in ("delivered", "lost", "phantom", "corrupt")}
        return verdict

    def __enter__(self) -> Self:
        self.committed.__enter__()
        self.uncommitted.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.committed.__exit__()
        finally:
            self.uncommitted.__exit__()

    def _settled(self) -> dict[tuple[str, int], int]:
        """The high watermarks, once they are the last stable offsets; empty before."""
        stable, high = (ends(self._bootstrap, self._topics, isolation) for isolation in ("read_committed", "read_uncommitted"))
        return high if stable == high else {}


def is_exact(verdict: Mapping[str, Any]) -> bool:
    """Exactly once: every line, once, whole and in order, for those who read what is committed."""
    return is_complete(verdict) and verdict["duplicated"] == 0


def is_complete(verdict: Mapping[str, Any]) -> bool:
    """At least once: nothing lost, invented, harmed or out of order; repeats are allowed."""
    views = (verdict, verdict["uncommitted"])
    return verdict["reordered"] == 0 and all(view[name] == 0 for view in views for name in ("lost", "phantom", "corrupt"))


def ends(bootstrap: str, topics: Sequence[str], isolation: Isolation) -> dict[tuple[str, int], int]:
    """Topic and partition -> its end for such a reader; empty while the broker cannot tell."""
    consumer = _consumer(bootstrap, isolation)
    try:
        found = {}
        with suppress(KafkaException):
            for place in partitions(consumer, topics):
                found[place] = consumer.get_watermark_offsets(TopicPartition(*place), timeout=60)[1]
            return found
        return {}
    finally:
        consumer.close()


def partitions(consumer: Consumer, topics: Sequence[str]) -> list[tuple[str, int]]:
    """All that the topics have; AssertionError when one of them is not there after a minute."""

    def look(topic: str) -> Callable[[], list[tuple[str, int]]]:
        def found() -> list[tuple[str, int]]:
            with suppress(KafkaException):
                return [(topic, number) for number in sorted(consumer.list_topics(topic, timeout=60).topics[topic].partitions)]
            return []

        return found

    return [place for topic in topics for place in wait_until(look(topic), 60, f"no topic {topic}")]


def _consumer(bootstrap: str, isolation: Isolation) -> Consumer:
    return Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "verifier",  # required by the client; with assign() and no commits, no group is ever joined
        "isolation.level": isolation,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 50,
        "reconnect.backoff.max.ms": 200,
        "log_level": 0,
    })  # fmt: skip
