"""A pattern as the automaton of its positions (Glushkov's): which character may follow which, and in how many ways.

What it does not model (look-around, places, what a back-reference repeats) is taken for more than it lets pass, so that a proof that
there are few ways holds. Counted repeats are written out up to a few copies, and taken for unbounded ones beyond.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from copycat_agent.patterns.alphabet import Alphabet
from copycat_agent.patterns.trees import MAX_REPEAT, Node, nodes

MAX_POSITIONS = 4000
"""Larger patterns are not looked at: the answer would take too long."""
_MAX_COPIES = 4
_MANY = 2**64
"""As many ways as need counting."""


class TooLargeError(Exception):
    """The pattern has too many positions."""


@dataclass
class Part:
    """A part of a pattern: in how many ways it may be empty, the positions it begins with (and in how many ways), and those it ends with.

    Behind an end only the characters of its set may follow: a possessive repeat leaves none that it could have taken.
    """

    empty: int = 1
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, tuple[int, int]] = field(default_factory=dict)


class Automaton:
    """Positions, numbered from 0, and what leads from one to the next.

    `sets[p]` are the characters at a position; `edges[p][q]` are those with which q follows p, those with which it does in more than one
    way, and how many ways that are at most. `loops[p]` is the outermost unbounded repeat that a position is in.
    """

    def __init__(self, alphabet: Alphabet) -> None:
        self._alphabet = alphabet
        self.sets: list[int] = []
        self.edges: list[dict[int, tuple[int, int, int]]] = []
        self.loops: list[Node | None] = []
        self.inside: list[Any] = []
        """Trees of look-arounds of more than one character."""
        self.ends = 1
        """In how many ways it may end at the same position."""
        self._loop: Node | None = None

    def add(self, mask: int) -> Part:
        """A new position."""
        if len(self.sets) >= MAX_POSITIONS:
            raise TooLargeError
        place = len(self.sets)
        self.sets.append(mask)
        self.edges.append({})
        self.loops.append(self._loop)
        return Part(0, {place: 1}, {place: (self._alphabet.all, 1)})

    def join(self, before: Part, after: Part) -> Part:
        """One after the other."""
        self._connect(before, after)
        first, last = dict(before.first), dict(after.last)
        if before.empty:
            for place, ways in after.first.items():
                first[place] = min(_MANY, first.get(place, 0) + ways * before.empty)
        if after.empty:
            for place, (allowed, ways) in before.last.items():
                last[place] = (allowed, min(_MANY, ways * after.empty))
        return Part(min(_MANY, before.empty * after.empty), first, last)

    def _connect(self, before: Part, after: Part) -> None:
        for source, (allowed, leaving) in before.last.items():
            edges = self.edges[source]
            for target, entering in after.first.items():
                mask = self.sets[target] & allowed
                old, twice, most = edges.get(target, (0, 0, 0))
                ways = min(_MANY, leaving * entering + (most if mask & old else 0))
                twice |= mask if leaving * entering > 1 else mask & old
                edges[target] = (old | mask, twice, max(most, ways))

    def sequence(self, tree: list[Node], flags: int) -> Part:
        """Nodes one after the other."""
        part = Part()
        for node in tree:
            part = self.join(part, self.node(node, flags))
        return part

    def either(self, parts: list[Part]) -> Part:
        """One of them."""
        whole = Part(0)
        for part in parts:
            whole.empty = min(_MANY, whole.empty + part.empty)
            for place, ways in part.first.items():
                whole.first[place] = min(_MANY, whole.first.get(place, 0) + ways)
            whole.last.update(part.last)
        return whole

    def node(self, node: Node, flags: int) -> Part:  # noqa: PLR0911 - one for each kind
        """One node."""
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
        return Part()

    def _repeat(self, node: Node, flags: int) -> Part:
        least, most, body = node[1]
        tree, most = nodes(body), int(most)
        if most > _MAX_COPIES or (most > 1 and len(self.sets) > MAX_POSITIONS // 2):
            part = self._loop_of(node, lambda: self.sequence(tree, flags))
            if not least:
                part.empty = min(_MANY, part.empty + 1)
        else:
            part = self._copies(tree, least, most, flags)
        return self._possessive([node], part, flags) if node[0] == "POSSESSIVE_REPEAT" else part

    def _loop_of(self, node: Node, make: Any) -> Part:  # noqa: ANN401 - a function without arguments
        outer, self._loop = self._loop, self._loop or node
        part: Part = make()
        self._loop = outer
        self._connect(part, part)
        return part

    def _copies(self, tree: list[Node], least: int, most: int, flags: int) -> Part:
        """X{1,3} as X(X(X)?)?."""
        part = Part()
        for number in range(most, 0, -1):
            part = self.join(self.sequence(tree, flags), part)
            if number > least:
                part.empty = min(_MANY, part.empty + 1)
        return part

    def _possessive(self, body: Any, part: Part, flags: int) -> Part:  # noqa: ANN401 - a tree
        """Behind a repeat of one character that gives nothing back, something else follows."""
        for place in part.last:
            if place in self.edges[place] and (mask := self._whole_loop(nodes(body), place, flags)):
                part.last[place] = (part.last[place][0] & ~mask, part.last[place][1])
        return part

    def _whole_loop(self, tree: list[Node], place: int, flags: int) -> int:
        """The set of a position that stands alone in a greedy repeat at the end of an alternative; 0 for all others."""
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
