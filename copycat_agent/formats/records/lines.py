"""`lines`: each line is a record, its bytes are the value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from copycat_agent.formats.lines import LineFrames, LineOptions
from copycat_agent.formats.model import Frame, RecordFile
from copycat_agent.formats.records.base import FormatKind, FormatOptions
from copycat_agent.options import Field

_LOOK_BYTES = 2**16


class LinesOptions(FormatOptions):
    """Text files, a record per line."""

    type: Literal["lines"] = Field("lines", description="Each line is a record.")
    encoding: str = Field("utf-8", min_length=1, max_length=64, description="A codec of Python, or auto: what the byte order mark says.")
    line: LineOptions = Field(LineOptions(), description="What a line is.")


class LinesFormat:
    """See `RecordFormat`."""

    counts_records = False
    finds_end = False
    makes_fields = False

    def __init__(self, options: LinesOptions) -> None:
        """Raises what `LineFrames` raises."""
        self._frames = LineFrames(options.line, encoding=options.encoding)
        self.on_too_long: Literal["dlq", "truncate", "drop"] = options.line.on_too_long

    def frames(
        self,
        file: RecordFile,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = True,
        flush: bool = False,
        block_bytes: int | None = None,
    ) -> Iterator[Frame]:
        """See `RecordFormat.frames`."""
        return self._frames.frames(file, start, end, skipping=skipping, final=final, flush=flush, block_bytes=block_bytes)

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`."""
        return line_starts(self._frames, file, parts)


def line_starts(frames: LineFrames, file: RecordFile, parts: int) -> tuple[int, ...]:
    """Up to `parts` - 1 places that cut the file into stretches of whole lines, about equally long."""
    delimiter = frames.layout(file, 0).delimiter
    found: list[int] = []
    for part in range(1, parts):
        position = max(file.size * part // parts, found[-1] if found else 1)
        while 0 < position < file.size:
            cut = file(position - len(delimiter), _LOOK_BYTES).find(delimiter)
            if cut >= 0:
                position += cut
                break
            position += _LOOK_BYTES - len(delimiter)
        if position >= file.size:
            break
        if frames.is_line_start(file, position):
            found.append(position)
    return tuple(dict.fromkeys(found))


LINES = FormatKind(LinesOptions, LinesFormat)
