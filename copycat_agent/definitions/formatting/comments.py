"""The comments of a YAML text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
_CLOSE = 2
"""A comment no further behind its line is there because of the line's length; another one stands in a column."""


class Remark(NamedTuple):
    """One comment. `alone`: nothing else stands on its line. `aligned`: far behind what does. `after_blank`: the line above is empty."""

    begin: int
    column: int
    text: str
    alone: bool
    aligned: bool
    after_blank: bool

    @property
    def lines(self) -> list[str]:
        """As lines that stand above something."""
        return ["", self.text] if self.after_blank else [self.text]


def remarks_in(text: str, spans: Sequence[tuple[int, int]]) -> list[Remark]:
    """Every comment outside `spans`, the places of scalars (in order, from, to); what looks like one within is text."""
    found: list[Remark] = []
    position = 0
    for begin, end in [*spans, (len(text), len(text))]:
        while match := _COMMENT.search(text, position, begin):
            found.append(_remark(text, match.start(), match[0].rstrip()))
            position = match.end()
        position = max(position, end)
    return found


def _remark(text: str, index: int, words: str) -> Remark:
    begin = text.rfind("\n", 0, index) + 1
    above = text[text.rfind("\n", 0, max(begin - 1, 0)) + 1 : begin] if begin else "#"
    gap = index - begin - len(text[begin:index].rstrip())
    return Remark(index, index - begin, words, gap == index - begin, gap > _CLOSE, not above.strip())
