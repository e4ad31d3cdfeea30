"""What a source is: the driver plans, a stateless task reads, only the driver commits.

The division is Spark's own for data sources (`pyspark.sql.datasource`), and bytewax's.
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
    """What is there and not yet settled."""

    bytes: int = 0
    files: int = 0
    known_files: int = 0
    open_files: int = 0
    lost_bytes: int = 0
    blocked_files: int = 0
    troubled_files: int = 0
    oldest_unread_ms: int = 0
    """When the longest waiting unread bytes were first seen, epoch milliseconds; 0 when nothing is unread."""
    rotated_files: int = 0
    """Times a log's newest file took another name, or a file left its patterns, since the start."""
    truncated_files: int = 0
    """Times a file was cut or rewritten in place, since the start."""
    records: int | None = None
    """Records behind what is settled, up to the ends of partitions that count them; None where nobody knows."""
    waiting_records: int = 0
    """Those of them that wait until they make a file: nothing is to be done yet."""


class Plan(NamedTuple):
    """Splits for one task's next batch, and how long it may take.

    `follow_seconds`: once all that is read, the batch may stay and read what is added, until nothing has been for so long; 0: it may not.
    """

    splits: tuple[Split, ...]
    max_seconds: float
    follow_seconds: float = 0.0


Lose = Callable[[SourcePartition, str, int, int, str, Changes], None]
"""`lose(partition, path, start, end, why, changes)`: these bytes can never be read, and `changes` say so (see `lost`)."""

FileState = Literal["following", "gone", "waiting", "blocked", "failing", "done"]
"""gone: renamed out of its patterns or deleted, read to its end. waiting: for an older file of the same log. blocked: its
topic is missing or closed. failing: it cannot be read now. done: a spooled file
that is read and still there."""


class FileView(NamedTuple):
    """A file that is followed, for people: where the connector is in it. Sizes in bytes, `read_at` in epoch seconds (0: never).

    A path that matches and cannot be opened or listed is `failing`, with an empty `key`: nothing is known of what is there.
    `unread`: bytes that are known to be there and unread; of a packed file an estimate, for its `size` is the packed one.
    `why`: what put it at this position when it was met, or why it cannot be read. `after`: the older file it waits for.
    `compression`: how it is packed, "" for all others. `counts_records`: `position` is a record number, not a byte. `cursor`: where a
    source that has no files is, see `SourceOffset`. `behind`: records up to the end of a partition
    that counts them, None where nobody knows.
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


class Closeup(NamedTuple):
    """One file, looked at closely: as `Source.files` shows it, all its names that match, and what a task would be given next.

    `split` is None when there is nothing to read; `offset` is what is saved, or would be before anything is read.
    """

    view: FileView
    names: tuple[str, ...]
    offset: SourceOffset
    split: Split | None


class Source(Protocol):
    """The driver's half of a source. All methods are called by its connector's steps, one at a time."""

    @property
    def directories(self) -> Collection[str]:
        """Directories whose events should wake this source; empty when it only polls."""

    @property
    def scan_seconds(self) -> float:
        """Time between two scans when nothing wakes the source."""

    @property
    def needs_scan(self) -> bool:
        """Whether something was found that only a scan can sort out; it should not wait for the next one."""

    def scan(self) -> Changes:
        """Look at everything that is there. Returns what has to be saved before the next plan. Raises nothing for bad files.

        RetriableError where nothing can be told of what is there now: it is called again once `needs_scan` says that more is known.
        """

    def wake(self, paths: Collection[str]) -> bool:
        """Files at `paths` have grown. False when only a scan can tell what happened, as with the path of a directory."""

    def plan(self, shares: int) -> Plan:
        """Work for one task that is idle, one of `shares` of them, from saved offsets only. Empty when there is none.

        The splits stay out of further plans until `finish` is called with their results.
        """

    def changes_of(self, results: Sequence[SplitResult]) -> Changes:
        """The changes that the results ask to be saved: their offsets, and with them what they gave up."""

    def finish(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """The changes are saved: the offsets count from now on. `results` are those that `changes_of` was given.

        A `BlockedError` in them holds back the file it belongs to; what holds back the whole connector is not shown as one.
        """

    def ripen(self, *, at_once: bool) -> float:
        """Plan for what time has ended: records that nothing but time ends. Returns when to ask again, as `time.monotonic()` tells it.

        `at_once`: this is a run to the end, in which nothing waits for its time.
        """

    def drained(self) -> bool:
        """Whether everything there is read, as of the last scan; then an unfinished last line is all that may be left.

        Asked by runs to the end only (see `ripen`). When it is so in one, a scan looks at every file.
        """

    def finalise(self) -> None:
        """From now on an unfinished last line is a record: this is a run to the end, nobody will finish it."""

    def files(self) -> tuple[FileView, ...]:
        """The files that are followed, by path."""

    def passed_over(self) -> Mapping[str, str]:
        """Paths that match and are not read, as of the last scan, and why."""

    def look_closely(self, path: str, most_bytes: int) -> Closeup | None:
        """What is known of the file that the last scan found at `path`, and its next split of about `most_bytes` at most.

        For people: the split is in no plan, and its result is nobody's. None when there is no such file.
        """

    def lag(self) -> Lag:
        """What is known to be unread, cheaply."""

    def leave(self) -> Changes:
        """The connector stops: what to save so that the next start finds everything, and knows what is lost.

        Changes that were asked for before and not confirmed by `finish` are in it once more.
        """

    def close(self) -> None:
        """Close every file."""


class Keeper(Protocol):
    """Keeps open files for the next process of the service. Thread-safe, shared by all connectors; `owner` is a connector's name."""

    def keep(self, owner: str, name: str, fd: int, *, first: bool = False) -> None:
        """`owner` has opened the file of this name (see `Identity.name`). `first`: nothing but the descriptor leads to it."""

    def release(self, owner: str, name: str) -> None:
        """`owner` needs it no more. No effect while the agent stops: the next process goes on with it."""

    def find(self, name: str) -> int | None:
        """Descriptor that an earlier process has left, None when there is none. It stays the keeper's."""

    def looked(self, owner: str, names: Container[str]) -> None:
        """`owner` has looked at everything: of what an earlier process has left it needs these."""

    def rename(self, old: str, new: str) -> None:
        """An owner has another name from now on."""

    def survives(self, name: str) -> bool:
        """Whether the agent stops, and the next process will have it."""


