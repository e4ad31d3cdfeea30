"""The interfaces of a source: the driver's part (`Source`) plans and saves, a stateless task reads, and a `SourceKind` joins both.

Spark's data sources (`pyspark.sql.datasource`) and bytewax divide the work in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from copycat_agent.formats import Frames, RecordFormat
from copycat_agent.logs import Log
from copycat_agent.model import (
    Loss,
    SavedRow,
    SourceOffset,
    SourcePartition,
    SourceState,
    Split,
    SplitResult,
    offsets_in,
    state_partition,
)
from copycat_agent.options import Definition, SourceOptions
from copycat_agent.sources.contract import PolledOptions, Probed, RunsAs
from copycat_agent.sources.files.reading.stream import Stream
from copycat_agent.sources.planner import Changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from copycat_agent.errors import CopycatError
    from copycat_agent.model import Stretch

Offsets = Mapping[SourcePartition, SourceOffset]


class Lag(NamedTuple):
    """How much data exists and is not yet settled. Counts of one connector."""

    bytes: int = 0
    files: int = 0
    known_files: int = 0
    open_files: int = 0
    lost_bytes: int = 0
    blocked_files: int = 0
    troubled_files: int = 0
    oldest_unread_ms: int = 0
    """When the oldest unread bytes were first seen, epoch milliseconds; 0 when nothing is unread."""
    rotated_files: int = 0
    """Times a log's newest file took another name, or a file left its patterns, since the start."""
    truncated_files: int = 0
    """Times a file was cut or rewritten in place, since the start."""
    records: int | None = None
    """Unsettled records of partitions that count records; None if no partition does."""
    waiting_records: int = 0
    """Those of `records` that cannot be read yet: they wait until they make a file."""


class Plan(NamedTuple):
    """Splits for one task's next batch, and how long it may take.

    `follow_seconds`: the batch may stay at the ends of its files and read what is added, until nothing was added for this long; 0: it ends
    at once.
    """

    splits: tuple[Split, ...]
    max_seconds: float
    follow_seconds: float = 0.0


Lose = Callable[[SourcePartition, str, int, int, str, Changes], None]
"""`lose(partition, path, start, end, why, changes)` enters in `changes` that these bytes can never be read (`losses.LostData.add`)."""

FileState = Literal["following", "gone", "waiting", "blocked", "failing", "done"]
"""gone: renamed out of its patterns or deleted, and read to its end. waiting: for an older file of the same log. blocked: its topic is
missing or forbidden. failing: it cannot be read now. done: a spooled file that is read and still there."""


class FileView(NamedTuple):
    """A file and the connector's position in it, as shown to people. Sizes are in bytes, `read_at` in epoch seconds (0: never).

    A path that matches but cannot be opened or listed is `failing` and has an empty `key`. `unread` is the number of bytes known to be
    unread; for a packed file an estimate, because `size` is its packed size. `why` says what put the file at this position when it was
    first found, or why it cannot be read. `after` is the older file it waits for. `compression` is "" for a file that is not packed.
    `counts_records`: `position` is a record number, not a byte. `cursor` is the position in a source without files (`SourceOffset`).
    `behind` is the number of records up to the partition's end; None if unknown.
    """

    path: str
    key: str
    position: int
    size: int
    records: int
    state: FileState
    is_open: bool
    read_at: float = 0.0
    unread: int = 0
    why: str = ""
    after: str = ""
    compression: str = ""
    counts_records: bool = False
    cursor: str = ""
    behind: int | None = None


class FileDetail(NamedTuple):
    """One file in detail: its entry of `Source.files`, all its names that match, its saved offset, and the next split.

    `offset` of a new file is the one that would be saved first. `split` is None when there is nothing to read.
    """

    view: FileView
    names: tuple[str, ...]
    offset: SourceOffset
    split: Split | None


