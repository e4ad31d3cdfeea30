"""What framing yields, and who yields it: `Frames` of lines, and formats of whole files, as the dict of formats lists them.

A record over the limit may be sent in parts: pieces in the order of the file, which put together are the record. A part goes as far as
the limits let it: to the end of a line where a group of lines is cut, else to the end of a character. So where a part ends follows from
where it begins, and reading can go on at any of them with what `Cut` says.
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
"""What becomes of a record over the limit."""

_MOST_BYTES = 2**30 + 2**12
"""The most bytes that a first part has: the largest limit, a delimiter and a character."""


class LongLine(NamedTuple):
    """A line longer than the limit. `head` are its first bytes, up to the limit; `end` is how far it has been passed.

    `complete` is False when its delimiter has not been seen yet: the next frame, perhaps of a later split, is `SkippedRest`.
    `value` is what can be sent of `head`: text cut at a character's end; None when that is `head` itself.
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
    """Bytes of no record. hole: NUL bytes that nobody wrote; a line before it ends there. bom: the mark at byte 0 of a text.

    header: what a format has before, between or after its records, on purpose.
    """

    start: int
    end: int
    tail: bytes
    reason: Literal["hole", "bom", "header"]


def part_bytes(max_bytes: int) -> int:
    """The most that a part of a record over this limit has.

    A little less than the limit: with the defaults of both, a topic takes no record of 1 MiB that does not compress, once Kafka's own
    bytes and the headers are counted.
    """
    return max_bytes - max_bytes // 64


class Cut(NamedTuple):
    """What has to be known to go on between two parts of a record.

    `parts` of it stand before the position, the first of them in bytes `start` up to, not including, `end`. The rest is that of a group
    of lines: `in_line` that the position lies within a line, `table`, `stream` and `unfinished` see `grouping.GroupState`.
    """

    parts: int
    start: int
    end: int
    in_line: bool = False
    table: int = 0
    stream: str = ""
    unfinished: bool = False

    def text(self) -> str:
        """For an offset, see `parse`."""
        return f"{self.parts} {self.start} {self.end} {self.in_line:d} {self.table} {self.stream or '-'} {self.unfinished:d}"

    @staticmethod
    def parse(text: str, position: int) -> Cut | None:
        """Returns what an offset at byte `position` says; None for a text that is none of ours."""
        try:
            parts, start, end, in_line, table, stream, unfinished = text.split(" ")
            cut = Cut(int(parts), int(start), int(end), in_line == "1", int(table), stream.removeprefix("-"), unfinished == "1")
        except ValueError:
            return None
        return cut if cut.parts > 0 and 0 <= cut.start < cut.end <= min(position, cut.start + _MOST_BYTES) else None


class Part(NamedTuple):
    """The `number`-th part, from 1, of a record over the limit: bytes `start` up to, not including, `end`.

    `raw` are its bytes as they stand in the file, `value` what is sent of them; a line's end belongs to both, except to that of the
    record. `first` is where the record's first part begins and ends, `codec` what it is decoded with ("": as it stands). `cut` is what
    goes on behind it, None behind the last. `partial`: the last one, and no delimiter ends it. Such a record may be larger than any batch:
    hence it is the one whose state is saved in an offset (`SourceOffset.cut`), so that parts are the same whoever cuts them.
    """

    raw: bytes
    value: bytes
    start: int
    end: int
    number: int
    first: tuple[int, int]
    codec: str
    cut: Cut | None
    tail: bytes
    partial: bool = False

    @property
    def is_last(self) -> bool:
        """Whether the record ends with it."""
        return self.cut is None


Frame = Chunk | Parsed | LongLine | SkippedRest | Part | Gap


class How(TypedDict, total=False):
    """How `Frames.frames` and `RecordFormat.frames` read. All of it may be absent."""

    skipping: bool
    """`start` lies inside an over-long record. Absent: it does not."""
    final: bool
    """What stands before `end` without a delimiter is a record, or damage. Absent: see the method."""
    flush: bool
    """An open group of whole lines before `end` is a record. Absent: it waits for more."""
    block_bytes: int | None
    """Read about that little at a time; a record that is longer comes alone. Absent or None: as much as is usual."""
    cut: str
    """`start` lies between two parts of a record, see `Cut.parse`. Given only to those that split records."""
    footer: int
    """So many lines before `end` are no records. Absent: none. What is said of `without_footer` holds. Only frames of lines know it."""


