"""The agent of a simulated history: the connector's own code, from its opening to its end, in a world that a test steps.

Real: the connector and its run, source, planning, both deliveries and the protocol of lanes, the offset store (SQLite in memory), the
kernel's file system. Simulated: Kafka, the task's process (it opens and checks files as a task does), threads, time between steps, and
death, which comes before or after any effect: a look, a save, a batch that is handed out, read, answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

from copycat_agent.delivery.guarantees import Deliveries
from copycat_agent.errors import FencedError, FileError, RetriableError
from copycat_agent.fair_executor import FairExecutor
from copycat_agent.formats import Chunk, LineFrames, LineOptions
from copycat_agent.model import LaneOutcome, Loss, SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.offsets import OffsetStore, agent_identity, schema
from copycat_agent.offsets.store_file import OpenedStore, connect
from copycat_agent.options import Definition, SourceOptions
from copycat_agent.sources.log_file.log_file import LogFileSource
from copycat_agent.sources.log_file.log_kind import LOG_FILE, open_stream
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.worker.connector import Connector
from copycat_agent.worker.connector_io import ConnectorIO
from copycat_agent.worker.context import WorkerServices
from copycat_agent.worker.effects import AdvanceDelivery, AnswerQuestions, CollectEvents
from copycat_agent.worker.mounts import Mounts
from copycat_agent.worker.orders import Taps
from copycat_agent.worker.status import ConnectorMetrics, State
from tests.unit.worker.doubles import NO_ROOM
from tests.unit.worker.fake_kafka import FakeKafka, lane_plan, with_outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.model import Batch, Head, TaskId
    from copycat_agent.sources.base import Source
    from copycat_agent.sources.files.reading.stream import Stream
    from copycat_agent.sources.planner import Changes
    from copycat_agent.wake import Wake
    from copycat_agent.watch import Watcher
    from copycat_agent.worker.effects import Effect, Performed
    from copycat_agent.worker.mounts import ConnectorMounts
    from copycat_agent.worker.poll_loop import PollLoop, ScheduledConnector, Steps, Wait

Results = tuple[SplitResult, ...]
TURNS_MOST = 400
"""A connector that has come to rest needs fewer turns."""
NAME = "app"


class Crash(BaseException):
    """The agent dies here."""


class Clock:
    """`time.monotonic` with steps: what the connector waits for is there at once."""

    def __init__(self) -> None:
        self._real = time.monotonic
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._real() + self._ahead

    def advance_to(self, at: float) -> None:
        self._ahead += max(0.0, at - self())

    @contextmanager
    def installed(self) -> Iterator[None]:
        """For all code of this process, with the effects of its connectors watched."""
        time.monotonic = self
        try:
            with patch("copycat_agent.worker.connector.ConnectorIO", WatchedIO):
                yield
        finally:
            time.monotonic = self._real


class Effects:
    """Every effect passes here, before and after: it is traced, and the agent may die of it."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.left: int | None = None
        """Effects until the agent dies; None: it lives."""
        self.is_dead = False

    def pass_by(self, name: str) -> None:
        """Raises Crash when the agent's time has come."""
        if self.is_dead:
            raise Crash
        self.tell(f"    {name}")
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.tell("    the agent dies")
                self.is_dead = True
                raise Crash


class WatchedIO(ConnectorIO):
    """Performs what the connector's machine asks for: the agent may die before each effect, and before its event is heard of."""

    def perform(self, effect: Effect) -> Performed:
        process = self._tools.executor
        assert isinstance(process, TaskProcess)
        if isinstance(effect, CollectEvents | AnswerQuestions | AdvanceDelivery):  # they change nothing outside
            return super().perform(effect)
        name = type(effect).__name__
        process.effects.pass_by(f"effect {name}")
        performed = super().perform(effect)
        process.effects.pass_by(f"event of {name}: {performed.error or 'done'}")
        return performed


class Watched:
    """Mixed into a source: its looks and changes are effects."""

    effects: Effects

    def scan(self) -> Changes:
        self.effects.pass_by("look")
        changes = cast("Source", super()).scan()
        self.effects.pass_by(f"looked: {_told(changes)}")
        return changes

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        changes = cast("Source", super()).changes_of(results)
        self.effects.pass_by(f"changes of {len(results)} results: {_told(changes)}")
        return changes

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        cast("Source", super()).finish(results, changes)
        self.effects.pass_by("finished")

    def leave(self) -> Changes:
        changes = cast("Source", super()).leave()
        self.effects.pass_by(f"leave: {_told(changes)}")
        return changes