class Source(Protocol):
    """The driver's part of a source. Its connector's steps call all methods, one at a time."""

    @property
    def directories(self) -> Collection[str]:
        """Directories whose events should wake this source; empty when it only polls."""

    @property
    def scan_seconds(self) -> float:
        """Time between two scans when nothing wakes the source."""

    @property
    def needs_scan(self) -> bool:
        """Whether a scan should not wait for its time, because something was found that only a scan can resolve."""

    def scan(self) -> Changes:
        """Scans everything. Returns what must be saved before the next plan. Does not raise for bad files.

        Raises RetriableError if nothing is known about the present state; it is called again once `needs_scan` is true.
        """

    def wake(self, paths: Collection[str]) -> bool:
        """Notes that the files at `paths` have grown. Returns False if only a scan can tell what happened, as for a directory."""

    def plan(self, shares: int) -> Plan:
        """Returns work for one of `shares` idle tasks, planned from saved offsets only; an empty plan if there is none.

        The splits stay out of further plans until `finish` is called with their results.
        """

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        """Returns what to save for these results: their offsets and losses."""

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """Called once `changes` are saved. `results` are those that `changes_of` was given.

        A `BlockedError` in them holds back its own file; results never carry an error that holds back the whole connector as one.
        """

    def end_timed_out(self, *, at_once: bool) -> float:
        """Ends records that have timed out, such as an unfinished last line.

        Returns when the next one is due (`time.monotonic()`), inf for never.
        `at_once`: this is a run to the end, in which nothing waits for its time.
        """

    def drained(self) -> bool:
        """Returns whether everything the last scan found is read, except for an unfinished last line.

        Called only in runs to the end (`end_timed_out`). If it returns True, a scan checks every file once more.
        """

    def finalise(self) -> None:
        """Makes unfinished last lines records from now on: nobody finishes them in a run to the end."""

    def files(self) -> tuple[FileView, ...]:
        """Returns the followed files, sorted by path."""

    def passed_over(self) -> Mapping[str, str]:
        """Returns the paths that match but are not read, as of the last scan, and why."""

    def look_closely(self, path: str, most_bytes: int) -> FileDetail | None:
        """Returns details of the file that the last scan found at `path`, with a next split of about `most_bytes` at most.

        The split is for people to try: it is in no plan, and its result changes nothing. None if there is no such file.
        """

    def lag(self) -> Lag:
        """Returns what is known to be unread. Must be cheap."""

    def leave(self) -> Changes:
        """Called when the connector stops. Returns what to save so that the next start finds everything, and enters what is lost.

        Changes that were returned before and not confirmed by `finish` are included.
        """

    def close(self) -> None:
        """Closes every file."""


class UnwatchedSource:
    """What a `Source` has that watches no directory, and whose records are whole: no event wakes it, and no last line waits."""

    directories: Collection[str] = ()
    scan_seconds = 3600.0

    def wake(self, paths: Collection[str]) -> bool:
        """Returns True: nothing is known by paths."""
        del paths
        return True

    def finalise(self) -> None:
        """Does nothing: records are whole from the beginning."""

    def passed_over(self) -> Mapping[str, str]:
        return {}

    def look_closely(self, path: str, most_bytes: int) -> FileDetail | None:
        """Returns None: nobody asks for these files."""
        del path, most_bytes
        return None


class DescriptorStore(Protocol):
    """Keeps open files for the next process of the service. Thread-safe, shared by all connectors; `owner` is a connector's name."""

    def keep(self, owner: str, name: str, fd: int, *, first: bool = False) -> None:
        """Keeps a file that `owner` has opened. `name` is its `Identity.name`. `first`: only the descriptor still leads to the file."""

    def release(self, owner: str, name: str) -> None:
        """Notes that `owner` no longer needs the file. Has no effect while the agent stops: the next process continues with it."""

    def find(self, name: str) -> int | None:
        """Returns the descriptor that an earlier process has left, or None. The keeper still owns it."""

    def looked(self, owner: str, names: Container[str]) -> None:
        """Notes that `owner` has scanned everything, and needs `names` of what an earlier process has left."""

    def rename(self, old: str, new: str) -> None:
        """Renames an owner."""


@runtime_checkable
class KeepsFiles(Protocol):
    """A `Source` whose open files are worth keeping."""

    def keep_with(self, keeper: DescriptorStore) -> None:
        """Sets the keeper. Called once, before the first scan."""


