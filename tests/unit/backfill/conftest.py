"""Backfills in this process: the real worker, store and data path; in place of Kafka something that remembers what it was sent."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from copycat_agent.backfill import path_source
from copycat_agent.backfill.backfill import Backfill, BackfillJob, ExecutorFactory
from copycat_agent.backfill.delivered import EarlierDeliveries
from copycat_agent.definitions import load_file
from copycat_agent.encoding.window import WindowOptions
from copycat_agent.executor import InlineExecutor
from copycat_agent.model import TaskId
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.producer import Message, Place, ProducerPool, TaskProducer
from copycat_agent.sources import SOURCES, remote
from copycat_agent.sources.files.reading.address import is_remote
from tests.rig.waiting import wait_until
from tests.unit.sources.saved import remount

Summary = dict[str, Any]


class Topic:
    """One partition of each topic: what was sent, in order, with its offsets. `gate` cleared holds every flush up."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()
        self._offsets: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, topic: str, value: bytes) -> int:
        with self._lock:
            self.records.append(value)
            self._offsets[topic] += 1
            return self._offsets[topic] - 1


class _Producer(TaskProducer):
    tracked = True
    batch_bytes = 0

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._place: Place | None = None
        self.broken = False
        self.next_batch_bytes = 0

    @property
    def topics(self) -> Any:
        return self

    def partitions(self, topic: str) -> int:
        del topic
        return 1

    def begin(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping

    def attribute(self, place: Place) -> None:
        self._place = place

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        del tail
        self.send_each((topic, value) for value in values)

    def send_each(self, messages: Iterable[Message]) -> None:
        for topic, value, *_ in messages:
            assert self._place is not None, "nobody asked where this record comes to lie"
            self._place(topic, 0, self._topic.take(topic, value))

    def flush(self) -> None:
        self._topic.gate.wait(60)

    @property
    def run_bytes(self) -> int:
        return 2**24

    def weigh(self, size_bytes: int) -> None:
        pass

    def take_view(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Producers(ProducerPool):
    def __init__(self, topic: Topic) -> None:
        super().__init__()
        self._topic = topic

    def take(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskProducer:
        del task, options
        assert tracked, "a backfill knows where its records came to lie"
        return _Producer(self._topic)

    def give_back(self, task: TaskId, options: KafkaOptions, producer: TaskProducer) -> None:
        pass


class _NoHost:
    def close(self) -> None:
        pass


class Rig:
    """`run(paths)` is a backfill to its end. Each has a store of its own unless `home` says otherwise. An address is a path of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.logs = root / "logs"
        self.logs.mkdir()
        self.topic = Topic()
        self._homes: list[Path] = []

    def write(self, name: str, *lines: str, end: str = "\n") -> Path:
        path = self.logs / name
        path.write_text("\n".join(lines) + end)
        return path

    def job(
        self, paths: Iterable[Path | str], home: Path | None, *, again: bool, window: WindowOptions | None, rate: int, **sections: Any
    ) -> BackfillJob:
        document = {"name": "app", "source": {"type": "log_file", "include": ["/nowhere/*"]}, "record": {"topic": "t"}, **sections}
        file = self.root / "app.yaml"
        file.write_text(yaml.safe_dump(document))
        loaded = load_file(file, AgentOptions(kafka=KafkaOptions(bootstrap_servers=("127.0.0.1:1",))))
        assert loaded.definition is not None, loaded.problems
        if home is None:
            home = self.root / f"run-{len(self._homes)}"
        kind = SOURCES[loaded.definition.source.type]
        delivered = None if again else EarlierDeliveries(self._rows(home))
        if home not in self._homes:
            self._homes.append(home)
        names = [str(path) for path in paths]
        make = remote.maker(kind, names) if is_remote(names[0]) else path_source.maker(kind, names, delivered)
        return BackfillJob(loaded.definition, home, make, window, rate)

    def _rows(self, current: Path) -> Iterable[Any]:
        for home in self._homes:
            if home != current:
                with OffsetStore.open_existing(home) as store:
                    yield from ((one, offset, home.name) for one, offset in store.read("app").items())

    def start(
        self, paths: Iterable[Path | str], home: Path | None = None, *, again: bool = False, window: WindowOptions | None = None,
        rate: int = 0, **sections: Any,
    ) -> Backfill:  # fmt: skip
        job = self.job(paths, home, again=again, window=window, rate=rate, **sections)
        return self._backfill(job, AgentOptions())

    def run(self, paths: Iterable[Path | str], home: Path | None = None, **how: Any) -> Summary:
        with self.start(paths, home, **how) as work:
            wait_until(lambda: work.wait(0.01), 60, lambda: str(work.status))
            return work.stop(interrupted=False)

    def interrupt(self, paths: Iterable[Path | str], home: Path) -> Summary:
        """Returns the account of the first part of a run, which has read something and not all."""
        with self.start(paths, home, rate=10_000, delivery={"max_batch_bytes": "64KiB"}) as work:
            wait_until(lambda: work.status.counts.read > 0, 60)
            return work.stop(interrupted=True)

    def following(self, name: str, rate: int = 0, **sections: Any) -> Backfill:
        """The definition `NAME.yaml` without PATHs, over what is in `logs`, with the offsets in the directory `state`."""
        source = {"type": "log_file", "include": [f"{self.logs}/*"]}
        file = self.root / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"name": name, "source": source, "record": {"topic": "t"}, **sections}))
        agent = AgentOptions(kafka=KafkaOptions(bootstrap_servers=("127.0.0.1:1",)))
        loaded = load_file(file, agent)
        assert loaded.definition is not None, loaded.problems
        return self._backfill(BackfillJob(loaded.definition, self.root / "state", rate=rate, directory=self.root), agent)

    def follow(self, name: str, **sections: Any) -> Summary:
        with self.following(name, **sections) as work:
            wait_until(lambda: work.wait(0.01), 60, lambda: str(work.status))
            return work.stop(interrupted=False)

    def _backfill(self, job: BackfillJob, agent: AgentOptions) -> Backfill:
        return Backfill(job, agent, lambda *_: ExecutorFactory(2, lambda: (InlineExecutor(_Producers(self.topic)), _NoHost())))

    def remount(self) -> None:
        """Every file's device has another number from now on than what is saved says."""
        for home in self._homes:
            with OffsetStore.open_existing(home) as store:
                before, accounts = store.read("app"), store.accounts("app")
                store.begin_accounts("app")
                store.commit(remount(before), before, accounts=remount(accounts))

    def lines(self) -> list[str]:
        return [value.decode() for value in self.topic.records]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def by_name(summary: Summary) -> dict[str, Summary]:
    """The files of an account by their last names."""
    return {file["path"].rpartition("/")[2]: file for file in summary["files"]}


__all__ = ["Rig", "Summary", "by_name"]
