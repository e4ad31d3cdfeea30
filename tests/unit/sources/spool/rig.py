"""A spool directory's driver half, and tasks that run real batches in this process: no Spark, no Kafka, no threads."""

from __future__ import annotations

import os
import pickle
import time
from typing import TYPE_CHECKING, Any

from copycat_agent import logs
from copycat_agent.errors import RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.formats.records import FORMATS
from copycat_agent.model import Batch, Loss, SourceOffset, SourcePartition, Split, SplitResult, TaskId
from copycat_agent.options import Definition, DeliveryOptions
from copycat_agent.producer import Message, ProducerPool, TaskProducer
from copycat_agent.sources.spool_dir.spool_dir import SpoolDirSource
from copycat_agent.sources.spool_dir.spool_kind import SPOOL_DIR
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from tests.unit.sources.rig import made
from tests.unit.sources.saved import told_alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from copycat_agent.options import KafkaOptions
    from copycat_agent.sources.planner import Changes


class Keeper(TaskProducer):
    """Stands in for a producer: `arrived` is what was acknowledged. While `down` nothing is."""

    batch_bytes = 0

    @property
    def topics(self) -> Any:
        return _OnePartition()

    def __init__(self, arrived: list[bytes]) -> None:
        self._arrived = arrived
        self._waiting: list[bytes] = []
        self.down = False
        self.broken = False
        self.next_batch_bytes = 0

    def begin(self, stopping: Callable[[], bool]) -> None:
        del stopping
        self._waiting.clear()

    def send(self, topic: str, values: list[bytes], tail: Message) -> None:
        del topic, tail
        self._waiting += values

    def send_each(self, messages: Iterable[Message]) -> None:
        self._waiting += [message[1] for message in messages]

    def flush(self) -> None:
        if self.down:
            raise RetriableError("no broker")
        self._arrived += self._waiting
        self._waiting.clear()

    def weigh(self, size_bytes: int) -> None:
        del size_bytes

    @property
    def run_bytes(self) -> int:
        return 2**24

    def smaller_batches(self) -> None:
        pass

    def take_view(self) -> None:
        return None

    def close(self) -> None:
        pass


class _OnePartition:
    def partitions(self, topic: str) -> int:
        del topic
        return 1


class _Keepers(ProducerPool):
    def __init__(self, keeper: Keeper) -> None:
        super().__init__()
        self._one = keeper

    def take(self, task: TaskId, options: KafkaOptions, *, tracked: bool = False) -> TaskProducer:
        del task, options, tracked
        return self._one

    def give_back(self, task: TaskId, options: KafkaOptions, producer: TaskProducer) -> None:
        pass


class Spool:
    """`SpoolDirSource` over `root` with a store that survives `restart`. What arrived is in `arrived`, in order, with repeats.

    `tasks` at a time are given work by `work`; a batch ends after `max_bytes`.
    """

    def __init__(self, root: Path, *, tasks: int = 1, delivery: dict[str, Any] | None = None, **options: Any) -> None:
        self.root = root
        self.arrived: list[bytes] = []
        self.store: dict[SourcePartition, SourceOffset] = {}
        self.losses: list[Loss] = []
        self.keeper = Keeper(self.arrived)
        self._producers = _Keepers(self.keeper)
        self.max_bytes = 2**26
        form = options.pop("format", "lines")
        named = {"type": form} if isinstance(form, str) else form
        ready = options.pop("ready", {"min_age": 0.0})
        self.options = SpoolDirOptions.model_validate(
            {"type": "spool_dir", "dir": str(root), "watch": "poll", "ready": ready, **options}
            | {"format": FORMATS[named["type"]].options.model_validate(named)}
        )
        self.delivery = DeliveryOptions.model_validate({"tasks_max": tasks, **(delivery or {})})
        self.definition = Definition.model_validate(
            {"name": "drops", "source": self.options, "record": {"topic": "t"}, "delivery": self.delivery}
        )
        self._pickled = pickle.dumps(self.definition)
        self.source = self._make()

    def _make(self) -> SpoolDirSource:
        source = SpoolDirSource("drops", self.options, self.delivery, dict(self.store), logs.get("test"))
        made.append(source)
        return source

    def restart(self) -> None:
        """End without settling anything, as a crash does, and begin again from the store."""
        self.source.close()
        self.source = self._make()

    def stop(self) -> None:
        """End in order, and begin again from the store."""
        self._store(self.source.leave())
        self.restart()

    def scan(self) -> None:
        """One scan, saved; what time has ended as well."""
        self.source.end_timed_out(at_once=False)
        self._save((), self.source.scan())
        self.source.end_timed_out(at_once=False)

    def work(self) -> int:
        """A batch for every idle task, read and saved. Returns the number of splits."""
        planned = [self.source.plan(self.delivery.tasks_max - number).splits for number in range(self.delivery.tasks_max)]
        for number, splits in enumerate(planned):
            self.bring(self.read(splits, number))
        return sum(map(len, planned))

    def read(self, splits: tuple[Split, ...], number: int = 0) -> tuple[SplitResult, ...]:
        """What a task brings back."""
        batch = Batch(TaskId("drops", number), self._pickled, splits, self.max_bytes, 60.0)
        return run_batch(batch, self._producers, lambda: False) if splits else ()

    def bring(self, results: tuple[SplitResult, ...]) -> None:
        """Take in what a task brought back."""
        if results:
            changes = self.source.changes_of(results)
            told_alike(SPOOL_DIR, self.options, results, changes)
            self._save(results, changes)

    def drain(self, rounds: int = 200) -> int:
        """Scan and read until two rounds find nothing more. Returns the number of splits."""
        quiet = total = 0
        for _ in range(rounds):
            self.scan()
            splits = self.work()
            total += splits
            quiet = 0 if splits else quiet + 1
            if quiet == 2:
                return total
        raise AssertionError("never quiet")

    def drop(self, name: str, content: bytes, mtime: float | None = None) -> Path:
        """A file that comes by rename, whole."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True, parents=True)
        partial = path.with_name(f".{path.name}.rig")
        partial.write_bytes(content)
        if mtime is not None:
            os.utime(partial, (mtime, mtime))
        partial.rename(path)
        return path

    def states(self) -> dict[str, str]:
        """State by file name."""
        return {view.path.rpartition("/")[2]: view.state for view in self.source.files()}

    def why(self, name: str) -> str:
        """What is said of a file."""
        return next(view.why for view in self.source.files() if view.path.rpartition("/")[2] == name)

    def rows(self) -> dict[str, SourceOffset]:
        """What is saved, by file name."""
        return {offset.path.rpartition("/")[2]: offset for offset in self.store.values()}

    def _save(self, results: tuple[SplitResult, ...], changes: Changes) -> None:
        self._store(changes)
        self.source.finish(results, changes)

    def _store(self, changes: Changes) -> None:
        self.store.update(changes.offsets)
        for partition in changes.forget:
            self.store.pop(partition, None)
        self.losses += changes.losses


def lines(*texts: str) -> bytes:
    """A file of these lines."""
    return "".join(f"{text}\n" for text in texts).encode()


def touch_later(path: Path, seconds: float = 1.0) -> None:
    """Make its time of change another one."""
    moment = time.time() + seconds
    os.utime(path, (moment, moment))
