"""A pattern as its position automaton (Glushkov's): which character may follow which, and in how many ways.

Character sets are bit masks: of each kind that a pattern can tell apart, a few characters represent all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from copycat_agent.patterns.trees import MAX_REPEAT, Node, Tree, nodes, one_character

_OTHERS = (
    "\x80\x85\xa0\xaa\xb2\xb5\xc0\xd7\xdf\xe9\xff\u0130\u0131\u017f\u01c5"
    "\u0301\u03a3\u03c2\u0430\u0660\u1e9e\u2003\u2028\u212a\u2163\u20ac\u4e2d\ufb01\ufeff"
)
_ASCII_END = 128
_HIGHEST = 0x10FFFF


class Alphabet:
    r"""The representative characters of one pattern: sets of them are bit masks.

    They are all of ASCII; beyond it some of each class that patterns know (`\w`, `\d`, `\s`, letters with odd cases), and the neighbours of
    those that the pattern names. `re` itself decides which of them a set holds.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        named = sorted({near for code in _codes(tree.source) for near in (code - 1, code, code + 1) if _ASCII_END <= near <= _HIGHEST})
        self._characters = [chr(code) for code in range(_ASCII_END)] + sorted({*_OTHERS, *map(chr, named), "\U0001f600", "\U0001d7ce"})
        self._masks: dict[str, int] = {}
        self.all = (1 << len(self._characters)) - 1

    def mask(self, node: Node, flags: int) -> int:
        """Returns the characters that a one-character node matches."""
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
    """Returns the numbers in a tree: characters, and counts, which do no harm."""
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


MAX_POSITIONS = 4000
"""Larger patterns are not analysed: that would take too long."""
_MAX_COPIES = 4
_MANY = 2**64
"""Counts of ways stop here. Ways are counted, not the places where they part: ten equal alternatives are ten ways, and forty parts that may
each be empty in two ways are 2^40, though the text is one character."""


class TooLargeError(Exception):
    """The pattern has too many positions."""


@dataclass
class Fragment:
    """A part of a pattern: in how many ways it may be empty, its first positions (and in how many ways), and its last positions.

    After a last position only the characters of its set may follow: a possessive repeat leaves none that it could have matched.
    """

    empty: int = 1
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, tuple[int, int]] = field(default_factory=dict)


