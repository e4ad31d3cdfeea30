"""`lines` and `binary`: records whose bytes are the value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Unpack

from copycat_agent.formats.draft import Parsed
from copycat_agent.formats.lines import BLOCK_BYTES, LineFrames, TextLineOptions
from copycat_agent.formats.model import FileFormat, FormatKind, FormatOptions, Frame, How, LongLine, RecordFile, one_line
from copycat_agent.formats.text import TAIL_BYTES, Layout, encoding_problem, split_problem
from copycat_agent.options import ByteSize, Field

_LOOK_BYTES = 2**16


class LinesOptions(FormatOptions):
    """Text files, a record per line."""

    type: Literal["lines"] = Field("lines", description="Each line is a record.")
    encoding: str = Field("utf-8", min_length=1, max_length=64, description="A codec of Python, or auto: what the byte order mark says.")
    line: TextLineOptions = Field(TextLineOptions(), description="What a line is.")

    def model_post_init(self, _: object) -> None:
        """Refuse an encoding that cannot be framed. pydantic reports the ValueError with its place."""
        refuse_encoding(self.encoding, self.line.delimiter)
        if self.line.on_too_long == "split" and (problem := split_problem(self.encoding)):
            raise ValueError("; ".join(problem))


class LinesFormat(FileFormat):
    """Each line is a record."""

    makes_fields = False

    def __init__(self, options: LinesOptions) -> None:
        """Raises what `LineFrames` raises."""
        self._frames = LineFrames(options.line, encoding=options.encoding)
        self.on_too_long = options.line.on_too_long

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[How]) -> Iterator[Frame]:
        how.setdefault("final", True)
        return self._frames.frames(file, start, end, **how)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        return line_starts(self._frames, file, parts)


def refuse_encoding(encoding: str, delimiter: str) -> None:
    """Raise ValueError for an encoding in which lines cannot be found."""
    if problem := encoding_problem(encoding, delimiter):
        msg = f"encoding {encoding!r}: {'; '.join(part for part in problem if part)}"
        raise ValueError(msg)


def line_starts(frames: LineFrames, file: RecordFile, parts: int) -> tuple[int, ...]:
    """Up to `parts` - 1 places that cut the file into stretches of whole lines, about equally long.

    None for a delimiter that can overlap itself: which of two such are one shows only from the beginning.
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
    """The first place from `position` on that is behind a delimiter; the file's size where there is none."""
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
        "with the header copycat.truncated. drop: counted and passed.",
    )


class BinaryFormat(FileFormat):
    """The whole file is a record, or each chunk of it."""

    finds_end = True
    makes_fields = False

    def __init__(self, options: BinaryOptions) -> None:
        self._chunk = options.chunk
        self._max_bytes = options.max_bytes
        self.on_too_long = options.on_too_long

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[How]) -> Iterator[Frame]:
        final = how.get("final", True)
        if self._chunk is not None:
            return _chunks(file, self._chunk, start, end, max(self._chunk, how.get("block_bytes") or BLOCK_BYTES), final=final)
        return self._whole(file, start, end) if final else iter(())

    def _whole(self, file: RecordFile, start: int, end: int) -> Iterator[Frame]:
        """All from `start` on, of which no more is kept than may be sent."""
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
    """Runs of records of `size` bytes; what is left at the end is one where the file is `final`."""
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