class Frames(Protocol):
    """Finds the records of one connector's files. Stateless: one object serves any number of files and threads."""

    @property
    def on_too_long(self) -> OnTooLong:
        """What becomes of a record over the limit."""

    def frames(self, read: Reader, start: int, end: int, **how: Unpack[How]) -> Iterator[Frame]:
        """Frames from byte `start`, none of them reaching beyond byte `end`; each begins where the one before it ended.

        `final` is False unless it is given. Ends when no complete record is left. Raises what `read` raises.
        """


class RecordFile(Protocol):
    """A whole file as a record format reads it: unpacked bytes by position, and what the format keeps of it.

    Calling it is `Reader`. Raises FileError when the file cannot be read now, and DamageError where it cannot be unpacked.
    """

    @property
    def size(self) -> int:
        """Unpacked bytes in the file; -1 while that is not known, as of a packed one."""

    @property
    def name(self) -> str:
        """Its name, for words."""

    @property
    def memo(self) -> dict[str, Any]:
        """Holds what a format wants to find again when the next batch of this file runs in this process: empty at first, and after a kill.

        It makes the next batch quick, and nothing depends on it: a kill costs no more than reading again.
        """

    def __call__(self, position: int, size: int, /) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file. Going back far in a packed file costs."""


class RecordFormat(Protocol):
    """Finds and reads the records of one connector's files: `Frames` for whole files. Stateless: what is a file's is in its `memo`."""

    @property
    def on_too_long(self) -> OnTooLong:
        """What becomes of a record over the limit."""

    @property
    def counts_records(self) -> bool:
        """Whether positions are record numbers from 0, where a format cannot seek to a record (Avro, Parquet). Else they are bytes.

        The records before a position in its block are then decoded again; no decoder's state is kept in an offset.
        """

    @property
    def finds_end(self) -> bool:
        """Whether it finds the end of a packed file by itself, where a read comes short. Else it is asked again once the end is known."""

    @property
    def makes_fields(self) -> bool:
        """Whether values are fields, which become JSON when no converter is named. Else they are bytes."""

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[How]) -> Iterator[Frame]:
        """Frames from position `start`, which is 0 or where a frame or one of its records ended; none reaches beyond `end`.

        `final` is True unless it is given: the file ends at `end`. Raises what `file` raises, and DamageError, with the byte or the
        record in its words, where nothing behind can be read: every record before it has been yielded then.
        """

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Positions, in order and between 0 and the end, that cut the file into up to `parts` ranges of records; () when it cannot be cut.

        Called by the driver, with an unpacked file. What is before the first record belongs to the first range.
        """


class FormatOptions(Options):
    """Base of a format's options. `type` is the name in `FORMATS`."""

    type: str = Field(description="Format of the files.")


class FileFormat:
    """What most formats of whole files are, see `RecordFormat`: each says what else it is."""

    counts_records = False
    finds_end = False
    makes_fields = True
    on_too_long: OnTooLong = "dlq"

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Not cut: where a record begins shows only from the beginning."""
        del file, parts
        return ()


class OptionProblem(NamedTuple):
    """What options cannot mean together: where (names of options and keys, from the format on), why, and the next step."""

    place: tuple[str | int, ...]
    why: str
    hint: str


def _none(_: Any) -> Iterable[OptionProblem]:  # noqa: ANN401 - options of any format
    return ()


def one_line(_: Any) -> tuple[Column, ...]:  # noqa: ANN401 - options of any format
    """The columns of records without fields: the record itself."""
    return (Column("message"),)


def _unknown(_: Any) -> tuple[Column, ...] | None:  # noqa: ANN401 - options of any format
    return None


@dataclass(frozen=True, slots=True)
class FormatKind:
    """An entry of `FORMATS`. `problems`: what its options cannot mean though each of them is valid; with one, `build` is not called.

    `columns`: the columns of every file, where the options say them; None where only the files do.
    """

    options: type[FormatOptions]
    build: Callable[[Any], RecordFormat]
    problems: Callable[[Any], Iterable[OptionProblem]] = _none
    columns: Callable[[Any], tuple[Column, ...] | None] = _unknown
