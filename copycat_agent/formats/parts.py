"""Records over the limit that are sent in parts: pieces in the order of the file, which put together are the record.

A part goes as far as the limits let it: to the end of a line where a group of lines is cut, else to the end of a character. So where
a part ends follows from where it begins, and reading can go on at any of them with what `Cut` says. Such a record may be larger than
any batch: hence it is the one whose state is saved in an offset (`SourceOffset.cut`), so that parts are the same whoever cuts them.
"""

from __future__ import annotations

from typing import NamedTuple

_MOST_BYTES = 2**30 + 2**12
"""Of a first part: the largest limit, a delimiter and a character."""


def part_bytes(max_bytes: int) -> int:
    """The most that a part of a record over this limit has.

    A little less than the limit: with the defaults of both, a topic takes no record of 1 MiB that does not compress, once Kafka's own
    bytes and the headers are counted.
    """
    return max_bytes - max_bytes // 64


class Cut(NamedTuple):
    """What has to be known to go on between two parts of a record.

    `parts` of it stand before the position, the first of them in bytes `start` up to, not including, `end`. The rest is that of a group
    of lines: `in_line` that the position lies within a line, `table`, `stream` and `unfinished` see `grouping.State`.
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
        """What an offset at byte `position` says; None for a text that is none of ours."""
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
    goes on behind it, None behind the last. `partial`: the last one, and no delimiter ends it.
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
