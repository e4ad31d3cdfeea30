"""The interfaces that the author of a source implements.

A source finds partitions (`look`), chooses what to read next (`plan`), reads it (`read`) and computes the new position (`apply`). The agent
does the rest: it keeps track of what is in flight, divides work among tasks, retries, measures the lag and saves positions. A position is
any JSON value of up to 256 KiB; only its source compares positions. `source_kind` (`sources.contract_stream`) turns such a class
into an entry of `SOURCES`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

from copycat_agent.errors import FatalError
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.formats.draft import Envelopes, Unparsed
from copycat_agent.model import Schema, Stretch
from copycat_agent.options import Duration, Field, PrivateAttr, SourceOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import DataFrame, SparkSession

    from copycat_agent.templates.metadata import TopicPlace

Position = Any
"""A JSON value that says where a partition is read next."""


class LostRecords(NamedTuple):
    """A marker for records that can no longer be read. It is entered in the ledger of losses when the position after it is saved.

    `why` must not contain data. `records` is how many were lost, 0 if unknown. `damaged` means that they still exist but are unreadable.
    """

    why: str
    records: int = 0
    damaged: bool = False


class Passed(NamedTuple):
    """The last item of a read that ends early: there are no records before the offset after it, and the next read begins there."""


class EnvelopedRun(NamedTuple):
    """Consecutive records of a partition and what came with them, by columns of the same length.

    `values` are fields or bytes, an `Unparsed` for a bad record, None for a null. `ends` are the offsets after each record. `size_bytes`
    is about what they weigh. `raw` are the bytes that values were made of, None where values are those bytes. `schemas` are those that
    the bytes of records name, None where none do.
    """

    values: Sequence[dict[str, Any] | bytes | Unparsed | None]
    envelopes: Envelopes
    ends: Sequence[int]
    size_bytes: int
    raw: Sequence[bytes | None] | None = None
    schemas: Sequence[Schema | None] | None = None


Record = dict[str, Any] | bytes | Unparsed | LostRecords | ArrowRows
"""A record as `read` yields it: fields, a value that is sent unchanged, a record that could not be parsed, or a marker for lost records.

`ArrowRows(batch)` stands for all rows of an Arrow batch, one record each; it is paired with a sequence of the positions behind each row.
If no transform step looks at single records, the rows become JSON by columns, which takes a quarter of the time.
"""

POSITION_BYTES_MAX = 256 * 2**10
"""Largest size of a position as JSON. It is saved with every batch."""

ENDLESS = 2**62
"""End of a split whose number of records is known only once it is read."""


class PolledOptions(SourceOptions):
    """Base of the options of a source that is polled."""

    poll_interval: Duration = Field(1.0, ge=0.05, le=86400, description="Time between two looks while there is nothing to read.")
    _only_looks: bool = PrivateAttr(False)

    @property
    def look_seconds(self) -> float:
        """Returns the seconds between two looks while there is nothing to read."""
        return self.poll_interval

    @property
    def only_looks(self) -> bool:
        """Whether the source is only inspected, so that `committed` must not be called."""
        return self._only_looks

    def looking(self) -> Self:
        """Returns a copy for a source that is only inspected (`only_looks`)."""
        copy = self.model_copy()
        copy.__pydantic_private__ = {**(copy.__pydantic_private__ or {}), "_only_looks": True}
        return copy


class Found(NamedTuple):
    """A partition that exists now.

    `key` identifies it for ever: up to 200 printable ASCII characters without spaces. `start` is where the first read begins; it is saved
    before anything is read. `end` is how far the partition goes now. `unread` is about how many bytes are unread, for the lag. `name` is
    shown to people and templates; `key` stands in for an empty one. `work` holds whatever else `read` or `open` needs. `size` (bytes) and
    `mtime_ms` (epoch milliseconds) are those of a file, which needs no `start`, `end` or `unread` (`FileSource`). `trouble` tells people
    what is wrong with a partition that can still be read.
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
    """A value to remember that is no partition. It is saved before anything is read, and passed to `look` from then on.

    `key` has the form of a partition's key and differs from all of them. A later value under the same key replaces the earlier one.
    """

    key: str
    value: Position


class Gone(NamedTuple):
    """Tells the agent to forget what is saved under this key. It has no effect while a task reads the partition.

    `why` says what became of a file that was not read to its end; its unread rest is entered in the ledger of losses.
    """

    key: str
    why: str = ""


class Troubled(NamedTuple):
    """A problem of the source, or of what it does besides reading, that does not stop it from reading.

    `name` says which part has the problem. A warning is logged when a look first reports a name; the last `why` is shown to people until a
    look no longer reports that name.
    """

    name: str
    why: str


Finding = Found | Remembered | Gone | Troubled
"""What `look` may yield."""


