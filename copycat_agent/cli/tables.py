"""Tables that fit: in a narrow terminal the columns that say least are left out, never cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import OverflowMethod
from rich.table import Table
from rich.text import Text

GAP = 2
"""Blanks between two columns."""
WRAP_CELLS = 20
"""What a column that wraps needs at least."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `rank` 0 always stays; else the highest rank goes first. `is_idle`: its values say nothing now (all zero).

    `wraps`: what does not fit goes on in the next line, so it asks for little room.
    """

    title: str
    cells: Sequence[str | Text]
    rank: int = 0
    is_idle: bool = False
    left: bool = False
    wraps: bool = False

    @property
    def width(self) -> int:
        """Terminal cells of its widest value."""
        widest = max((cell_len(str(cell)) for cell in (self.title, *self.cells)), default=0)
        return min(widest, WRAP_CELLS) if self.wraps else widest


def fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Those that fit into `width` cells, in their order: idle ones go first, then by rank."""
    kept = list(columns)
    while sum(column.width + GAP for column in kept) - GAP > width:
        spare = [column for column in kept if column.rank]
        if not spare:
            break
        kept.remove(max(spare, key=lambda column: (column.is_idle, column.rank)))
    return kept


def table(columns: Sequence[Column], width: int) -> Table:
    """The columns that fit, without lines around them."""
    kept = fitting(columns, width)
    made = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column in kept:
        how: OverflowMethod = "fold" if column.wraps else "ellipsis"
        made.add_column(column.title, justify="left" if column.left else "right", no_wrap=not column.wraps, overflow=how)
    for row in zip(*(column.cells for column in kept), strict=True):
        made.add_row(*row)
    return made
