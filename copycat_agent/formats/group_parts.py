"""The parts of one group of lines over the limits, as its lines come."""

from __future__ import annotations

from copycat_agent.formats.grouping import GroupState
from copycat_agent.formats.model import Cut, Part
from copycat_agent.formats.text import TAIL_BYTES, Layout


class GroupParts:
    """`lines` are those of the part that begins at byte `position`; all parts before it were made.

    A line that is too long by itself comes in pieces. One is the last of its part: the next piece, or line, begins another.
    """

    def __init__(self, layout: Layout, max_lines: int, max_bytes: int, position: int, cut: Cut | None) -> None:
        """`cut`: what was known behind the part before `position`; None at the beginning of the group."""
        self._layout = layout
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._cut = cut
        self._size = -len(layout.delimiter)
        self.position = position
        self.lines: list[bytes] = []

    def takes(self, line: bytes) -> bool:
        """Whether the part may have this line, too. The first one it always may."""
        size, cr = self._size + len(self._layout.delimiter) + len(line), self._layout.text.cr
        fits = size <= self._max_bytes or size - len(cr) * line.endswith(cr) <= self._max_bytes
        return not self.lines or (fits and len(self.lines) < self._max_lines)

    def add(self, line: bytes) -> None:
        """The part has this line, too, or a piece of one."""
        self.lines.append(line)
        self._size += len(self._layout.delimiter) + len(line)

    def full(self, state: GroupState, *, in_line: bool = False) -> Part:
        """The part as it is: more of the group follows. `state`: the rule's behind its last line. `in_line`: it ends within that."""
        delimiter = b"" if in_line else self._layout.delimiter
        raw = self._layout.delimiter.join(self.lines) + delimiter
        part = self._part(raw, self._layout.text.decoded(raw), self.position + len(raw), raw[-TAIL_BYTES:], partial=False)
        cut = self._cut = Cut(part.number, *part.first, in_line, state.table, state.stream, state.unfinished)
        self.position, self.lines, self._size = part.end, [], -len(self._layout.delimiter)
        return part._replace(cut=cut)

    def last(self, *, partial: bool) -> Part:
        """The part as it is: the group ends with it. `partial`: no delimiter ends its last line."""
        raw, text = self._layout.delimiter.join(self.lines), self._layout.text
        delimiter = b"" if partial else self._layout.delimiter
        value = text.decoded(raw) if partial else text.value(raw)
        tail = (raw[-TAIL_BYTES:] + delimiter)[-TAIL_BYTES:]
        return self._part(raw, value, self.position + len(raw) + len(delimiter), tail, partial=partial)

    def _part(self, raw: bytes, value: bytes, end: int, tail: bytes, *, partial: bool) -> Part:
        cut = self._cut
        first, number = ((cut.start, cut.end), cut.parts + 1) if cut else ((self.position, end), 1)
        return Part(raw, value, self.position, end, number, first, self._layout.text.codec, None, tail, partial)
