"""Lines: where they begin and end, on bytes, in bounded memory whatever the input.

Every step reads from the start of a line, so there is no state between steps but the position, and "inside an over-long line".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Unpack

from copycat_agent.formats.encoding import Encoding, Layout
from copycat_agent.formats.framing import FrameLimits, Framing
from copycat_agent.formats.holes import Holes
from copycat_agent.formats.model import Cut, Frame, How, OnTooLong, Reader
from copycat_agent.options import ByteSize, Duration, Field, Options

BLOCK_BYTES = 2**20
"""Bytes per read: larger ones gained nothing, smaller ones cost calls."""


class TextLineOptions(Options):
    """What a line of a whole file is."""

    delimiter: str = Field(
        "\n",
        min_length=1,
        max_length=64,
        description='What ends a line, in the encoding of the file. With the default "\\n" a CR before it belongs to it.',
    )
    max_bytes: ByteSize = Field(2**20, ge=1, le=2**30, description="Longest line as it stands in the file, delimiter not counted.")
    on_too_long: OnTooLong = Field(
        "dlq",
        description="dlq: a bad record, as `errors` says, its first max_bytes as raw bytes. truncate: sent cut at the end of a character, "
        "with the header copycat.truncated. split: all of it is sent, in numbered parts, with the headers copycat.part. drop: counted and "
        "passed. With `multiline`, what is written there goes first.",
    )
    skip_empty: bool = Field(False, description="true passes empty lines over.")


class LineOptions(TextLineOptions):
    """What a line is."""

    flush_partial_after: Literal["never"] | Duration = Field(
        "never",
        description="A last line without its delimiter is sent once the file has been quiet for so long; what is written behind it later "
        "is another record. never: it waits, however long.",
    )


class LineFrames:
    """Frames lines of files in one encoding. Stateless: one object serves any number of files and threads."""

    def __init__(self, options: TextLineOptions, block_bytes: int = BLOCK_BYTES, *, encoding: str = "utf-8", raw: bool = False) -> None:
        """`raw`: values are the file's bytes, its byte order mark too; else they are UTF-8.

        Raises ValueError for an encoding that is none, UnicodeError for one without the delimiter: see `encoding_problem`.
        """
        self.on_too_long = options.on_too_long
        self._encoding = Encoding(encoding, options.delimiter, is_raw=raw)
        self._limits = FrameLimits(options.max_bytes, block_bytes, options.skip_empty, self.on_too_long == "split")

    def frames(self, read: Reader, start: int, end: int, **how: Unpack[How]) -> Iterator[Frame]:
        """See `Frames.frames`. Every line is complete by itself, so `flush` changes nothing."""
        layout = self._encoding.of(read, start)
        framing = Framing(layout, self._limits, read, end, final=how.get("final", False), little=how.get("block_bytes"))
        held = Cut.parse(how.get("cut", ""), start) if self._limits.splits else None
        return framing.frames(start, skipping=how.get("skipping", False) and held is None, cut=held)

    def layout(self, read: Reader, position: int) -> Layout:
        """What a file that is read from byte `position` looks like as bytes."""
        return self._encoding.of(read, position)

    def is_line_start(self, read: Reader, position: int) -> bool:
        """Whether a record can begin at byte `position`: at the beginning of the file, behind a delimiter or behind a hole."""
        layout = self._encoding.of(read, 0)
        if position in (0, len(layout.mark)):
            return True
        size = len(layout.delimiter)
        if position % layout.unit:
            return False
        return (position >= size and read(position - size, size) == layout.delimiter) or Holes(layout, read).is_behind(position)
