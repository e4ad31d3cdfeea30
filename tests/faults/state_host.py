"""A host whose agent runs in this process, with a state directory that can be copied, damaged, lost and put back."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Self

from copycat_agent.definitions import load_file
from copycat_agent.executor import InlineExecutor
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.worker import Status, Worker
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.watch import Watcher

TABLES = ("offsets.db", "offsets.db-wal", "offsets.db-shm")
MARKER = "offsets.db.quarantined"


class Host:
    """One exactly_once connector over `logs`, sending to `topic`. `start` and `stop` as often as a test likes."""

    def __init__(self, root: Path, bootstrap: str, topic: str, watcher: Watcher, *, name: str = "app", tasks: int = 1) -> None:
        self.root = root
        self.logs = root / "logs"
        self.logs.mkdir(parents=True)
        self.state_dir = root / "state"
        self.bootstrap = bootstrap
        self.topic = topic
        self.name = name
        self.tasks = tasks
        self.written: list[str] = []
        self._watcher = watcher
        self._store: OffsetStore | None = None
        self._worker: Worker | None = None
        self._executor: InlineExecutor | None = None

    def write(self, count: int, name: str = "app.log") -> None:
        """Append so many lines that no other line is like."""
        lines = [f"{self.root.name} {name} {len(self.written) + number}" for number in range(count)]
        self.written += lines
        with (self.logs / name).open("a") as log:
            log.write("".join(f"{line}\n" for line in lines))

    def start(self, **delivery: Any) -> Self:
        """Start the agent; returns at once."""
        assert self._worker is None, "it runs"
        guarantee = {"guarantee": "exactly_once", "tasks_max": self.tasks} | delivery
        path = self.root / f"{self.name}.yaml"
        path.write_text(
            f"name: {self.name}\nsource: {{type: log_file, include: ['{self.logs}/*'], scan_interval: 200ms}}\n"
            f"record: {{topic: {self.topic}}}\ndelivery: {guarantee}\n"
        )
        loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(self.bootstrap,))))
        assert loaded.definition is not None, loaded.problems
        self._store = OffsetStore.open(self.state_dir, rebuild=True)
        self._executor = InlineExecutor()
        self._worker = Worker(self._store, self._executor, self._watcher)
        self._worker.apply([loaded.definition])
        return self

    @property
    def status(self) -> Status:
        """The connector's, while it runs."""
        assert self._worker is not None, "it does not run"
        return self._worker.statuses()[0]

    @property
    def store(self) -> OffsetStore:
        """The agent's, while it runs."""
        assert self._store is not None, "it does not run"
        return self._store

    def wait(self, state: str, deadline: float = 60.0) -> Status:
        """Until the connector is in this state."""
        wait_until(lambda: self.status.state == state, deadline, lambda: f"{self.status}")
        return self.status

    def wait_sent(self, deadline: float = 60.0) -> None:
        """Until nothing is unread."""
        wait_until(
            lambda: self.status.state == "running" and not self.status.lag.bytes and self._in_topic(), deadline, lambda: f"{self.status}"
        )

    def _in_topic(self) -> bool:
        return len(self.committed()) >= len(self.written)

    def stop(self) -> Status:
        """As SIGTERM does; returns the last status."""
        assert self._worker is not None, "it does not run"
        assert self._executor is not None
        store = self.store
        self._worker.stop(15.0)
        status = self._worker.statuses()[0]
        self._executor.close()
        store.close()
        self._worker = self._store = self._executor = None
        return status

    def close(self) -> None:
        """Stop if it runs."""
        if self._worker is not None:
            self.stop()

    def copy_state(self, to: Path) -> Path:
        """Copy the state directory file by file as it is now, also under the agent's hands. Returns `to`.

        Without what is there for a moment only, before it is renamed: it may be gone when its turn comes.
        """
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(mode=0o700)
        for path in sorted(self.state_dir.iterdir()):
            if path.is_file() and path.name != "lock" and path.suffix != ".new":
                shutil.copy2(path, to / path.name)
        return to

    def put_back(self, copy: Path, *names: str) -> None:
        """Replace the state directory by a copy; with `names` only these files of it."""
        assert self._worker is None, "it runs"
        for name in names or [path.name for path in self.state_dir.iterdir() if path.is_file()]:
            (self.state_dir / name).unlink(missing_ok=True)
        for path in copy.iterdir():
            if not names or path.name in names:
                shutil.copy2(path, self.state_dir / path.name)

    def committed(self) -> list[str]:
        """What a consumer with read_committed sees, in order."""
        return [(record.value or b"").decode() for record in consume(self.bootstrap, self.topic, "read_committed")]
