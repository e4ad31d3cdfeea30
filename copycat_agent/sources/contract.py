"""What an author writes to bring a source of records: what is there, what next, what a result changes, and how to read.

The agent does the rest: what is under way, tasks and their shares, retries, the lag, saving. Positions are any JSON value of up to
256 KiB, and only their source compares them. `source_kind` (in `sources.contract_stream`) makes an entry of `SOURCES` of such a class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

from copycat_agent.errors import FatalError
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.formats.draft import Envelope, Unparsed
from copycat_agent.model import Stretch
from copycat_agent.options import Duration, Field, PrivateAttr, SourceOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

    from copycat_agent.model import Schema
    from copycat_agent.templates.metadata import TopicPlace

Position = Any
"""A JSON value: where a partition is read next."""


class LostRecords(NamedTuple):
    """In place of a record: something that stood here can be read no more. It goes into the ledger of losses, with the position behind it.

    `why` never holds data. `records`: how many those were, 0 where nobody can know. `damaged`: it is still there, and cannot be read.
    """

    why: str
    records: int = 0
    damaged: bool = False


class Passed(NamedTuple):
    """In place of a record, as the last that a read gives: up to the offset behind it there are no more; the rest is read from there."""


class Enveloped(NamedTuple):
    """A record, and what came with it: key, headers and time, as Kafka has them. A value of None is a null.

    `schema` is the record's, where its bytes name one. `raw` are the bytes that a value was made of, None where they are the value.
    """

    value: dict[str, Any] | bytes | Unparsed | None
    envelope: Envelope
    schema: Schema | None = None
    raw: bytes | None = None


Record = dict[str, Any] | bytes | Unparsed | LostRecords | ArrowRows
"""Fields, or a value that goes as it is; a bad record, or what has to stand for lost ones.

`ArrowRows(batch)` are all rows of an Arrow batch, a record each, with a sequence of the positions behind each. Where no step looks at
records, they become JSON by columns, in a quarter of the time.
"""

POSITION_BYTES_MAX = 256 * 2**10
"""A position as JSON is no larger: it is saved with every batch."""

ENDLESS = 2**62
"""End of a split: how many records it holds shows when they are read."""


class PolledOptions(SourceOptions):
    """Base of the options of a source that is asked now and then what is there."""

    poll_interval: Duration = Field(1.0, ge=0.05, le=86400, description="Time between two looks while there is nothing to read.")
    _only_looks: bool = PrivateAttr(False)

    @property
    def look_seconds(self) -> float:
        """Time between two looks while there is nothing to read."""
        return self.poll_interval

    @property
    def only_looks(self) -> bool:
        """Whether these are for somebody who only looks: the source is told of nothing that it may take for delivered."""
        return self._only_looks

    def looking(self) -> Self:
        """The same, for somebody who only looks."""
        copy = self.model_copy()
        copy.__pydantic_private__ = {**(copy.__pydantic_private__ or {}), "_only_looks": True}
        return copy


class Found(NamedTuple):
    """A partition that is there. `key` is its own for ever, up to 200 printable ASCII characters without spaces.

    `start` is where its first reading begins: that is saved before anything is read. `end` says how far it goes now. `unread` is about
    how much is unread, in bytes, for the lag. `name` is for people and templates, `key` without one. `work` is whatever `read`
    or `open` needs besides. `size` (bytes) and `mtime_ms` (epoch milliseconds) are those of a file, which needs no `start`, `end` and
    `unread` (see `FileSource`). `trouble` says what is wrong with it, for people, though it may be read.
    """

    key: str
    start: Position = None
    end: Position = None
    unread: int = 0
    name: str = ""
    work: bytes = b""
    size: int = 0
    mtime_ms: int = 0
    trouble: str = ""


class Remembered(NamedTuple):
    """Something to remember that is no partition: saved before anything is read, and among what `look` is given from then on.

    `key` as of a partition, and none of a partition's. Another value under the same key takes its place.
    """

    key: str
    value: Position


class Gone(NamedTuple):
    """What is saved under this key is needed no more, and is forgotten. Without effect while a task reads the partition.

    `why` says what became of a file that was not read to its end: what is left of it goes into the ledger of losses.
    """

    key: str
    why: str = ""


class Troubled(NamedTuple):
    """What is wrong with the source, or with what it does beside reading; what can be read is read all the same.

    `name` says what of it is. A warning is logged when a look tells of a name first; people are shown the last `why` until a look
    tells of it no more.
    """

    name: str
    why: str


Finding = Found | Remembered | Gone | Troubled
"""What a look tells."""


class AuthorSource(Protocol):
    """A source, made with a connector's options: `Class(options)`. One lives in the agent, others in the processes of the tasks.

    `look`, `committed` and `close` may do what takes time: they are called from a thread of the connector's own. `plan` and `apply`
    must not: they only compare and compute. `RetriableError` from `look` or `read` is tried again, `FatalError` ends the connector.
    """

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        """What is there now. `saved` are the positions of the partitions that were met before, and what was to be remembered.

        `to_the_end`: the connector ends once it has read what is there at present. What is written meanwhile need not be told.
        """

    def plan(self, found: Found, position: Position) -> Stretch | None:
        """What to read next of a partition that has been read up to `position`; None when there is nothing."""

    def read(self, stretch: Stretch) -> Iterator[tuple[Record, Position]]:
        """In a task: the stretch's records in order, each with the position behind it, from which this may be called again."""

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        """Where the partition is once Kafka has everything up to `position`, the last that `read` gave; None when it gave none.

        `finished`: that is all of the stretch.
        """

    def committed(self, positions: Mapping[str, Position]) -> None:
        """These positions are saved: what lies before them is never asked for again.

        Called again when it raises, and after a start. Not called with where a partition begins.
        """

    def close(self) -> None:
        """The connector ends."""