class AuthorSource(Protocol):
    """A source, created with a connector's options: `Class(options)`. One instance lives in the agent, others in the task processes.

    `look`, `committed` and `close` may block: a thread of the connector's own calls them. `plan` and `apply` must not block; they only
    compare and compute. After RetriableError from `look` or `read` the call is repeated; FatalError ends the connector.
    """

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        """Returns what is there now. `saved` holds the positions of the known partitions, and the values of `Remembered`.

        `to_the_end`: the connector ends once it has read what is there at present. Records that are written later may be left out.
        """

    def plan(self, found: Found, position: Position) -> Stretch | None:
        """Returns what to read next of a partition that is read up to `position`, or None if there is nothing."""

    def read(self, stretch: Stretch) -> Iterator[tuple[Record, Position]]:
        """Yields the stretch's records in order, each with the position behind it. Called in a task, also to resume at such a position."""

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        """Returns the partition's new position once Kafka has everything up to `position`.

        `position` is one that `read` yielded, None if it yielded none. `finished`: the whole stretch is settled.
        """

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Called once these positions are saved: what lies before them is never read again.

        It is called again if it raises, and after each start; never with the position at which a partition begins.
        """

    def close(self) -> None:
        """Called when the connector ends. Another method may still run on another thread, and is ended by this if that is possible."""


class OffsetSource(Protocol):
    """A source of Kafka partitions: records in envelopes, each with an offset, which is shown and counted unchanged.

    A stretch begins and ends at an offset, a position is a map with the key `offset`, and `Found.end` is an offset: these give the lag.
    Otherwise as `AuthorSource`.
    """

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        """As `AuthorSource.look`."""

    def plan(self, found: Found, position: Position) -> Stretch | None:
        """As `AuthorSource.plan`."""

    def place(self, stretch: Stretch) -> TopicPlace:
        """Returns the Kafka partition that a stretch belongs to."""

    def read(self, stretch: Stretch) -> Iterator[tuple[EnvelopedRun | LostRecords | Passed, int]]:
        """In a task: yields the stretch's records in order, each run with the offset after it. May begin at any record's end."""

    def verify(self, stretch: Stretch) -> None:
        """In a task, before files of records that were read are claimed: raises FatalError if their partition was made anew. May ask."""

    def apply(self, stretch: Stretch, position: int | None, *, finished: bool) -> Position:
        """As `AuthorSource.apply`."""

    def committed(self, positions: Mapping[str, Position]) -> None:
        """As `AuthorSource.committed`."""

    def close(self) -> None:
        """As `AuthorSource.close`."""


class StoredFile(Protocol):
    """One version of a file, open for reading. Used by one thread. All methods raise OSError, whose `strerror` is shown to people."""

    def read_at(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes from `position`; b"" at the end only, fewer bytes also elsewhere."""

    def is_unchanged(self) -> bool:
        """Returns whether everything read so far belongs to the version that was found."""

    def close(self) -> None:
        """Closes the file. Called once."""


class FileSource(Protocol):
    """A source whose partitions are whole files, which never change: `Class(options)`, with options derived from `FilesOptions`.

    The agent unpacks and parses the files. A file's position is `{"position": ..., "done": ..., "damaged": ...}`; `done` is true once the
    whole file is delivered, or given up as damaged. `look` gets two more keys: `name`, under which the file was found, and `failed`, which
    is true if the last attempt could not read the file or met another version. Such a file is read again if this look finds it. Otherwise
    as `AuthorSource`.
    """

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        """As `AuthorSource.look`, in the order in which the files are to be read."""

    def open(self, stretch: Stretch) -> StoredFile:
        """Opens the file that was found with this key, name and `work`. Called in a task. Raises OSError."""

    def committed(self, positions: Mapping[str, Position]) -> None:
        """As `AuthorSource.committed`."""

    def close(self) -> None:
        """As `AuthorSource.close`."""


class FrameSource(Protocol):
    """A source whose records Spark reads: `Class(options)`. Otherwise as `AuthorSource`.

    `look` may use `spark_session` (`copycat_agent.extending`), the agent's Spark session. A task has none.
    """

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> Iterable[Finding]:
        """As `AuthorSource.look`."""

    def plan(self, found: Found, position: Position) -> Stretch | None:
        """As `AuthorSource.plan`."""

    def frame(self, stretch: Stretch, session: SparkSession) -> DataFrame:
        """Returns the data frame to read, in order; one task reads it, as one partition.

        Called in the agent, on a thread that may block, on a new instance each time.
        """

    def read(self, stretch: Stretch, rows: Iterable[RecordBatch]) -> Iterator[tuple[Record, Position]]:
        """Yields the records of the frame's rows, each with the position behind it. Called in a task.

        When called again with the same rows it must yield the same.
        """

    def schema(self, rows: RecordBatch) -> Schema | None:
        """Returns the columns of records made from such rows, for converters; None if unknown."""

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        """As `AuthorSource.apply`."""

    def committed(self, positions: Mapping[str, Position]) -> None:
        """As `AuthorSource.committed`."""

    def close(self) -> None:
        """As `AuthorSource.close`."""


class RunsAs(Protocol):
    """The user that the agent will run as."""

    @property
    def name(self) -> str:
        """The user's name in /etc/passwd."""

    def may(self, path: str, wanted: str) -> bool:
        """Returns whether this user has the permissions `wanted` (some of `rwx`) on `path`, links followed; parents are not checked."""

    def closed_parent(self, path: str) -> str:
        """Returns the first directory above `path` that this user may not enter; "" if there is none."""


class Probed(NamedTuple):
    """The result of one check of `copycat doctor`: its name, what was found, and what to do about it.

    Secrets of the definition are hidden before these texts are shown.
    """

    name: str
    text: str
    verdict: Literal["ok", "warn", "fail"] = "ok"
    fix: str = ""


def as_text(position: Position) -> str:
    """Returns a position as it is saved. Raises FatalError if it is no JSON value, or too large."""
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
    """Returns the position of a text that `as_text` returned."""
    return json.loads(text)


def same_position(one: Position, other: Position) -> bool:
    """Returns whether two JSON values are equal. The order of keys does not matter; 1, 1.0 and true differ."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
