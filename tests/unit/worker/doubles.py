"""What stands in for Spark and for a disk that is full: an executor whose answers a test scripts, a store that fails on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from copycat_agent.errors import CopycatError, RetriableError
from copycat_agent.model import Batch, Counts, Fingerprint, Loss, SavedRow, SourceOffset, SourcePartition, Split, SplitResult, TaskId
from copycat_agent.options import Definition
from copycat_agent.sources import SOURCES

if TYPE_CHECKING:
    from copycat_agent.offsets import OffsetStore

Results = tuple[SplitResult, ...]
Answer = Callable[[Batch], Results | None]
"""Results of a batch, or None: it stays in flight until the test calls `finish`."""


def read_all(batch: Batch) -> Results:
    """Every split is read and settled to its end."""
    return tuple(settled(split) for split in batch.splits)


def read_lines(batch: Batch) -> Results:
    """Every split is settled to its last complete line, a final one to its end."""
    results = []
    for split in batch.splits:
        complete = split.end if split.final else Path(split.path).read_bytes()[: split.end].rfind(b"\n") + 1
        results.append(replace(settled(split, max(complete, split.offset.position)), at_end=True))
    return tuple(results)


def settled(split: Split, position: int | None = None, error: CopycatError | None = None) -> SplitResult:
    """A result that settles the split up to `position`, its end when None. Its fingerprint proves nothing, and denies nothing."""
    end = split.end if position is None else position
    size = end - split.offset.position
    counts = Counts(read=size, read_bytes=size, acknowledged=size)
    offset = replace(split.offset, position=end, path=split.path, fingerprint=Fingerprint())
    return SplitResult(split, offset, counts, at_end=end == split.end, error=error)


def fails(error: CopycatError) -> Answer:
    """Every split stands where it stood, for this reason."""
    return lambda batch: tuple(SplitResult(split, split.offset, error=error) for split in batch.splits)


class ScriptedExecutor:
    """An `Executor` that answers from a script: the answers in `script` one after the other, then `otherwise` for ever."""

    def __init__(self, *script: Answer, otherwise: Answer = read_all) -> None:
        self.batches: list[Batch] = []
        self.settle_requests: list[TaskId] = []
        self.on_settle: Callable[[TaskId], None] = lambda _: None
        self._script = list(script)
        self._otherwise = otherwise
        self._in_flight: dict[TaskId, tuple[Batch, Future[Results]]] = {}
        self._lock = threading.Lock()

    def submit(self, batch: Batch) -> Future[Results]:
        with self._lock:
            assert batch.task not in self._in_flight, "one batch per task at a time"
            self.batches.append(batch)
            answer = self._script.pop(0) if self._script else self._otherwise
            future: Future[Results] = Future()
            self._in_flight[batch.task] = batch, future
        results = answer(batch)
        if results is not None:
            self.finish(batch.task, results)
        return future

    def finish(self, task: TaskId, results: Results | None = None) -> None:
        """End the task's batch, with everything read unless `results` say otherwise."""
        with self._lock:
            batch, future = self._in_flight.pop(task)
        future.set_result(read_all(batch) if results is None else results)

    @property
    def flying(self) -> list[TaskId]:
        """Tasks with a batch under way."""
        with self._lock:
            return list(self._in_flight)

    def settle(self, task: TaskId) -> None:
        self.settle_requests.append(task)
        self.on_settle(task)

    def close(self) -> None:
        pass


class MoodyStore:
    """An offset store whose commits fail as long as `fails` is set."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self.fails: Exception | None = None
        self.unreadable: CopycatError | None = None
        """What reading raises, None when it is possible."""
        self.refused = 0

    def read(self, connector: str) -> dict[SourcePartition, SourceOffset]:
        if self.unreadable is not None:
            raise self.unreadable
        return self._store.read(connector)

    def saved(self, connector: str) -> dict[SourcePartition, SavedRow]:
        if self.unreadable is not None:
            raise self.unreadable
        return self._store.saved(connector)

    def commit(
        self,
        saved: Mapping[SourcePartition, SavedRow],
        forget: Collection[SourcePartition] = (),
        losses: Collection[Loss] = (),
        *more: Any,
        **moved: Any,
    ) -> bool:
        if self.fails is not None and (saved or forget or losses or any(more) or any(moved.values())):
            self.refused += 1
            raise self.fails
        return self._store.commit(saved, forget, losses, *more, **moved)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def targets(self) -> dict[str, str]:
        return self._store.targets()

    def set_target(self, name: str, target: str) -> None:
        if self.fails is not None:
            raise self.fails
        self._store.set_target(name, target)

    def rename(self, old: str, new: str) -> int:
        if self.fails is not None:
            raise self.fails
        return self._store.rename(old, new)

    def forget(self, partitions: Collection[SourcePartition]) -> None:
        self._store.forget(partitions)

    def positions(self) -> dict[str, int]:
        """Saved positions of files by path."""
        return {offset.path: offset.position for offset in self._store.read("app").values()}


NO_ROOM = RetriableError("the disk is full", "make room")


def write(path: Path, *lines: str) -> int:
    """Append lines; returns the file's size."""
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path.stat().st_size


def definition(root: Path, name: str = "app", **sections: Any) -> Definition:
    """A definition over `root / "logs"`, looked at every 100 ms; `sections` go over it."""
    options = {"type": "log_file", "include": (f"{root}/logs/*",), "scan_interval": 0.1, **sections.pop("source", {})}
    source = SOURCES["log_file"].options.model_validate(options)
    return Definition.model_validate({"name": name, "source": source, "record": {"topic": "t"}, **sections})
