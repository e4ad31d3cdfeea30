"""`lines`: each line is a record, its bytes are the value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from copycat_agent.formats.encoding import Layout, encoding_problem, split_problem
from copycat_agent.formats.lines import LineFrames, TextLineOptions
from copycat_agent.formats.model import Frame, OnTooLong, RecordFile
from copycat_agent.formats.records.base import FormatKind, FormatOptions, one_line
from copycat_agent.options import Field

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


class LinesFormat:
    """See `RecordFormat`."""

    counts_records = False
    finds_end = False
    makes_fields = False

    def __init__(self, options: LinesOptions) -> None:
        """Raises what `LineFrames` raises."""
        self._frames = LineFrames(options.line, encoding=options.encoding)
        self.on_too_long: OnTooLong = options.line.on_too_long

    def frames(  # noqa: PLR0913 - how to read
        self,
        file: RecordFile,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = True,
        flush: bool = False,
        block_bytes: int | None = None,
        cut: str = "",
    ) -> Iterator[Frame]:
        """See `RecordFormat.frames`, and `Frames.frames` for `cut`."""
        return self._frames.frames(file, start, end, skipping=skipping, final=final, flush=flush, block_bytes=block_bytes, cut=cut)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`."""
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
