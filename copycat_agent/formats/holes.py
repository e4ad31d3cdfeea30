"""Holes: runs of NUL bytes that no writer wrote.

A writer that does not append goes on at its old position after its file was cut, and leaves a hole before it; a host that crashes leaves
NUL bytes in place of text. NUL bytes that a writer did write are data. Holes are recognized by position and length alone, so that it does
not matter where reading begins:

- where a line begins, a run is a hole when it begins at byte 0 of the file, or is `HOLE_BYTES` long;
- within a line, a run of `INNER_HOLE_BYTES` is a hole, and ends the line;
- what continues a hole is a hole.

Framing treats a hole as a gap between two chunks, like a byte order mark: so offsets stay those of the file's bytes, and what is between
gaps is still cut into lines by one `split`.

A run at the end of the file waits for what comes after it: writers that allocate ahead fill it in later. It does not wait when it is
`OPEN_BYTES` long, or when the file is final.
"""

from __future__ import annotations

from typing import Literal

from copycat_agent.formats.text import Layout, Reader

HOLE_BYTES = 64
INNER_HOLE_BYTES = 512
OPEN_BYTES = 2**20
"""Less than what any split has after a whole line, so that a run that waits always lies at the end of the file, not of a split."""
_FIRST_BYTES, _STEP_BYTES = 2**12, 2**20
"""How many bytes of a run are read at first, and at most at a time."""

_NUL = b"\0"
_HOLE = bytes(HOLE_BYTES)
_STRETCHES = (bytes(2**20), bytes(2**16), bytes(_FIRST_BYTES))


class Holes:
    """Finds the holes of one file."""

    def __init__(self, layout: Layout, read: Reader) -> None:
        """Finds no holes if the delimiter contains NUL: a run of NUL bytes may be lines."""
        self._layout = layout
        self._read = read
        self.exist = layout.may_have_holes

    def first(self, block: bytes, position: int) -> int | None:
        """Returns where the first hole in `block` begins; None without one. `block` is at byte `position`, where a line begins.

        A run that the block's end cuts may be a hole as soon as it is long enough.
        """
        if not self.exist:
            return None
        if block.startswith(_NUL) and self._begins_here(block, position):
            return 0
        return self._find(block, position, HOLE_BYTES)

    def first_inner(self, block: bytes, position: int) -> int | None:
        """Returns where the first hole in `block` begins, no matter where lines begin."""
        return self._find(block, position, INNER_HOLE_BYTES) if self.exist else None

    def _begins_here(self, block: bytes, position: int) -> bool:
        run = self._layout.down(position + _nuls(block, 0)) - position
        return run > 0 and (run >= HOLE_BYTES or position == 0 or self.is_behind(position))

    def is_behind(self, position: int, least: int = HOLE_BYTES) -> bool:
        """Returns whether a hole ends or continues at byte `position`: of `least` bytes, or of all bytes before it."""
        size = min(least, position)
        return self.exist and size > 0 and self._read(position - size, size) == bytes(size)

    def _find(self, block: bytes, position: int, least: int) -> int | None:
        layout = self._layout
        place = block.find(_HOLE)
        while place >= 0:
            end = place + _nuls(block, place)
            begin = layout.up(position + place) - position
            run = layout.down(position + end) - position - begin
            if run >= INNER_HOLE_BYTES or (run >= least and self._ends_line(block[:begin], position)):
                return begin
            place = block.find(_HOLE, end)
        return None

    def _ends_line(self, block: bytes, position: int) -> bool:
        return block.endswith(self._layout.delimiter) and not self._layout.split(block, position)[-1]

    def passable(self, block: bytes, position: int) -> int:
        """Returns how many bytes of `block`, which has no delimiter and no hole, cannot be part of one that continues after it."""
        end = position + max(0, len(block) - len(self._layout.delimiter) + 1)
        block = block[: self._layout.down(end) - position]
        if not self.exist or not block.endswith(_NUL):
            return len(block)
        place = self._layout.up(position + len(block.rstrip(_NUL))) - position
        return min(place, len(block))

    def is_certain(self, position: int, *, final: bool) -> bool:
        """Returns whether the run at byte `position` is certainly a hole: something follows it, it is long, or the file is final."""
        end, what = self.run(position, OPEN_BYTES)
        return final or what == "text" or end - position >= OPEN_BYTES

    def run(self, position: int, most: int) -> tuple[int, Literal["text", "end", "more"]]:
        """Returns where the run of NUL bytes at byte `position` ends, examined for `most` bytes, and what follows.

        text: other bytes. end: the end of the file. more: perhaps more of the run.
        """
        place, stop = position, position + most
        step = _FIRST_BYTES
        while place < stop:
            block = self._read(place, min(step, stop - place))
            step = min(4 * step, _STEP_BYTES)
            if not block:
                return place, "end"
            size = _nuls(block, 0)
            place += size
            if size < len(block):
                return place, "text"
        return place, "more"


def _nuls(block: bytes, begin: int) -> int:
    """Returns how many NUL bytes there are from `begin` on."""
    place = begin
    for stretch in _STRETCHES:
        while block.startswith(stretch, place):
            place += len(stretch)
    rest = block[place : place + _FIRST_BYTES]
    return place - begin + len(rest) - len(rest.lstrip(_NUL))
