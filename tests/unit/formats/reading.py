"""Files that are framed split by split, and a model that has the whole file at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from copycat_agent.formats import TAIL_BYTES, Chunk, Frame, Gap, LineFrames, LineOptions, LongLine, SkippedRest
from copycat_agent.formats.holes import HOLE_BYTES, INNER_HOLE_BYTES
from copycat_agent.formats.text import Encoding, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["line", "long", "partial", "hole", "bom"]


class Seen(NamedTuple):
    """One record: what it is, its value (of a long one the head's), and the bytes of the file it covers. Or a gap, without a value."""

    kind: Kind
    value: bytes
    start: int
    end: int


class File:
    """A file that grows: reads see its first `size` bytes. `largest` is the largest read asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.largest = 0

    def read(self, position: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        return self.data[: self.size][position : position + size]


def options(delimiter: str = "\n", max_bytes: int = 10, *, skip_empty: bool = False) -> LineOptions:
    return LineOptions(delimiter=delimiter, max_bytes=max_bytes, skip_empty=skip_empty)


class Model:
    """The records of a whole file: each delimiter taken where it first occurs, each run of NUL bytes judged by the rules of holes."""

    def __init__(self, data: bytes, line_options: LineOptions, encoding: str, *, raw: bool, final: bool) -> None:
        self.data = data
        self.layout: Layout = Encoding(encoding, line_options.delimiter, is_raw=raw).of(File(data).read, 0)
        self.options = line_options
        self.raw = raw
        self.final = final
        self.has_holes = "\0" not in line_options.delimiter

    def records(self) -> list[Seen]:
        size, layout = len(self.data), self.layout
        seen: list[Seen] = []
        mark = 0 if self.raw else len(layout.mark)
        if mark and size < 4 and not self.final:
            return []
        start = mark
        if mark:
            seen.append(Seen("bom", b"", 0, mark))
        while start < size:
            run = self.run(start)
            if run and (run >= HOLE_BYTES or start == 0):
                if not self.is_certain(start):
                    break
                end = size if self.final and self.nul_end(start) == size else start + run
                seen.append(Seen("hole", b"", start, end))
                start = end
                continue
            cut, hole = self.find_delimiter(start), self.find_hole(start)
            if cut is not None and (hole is None or cut < hole):
                end = cut + len(layout.delimiter)
                seen += self.line(start, cut, end)
            elif hole is not None and self.is_certain(hole):
                end = hole
                seen += self.unfinished(start, end)
            else:
                seen += self.rest(start, hole)
                break
            start = end
        return seen

    def nul_end(self, start: int) -> int:
        end = start
        while end < len(self.data) and not self.data[end]:
            end += 1
        return end

    def run(self, start: int) -> int:
        return self.layout.down(self.nul_end(start)) - start if self.has_holes else 0

    def is_certain(self, start: int) -> bool:
        return self.final or self.nul_end(start) < len(self.data)

    def find_delimiter(self, start: int) -> int | None:
        delimiter = self.layout.delimiter
        places = range(start, len(self.data) - len(delimiter) + 1)
        return next((at for at in places if at % self.layout.unit == 0 and self.data.startswith(delimiter, at)), None)

    def find_hole(self, start: int) -> int | None:
        place = start
        while (place := self.data.find(bytes(INNER_HOLE_BYTES), place)) >= 0:
            if self.run(self.layout.up(place)) >= INNER_HOLE_BYTES:
                return self.layout.up(place)
            place = self.nul_end(place)
        return None

    def line(self, start: int, cut: int, end: int) -> list[Seen]:
        text = self.data[start:cut]
        cr = self.layout.text.cr
        value = text.removesuffix(cr)
        if len(value) > self.options.max_bytes:
            return [Seen("long", self.head(text), start, end)]
        return [] if self.options.skip_empty and not value else [Seen("line", self.text(value), start, end)]

    def unfinished(self, start: int, end: int) -> list[Seen]:
        text = self.data[start:end]
        is_long = len(text.removesuffix(self.layout.text.cr)) > self.options.max_bytes
        return [Seen("long", self.head(text), start, end) if is_long else Seen("partial", self.text(text), start, end)]

    def rest(self, start: int, hole: int | None) -> list[Seen]:
        """What stands at the end of the file: nothing as long as it waits."""
        if self.final:
            return self.unfinished(start, len(self.data))
        delimiter, layout = self.layout.delimiter, self.layout
        limit = start + self.options.max_bytes + len(delimiter) + len(layout.text.cr)
        if hole is not None:
            end = hole
        else:
            cut = layout.down(max(start, len(self.data) - len(delimiter) + 1))
            text = start + len(self.data[start:cut].rstrip(b"\0")) if self.has_holes else cut
            end = layout.up(text)
        if end + len(delimiter) - 1 < limit:
            return []
        return [Seen("long", self.head(self.data[start:end]), start, end)]

    def text(self, text: bytes) -> bytes:
        codec = self.layout.text.codec
        return text.decode(codec, "replace").encode() if codec else text

    def head(self, text: bytes) -> bytes:
        return self.layout.head(text, self.options.max_bytes)[1]


def model(data: bytes, line_options: LineOptions, encoding: str = "utf-8", *, raw: bool = False, final: bool) -> list[Seen]:
    return Model(data, line_options, encoding, raw=raw, final=final).records()


class Reading:
    """Reads a file split by split, as tasks do, and holds every frame against the promises all frames keep."""

    def __init__(self, file: File, frames: LineFrames) -> None:
        self.file = file
        self.frames = frames
        self.position = 0
        self.skipping = False
        self.seen: list[Seen] = []

    def split(self, end: int, *, final: bool = False, block_bytes: int | None = None) -> None:
        split = self.frames.frames(
            self.file.read, self.position, end, skipping=self.skipping, final=final, block_bytes=block_bytes
        )  # fmt: skip
        for frame in split:
            assert frame.start == self.position, "frames tile the file"
            assert self.position < frame.end <= end
            before = self.file.data[: frame.end]
            assert before.endswith(frame.tail)
            assert len(frame.tail) >= min(TAIL_BYTES, frame.end - frame.start)
            self._take(frame)
            self.position = frame.end

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Chunk):
            self._take_chunk(frame)
        elif isinstance(frame, LongLine):
            value = frame.head if frame.value is None else frame.value
            assert self.file.data[frame.start :].startswith(frame.head)
            self.seen.append(Seen("long", value, frame.start, frame.end))
            self.skipping = not frame.complete
        elif isinstance(frame, Gap):
            self._take_gap(frame)
        else:
            assert isinstance(frame, SkippedRest)
            assert self.skipping
            self.seen[-1] = self.seen[-1]._replace(end=frame.end)
            self.skipping = not frame.complete

    def _take_gap(self, gap: Gap) -> None:
        self.skipping = False
        if self.seen and self.seen[-1].kind == gap.reason == "hole" and self.seen[-1].end == gap.start:
            self.seen[-1] = self.seen[-1]._replace(end=gap.end)
        else:
            assert gap.reason != "header"
            self.seen.append(Seen(gap.reason, b"", gap.start, gap.end))

    def _take_chunk(self, chunk: Chunk) -> None:
        self.skipping = False
        rows = list(chunk.rows())
        assert [row.value for row in rows] == chunk.values
        for row in rows:
            tail = chunk.tail_before(row.number - 1)
            assert self.file.data[: row.start].endswith(tail)
            assert len(tail) >= min(TAIL_BYTES, row.start - chunk.start)
        self.seen += [Seen("partial" if chunk.partial else "line", row.bytes, row.start, row.end) for row in rows]


def read_all(
    data: bytes,
    line_options: LineOptions,
    cuts: Sequence[int] = (),
    *,
    encoding: str = "utf-8",
    raw: bool = False,
    block_bytes: int = 2**20,
    little: int | None = None,
    final: bool = False,
    grows: bool = False,
) -> Reading:
    """Framed in splits that end at `cuts` and at the end. `grows`: at each cut there is no more of the file yet."""
    reading = Reading(File(data), LineFrames(line_options, block_bytes, encoding=encoding, raw=raw))
    for cut in sorted(cuts):
        end = min(cut, len(data))
        reading.file.size = end if grows else len(data)
        reading.split(end, block_bytes=little)
    reading.file.size = len(data)
    reading.split(len(data), final=final, block_bytes=little)
    return reading


def values(reading: Reading) -> list[bytes]:
    """The values of its records, in order."""
    return [one.value for one in reading.seen if one.kind in ("line", "partial", "long")]
