"""`lines` and `binary`: records whose bytes are the value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Unpack

from copycat_agent.formats.draft import Chunk, Parsed
from copycat_agent.formats.lines import BLOCK_BYTES, LineFrames, TextLineOptions
from copycat_agent.formats.model import (
    FileFormat,
    FormatKind,
    FormatOptions,
    Frame,
    FrameOptions,
    Gap,
    LongLine,
    RecordFile,
    RecordPart,
    SkippedRest,
    one_line,
)
from copycat_agent.formats.multiline import MultilineFrames
from copycat_agent.formats.multiline_options import GroupOptions
from copycat_agent.formats.text import TAIL_BYTES, Layout, encoding_problem, split_problem
from copycat_agent.options import ByteSize, Field, SerializeAsAny

_LOOK_BYTES = 2**16
_HEADER_BYTES = 2**10
"""Bytes read at first to skip lines: this much of a packed file can be read again without unpacking it again."""
SKIP_LINES: int = Field(0, ge=0, le=100_000, description="Lines at the beginning of a file that are passed over.")
SKIP_FOOTER: int = Field(
    0, ge=0, le=100, description="Lines at the end of a file that are passed over. One over line.max_bytes is a record all the same."
)


class FileEdges:
    """Lines at the beginning and the end of a file that are not records. Stateless: where the first record begins is in the file's memo."""

    def __init__(self, lines: LineFrames, skip_lines: int, skip_footer: int) -> None:
        self._lines = lines
        self._skip_lines = skip_lines
        self._skip_footer = skip_footer

    def begin(self, file: RecordFile, end: int, *, final: bool) -> int | None:
        """Returns where the first record can begin, after the skipped lines; None when more of the file has to be known first."""
        if not self._skip_lines:
            return 0
        known: int | None = file.memo.get("edges")
        if known is None:
            known = self._behind_skipped(file, file.size if file.size >= 0 else end, final=final)
            if known is not None:
                file.memo["edges"] = known
        return known

    def _behind_skipped(self, file: RecordFile, end: int, *, final: bool) -> int | None:
        to_skip, place = self._skip_lines, 0
        for frame in self._lines.frames(file, 0, end, final=final, block_bytes=_HEADER_BYTES):
            place = frame.end
            if isinstance(frame, Chunk):
                if frame.total >= to_skip:
                    return min(frame.start + frame.weight(to_skip), frame.end)
                to_skip -= frame.total
            elif isinstance(frame, LongLine | SkippedRest):
                to_skip -= frame.complete
            elif isinstance(frame, RecordPart):
                to_skip -= frame.is_last
            if not to_skip:
                return place
        return place if final else None

    def footer(self, file: RecordFile, end: int) -> int:
        """Returns how many lines before `end` are not records: none before the end of a range that is not the file's."""
        return self._skip_footer if file.size < 0 or end >= file.size else 0

    def inner(self, file: RecordFile, cuts: Iterable[int]) -> tuple[int, ...]:
        """Returns those of the line starts that have lines before and after them which are not skipped."""
        begin = self.begin(file, file.size, final=True) or 0
        found = [cut for cut in cuts if begin < cut < file.size]
        while found and not self._has_record_behind(file, found[-1]):
            found.pop()
        return tuple(found)

    def _has_record_behind(self, file: RecordFile, place: int) -> bool:
        frames = self._lines.frames(file, place, file.size, final=True, block_bytes=_HEADER_BYTES, footer=self._skip_footer)
        return any(not isinstance(frame, Gap) for frame in frames)


class LinesOptions(FormatOptions):
    """Text files, a record per line."""

    type: Literal["lines"] = Field("lines", description="Each line is a record.")
    encoding: str = Field("utf-8", min_length=1, max_length=64, description="A codec of Python, or auto: what the byte order mark says.")
    line: TextLineOptions = Field(TextLineOptions(), description="What a line is.")
    multiline: GroupOptions | None = Field(None, description="Records of several lines; absent: each line is one.")
    skip_lines: int = SKIP_LINES
    skip_footer: int = SKIP_FOOTER

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for an encoding that cannot be framed. pydantic reports it with its place."""
        refuse_encoding(self.encoding, self.line.delimiter)
        if self.limits.on_too_long == "split" and (problem := split_problem(self.encoding)):
            raise ValueError("; ".join(problem))

    @property
    def limits(self) -> TextLineOptions | GroupOptions:
        """Returns the options that limit a record."""
        return self.line if self.multiline is None else self.multiline.under(self.line)


FormatOption = Annotated[
    SerializeAsAny[FormatOptions],
    Field(description="What the files are: the name of a format, or a map with its type and options."),
]
"""An option of sources of whole files."""


class LinesFormat(FileFormat):
    """Each line is a record, or each group of lines that a rule joins."""

    makes_fields = False

    def __init__(self, options: LinesOptions) -> None:
        """Raises what `LineFrames` raises."""
        line, limits = options.line, options.limits
        self._lines = LineFrames(line, encoding=options.encoding)
        self._groups = MultilineFrames(line, limits, encoding=options.encoding) if isinstance(limits, GroupOptions) else None
        self._edges = FileEdges(self._lines, options.skip_lines, options.skip_footer)
        self.on_too_long = limits.on_too_long

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        final = how.setdefault("final", True)
        begin = self._edges.begin(file, end, final=final)
        if begin is None:
            return
        if start < begin:
            yield header_gap(file, start, min(begin, end))
            start, how = begin, {"final": final, "flush": how.get("flush", False), "block_bytes": how.get("block_bytes")}
        if start < end:
            how["footer"] = self._edges.footer(file, end)
            yield from (self._groups or self._lines).frames(file, start, end, **how)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Returns no cuts between groups of lines: where one begins may depend on everything before it."""
        return () if self._groups else self._edges.inner(file, line_starts(self._lines, file, parts))


