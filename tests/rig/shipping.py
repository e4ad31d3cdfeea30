"""The agent's inside without its command line: worker, store and sources as in production, on a shared Spark session."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from copycat_agent.definitions import load_file
from copycat_agent.executor import InlineExecutor
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.watch import Watcher
from copycat_agent.worker import Status, Worker
from tests.rig.kafka import Consumed, consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.executor import Executor
    from copycat_agent.model import Loss, SourceOffset, SourcePartition
    from copycat_agent.options import Definition

SCAN_INTERVAL = "200ms"


class Shipping:
    """One connector over `root / "logs"`, shipping to `topic`. `start` and `stop` as often as a test likes; offsets stay."""

    def __init__(self, root: Path, name: str, bootstrap: str, topic: str, executor: Executor, watcher: Watcher) -> None:
        self.logs = root / "logs"
        self.logs.mkdir(exist_ok=True)
        self.state_dir = root / f"state-{name}"
        self.name = name
        self.bootstrap = bootstrap
        self.topic = topic
        self._root = root
        self._executor = executor
        self._watcher = watcher
        self._store: OffsetStore | None = None
        self.taken: tuple[str, ...] = ()
        """Names that other connectors have."""
        self._worker: Worker | None = None

    def definition(self, *, source: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **sections: Any) -> Definition:
        """A definition through the real loader: `logs/*`, scanned every 200 ms, origin headers on, over which the arguments go."""
        kind = (source or {}).get("type", "log_file")
        where: dict[str, Any] = {"scan_interval": SCAN_INTERVAL, "dir": str(self.logs)}
        if kind == "log_file":
            where = {"scan_interval": SCAN_INTERVAL, "type": "log_file", "include": [f"{self.logs}/*"]}
        elif kind != "spool_dir":
            where = {"poll_interval": SCAN_INTERVAL}
        document = {
            "name": self.name,
            "source": {**where, **(source or {})},
            "record": {"topic": self.topic, "origin_headers": True, **(record or {})},
            **sections,
        }
        path = self._root / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
        loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(self.bootstrap,))))
        assert loaded.definition is not None, loaded.problems
        return loaded.definition

    def start(self, *, until_idle: bool = False, deadline: float = 60.0, **sections: Any) -> Shipping:
        """Run the connector; `sections` as for `definition`. Waits until it has looked at its directories once."""
        assert self._worker is None, "it already runs"
        self._store = OffsetStore.open(self.state_dir)
        self._worker = Worker(self._store, self._executor, self._watcher, until_idle=until_idle)
        definition = self.definition(**sections)
        self._worker.apply([definition], earlier={self.name: [one for one in definition.renamed_from if one not in self.taken]})
        wait_until(lambda: self.status.state != "starting", deadline, "the first scan")
        return self

    @property
    def status(self) -> Status:
        """The connector as it is now."""
        assert self._worker is not None, "it does not run"
        return self._worker.statuses()[0]

    @property
    def offsets(self) -> dict[SourcePartition, SourceOffset]:
        """What is committed, files only."""
        assert self._store is not None, "it does not run"
        return self._store.read(self.name)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What was given up."""
        assert self._store is not None, "it does not run"
        return self._store.losses(self.name, 1000)

    def wait_idle(self, deadline: float = 120.0) -> None:
        """Wait until a run to the end has come to it."""
        assert self._worker is not None, "it does not run"
        assert self._worker.wait(deadline), f"not idle after {deadline} s: {self.status}"

    def wait_caught_up(self, deadline: float = 60.0) -> None:
        """Wait until nothing that the connector knows of is unread. What was just written it may not know of yet."""
        wait_until(lambda: not self.status.lag.files, deadline, lambda: f"{self.status}")

    def stop(self, seconds: float = 60.0) -> Status:
        """Stop as SIGTERM does, with more time, for a busy machine; returns the last status."""
        assert self._worker is not None, "it does not run"
        assert self._store is not None
        self._worker.stop(seconds)
        status = self._worker.statuses()[0]
        self._store.close()
        self._worker = self._store = None
        return status

    def close(self) -> None:
        """Stop if it runs."""
        if self._worker is not None:
            self.stop(1.0)

    def records(self, until: int | Callable[[list[Consumed]], bool] | None = None, deadline: float = 60.0) -> list[Consumed]:
        """What arrived, see `consume`: None for all there is now, a number to wait for so many."""
        try:
            return consume(self.bootstrap, self.topic, until=until, deadline=deadline)
        except AssertionError as error:
            error.add_note(f"the connector: {self.status if self._worker else 'not running'}")
            raise

    def lines(self, until: int | None = None, deadline: float = 60.0) -> list[str]:
        """The values that arrived, as text, in topic order."""
        return [(record.value or b"").decode("utf-8", "backslashreplace") for record in self.records(until, deadline)]


S = TypeVar("S", bound=Shipping)


@contextmanager
def running_here(kind: type[S], root: Path, name: str, bootstrap: str, topic: str) -> Iterator[S]:
    """A connector of the real worker whose batches run in this process; not started."""
    executor, watcher = InlineExecutor(), Watcher()
    one = kind(root, name, bootstrap, topic, executor, watcher)
    try:
        yield one
    finally:
        one.close()
        executor.close()
        watcher.close()


def origin(record: Consumed) -> tuple[str, int]:
    """File name (without directory) and start offset of a record, from its origin headers."""
    headers = {name: value or b"" for name, value in record.headers}
    return headers["copycat.file"].decode().rpartition("/")[2], int(headers["copycat.offset"])
