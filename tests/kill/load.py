"""Logs under load: several writers, rotated by rename, from one thread; and how far Kafka has got with them."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.ledger import Ledger, LedgerWriter

_TICK_SECONDS = 0.02
_BLOCK_LINES = (5, 60)
_SINGLE_LINES = 3
"""Now and then lines are written one by one, as an unbuffered writer does."""
_ROTATE_CHANCE = 0.02


class Load:
    """A thread that appends to `files` logs in `directory` until `stop`. Use it as a context manager."""

    def __init__(self, directory: Path, ledger: Ledger, seed: int, files: int = 4) -> None:
        directory.mkdir(exist_ok=True)
        self.rotations = 0
        self._ledger = ledger
        self._dice = random.Random(seed)
        self._writers = [ledger.writer(directory / f"app{number}.log") for number in range(files)]
        self._generations = dict.fromkeys(self._writers, 0)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._error: BaseException | None = None

    @property
    def written(self) -> int:
        """Lines written so far."""
        return self._ledger.written

    def wait_lines(self, count: int) -> None:
        """Return when `count` more lines are written: the clock of the kill tests."""
        goal = self.written + count
        wait_until(lambda: self.written >= goal or self._error, 60, "the load stands still")

    def stop(self) -> None:
        """Write no more. Raises what the thread raised."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        if self._error:
            raise self._error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            while not self._stop.wait(_TICK_SECONDS):
                self._write()
        except BaseException as error:  # noqa: BLE001 - `stop` raises it where the test sees it
            self._error = error

    def _write(self) -> None:
        writer = self._dice.choice(self._writers)
        writer.write_block(self._dice.randint(*_BLOCK_LINES))
        writer.write(_SINGLE_LINES)
        if self._dice.random() < _ROTATE_CHANCE:
            self._rotate(writer)

    def _rotate(self, writer: LedgerWriter) -> None:
        """As logrotate does: every generation one up, then a new file. A few more lines go to the old one in between."""
        path = writer.path
        for number in range(self._generations[writer], 0, -1):
            path.with_name(f"{path.name}.{number}").rename(path.with_name(f"{path.name}.{number + 1}"))
        path.rename(path.with_name(f"{path.name}.1"))
        writer.write(_SINGLE_LINES)
        writer.reopen()
        self._generations[writer] += 1
        self.rotations += 1


class Topic:
    """The ends of a topic's partitions, asked again and again."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        self.name = name
        self._partitions = [TopicPartition(name, number) for number in range(partitions)]
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "kill", "log_level": 0})

    def size(self) -> int:
        """Records in it."""
        return sum(wait_until(self._ends, 90, "the broker does not tell the ends"))

    def _ends(self) -> list[int]:
        """Empty while a partition of a new topic has no leader."""
        with suppress(KafkaException):
            return [self._consumer.get_watermark_offsets(partition, timeout=60)[1] for partition in self._partitions]
        return []

    def wait_growth(self, deadline: float = 180.0) -> None:
        """Return when there are more records than now."""
        before = self.size()
        wait_until(lambda: self.size() > before, deadline, lambda: f"nothing arrives at {self.name}, {before} records there")

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()