class WatchedFiles(Watched, LogFileSource):
    """Log files."""


class WatchedStore:
    """The offset store: each change is an effect, dies with nothing written or with all of it, and fails while there is no room."""

    WRITES = ("commit", "lanes_opened", "looked_up", "renamed_since", "published", "reset", "forget", "rename", "set_target")

    def __init__(self, store: OffsetStore, effects: Effects) -> None:
        self.effects = effects
        self.is_full = False
        self.committed: Callable[[dict[SourcePartition, SourceOffset]], None] = lambda _: None
        self._store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return self._watched(name, method) if name in self.WRITES else method

    def _watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **more: Any) -> Any:
            if self.is_full and (name != "commit" or any(args) or any(more.values())):
                self.effects.tell(f"    {name}: no room")
                raise NO_ROOM.with_traceback(None)  # else its frames pile up
            self.effects.pass_by(f"{name} begins")
            result = method(*args, **more)
            if name == "commit":
                self.committed(dict(args[0]))
            self.effects.pass_by(f"{name} is done")
            return result

        return write


class TaskProcess:
    """An executor whose batches are read when the history says so. `lines` is what Kafka has, as a read_committed consumer sees it."""

    kind = LOG_FILE

    def __init__(self, kafka: FakeKafka, options: SourceOptions) -> None:
        self.kafka = kafka
        self.lines: list[bytes] = []
        self.flying: dict[TaskId, tuple[Batch, Future[Results]]] = {}
        self._reports: dict[TaskId, Callable[[Results], None]] = {}
        self._staying: set[TaskId] = set()
        """Tasks whose batch has come to the ends of its files and stays there."""
        self.effects: Effects
        self.is_paused = False
        self._options = options
        self.unsaved: dict[SourcePartition, list[tuple[int, bytes]]] = {}
        """Lines that were sent and whose offset was not saved, with the position behind each."""
        self.repeats: set[bytes] = set()
        """Lines that go again with at_least_once: sent by a batch that failed behind them, or not saved when the agent ended."""

    def submit(self, batch: Batch) -> Future[Results]:
        busy = {split.partition for other, _ in self.flying.values() for split in other.splits}
        assert not busy.intersection(split.partition for split in batch.splits), "a file in two batches at a time"
        assert not self.is_paused, "a connector that is paused reads"
        self.effects.pass_by(f"submit {batch.task.number}: {', '.join(map(_split, batch.splits))}")
        self._reports.pop(batch.task, None)  # of an agent that has died
        self._staying.discard(batch.task)
        future: Future[Results] = Future()
        self.flying[batch.task] = batch, future
        return future

    def follow(self, batch: Batch, report: Callable[[Results], None]) -> Future[Results]:
        """It stays at the ends of its files when the history says so."""
        future = self.submit(batch)
        self._reports[batch.task] = report
        return future

    def settle(self, task: TaskId) -> None:
        self._reports.pop(task, None)
        self.effects.pass_by(f"settle task {task.number}")

    def close(self) -> None:
        """Nothing is held."""

    def perform(self, task: TaskId, how: Callable[[], str]) -> None:
        """Read the batch of a task and answer. `later`: it stays under way. `lost`: it is done, and nobody hears of it."""
        way = how()
        if way == "later":
            self.effects.tell(f"  task {task.number} takes its time")
            return
        batch, future = self.flying.pop(task)
        report = self._reports.pop(task, None)
        if task in self._staying:
            self._staying.discard(task)
            batch = _read_on(batch)
        if way == "stay":
            way = "read" if report is None else "stay"
        is_exact = batch.delivery.guarantee == "exactly_once"
        sent: list[tuple[SourcePartition, int, bytes]] = []
        read: dict[SourcePartition | None, SplitResult] = {}
        for split in batch.splits:
            is_over = bool(read) and way not in ("read", "stay")
            way = how() if read and not is_over and way != "stay" else way
            comes_too_early = split.after in read and not read[split.after].at_end  # as `BatchRun` has it
            read[split.partition] = SplitResult(split, split.offset) if is_over or comes_too_early else self._read(split, way, sent)
        results: Results = tuple(read.values())
        self.effects.tell(f"  task {task.number} reads ({way}): {[line.decode(errors='replace') for _, _, line in sent]}")
        if is_exact:
            results = self._commit(batch, results, sent, way)
        else:
            self._send(sent)
            for partition, end, line in sent:
                self.unsaved.setdefault(partition, []).append((end, line))
            unsettled = {one.split.partition for one in results if way == "lost" or one.changed}
            self.repeats.update(line for partition, _, line in sent if partition in unsettled)
            if way == "lost":
                results = tuple(SplitResult(split, split.offset, error=RetriableError("the process ended")) for split in batch.splits)
        if way == "stay" and report is not None and all(one.at_end and not (one.changed or one.error) for one in results):
            self.effects.tell(f"  task {task.number} stays")
            splits = tuple(replace(one.split, offset=one.offset) for one in results)
            self.flying[task] = replace(batch, splits=splits), future
            self._reports[task] = report
            self._staying.add(task)
            if moved := tuple(one for one in results if one.offset != one.split.offset):
                report(moved)
            return
        future.set_result(results)

    def _send(self, sent: Sequence[tuple[SourcePartition, int, bytes]]) -> None:
        self.lines += [line for _, _, line in sent]

    def _commit(self, batch: Batch, results: Results, sent: Sequence[tuple[SourcePartition, int, bytes]], way: str) -> Results:
        """One transaction: all that was read, or nothing."""
        gone = tuple(SplitResult(split, split.offset, error=RetriableError("its process ended")) for split in batch.splits)
        told = tuple(
            replace(one, offset=self.kind.saved(one, self._options)[0], losses=self.kind.saved(one, self._options)[1]) for one in results
        )
        if way == "fail":
            return with_outcome(gone, LaneOutcome("undone", lane_plan(batch).head, "no broker"))
        try:
            head: Head = self.kafka.take(batch, told)
        except FencedError as error:
            self.effects.tell(f"    fenced: {error}")
            return gone
        self._send(sent)
        return gone if way == "lost" else with_outcome(results, LaneOutcome("committed", head))

    def saved(self, offsets: dict[SourcePartition, SourceOffset]) -> None:
        """These offsets are in the store."""
        for partition, offset in offsets.items():
            if waiting := self.unsaved.get(partition):
                self.unsaved[partition] = [one for one in waiting if one[0] > offset.position]

    def _read(self, split: Split, how: str, sent: list[tuple[SourcePartition, int, bytes]]) -> SplitResult:
        if how == "fail":
            return SplitResult(split, split.offset, error=RetriableError("no broker"))
        try:
            stream = self._open(split)
        except FileError as error:
            return SplitResult(split, split.offset, error=error)
        try:
            if not stream.is_what_was_read():
                return SplitResult(split, split.offset, changed=True)
            return self._frames(split, stream, sent, stop=how == "stop")
        finally:
            stream.close()

    def _open(self, split: Split) -> Stream:
        return open_stream(split)

    def _frames(self, split: Split, stream: Stream, sent: list[tuple[SourcePartition, int, bytes]], *, stop: bool) -> SplitResult:
        offset = stream.offset
        limit = offset.position + split.end - split.offset.position
        bounds = None if not stream.waits else stream.bounds(limit)
        mine: list[tuple[SourcePartition, int, bytes]] = []
        while bounds != (bounds := stream.bounds(limit)):
            for frame in LineFrames(LineOptions()).frames(stream.read, offset.position, bounds[0], final=split.final and bounds[1]):
                assert isinstance(frame, Chunk)
                rows = list(frame.rows())[: 1 if stop else None]
                end = rows[-1].end
                mine += [(split.partition, row.end, row.bytes) for row in rows]
                tail = stream.read(max(0, end - 256), min(256, end))
                records = offset.records + len(rows)
                stream.settled(end)
                offset = replace(offset, position=end, records=records, path=split.path, fingerprint=stream.fingerprint(end, tail))
                if stop:
                    sent += mine
                    return stream.complete(SplitResult(split, offset))
        if not stream.is_still(offset.position):
            sent += mine  # they are in Kafka by then: at least once repeats them
            return SplitResult(split, split.offset, changed=True)
        sent += mine
        return stream.complete(SplitResult(split, offset, at_end=stream.waits or stream.is_exhausted(limit)))


