"""The frames of framing, and its interfaces: `Frames` of lines, and formats of whole files, as the dict of formats lists them.

A record over the limit may be sent in parts: pieces in the order of the file, which put together are the record. A part is as long as the
limits allow: to the end of a line if a group of lines is cut, else to the end of a character. So where a part ends follows from where it
begins, and reading can continue at any of them with its `RecordCut`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, Unpack

from copycat_agent.formats.draft import Chunk, Parsed
from copycat_agent.formats.text import Reader
from copycat_agent.model import Column
from copycat_agent.options import Field, Options

OnTooLong = Literal["dlq", "truncate", "split", "drop"]
"""The policy for a record over the limit."""

_MOST_BYTES = 2**30 + 2**12
"""The most bytes of a first part: the largest limit, a delimiter and a character."""


class LongLine(NamedTuple):
    """A line longer than the limit. `head` are its first bytes, up to the limit; `end` is how far it has been skipped.

    `complete` is False if its delimiter has not been found yet: the next frame, perhaps of a later split, is `SkippedRest`. `value` is what
    can be sent of `head`: text cut at a character's end; None if that is `head` itself.
    """

    head: bytes
    start: int
    end: int
    complete: bool
    tail: bytes
    value: bytes | None = None


class SkippedRest(NamedTuple):
    """More of a line that was reported as `LongLine` before."""

    start: int
    end: int
    complete: bool
    tail: bytes


class Gap(NamedTuple):
    """Bytes of no record. hole: NUL bytes that were never written; a line before it ends there. bom: the mark at byte 0 of a text.

    header: intended parts of a format before, between or after its records.
    """

    start: int
    end: int
    tail: bytes
    reason: Literal["hole", "bom", "header"]


def part_bytes(max_bytes: int) -> int:
    """Returns the most bytes of a part of a record over this limit.

    A little less than the limit: with the defaults of both, a topic does not accept a record of 1 MiB that does not compress, once Kafka's
    own bytes and the headers are counted.
    """
    return max_bytes - max_bytes // 64


class RecordCut(NamedTuple):
    """The state that is needed to continue between two parts of a record.

    `parts` of it come before the position, the first of them in bytes `start` up to, not including, `end`. The rest is about a group of
    lines: `in_line`: the position is inside a line; `table`, `stream` and `unfinished` see `grouping.GroupState`. `file`: the key of the
    file that the first part was read from, which formats do not know: the rest may be read from a copy.
    """

    parts: int
    start: int
    end: int
    in_line: bool = False
    table: int = 0
    stream: str = ""
    unfinished: bool = False
    file: str = ""

    def text(self) -> str:
        """Returns the text for an offset, see `parse`."""
        text = f"{self.parts} {self.start} {self.end} {self.in_line:d} {self.table} {self.stream or '-'} {self.unfinished:d}"
        return f"{text} {self.file}" if self.file else text

    @staticmethod
    def parse(text: str, position: int) -> RecordCut | None:
        """Returns the state in an offset at byte `position`; None for an invalid text."""
        try:
            parts, start, end, in_line, table, stream, unfinished, *file = text.split(" ", 7)
            group = in_line == "1", int(table), stream.removeprefix("-"), unfinished == "1"
            cut = RecordCut(int(parts), int(start), int(end), *group, *file)
        except ValueError:
            return None
        return cut if cut.parts > 0 and 0 <= cut.start < cut.end <= min(position, cut.start + _MOST_BYTES) else None


class RecordPart(NamedTuple):
    """The `number`-th part, from 1, of a record over the limit: bytes `start` up to, not including, `end`.

    `raw` are its bytes in the file, `value` what is sent of them; a line's end belongs to both, except to that of the record. `first` is
    where the record's first part begins and ends, `codec` what it is decoded with ("": not decoded). `cut` is the state after it, None
    after the last part. `partial`: the last one, and no delimiter ends it. Such a record may be larger than any batch: hence it is the only
    one whose state is saved in an offset (`SourceOffset.cut`), so that parts are the same whoever cuts them.
    """

    raw: bytes
    value: bytes
    start: int
    end: int
    number: int
    first: tuple[int, int]
    codec: str
    cut: RecordCut | None
    tail: bytes
    partial: bool = False

    @property
    def is_last(self) -> bool:
        """Whether the record ends with it."""
        return self.cut is None


Frame = Chunk | Parsed | LongLine | SkippedRest | RecordPart | Gap


class FrameOptions(TypedDict, total=False):
    """How `Frames.frames` and `RecordFormat.frames` read. Everything may be absent."""

    skipping: bool
    """`start` is inside an over-long record. Absent: it is not."""
    final: bool
    """Data before `end` without a delimiter is a record, or damage. Absent: see the method."""
    flush: bool
    """An open group of whole lines before `end` is a record. Absent: it waits for more."""
    block_bytes: int | None
    """Read about this little at a time; a longer record comes alone. Absent or None: the usual amount."""
    cut: str
    """`start` is between two parts of a record, see `RecordCut.parse`. Given only to objects that split records."""
    footer: int
    """This many lines before `end` are no records. Absent: none. See `without_footer`. Only frames of lines support it."""


class Frames(Protocol):
    """Finds the records of one connector's files. Stateless: one object serves any number of files and threads."""

    @property
    def on_too_long(self) -> OnTooLong:
        """The policy for a record over the limit."""

    def frames(self, read: Reader, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        """Yields frames from byte `start`, none of them reaching beyond byte `end`; each begins where the one before it ended.

        `final` is False unless it is given. Ends when no complete record is left. Raises what `read` raises.
        """


class RecordFile(Protocol):
    """A whole file for a record format: unpacked bytes by position, and the format's memo of it.

    Calling it is `Reader`. Raises FileError if the file cannot be read now, and DamageError if it cannot be unpacked.
    """

    @property
    def size(self) -> int:
        """Unpacked bytes in the file; -1 while that is not known, as of a packed one."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    @property
    def memo(self) -> dict[str, Any]:
        """Holds state of a format for the next batch of this file in this process: empty at first, after a kill, and with other options.

        It makes the next batch quick, and nothing depends on it: a kill costs no more than reading again.
        """

    def __call__(self, position: int, size: int, /) -> bytes:
        """Returns up to `size` bytes from `position`; fewer only at the end of the file. Going back far in a packed file is slow."""


class RecordFormat(Protocol):
    """Finds and reads the records of one connector's files: `Frames` for whole files. Stateless: a file's state is in its `memo`."""

    @property
    def on_too_long(self) -> OnTooLong:
        """The policy for a record over the limit."""

    @property
    def counts_records(self) -> bool:
        """Whether positions are record numbers from 0, if a format cannot seek to a record (Avro, Parquet). Else they are bytes.

        The records before a position in its block are then decoded again; no decoder's state is kept in an offset.
        """

    @property
    def finds_end(self) -> bool:
        """Whether it finds the end of a packed file itself, by a short read. Else it is called again once the end is known."""

    @property
    def makes_fields(self) -> bool:
        """Whether values are fields, which become JSON if no converter is set. Else they are bytes."""

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        """Yields frames from position `start`, which is 0 or where a frame or one of its records ended; none reaches beyond `end`.

        `final` is True unless it is given: the file ends at `end`. Raises what `file` raises, and DamageError, with the byte or the record
        in its message, if nothing after that can be read: every record before it has been yielded then.
        """

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Returns positions between 0 and the end, in order, that cut the file into up to `parts` ranges; () if it cannot be cut.

        Called by the driver, with an unpacked file. Data before the first record belongs to the first range.
        """


class FormatOptions(Options):
    """Base of a format's options. `type` is the name in `FORMATS`."""

    type: str = Field(description="Format of the files.")


class FileFormat:
    """The common properties of most formats of whole files, see `RecordFormat`; each overrides what differs."""

    counts_records = False
    finds_end = False
    makes_fields = True
    on_too_long: OnTooLong = "dlq"

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Returns (): where a record begins is known only from the beginning."""
        del file, parts
        return ()


class OptionProblem(NamedTuple):
    """A contradiction of options: its place (names of options and keys, from the format on), the reason, and the next step."""

    place: tuple[str | int, ...]
    why: str
    hint: str


def _none(_: Any) -> Iterable[OptionProblem]:  # noqa: ANN401 - options of any format
    return ()


def one_line(_: Any) -> tuple[Column, ...]:  # noqa: ANN401 - options of any format
    """Returns the columns of records without fields: the record itself."""
    return (Column("message"),)


def _unknown(_: Any) -> tuple[Column, ...] | None:  # noqa: ANN401 - options of any format
    return None


@dataclass(frozen=True, slots=True)
class FormatKind:
    """An entry of `FORMATS`. `problems`: returns contradictions of its valid options; if there is one, `build` is not called.

    `columns`: returns the columns of every file, if the options have them; None if only the files do.
    """

    options: type[FormatOptions]
    build: Callable[[Any], RecordFormat]
    problems: Callable[[Any], Iterable[OptionProblem]] = _none
    columns: Callable[[Any], tuple[Column, ...] | None] = _unknown
