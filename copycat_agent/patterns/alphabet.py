r"""Sets of characters as bits: of each kind that a pattern can tell apart, a few characters stand for all.

All of ASCII; beyond it some of each class that patterns know (`\w`, `\d`, `\s`, letters with odd cases), and the neighbours of those
that the pattern names. Which of them a set holds is asked of `re` itself.
"""

from __future__ import annotations

import re
from typing import Any

from copycat_agent.patterns.trees import Node, Tree, one_character

_OTHERS = (
    "\x80\x85\xa0\xaa\xb2\xb5\xc0\xd7\xdf\xe9\xff\u0130\u0131\u017f\u01c5"
    "\u0301\u03a3\u03c2\u0430\u0660\u1e9e\u2003\u2028\u212a\u2163\u20ac\u4e2d\ufb01\ufeff"
)
_ASCII_END = 128
_HIGHEST = 0x10FFFF


class Alphabet:
    """The characters that stand for all in one pattern."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        named = sorted({near for code in _codes(tree.source) for near in (code - 1, code, code + 1) if _ASCII_END <= near <= _HIGHEST})
        self._characters = [chr(code) for code in range(_ASCII_END)] + sorted({*_OTHERS, *map(chr, named), "\U0001f600", "\U0001d7ce"})
        self._masks: dict[str, int] = {}
        self.all = (1 << len(self._characters)) - 1

    def mask(self, node: Node, flags: int) -> int:
        """Which of the characters a node takes that takes one character."""
        key = f"{node} {flags}"
        if key not in self._masks:
            self._masks[key] = self._ask(node, flags)
        return self._masks[key]

    def _ask(self, node: Node, flags: int) -> int:
        op, av = node
        if op == "ANY":
            return self.all if flags & re.DOTALL else self.all & ~(1 << 10)
        if op == "LITERAL" and av < _ASCII_END and not flags & re.IGNORECASE:
            return 1 << int(av)
        match = one_character(self._tree, node, flags).match
        return sum(1 << place for place, character in enumerate(self._characters) if match(character))


def _codes(subpattern: Any) -> set[int]:  # noqa: ANN401 - of any depth
    """Numbers in a tree: characters, and counts, which do no harm."""
    found, rest = set[int](), [subpattern]
    while rest:
        each = rest.pop()
        if isinstance(each, int):
            found.add(int(each))
        elif not isinstance(each, str) and hasattr(each, "__iter__"):
            rest.extend(each)
        elif hasattr(each, "__getitem__") and hasattr(each, "data"):
            rest.extend(each.data)
    return found
