"""A connector's driver half and a task that reads its splits in this process: no Spark, no Kafka, no threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copycat_agent import logs
from copycat_agent.errors import FileError, RetriableError
from copycat_agent.formats import Chunk, LineFrames, LineOptions
from copycat_agent.model import Loss, SavedRow, SourceOffset, SourcePartition, SourceState, Split, SplitResult, offsets_in, state_partition
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.base import Source
from copycat_agent.sources.files import clock
from copycat_agent.sources.log_file.log_file import LogFileSource
from copycat_agent.sources.log_file.log_kind import LOG_FILE, open_stream
from copycat_agent.sources.log_file.log_options import LogFileOptions
from copycat_agent.sources.log_file.succession.last_look import SLACK_NS
from copycat_agent.sources.planner import Changes
from tests.rig.waiting import wait_until
from tests.unit.sources.saved import told_alike

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.sources.base import DescriptorStore
    from copycat_agent.sources.files.reading.stream import Stream

_STEP_NS = 10_000_000
"""How far the kernel's stamps may be behind its clock."""
_now_ns = clock.now_ns  # the true one, whatever a test makes the agent believe
made: list[Source] = []
"""Every source that a rig has made, until `close_all`."""
Behaviour = Callable[[], str]
"""What a task does with a split: `read` all of it, `stop` after one record, `fail` before it has sent anything."""


def close_all() -> None:
    """Closes what the sources of a test have open, also those that it made in place of others."""
    while made:
        made.pop().close()


class Agent:
    """`LogFileSource` with a store that survives `restart`. What was read is in `lines`, in order, with repeats.

    `losses` is what was saved as lost. While `disk_full` nothing is saved; what was asked for waits, as a connector lets it.
    """

    def __init__(self, include: tuple[str, ...], name: str = "app", **options: Any) -> None:
        self.name = name
        self.keeper: DescriptorStore | None = None
        self.lines: list[bytes] = []
        self.store: dict[SourcePartition, SourceOffset] = {}
        self.state: SourceState | None = None
        self.losses: list[Loss] = []
        self.disk_full = False
        self._waiting: list[tuple[tuple[SplitResult, ...], Changes]] = []
        self.options = LogFileOptions(type="log_file", include=include, **{"watch": "poll", "rotate_wait": 0.0, **options})
        self.source = self._make()

    @property
    def saved(self) -> dict[SourcePartition, SavedRow]:
        """All that is saved, as the store has it."""
        return {**self.store, **({} if self.state is None else {state_partition(self.name): self.state})}

    @saved.setter
    def saved(self, rows: Mapping[SourcePartition, SavedRow]) -> None:
        self.store, state = offsets_in(rows), rows.get(state_partition(self.name))
        self.state = state if isinstance(state, SourceState) else None

    def restart(self) -> None:
        """End without settling anything, as a crash does, and begin again from the store."""
        self._waiting.clear()
        self.source.close()
        self.source = self._make()

    def stop(self) -> None:
        """End in order, and begin again from the store."""
        changes = self.source.leave()
        if not self.disk_full:
            self._store(changes)
        self.restart()

    def scan(self) -> None:
        """One scan, saved. It finds nothing to save when the source has said that nothing has changed."""
        unchanged = self.source.unchanged()
        changes = self.source.scan()
        assert not (unchanged and (changes.offsets or changes.forget or changes.losses or self.source.lag().files)), changes
        self._save((), changes)

    def work(self, behaviour: Behaviour = lambda: "read") -> int:
        """One plan, read and saved. Returns the number of splits. As in a real batch, nothing is read behind one that was cut short."""
        splits = self.source.plan(1).splits
        how = "read"
        results: tuple[SplitResult, ...] = ()
        for split in splits:
            cut_short = how != "read"
            how = how if cut_short else behaviour()
            results += (SplitResult(split, split.offset) if cut_short else self.read(split, how),)
        if results:
            self.come_back(results)
        return len(splits)

    def come_back(self, results: tuple[SplitResult, ...]) -> None:
        """What a task answers, for splits that were planned: settled, and saved."""
        changes = self.source.changes_of(results)
        told_alike(LOG_FILE, self.options, results, changes)
        self._save(results, changes)

    def drain(self) -> None:
        """Scan and read until two rounds find nothing more."""
        quiet = 0
        for _ in range(200):
            self.scan()
            quiet = 0 if self.work() else quiet + 1
            if quiet == 2:
                return
        raise AssertionError("never quiet")

    def _make(self) -> LogFileSource:
        source = LogFileSource(self.name, self.options, DeliveryOptions(), dict(self.store), logs.get("test"))
        made.append(source)
        if self.keeper is not None:
            source.keep_with(self.keeper)
        if self.state is not None:
            source.recall(self.state)
        return source

    def _save(self, results: tuple[SplitResult, ...], changes: Changes) -> None:
        self._waiting.append((results, changes))
        while self._waiting and not self.disk_full:
            results, changes = self._waiting.pop(0)
            self._store(changes)
            self.source.finish(results, changes)

    def _store(self, changes: Changes) -> None:
        self.store.update(changes.offsets)
        self.state = changes.state or self.state
        for partition in changes.forget:
            self.store.pop(partition, None)
        self.losses += changes.losses

    def read(self, split: Split, how: str = "read") -> SplitResult:
        """What a task makes of a split."""
        if how == "fail":
            return SplitResult(split, split.offset, error=RetriableError("no broker"))
        try:
            stream = open_stream(split)
        except FileError as error:
            return SplitResult(split, split.offset, error=error)
        try:
            if not stream.is_what_was_read():
                return SplitResult(split, split.offset, changed=True)
            return self._frames(split, stream, stop=how == "stop")
        finally:
            stream.close()

    def _frames(self, split: Split, stream: Stream, *, stop: bool) -> SplitResult:
        offset = stream.offset
        limit = offset.position + split.end - split.offset.position
        bounds = None if not stream.waits else stream.bounds(limit)
        while bounds != (bounds := stream.bounds(limit)):
            for frame in LineFrames(LineOptions()).frames(stream.read, offset.position, bounds[0], final=split.final and bounds[1]):
                assert isinstance(frame, Chunk)
                rows = list(frame.rows())[: 1 if stop else None]
                end = rows[-1].end
                self.lines += [row.bytes for row in rows]
                tail = stream.read(max(0, end - 256), min(256, end))
                records = offset.records + len(rows)
                stream.settled(end)
                offset = replace(offset, position=end, records=records, path=split.path, fingerprint=stream.fingerprint(end, tail))
                if stop:
                    return stream.complete(SplitResult(split, offset))
        if not stream.is_still(offset.position):
            return SplitResult(split, split.offset, changed=True)
        return stream.complete(SplitResult(split, offset, at_end=stream.waits or stream.is_exhausted(limit)))


def tick() -> None:
    """Waits until the clock of the file system is on, so that what comes now is newer also for who allows for the kernel's steps."""
    latest = _now_ns() + _STEP_NS  # no file has a later stamp by now
    wait_until(lambda: _now_ns() > latest + SLACK_NS + _STEP_NS, message="the kernel's clock goes on")


def agent_for(directory: Path, pattern: str = "*", **options: Any) -> Agent:
    """An agent over `directory / pattern`."""
    return Agent((f"{directory}/{pattern}",), **options)
