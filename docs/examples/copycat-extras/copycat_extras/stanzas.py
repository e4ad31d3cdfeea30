"""Format `stanzas`: records are blocks of `name: value` lines with an empty line between them, as in LDIF or Debian's control files.

Where a block ends is found by the agent's own format `lines`, with an empty line as delimiter; only what is in it is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, Literal

from copycat_agent.extending import (
    FORMATS,
    Chunk,
    Field,
    FormatKind,
    FormatOptions,
    Frame,
    Gap,
    Parsed,
    RecordFile,
    RecordFormat,
    Unparsed,
)


class StanzasOptions(FormatOptions):
    """Blocks of `name: value` lines."""

    type: Literal["stanzas"] = Field("stanzas", description="Blocks of name: value lines with an empty line between them.")
    lower_case: bool = Field(False, description="true makes all names lower case.")


class Stanzas:
    """See `RecordFormat`. Stateless: one object serves all files of a connector."""

    counts_records = False
    finds_end = False
    makes_fields = True

    def __init__(self, options: StanzasOptions) -> None:
        self._options = options
        lines = FORMATS["lines"]
        self._blocks: RecordFormat = lines.build(lines.options.model_validate({"type": "lines", "line": {"delimiter": "\n\n"}}))
        self.on_too_long: Literal["dlq", "truncate", "drop"] = self._blocks.on_too_long

    def frames(self, file: RecordFile, start: int, end: int, **how: Any) -> Iterator[Frame]:  # noqa: ANN401 - passed on as they are
        """The frames of the blocks, with fields in place of their text."""
        for frame in self._blocks.frames(file, start, end, **how):
            if isinstance(frame, Chunk):
                yield from self._parsed(frame)
            else:
                yield frame

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """A file is read as a whole."""
        del file, parts
        return ()

    def _parsed(self, chunk: Chunk) -> Iterator[Parsed | Gap]:
        """Records of the blocks. No byte may be nobody's: what stands between records is a gap, on purpose."""
        passed = 0
        for is_empty, group in groupby(chunk.rows(), lambda row: not row.bytes.strip()):
            rows = list(group)
            passed += len(rows)
            start, end = rows[0].start, rows[-1].end
            tail = chunk.tail if passed == chunk.total else chunk.tail_before(passed)
            if is_empty:
                yield Gap(start, end, tail, "header")
            else:
                raw = [row.bytes for row in rows]
                places = [*(row.start for row in rows), end]
                yield Parsed([self._fields(text) for text in raw], places, end - start, raw, tail)

    def _fields(self, text: bytes) -> dict[str, Any] | Unparsed:
        fields: dict[str, Any] = {}
        for line in text.decode("utf-8", "replace").strip("\n").split("\n"):
            name, colon, value = line.partition(":")
            if not colon:
                return Unparsed("a line of the block has no colon")  # a bad record; the ones after it go on
            fields[name.strip().lower() if self._options.lower_case else name.strip()] = value.strip()
        return fields


STANZAS = FormatKind(StanzasOptions, Stanzas)
