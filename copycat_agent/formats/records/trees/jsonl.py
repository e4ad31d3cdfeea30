"""`jsonl`: each line is a JSON value. Its own bytes are what is sent, as long as nothing makes other fields of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import Literal

from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.lines import LineFrames, TextLineOptions
from copycat_agent.formats.model import Chunk, Frame, Gap, Parsed, RecordFile
from copycat_agent.formats.records.base import FormatKind
from copycat_agent.formats.records.fields.typed import TreeOptions, Typing
from copycat_agent.formats.records.lines import line_starts, refuse_encoding
from copycat_agent.formats.records.trees.json_values import Value, parse_all
from copycat_agent.options import ByteSize, Field

BLOCK_BYTES = 2**16
"""What is parsed at a time. The fields of more would leave the processor's cache before they are used, which doubles the time."""
_BAD, _BLANK = 1, 2
"""What a line that is no JSON is. 0 is one that is."""


class JsonlOptions(TreeOptions):
    """JSON Lines (ndjson). Lines of white space only are passed over."""

    type: Literal["jsonl"] = Field("jsonl", description="Each line is a JSON value.")
    encoding: str = Field("utf-8", min_length=1, max_length=64, description="A codec of Python, or auto: what the byte order mark says.")
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Longest line as it stands in the file, line feed not counted.")
    on_too_long: Literal["dlq", "drop"] = Field(
        "dlq", description="dlq: a bad record, as `errors` says, its first max_bytes as raw bytes. drop: counted and passed."
    )

    def model_post_init(self, _: object) -> None:
        """Refuse an encoding that cannot be framed. pydantic reports the ValueError with its place."""
        refuse_encoding(self.encoding, "\n")


class JsonlFormat:
    """See `RecordFormat`."""

    counts_records = False
    finds_end = False
    makes_fields = True

    def __init__(self, options: JsonlOptions) -> None:
        """Raises what `LineFrames` raises."""
        self._lines = LineFrames(TextLineOptions(max_bytes=options.max_bytes), BLOCK_BYTES, encoding=options.encoding)
        self._typing = Typing(options)
        self.on_too_long: Literal["dlq", "truncate", "drop"] = options.on_too_long

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
        for frame in self._lines.frames(file, start, end, skipping=skipping, final=final, flush=flush, block_bytes=block_bytes):
            if isinstance(frame, Chunk):
                yield from _parsed(frame, self._typing.read(parse_all(frame.values)), as_is=not self._typing.changes)
            else:
                yield frame

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """See `RecordFormat.cuts`."""
        return line_starts(self._lines, file, parts)


def _parsed(chunk: Chunk, values: Sequence[Value], *, as_is: bool) -> Iterator[Parsed | Gap]:
    """The chunk's lines as records: what can be read in long runs, each bad record alone, blank lines as gaps between them."""
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