class Automaton:
    """The positions of a pattern, numbered from 0, and the edges between them.

    `sets[p]` are the characters at a position; `edges[p][q]` are those with which q follows p, those with which it does in more than one
    way, and the most ways for any. `loops[p]` is the outermost unbounded repeat that contains a position.
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self._alphabet = alphabet
        self.sets: list[int] = []
        self.edges: list[dict[int, tuple[int, int, int]]] = []
        self.loops: list[Node | None] = []
        self.inside: list[Any] = []
        """Trees of look-arounds of more than one character."""
        self.ends = 1
        """In how many ways a match may end at the same position."""
        self._loop: Node | None = None

    def add(self, mask: int) -> Fragment:
        """Adds a position."""
        if len(self.sets) >= MAX_POSITIONS:
            raise TooLargeError
        place = len(self.sets)
        self.sets.append(mask)
        self.edges.append({})
        self.loops.append(self._loop)
        return Fragment(0, {place: 1}, {place: (self._alphabet.all, 1)})

    def join(self, before: Fragment, after: Fragment) -> Fragment:
        """Returns the concatenation of two fragments."""
        self._connect(before, after)
        first, last = dict(before.first), dict(after.last)
        if before.empty:
            for place, ways in after.first.items():
                first[place] = min(_MANY, first.get(place, 0) + ways * before.empty)
        if after.empty:
            for place, (allowed, ways) in before.last.items():
                last[place] = (allowed, min(_MANY, ways * after.empty))
        return Fragment(min(_MANY, before.empty * after.empty), first, last)

    def _connect(self, before: Fragment, after: Fragment) -> None:
        for source, (allowed, leaving) in before.last.items():
            edges = self.edges[source]
            for target, entering in after.first.items():
                mask = self.sets[target] & allowed
                old, twice, most = edges.get(target, (0, 0, 0))
                ways = min(_MANY, leaving * entering + (most if mask & old else 0))
                twice |= mask if leaving * entering > 1 else mask & old
                edges[target] = (old | mask, twice, max(most, ways))

    def sequence(self, tree: list[Node], flags: int) -> Fragment:
        """Returns the fragment of nodes in sequence."""
        part = Fragment()
        for node in tree:
            part = self.join(part, self.node(node, flags))
        return part

    def either(self, parts: list[Fragment]) -> Fragment:
        """Returns the alternation of fragments."""
        whole = Fragment(0)
        for part in parts:
            whole.empty = min(_MANY, whole.empty + part.empty)
            for place, ways in part.first.items():
                whole.first[place] = min(_MANY, whole.first.get(place, 0) + ways)
            whole.last.update(part.last)
        return whole

    def node(self, node: Node, flags: int) -> Fragment:  # noqa: PLR0911 - one for each kind
        """Returns the fragment of one node."""
        op, av = node
        if op in {"LITERAL", "NOT_LITERAL", "ANY", "IN"}:
            return self.add(self._alphabet.mask(node, flags))
        if op in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
            return self._repeat(node, flags)
        if op == "SUBPATTERN":
            return self.sequence(nodes(av[3]), (flags | av[1]) & ~av[2])
        if op == "ATOMIC_GROUP":
            return self._possessive(av, self.sequence(nodes(av), flags), flags)
        if op == "BRANCH":
            return self.either([self.sequence(nodes(each), flags) for each in av[1]])
        if op == "GROUPREF":
            return self._loop_of(node, lambda: self.add(self._alphabet.all))
        if op == "GROUPREF_EXISTS":
            return self.either([self.sequence(nodes(each or []), flags) for each in av[1:]])
        if op in {"ASSERT", "ASSERT_NOT"} and int(av[1].getwidth()[1]) > 1:
            self.inside.append((av[1], flags))
        return Fragment()

    def _repeat(self, node: Node, flags: int) -> Fragment:
        least, most, body = node[1]
        tree, most = nodes(body), int(most)
        if most > _MAX_COPIES or (most > 1 and len(self.sets) > MAX_POSITIONS // 2):
            part = self._loop_of(node, lambda: self.sequence(tree, flags))
            if not least:
                part.empty = min(_MANY, part.empty + 1)
        else:
            part = self._copies(tree, least, most, flags)
        return self._possessive([node], part, flags) if node[0] == "POSSESSIVE_REPEAT" else part

    def _loop_of(self, node: Node, make: Any) -> Fragment:  # noqa: ANN401 - a function without arguments
        outer, self._loop = self._loop, self._loop or node
        part: Fragment = make()
        self._loop = outer
        self._connect(part, part)
        return part

    def _copies(self, tree: list[Node], least: int, most: int, flags: int) -> Fragment:
        """Returns X{1,3} as X(X(X)?)?."""
        part = Fragment()
        for number in range(most, 0, -1):
            part = self.join(self.sequence(tree, flags), part)
            if number > least:
                part.empty = min(_MANY, part.empty + 1)
        return part

    def _possessive(self, body: Any, part: Fragment, flags: int) -> Fragment:  # noqa: ANN401 - a tree
        """Excludes the repeated characters after a possessive repeat of one character: something else has to follow."""
        for place in part.last:
            if place in self.edges[place] and (mask := self._whole_loop(nodes(body), place, flags)):
                part.last[place] = (part.last[place][0] & ~mask, part.last[place][1])
        return part

    def _whole_loop(self, tree: list[Node], place: int, flags: int) -> int:
        """Returns the set of a position that is the only one of a greedy repeat at the end of an alternative; 0 for all others."""
        if not tree:
            return 0
        op, av = tree[-1]
        if op == "BRANCH":
            return max(self._whole_loop(nodes(each), place, flags) for each in av[1])
        if op == "SUBPATTERN":
            return self._whole_loop(nodes(av[3]), place, (flags | av[1]) & ~av[2])
        if op not in {"MAX_REPEAT", "POSSESSIVE_REPEAT"} or int(av[1]) < MAX_REPEAT or len(av[2]) != 1:
            return 0
        inner = nodes(av[2])[0]
        is_one = inner[0] in {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
        return self.sets[place] if is_one and self._alphabet.mask(inner, flags) == self.sets[place] else 0