def header_gap(file: RecordFile, start: int, end: int) -> Gap:
    """Returns the gap before the first record."""
    begin = max(start, end - TAIL_BYTES)
    return Gap(start, end, file(begin, end - begin), "header")


def refuse_encoding(encoding: str, delimiter: str) -> None:
    """Raises ValueError for an encoding in which lines cannot be found."""
    if problem := encoding_problem(encoding, delimiter):
        raise ValueError(f"encoding {encoding!r}: {'; '.join(part for part in problem if part)}")


def line_starts(frames: LineFrames, file: RecordFile, parts: int) -> tuple[int, ...]:
    """Returns up to `parts` - 1 positions that cut the file into ranges of whole lines, of about equal length.

    None for a delimiter that can overlap itself: which of two overlapping ones counts depends on everything before.
    """
    layout = frames.layout(file, 0)
    if _overlaps_itself(layout.delimiter):
        return ()
    found: list[int] = []
    for part in range(1, parts):
        cut = _line_start(layout, file, max(file.size * part // parts, len(layout.mark), *found[-1:]))
        if cut >= file.size:
            break
        if cut not in found:
            found.append(cut)
    return tuple(found)


def _overlaps_itself(delimiter: bytes) -> bool:
    return any(delimiter.startswith(delimiter[place:]) for place in range(1, len(delimiter)))


def _line_start(layout: Layout, file: RecordFile, position: int) -> int:
    """Returns the first position from `position` on that is after a delimiter; the file's size without a delimiter."""
    size = len(layout.delimiter)
    begin = max(0, position - size)
    while begin < file.size:
        block = file(begin, _LOOK_BYTES)
        place = layout.find(block, begin)
        if place >= 0:
            return begin + place + size
        if len(block) <= size:
            break
        begin += len(block) - size + 1
    return file.size


LINES = FormatKind(LinesOptions, LinesFormat, columns=one_line)


class BinaryOptions(FormatOptions):
    """Bytes of any kind."""

    type: Literal["binary"] = Field("binary", description="The whole file is a record, or each chunk of it.")
    chunk: ByteSize | None = Field(
        None, ge=1, le=2**30, description="Bytes of a record; the last one of a file may be shorter. Absent: the whole file is one."
    )
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Largest file, without chunk.")
    on_too_long: Literal["dlq", "truncate", "drop"] = Field(
        "dlq",
        description="dlq: a larger file is a bad record, as `errors` says, its first max_bytes as raw bytes. truncate: those are sent, "
        "with the header copycat.truncated. drop: skipped and counted.",
    )


class BinaryFormat(FileFormat):
    """The whole file is a record, or each chunk of it."""

    finds_end = True
    makes_fields = False

    def __init__(self, options: BinaryOptions) -> None:
        self._chunk = options.chunk
        self._max_bytes = options.max_bytes
        self.on_too_long = options.on_too_long

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        final = how.get("final", True)
        if self._chunk is not None:
            return _chunks(file, self._chunk, start, end, max(self._chunk, how.get("block_bytes") or BLOCK_BYTES), final=final)
        return self._whole(file, start, end) if final else iter(())

    def _whole(self, file: RecordFile, start: int, end: int) -> Iterator[Frame]:
        """Yields everything from `start` on, keeping no more of it than may be sent."""
        head = file(start, min(self._max_bytes, end - start))
        position, tail = start + len(head), head[-TAIL_BYTES:]
        while position < end and (block := file(position, min(BLOCK_BYTES, end - position))):
            position, tail = position + len(block), (tail + block)[-TAIL_BYTES:]
        if position > start + len(head):
            yield LongLine(head, start, position, True, tail)
        elif head:
            yield Parsed([head], [start, position], len(head), [head], tail)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        if self._chunk is None:
            return ()
        found = {file.size * part // parts // self._chunk * self._chunk for part in range(1, parts)}
        return tuple(sorted(found - {0}))


def _chunks(file: RecordFile, size: int, start: int, end: int, block_bytes: int, *, final: bool) -> Iterator[Parsed]:
    """Yields runs of records of `size` bytes; the rest at the end is a record if the file is `final`."""
    position, wanted = start, block_bytes // size * size
    while position < end:
        block = file(position, min(wanted, end - position))
        is_last = len(block) < wanted
        if is_last and not final:
            block = block[: len(block) // size * size]
        if not block:
            return
        values = [block[place : place + size] for place in range(0, len(block), size)]
        places = [*range(position, position + len(block), size), position + len(block)]
        yield Parsed(values, places, len(block), values, block[-TAIL_BYTES:])
        position += len(block)
        if is_last:
            return


BINARY = FormatKind(BinaryOptions, BinaryFormat, columns=one_line)