def _read_on(batch: Batch) -> Batch:
    """The batch with what was added to its files since; where one has shrunk, nothing more is read of any."""
    try:
        sizes = [Path(split.open_path).stat().st_size for split in batch.splits]
    except OSError:  # closed by a rule that was taken out: reading says so
        return batch
    if any(size < split.end for size, split in zip(sizes, batch.splits, strict=True)):
        return batch
    splits = (replace(split, end=size, final=False, flush=False) for size, split in zip(sizes, batch.splits, strict=True))
    return replace(batch, splits=tuple(splits))


class _Loop:
    """Stands in for the poll loop: the history takes the steps."""

    def __init__(self) -> None:
        self.steps: Steps
        self.mounts = Mounts()  # which all answer

    def start(self, steps: Steps, wake: Wake, mount_user: ConnectorMounts) -> ScheduledConnector:
        del wake, mount_user
        self.steps = steps
        return cast("ScheduledConnector", _NotBusy())


class _NotBusy:
    busy_since = None


class _NoEvents:
    """Stands in for the watcher: looks find what there is."""

    def watch(self, wake: Wake, directories: Any) -> None:
        del wake, directories

    def unwatch(self, wake: Wake) -> None:
        del wake


class Agent:
    """What a history does to the agent, and sees of it.

    `lines` is what consumers see, `losses` what is entered as lost, `store` the saved offsets. `disk_full`: nothing can be saved.
    """

    task_process = TaskProcess

    def __init__(self, directory: Path, pattern: str, delivery: dict[str, Any], tell: Callable[[str], None], **options: Any) -> None:
        source = self._source_options(directory, pattern, **options)
        self.definition = Definition.model_validate({"name": NAME, "source": source, "record": {"topic": "t"}, "delivery": delivery})
        self.effects = Effects(tell)
        self.offsets = _new_store()
        self.kafka = FakeKafka()
        self.task = self.task_process(self.kafka, source)
        self.is_exact = self.definition.delivery.guarantee == "exactly_once"
        self.source: WatchedFiles
        self._wait: Wait | None = None
        self.store_door = WatchedStore(self.offsets, self.effects)
        self._begin()

    def _source_options(self, directory: Path, pattern: str, **options: Any) -> SourceOptions:
        include = (f"{directory}/{pattern}",)
        return LogFileOptions(type="log_file", include=include, watch="poll", rotate_wait=0.0, **options)

    @property
    def lines(self) -> list[bytes]:
        return self.task.lines

    @property
    def losses(self) -> list[Loss]:
        return list(self.offsets.losses(None, 10_000))

    @property
    def store(self) -> dict[SourcePartition, SourceOffset]:
        return self.offsets.read(NAME)

    @property
    def disk_full(self) -> bool:
        return self.store_door.is_full

    @disk_full.setter
    def disk_full(self, is_full: bool) -> None:
        self.store_door.is_full = is_full

    @property
    def repeats(self) -> set[bytes]:
        """Lines that may arrive more than once, by the guarantee."""
        return self.task.repeats

    def _begin(self) -> None:
        """A new process, up to its first look."""
        effects = self.effects
        effects.is_dead, effects.left = False, None
        self.task.effects = effects
        self.store_door.committed = self.task.saved
        self.task.repeats.update(line for waiting in self.task.unsaved.values() for _, line in waiting)
        self.task.unsaved = {}
        self.task.is_paused = False
        self._threads: list[Callable[[], None]] = []
        turns = FairExecutor(1, start=self._threads.append)
        self.kafka.at_step = lambda step: effects.pass_by(f"kafka: {step}")
        store = cast("OffsetStore", self.store_door)
        deliveries = Deliveries(store, make_access=self.kafka.world, threads=turns)
        self._loop = _Loop()
        tools = WorkerServices(
            store, self.task, cast("Watcher", _NoEvents()), deliveries, cast("PollLoop", self._loop), make_source=self._make
        )
        self.connector = Connector(self.definition, tools, ConnectorMetrics(), Taps())
        self.connector.start()
        self._wait = None
        self._step()
        self._until(lambda: hasattr(self, "source") and self.connector.state is not State.STARTING)

    def _make(self, *args: Any) -> WatchedFiles:
        self.source = source = WatchedFiles(*args)
        source.effects = self.effects
        return source

    def _step(self) -> bool:
        """Go on until the connector waits again, after what its threads do. False when it has ended."""
        while self._threads:
            self._threads.pop(0)()
        self._wait = next(self._loop.steps, None)
        return self._wait is not None

    def _advance(self, most: float = 6.0) -> None:
        """Time passes, until what the connector waits for, but no more than `most` seconds."""
        now = time.monotonic()
        cast("Clock", time.monotonic).advance_to(min(self._wait.until if self._wait else now, now + most))

    def _until(self, holds: Callable[[], bool]) -> None:
        for _ in range(TURNS_MOST):
            if holds():
                return
            self._advance()
            if not self._step():
                break
        assert holds(), f"it does not come to that: {self.connector.status}"

    def scan(self) -> None:
        """Time for a look passes; what is found is saved if that is possible."""
        cast("Clock", time.monotonic).advance_to(time.monotonic() + self.source.scan_seconds)
        self._step()

    def work(self, how: Callable[[], str] = lambda: "read") -> int:
        """Hand out, read and save. Returns the number of batches that were read."""
        self._advance()
        self._step()
        tasks = sorted(self.task.flying)
        for task in tasks:
            self.effects.pass_by("before a batch is read")
            self.task.perform(task, how)
            self.effects.pass_by("after a batch was read")
        self._step()
        return len(tasks)

    def drain(self) -> None:
        """Scan and read until two rounds find nothing more, and everything is saved."""
        quiet = 0
        for _ in range(TURNS_MOST):
            self.scan()
            read = self.work()
            self._until_saved()
            quiet = 0 if read or self.task.flying or self.source.lag().bytes else quiet + 1
            if quiet == 2:
                return
        raise AssertionError(f"never quiet: {self.connector.status}")

    def _until_saved(self) -> None:
        """A back-off is waited out."""
        if self.connector.state is not State.RUNNING:
            self._advance(most=120.0)
            self._step()

    def pause(self) -> None:
        """Let it read nothing new."""
        self.connector.pause()
        self._step()
        self.task.is_paused = True

    def resume(self) -> None:
        self.task.is_paused = False
        self.connector.resume()

    def die(self) -> None:
        """As kill -9 does: nothing more comes to pass here. What the task's process had in hand may still come to its end."""
        self.effects.is_dead = True
        is_over = False
        while not is_over:
            try:
                self._loop.steps.throw(Crash())  # again where it waits for something on its way out
            except (Crash, StopIteration):
                is_over = True
        with suppress(Crash):
            self.source.close()

    def restart(self) -> None:
        """Die, and begin again from what is saved. Batches under way end with their process, or the start fences them."""
        self.die()
        self.task.flying.clear()
        self.disk_full = False
        self._begin()

    def stop(self) -> None:
        """End in order, and begin again."""
        self.connector.stop(time.monotonic() + 15.0)
        for _ in range(TURNS_MOST):
            for task in sorted(self.task.flying):
                self.task.perform(task, lambda: "read")
            if not self._step():
                break
            self._advance()
        assert self.connector.ended, "a stop that does not end"
        if not self.disk_full:
            self.task.unsaved = {}  # an orderly end repeats nothing
        self._begin()

    def close(self) -> None:
        self.die()
        self.offsets.close()


def _new_store() -> OffsetStore:
    """What `OffsetStore.in_memory` makes, in a tenth of the time."""
    connection, kept = connect(":memory:"), agent_identity.fresh()
    connection.deserialize(_empty_database())
    schema.set_uuid(connection, kept.uuid)
    return OffsetStore(OpenedStore(connection, kept))


@cache
def _empty_database() -> bytes:
    with closing(connect(":memory:")) as connection:
        schema.migrate(connection)
        return connection.serialize()


def _split(split: Split) -> str:
    return f"{Path(split.path).name}[{split.offset.position}:{split.end}]"


def _told(changes: Changes) -> str:
    saved = [f"{Path(one.path).name or partition.key}@{one.position}{' done' * one.done}" for partition, one in changes.offsets.items()]
    lost = [f"lost {Path(one.path).name}[{one.start}:{one.end}]" for one in changes.losses]
    return ", ".join([*saved, *(f"forget {one.key}" for one in changes.forget), *lost]) or "nothing"
