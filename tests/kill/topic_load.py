"""The load of kill loops that read Kafka: a topic that grows with numbered lines. And the connector that copies it into another topic."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from tests.rig.background import Background
from tests.rig.kafka import consume
from tests.rig.ledger import make_line, parse_line

if TYPE_CHECKING:
    from pathlib import Path

MIRROR = "mirror"
PARTITIONS = 3
_TICK_SECONDS = 0.05
_PAYLOAD = b"abcdefghijklmnopqrstuvwxyz =.,:"
_UNDONE_SHARE = 0.05
_UNDONE_LINES = 10


class TopicLoad(Background):
    """As `both.Load`, with `per_second` lines in all, each partition a file. A topic that is there is gone on with.

    Now and then lines of another run are sent in a transaction that is aborted: whoever sees one calls it a phantom.
    """

    has_spool = has_planner = False
    written_bytes = rotations = 0
    topic = "origin"

    def __init__(self, root: Path, run: str, per_second: int, connector: str = MIRROR) -> None:
        super().__init__("load")
        self._connector = connector
        self._run_name = run
        self._per_second = per_second
        self._dice = random.Random()
        self._written = dict.fromkeys(range(PARTITIONS), 0)
        self._producer: Producer | None = None
        self._undone: Producer | None = None
        self._settings: dict[str, Any] = {}
        self._writing = threading.Lock()
        self._is_paused = False
        root.mkdir(parents=True, exist_ok=True)

    def begin(self, bootstrap: str) -> None:
        """Where the lines go, what is there included. To be called first."""
        for one in consume(bootstrap, self.topic, "read_committed"):
            line = parse_line(one.value or b"")
            assert line is not None
            self._written[one.partition] = max(self._written[one.partition], line[2] + 1)
        self._settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**self._settings, "message.timeout.ms": 600_000})

    def counts(self) -> dict[str, int]:
        """The lines that the topic has or will have."""
        if self._error:
            raise self._error
        return {self._file(number): count for number, count in self._written.items()}

    def is_cleaned_up(self) -> bool:
        """Whether nothing is left that the agent should have moved or deleted."""
        return True

    def pause(self) -> None:
        """Write nothing until `resume`. All is in the topic when it returns."""
        with self._writing:
            self._is_paused = True
        assert self._producer is not None
        assert self._producer.flush(300) == 0, "the broker does not take what is written"

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False

    def _close(self) -> None:
        assert self._producer is not None
        self._producer.flush(60)

    def _work(self) -> None:
        owed = 0.0
        while not self._stop.wait(_TICK_SECONDS):
            with self._writing:
                if self._is_paused:
                    continue
                owed += self._per_second * _TICK_SECONDS
                while owed >= 1:
                    self._write(self._dice.randrange(PARTITIONS))
                    owed -= 1
                if self._dice.random() < _UNDONE_SHARE:
                    self._undo_some(self._dice.randrange(PARTITIONS))

    def _write(self, partition: int) -> None:
        assert self._producer is not None
        line = self._line(self._run_name, partition, self._written[partition])
        self._producer.produce(self.topic, line, partition=partition, on_delivery=self._refused)
        self._producer.poll(0)
        self._written[partition] += 1

    def _undo_some(self, partition: int) -> None:
        with suppress(KafkaException):
            if self._undone is None:
                settings = {**self._settings, "transactional.id": f"{self._run_name}-undone", "transaction.timeout.ms": 10_000}
                undone = Producer(settings)
                undone.init_transactions(10)
                self._undone = undone
            self._undone.begin_transaction()
            for number in range(_UNDONE_LINES):
                self._undone.produce(self.topic, self._line("undone", partition, number), partition=partition)
            self._undone.flush(10)
            self._undone.abort_transaction(10)
            return
        self._undone = None  # the broker was killed: another producer ends what this one began

    def _line(self, run: str, partition: int, number: int) -> bytes:
        payload = bytes(self._dice.choices(_PAYLOAD, k=self._dice.randint(10, 120)))
        return make_line(run, self._file(partition), number, payload).removesuffix(b"\n")

    def _refused(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._error = AssertionError(f"a line was not taken: {error}")

    def _file(self, partition: int) -> str:
        return f"{self._connector}/{partition}"


def mirror_definition(load: TopicLoad, topic: str, guarantee: str) -> dict[str, object]:
    """The connector: into a topic with as many partitions."""
    return {
        "source": {"type": "kafka", "topics": [load.topic], "poll_interval": "100ms"},
        "record": {"topic": topic, "partition": "source"},
        "delivery": {"tasks_max": 2, "max_batch_bytes": "256KiB", "guarantee": guarantee},
    }