@runtime_checkable
class KeepsState(Protocol):
    """A `Source` that remembers something besides offsets (`Changes.state`)."""

    def recall(self, state: SourceState) -> None:
        """Restores what was saved last. Called once, before the first scan, if anything was saved."""


@runtime_checkable
class KnowsUnchanged(Protocol):
    """A `Source` that can tell at little cost that a scan would find nothing new."""

    def unchanged(self) -> bool:
        """Returns whether `scan`, and a plan after it, would find nothing to do or save. False in doubt. Has no side effect."""


class FollowsFiles(Protocol):
    """A `Source` whose batches may stay at the ends of their files (`Plan.follow_seconds`)."""

    def advance(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """Does the same as `finish`, for results of batches that continue: their splits stay out of plans."""

    def joining(self, followed: int) -> tuple[Split, ...]:
        """Returns splits of further files, with little to read, that may join a batch that stays at the ends of `followed` files."""

    def is_held_up(self, *, for_good: bool = False) -> bool:
        """Returns whether something to read, or to find out, waits for a batch that stays. `for_good`: and cannot join it."""


@runtime_checkable
class LooksLater(Protocol):
    """A `Source` whose `scan` only starts a look, and has its findings later."""

    def look_now(self) -> None:
        """Looks, and waits until the next split is known. For commands that inspect a source: nothing is saved."""


Saved = tuple[SourceOffset, tuple[Loss, ...]]
"""An offset to save, and the losses before it."""


def as_brought(result: SplitResult, options: SourceOptions) -> Saved:
    """Returns the offset and losses of a result unchanged. The default of `SourceKind.saved`."""
    del options
    return result.offset, result.losses


@dataclass(frozen=True, slots=True)
class SourceKind:
    """An entry of `SOURCES`.

    `make(connector, options, delivery options, saved offsets, log)` builds the driver's half. The next three are the task's half:
    `framing(options, raw=...)` says how to find records (`raw`: as the bytes in the file; else text comes as UTF-8 whatever the file's
    encoding), `open(split, framing)` opens a split, and `saved(result, options)` returns the offset to save for a result, and the
    losses before it, which with exactly_once go into the task's transaction.

    `probe(options, user)` makes the checks of `copycat doctor`, without reading or changing data. `sample` is a commented section
    `source` for `copycat new`; "" if there is none. `only_here` says why tasks on other hosts cannot read this source, "" if they can;
    `of_host` why an agent cannot follow it with such tasks, though a run to the end can read it.

    `frame(options, stretch, session)` returns the data frame of a stretch, for sources that Spark reads; `told(error)` translates an error
    of the JVM for them, and returns None for an error that it does not know.
    """

    options: type[SourceOptions]
    make: Callable[..., Source]
    open: Callable[[Split, Any], Stream]
    framing: Callable[..., Frames | RecordFormat]
    saved: Callable[[SplitResult, Any], Saved] = as_brought
    probe: Callable[[Any, RunsAs], Iterable[Probed]] | None = None
    sample: str = ""
    only_here: str = ""
    of_host: str = ""
    frame: Callable[[Any, Stretch, SparkSession], DataFrame] | None = None
    told: Callable[[BaseException], CopycatError | None] | None = None


def only_looking(options: SourceOptions) -> SourceOptions:
    """Returns options for inspecting a source: it touches no file, and does not get saved positions."""
    if isinstance(options, PolledOptions):
        return options.looking()
    cleanup = getattr(options, "cleanup", None)
    return options if cleanup is None else options.model_copy(update={"cleanup": type(cleanup)()})


def create_source(
    make: Callable[..., Source], definition: Definition, saved: Mapping[SourcePartition, SavedRow], log: Log, *, only_looks: bool = False
) -> Source:
    """Makes the driver's part of a connector's source, which continues from its saved rows. `make` is its `SourceKind.make`.

    `only_looks`: the source is only inspected (`only_looking`).
    """
    options = only_looking(definition.source) if only_looks else definition.source
    source = make(definition.name, options, definition.delivery, offsets_in(saved), log)
    state = saved.get(state_partition(definition.name))
    if isinstance(state, SourceState) and isinstance(source, KeepsState):
        source.recall(state)
    return source