class OffsetSource(Protocol):
    """A source whose partitions are those of Kafka: records in envelopes, each with an offset, which is shown and counted as it is.

    Stretches begin and end with an offset, positions are maps that have `offset`, and `Found.end` is an offset: they tell the lag.
    All else is as in `AuthorSource`.
    """

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        """As `AuthorSource.look`."""

    def plan(self, found: Found, position: Position) -> Stretch | None:
        """As `AuthorSource.plan`."""

    def place(self, stretch: Stretch) -> TopicPlace:
        """The partition that a stretch is of."""

    def read(self, stretch: Stretch) -> Iterator[tuple[Enveloped | LostRecords | Passed, int]]:
        """In a task: the stretch's records in order, each with the offset behind it, from which this may be called again."""

    def apply(self, stretch: Stretch, position: int | None, *, finished: bool) -> Position:
        """As `AuthorSource.apply`."""

    def committed(self, positions: Mapping[str, Position]) -> None:
        """As `AuthorSource.committed`."""

    def close(self) -> None:
        """The connector ends."""


class StoredFile(Protocol):
    """One version of a file, open for reading. Used by one thread. Everything raises OSError, with a `strerror` that may be shown."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`. Fewer do not mean the end, none do."""

    def is_unchanged(self) -> bool:
        """Whether all that was read is of the version that was found."""

    def close(self) -> None:
        """Close it; once is enough."""


class FileSource(Protocol):
    """A source whose partitions are whole files, which never change: `Class(options)`, with options derived from `FilesOptions`.

    The agent unpacks and parses them. The position of a file is `{"position": ..., "done": ..., "damaged": ...}`: `done` once all of it
    is delivered, or given up as damaged. A look is given besides `name`, under which it was found, and `failed`: it could not be read when
    that was tried last, or was not the version that was found. It is read again if this look finds it. All else is as in `AuthorSource`.
    """

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        """What is there now, in the order in which it is to be read. As `AuthorSource.look`."""

    def open(self, stretch: Stretch) -> StoredFile:
        """In a task: the file that was found with this key, name and `work`. Raises OSError."""

    def committed(self, positions: Mapping[str, Position]) -> None:
        """As `AuthorSource.committed`."""

    def close(self) -> None:
        """The connector ends."""


class FrameSource(Protocol):
    """A source whose records Spark reads: `Class(options)`. All else is as in `AuthorSource`.

    `spark_session` (in `copycat_agent.extending`) is the agent's Spark session, for what `look` has to ask. A task has none.
    """

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        """As `AuthorSource.look`."""

    def plan(self, found: Found, position: Position) -> Stretch | None:
        """As `AuthorSource.plan`."""

    def frame(self, stretch: Stretch, session: SparkSession) -> DataFrame:
        """In the agent, on a thread that may wait: what Spark is to read, in order. One task reads it, as one partition.

        Each call has an instance of its own.
        """

    def read(self, stretch: Stretch, rows: Iterable[RecordBatch]) -> Iterator[tuple[Record, Position]]:
        """In a task: the records of the frame's rows, each with the position behind it.

        It may be called again, and then gives the same for the same rows.
        """

    def schema(self, rows: RecordBatch) -> Schema | None:
        """The columns of records made of rows like these, for converters; None where nobody can know."""

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        """As `AuthorSource.apply`."""

    def committed(self, positions: Mapping[str, Position]) -> None:
        """As `AuthorSource.committed`."""

    def close(self) -> None:
        """The connector ends."""


class RunsAs(Protocol):
    """The user that the agent will run as."""

    @property
    def name(self) -> str:
        """As in /etc/passwd."""

    def may(self, path: str, wanted: str) -> bool:
        """Whether this user may do `wanted` (some of `rwx`) to what `path` leads to. Directories above it are not looked at."""

    def closed_parent(self, path: str) -> str:
        """The first directory above `path` that this user may not pass through; "" when there is none."""


class Probed(NamedTuple):
    """One thing that `copycat doctor` looked at: how it is called, what was found, and what to do where it is not as it should be.

    What a definition holds as a secret is hidden in what people are shown.
    """

    name: str
    text: str
    verdict: Literal["ok", "warn", "fail"] = "ok"
    fix: str = ""


def as_text(position: Position) -> str:
    """A position as it is saved. Raises FatalError for one that is no JSON, or too large."""
    try:
        text = json.dumps(position, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise FatalError(
            "a position of the source is no JSON value", "positions are made of null, numbers, texts, lists and maps"
        ) from None
    if len(text) > POSITION_BYTES_MAX:
        words = f"a position of the source has {len(text):,} bytes as JSON, {POSITION_BYTES_MAX:,} are the most"
        raise FatalError(words, "keep what is larger elsewhere, and its address in the position")
    return text


def from_text(text: str) -> Position:
    """The reverse of `as_text`."""
    return json.loads(text)


def same_position(one: Position, other: Position) -> bool:
    """Whether two JSON values are the same: maps in any order of their keys, and 1, 1.0 and true apart."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