@runtime_checkable
class KeepsFiles(Protocol):
    """A `Source` whose open files are worth keeping."""

    def keep_with(self, keeper: Keeper) -> None:
        """Called once, before the first scan."""


@runtime_checkable
class KeepsState(Protocol):
    """A `Source` that remembers something besides offsets (`Changes.state`)."""

    def recall(self, state: SourceState) -> None:
        """What was saved last. Called once, before the first scan, unless nothing ever was."""


@runtime_checkable
class KnowsUnchanged(Protocol):
    """A `Source` that can tell at little cost that a scan would find nothing new."""

    def unchanged(self) -> bool:
        """Whether `scan`, and a plan after it, would find nothing to do and nothing to save. False in doubt. Changes nothing."""


class FollowsFiles(Protocol):
    """A `Source` whose batches may stay at the ends of their files (`Plan.follow_seconds`)."""

    def advance(self, results: Sequence[SplitResult], changes: Changes) -> None:
        """As `finish`, for results of batches that go on: their splits stay out of plans."""

    def joining(self, followed: int) -> tuple[Split, ...]:
        """Returns splits for a batch that stays at the ends of `followed` files: of others that may stay, too, and have little to read."""

    def is_held_up(self, *, for_good: bool = False) -> bool:
        """Whether there is something to read, or to find out, that waits for a batch that stays. `for_good`: and cannot join it."""


@runtime_checkable
class LooksLater(Protocol):
    """A `Source` whose `scan` only asks what is there, and has the answer later."""

    def look_now(self) -> None:
        """For people: look until it is known what a task would be given next, and wait for it. What that asks to be saved is not."""


Saved = tuple[SourceOffset, tuple[Loss, ...]]
"""An offset, and what was given up on before it."""


def as_brought(result: SplitResult, options: SourceOptions) -> Saved:
    """The offset and the losses that the task brings back are what its driver saves."""
    del options
    return result.offset, result.losses


@dataclass(frozen=True, slots=True)
class SourceKind:
    """An entry of `SOURCES`.

    `make(connector, options, delivery options, saved offsets, log)` builds the driver's half; `open` and `framing` are the task's:
    how to open a split for what `framing` made, and how to find records in it. `framing(options, raw=...)`: `raw` asks for the
    bytes of records as they stand in the file, else text comes as UTF-8 whatever the file's encoding.
    `saved(result, options)` is the task's too: the offset that the driver would save of a result, and what that gives up. With
    exactly_once the task's transaction says so.
    `probe(options, user)` is what `copycat doctor` looks at: it reads nothing and changes nothing. `sample` is what stands in a
    section `source` to begin with, with comments, as `copycat new` prints it; "" where there is none. `only_here`: why tasks on other
    hosts cannot read it, "" where they can; `of_host`: why an agent cannot follow it with them, though a run to the end can read it.
    `frame(options, stretch, session)` is what Spark reads of a stretch, for sources whose records come that way; `told(error)` what such a
    source says of an error of the JVM, None where the error is none of its own.
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
    """The same source for who only looks, and saves nothing: it touches no file, whatever becomes of those that are delivered."""
    if isinstance(options, PolledOptions):
        return options.looking()
    cleanup = getattr(options, "cleanup", None)
    return options if cleanup is None else options.model_copy(update={"cleanup": type(cleanup)()})


def create_source(
    make: Callable[..., Source], definition: Definition, saved: Mapping[SourcePartition, SavedRow], log: Log, *, only_looks: bool = False
) -> Source:
    """Makes the driver's half of a connector's source, which goes on from what is saved for it. `make`: its `SourceKind.make`.

    `only_looks`: nothing is saved of what it finds, and it touches no file (`only_looking`).
    """
    options = only_looking(definition.source) if only_looks else definition.source
    source = make(definition.name, options, definition.delivery, offsets_in(saved), log)
    state = saved.get(state_partition(definition.name))
    if isinstance(state, SourceState) and isinstance(source, KeepsState):
        source.recall(state)
    return source
