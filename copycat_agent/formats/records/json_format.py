"""`json` (the elements of an array, or consecutive values) and `jsonl` (each line is a value).

The bytes of a line are sent unchanged, as long as no step makes other fields of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import Literal, TypeGuard, Unpack

from copycat_agent.errors import DamageError
from copycat_agent.formats.draft import Chunk, Parsed, Unparsed
from copycat_agent.formats.lines import LineFrames, TextLineOptions
from copycat_agent.formats.model import FileFormat, FormatKind, Frame, FrameOptions, Gap, RecordFile
from copycat_agent.formats.records.byte_records import line_starts, refuse_encoding
from copycat_agent.formats.records.field_types import TreeOptions, Typing
from copycat_agent.formats.records.json_elements import Elements, JsonLimits, UnfinishedError, skip_mark
from copycat_agent.formats.records.json_values import NOTHING, OPEN_ARRAY, JsonCursor, Value, last_before, parse, parse_all
from copycat_agent.options import ByteSize, Field

BLOCK_BYTES = 2**16
"""How much is parsed at a time. The fields of more would leave the processor's cache before they are used, which doubles the time."""
_BAD, _BLANK = 1, 2
"""The kinds of lines that are not JSON. 0 is a line that is."""
_LEAST_BLOCK_BYTES = 4096


class JsonlOptions(TreeOptions):
    """JSON Lines (ndjson). Lines of white space only are passed over."""

    type: Literal["jsonl"] = Field("jsonl", description="Each line is a JSON value.")
    encoding: str = Field("utf-8", min_length=1, max_length=64, description="A codec of Python, or auto: what the byte order mark says.")
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Longest line as it stands in the file, line feed not counted.")
    on_too_long: Literal["dlq", "drop"] = Field(
        "dlq", description="dlq: a bad record, as `errors` says, its first max_bytes as raw bytes. drop: skipped and counted."
    )

    def model_post_init(self, _: object) -> None:
        """Raises ValueError for an encoding that cannot be framed. pydantic reports it with its place."""
        refuse_encoding(self.encoding, "\n")


class JsonlFormat(FileFormat):
    """Each line is a record."""

    def __init__(self, options: JsonlOptions) -> None:
        """Raises what `LineFrames` raises."""
        self._lines = LineFrames(TextLineOptions(max_bytes=options.max_bytes), BLOCK_BYTES, encoding=options.encoding)
        self._typing = Typing(options)
        self.on_too_long = options.on_too_long

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        how.setdefault("final", True)
        for frame in self._lines.frames(file, start, end, **how):
            if isinstance(frame, Chunk):
                yield from _parsed(frame, self._typing.read(parse_all(frame.values)), as_is=not self._typing.changes)
            else:
                yield frame

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        return line_starts(self._lines, file, parts)


def _parsed(chunk: Chunk, values: Sequence[Value], *, as_is: bool) -> Iterator[Parsed | Gap]:
    """Yields the chunk's lines as records: valid ones in long runs, each bad record alone, blank lines as gaps between them."""
    size = len(chunk.delimiter)
    places = list(accumulate([len(line) + size for line in chunk.raw], initial=chunk.start))
    places[-1] = chunk.end
    if Unparsed not in set(map(type, values)):
        yield Parsed(values, places, chunk.end - chunk.start, chunk.values, chunk.tail, as_is=as_is)
        return
    kinds = [type(value) is Unparsed and (_BAD if line.strip() else _BLANK) for value, line in zip(values, chunk.values, strict=True)]
    begin = 0
    for kind, lines in groupby(kinds):
        end = begin + sum(1 for _ in lines)
        if kind == _BLANK:
            yield Gap(places[begin], places[end], _tail(chunk, end), "header")
            begin = end
        while begin < end:
            stop = begin + 1 if kind else end
            raw = chunk.raw if kind else chunk.values
            run = places[begin : stop + 1]
            yield Parsed(values[begin:stop], run, run[-1] - run[0], raw[begin:stop], _tail(chunk, stop), as_is=as_is)
            begin = stop


def _tail(chunk: Chunk, end: int) -> bytes:
    return chunk.tail if end == len(chunk.raw) else chunk.tail_before(end)


JSONL = FormatKind(JsonlOptions, JsonlFormat)


class JsonFileOptions(TreeOptions):
    """JSON that is not one value per line."""

    type: Literal["json"] = Field("json", description="Each element of an array, or each of the values in the file, is a record.")
    path: str | None = Field(
        None, min_length=1, max_length=255, description='Keys from the object that the file is to the array of records: "data.items".'
    )
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Largest record as it stands in the file.")
    on_too_long: Literal["dlq", "drop"] = Field(
        "dlq", description="dlq: a bad record, as `errors` says, its first max_bytes as raw bytes. drop: skipped and counted."
    )


class JsonFormat(FileFormat):
    """Each element of an array, or each value in the file, is a record."""

    finds_end = True

    def __init__(self, options: JsonFileOptions) -> None:
        self._path = tuple(options.path.split(".")) if options.path else ()
        self._max_bytes = options.max_bytes
        self._typing = Typing(options)
        self.as_is = not self._typing.changes
        self.on_too_long = options.on_too_long

    def frames(self, file: RecordFile, start: int, end: int, **how: Unpack[FrameOptions]) -> Iterator[Frame]:
        final, block_bytes = how.get("final", True), how.get("block_bytes") or BLOCK_BYTES
        cursor = JsonCursor(file, start, end, max(_LEAST_BLOCK_BYTES, block_bytes))
        is_array = self._is_array(file, end)  # reads the beginning; in a packed file this has to come before later bytes
        before = last_before(file, start) if start else NOTHING
        limits = JsonLimits(self._max_bytes, block_bytes, final=final)
        elements = Elements(cursor, limits, self._path, is_array=is_array)
        try:
            yield from elements.begin(before) if start else elements.header()
            for frame in elements.frames():
                yield frame._replace(values=self._typing.read(frame.values), as_is=False) if self._changes(frame) else frame
        except UnfinishedError as error:
            if final:
                raise DamageError(error.message) from None

    def _changes(self, frame: Frame) -> TypeGuard[Parsed]:
        return isinstance(frame, Parsed) and not self.as_is

    def alone(self, raw: bytes, columns: tuple[str, ...]) -> Value:
        """Returns one record from the bytes in a dead letter."""
        del columns
        return self._typing.read([parse(raw)])[0]

    def _is_array(self, file: RecordFile, end: int) -> bool:
        """Returns whether the records are an array's elements."""
        if self._path:
            return True
        if "is_array" not in file.memo:
            cursor = JsonCursor(file, 0, end, _LEAST_BLOCK_BYTES)
            skip_mark(cursor)
            file.memo["is_array"] = cursor.skip_blanks() == OPEN_ARRAY
        return bool(file.memo["is_array"])


JSON = FormatKind(JsonFileOptions, JsonFormat)
