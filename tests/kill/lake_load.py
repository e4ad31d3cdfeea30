"""The load of a kill loop of files from Kafka: a topic that grows with numbered lines, and what is read of the files that come of it."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import Producer

from copycat_agent.sinks.file_names import parse_name
from tests.lake.written import files_below
from tests.rig.background import Background
from tests.rig.kafka import consume
from tests.rig.ledger import make_line, parse_line
from tests.rig.verifier import View
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECTOR = "lake"
PARTITIONS = 3
_TICK_SECONDS = 0.05
_POLL_SECONDS = 0.1
_PAYLOAD = b"abcdefghijklmnopqrstuvwxyz =.,:"


class LakeLoad(Background):
    """As `both.Load`, with `per_second` lines in all, each partition a file. A topic that is there is gone on with."""

    has_spool = has_planner = False
    written_bytes = rotations = 0

    def __init__(self, root: Path, run: str, per_second: int) -> None:
        super().__init__("load")
        self.out = root / "out"
        self.topic = ""
        self._run_name = run
        self._per_second = per_second
        self._dice = random.Random()
        self._written = dict.fromkeys(range(PARTITIONS), 0)
        self._producer: Producer | None = None
        self._writing = threading.Lock()
        self._is_paused = False

    def begin(self, bootstrap: str, topic: str) -> None:
        """Where the lines go, what is there included. To be called first."""
        self.topic = topic
        for one in consume(bootstrap, topic):
            line = parse_line(one.value or b"")
            assert line is not None
            self._written[one.partition] = max(self._written[one.partition], line[2] + 1)
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 600_000, "log_level": 0}
        self._producer = Producer(settings)

    def counts(self) -> dict[str, int]:
        """The lines that the topic has or will have."""
        if self._error:
            raise self._error
        return {_file(number): count for number, count in self._written.items()}

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

    def _write(self, partition: int) -> None:
        assert self._producer is not None
        payload = bytes(self._dice.choices(_PAYLOAD, k=self._dice.randint(10, 120)))
        line = make_line(self._run_name, _file(partition), self._written[partition], payload).removesuffix(b"\n")
        self._producer.produce(self.topic, line, partition=partition, on_delivery=self._refused)
        self._producer.poll(0)
        self._written[partition] += 1

    def _refused(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._error = AssertionError(f"a line was not taken: {error}")


def _file(partition: int) -> str:
    return f"{CONNECTOR}/{partition}"


class _Row(NamedTuple):
    """A line of a file, as `View` looks at a message."""

    line: bytes
    written_ms: int

    def value(self) -> bytes:
        return self.line

    def timestamp(self) -> tuple[int, int]:
        return 1, self.written_ms

    def offset(self) -> int:
        return 0


class FilesView(View):
    """Follows the files below a directory; each is read once, as it is never changed."""

    def __init__(self, root: Path, run: str) -> None:
        super().__init__("127.0.0.1:1", (), run, "read_committed", ordered=False)
        self._root = root
        self._seen: set[Path] = set()

    def _work(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            self.look()

    def look(self) -> None:
        """Read the files that are new."""
        with self._lock:
            for path in files_below(self._root):
                if path in self._seen:
                    continue
                self._seen.add(path)
                name = parse_name(path.name)
                assert name is not None, path
                for line in path.read_bytes().splitlines():
                    self._take(_Row(line, time.time_ns() // 10**6), (path.name, name.partition))  # type: ignore[arg-type]


class FilesVerifier:
    """As `verifier.Verifier`, of files: there is one view, what is seen is committed."""

    def __init__(self, root: Path, run: str) -> None:
        self.committed = FilesView(root, run)

    def wait_all(self, written: Mapping[str, int], deadline: float = 60.0, quiet: float = 20.0) -> bool:
        """See `Verifier.wait_all`."""
        del quiet
        try:
            wait_until(lambda: self.committed.has_all(written), deadline)
        except AssertionError:
            return False
        return True

    def finish(self, written: Mapping[str, int]) -> dict[str, Any]:
        """The verdict over all that is there."""
        self.committed.look()
        found = self.committed.verdict(written)
        same = {name: found[name] for name in ("delivered", "lost", "phantom", "corrupt")}
        return {"written": sum(written.values()), **found, "aborted": 0, "uncommitted": same}

    def __enter__(self) -> Self:
        self.committed.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.committed.__exit__()


def lake_definition(load: LakeLoad) -> dict[str, object]:
    """The connector: files of a few records each."""
    return {
        "source": {"type": "kafka", "topics": [load.topic], "poll_interval": "100ms"},
        "sink": {
            "type": "files", "uri": f"file://{load.out}/", "path": "{@topic}/p={@partition}", "format": "lines",
            "roll": {"records": 200, "age": "700ms", "idle": "300ms"},
        },
        "delivery": {"tasks_max": 2},
    }  # fmt: skip
