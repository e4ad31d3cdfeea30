"""Loops of an automaton, and what they do to each other: which double the work, and which share a text with another one.

Components are numbered so that edges lead to the same or a smaller number.
"""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.patterns.automaton import Automaton, TooLargeError

_PAIRS = 500_000
"""So many steps of pairs of positions are looked at, about 0.1 s, before a loop counts as bad."""
_TRIPLES = 200_000
"""So many steps of triples before two loops count as sharing a text."""


class Loops:
    """The loops of an automaton. Position 0 is a loop that takes everything: what a search passes over."""

    def __init__(self, automaton: Automaton) -> None:
        self._edges = [{to: mask for to, (mask, _) in edges.items() if mask} for edges in automaton.edges]
        self._twice = [{to: twice for to, (_, twice) in edges.items() if twice} for edges in automaton.edges]
        self._component = components(self._edges)
        self._members: dict[int, list[int]] = {}
        for place, number in enumerate(self._component):
            self._members.setdefault(number, []).append(place)
        self._loops = [number for number, places in sorted(self._members.items()) if len(places) > 1 or places[0] in self._edges[places[0]]]
        self._below = self._reachable()
        self._left = _TRIPLES

    def doubled(self) -> int | None:
        """A position in a loop that has two ways through the same text; None when no loop has."""
        for loop in self._loops:
            for place in self._members[loop]:
                if any(self._component[to] == loop for to in self._twice[place]):
                    return place
            if len(self._members[loop]) > 1 and (found := self._meeting(loop)) is not None:
                return found
        return None

    def _meeting(self, loop: int) -> int | None:
        """Where two ways that parted within a loop come together again."""
        inside = [{to: mask for to, mask in self._edges[place].items() if self._component[to] == loop} for place in range(len(self._edges))]
        seen: set[tuple[int, int]] = set()
        for place in self._members[loop]:
            seen.update(pair for pair in _pairs(inside[place], inside[place]) if pair[0] < pair[1])
        rest, left = list(seen), _PAIRS
        while rest:
            one, other = rest.pop()
            left = _less(left, len(inside[one]) * len(inside[other]))
            for pair in _pairs(inside[one], inside[other]):
                if pair[0] == pair[1]:
                    return pair[0]
                ordered = (min(pair), max(pair))
                if ordered not in seen:
                    seen.add(ordered)
                    rest.append(ordered)
        return None

    def partings(self) -> int:
        """At how many places on one way through the pattern two ways part and come together again: each may double the work once."""
        merging = self._merging()
        here = [0] * len(self._members)
        for place in range(len(self._edges)):
            away = self._away(place)
            if any(to in away for to in self._twice[place]) or any(pair in merging for pair in _pairs(away, away)):
                here[self._component[place]] += 1
        most: list[int] = []
        for number in sorted(self._members):
            below = {self._component[to] for place in self._members[number] for to in self._edges[place]} - {number}
            most.append(here[number] + max((most[other] for other in below), default=0))
        return max(most)

    def _away(self, place: int) -> dict[int, int]:
        """Where it goes on to, its own loop left out: how a loop and what follows it share a text is what `chains` counts."""
        own = self._component[place]
        return {to: mask for to, mask in self._edges[place].items() if self._component[to] != own}

    def _merging(self) -> set[tuple[int, int]]:
        """Pairs of positions, the smaller one first, from which one text leads to the same position."""
        before: dict[tuple[int, int], list[tuple[int, int]]] = {}
        away = [self._away(place) for place in range(len(self._edges))]
        rest = [pair for edges in away for pair in _pairs(edges, edges) if pair[0] < pair[1]]
        seen, found, left = set(rest), list[tuple[int, int]](), _PAIRS
        while rest:
            pair = rest.pop()
            left = _less(left, len(self._edges[pair[0]]) * len(self._edges[pair[1]]))
            for after in _pairs(self._edges[pair[0]], self._edges[pair[1]]):
                if after[0] == after[1]:
                    found.append(pair)
                    continue
                ordered = (min(after), max(after))
                before.setdefault(ordered, []).append(pair)
                if ordered not in seen:
                    seen.add(ordered)
                    rest.append(ordered)
        merging = set(found)
        while found:
            for earlier in before.get(found.pop(), ()):
                if earlier not in merging:
                    merging.add(earlier)
                    found.append(earlier)
        return merging

    def chains(self) -> tuple[int, int, int]:
        """The most loops that share a text, one with the next: without position 0, and from it on; and a position in the last of them."""
        longest: dict[int, tuple[int, int]] = {}
        start = self._component[0]
        for loop in self._loops:  # what it leads to has been seen
            after = (longest[other] for other in longest if self._below[loop] >> other & 1 and self._share(loop, other))
            length, last = max(after, default=(0, self._members[loop][0]))
            longest[loop] = (length + 1, last)
        searching = longest.pop(start)
        matching = max(longest.values(), default=(1, 0))
        return max(1, matching[0]), searching[0], matching[1]

    def _share(self, one: int, other: int) -> bool:
        """Whether a text leads round the one loop, from it to the other, and round that: then it may be cut anywhere between them."""
        begin = [(p, p, q) for p in self._members[one] for q in self._members[other]]
        seen, rest = set(begin), begin
        while rest:
            p, r, q = rest.pop()
            self._left -= len(self._edges[p]) * len(self._edges[r]) * len(self._edges[q])
            if self._left < 0:
                return True
            for triple in self._steps(p, r, q, one, other):
                if triple in seen:
                    continue
                if self._component[triple[1]] == other and triple[1] == triple[2]:
                    return True
                seen.add(triple)
                rest.append(triple)
        return False

    def _steps(self, p: int, r: int, q: int, one: int, other: int) -> Iterator[tuple[int, int, int]]:
        component = self._component
        for to_q, mask_q in self._edges[q].items():
            if component[to_q] != other:
                continue
            for to_r, mask_r in self._edges[r].items():
                if not mask_q & mask_r or not (component[to_r] == other or self._below[component[to_r]] >> other & 1):
                    continue
                for to_p, mask_p in self._edges[p].items():
                    if component[to_p] == one and mask_p & mask_q & mask_r:
                        yield to_p, to_r, to_q

    def _reachable(self) -> dict[int, int]:
        """Which components each one leads to, as bits."""
        below: dict[int, int] = {}
        for number in sorted(self._members):
            found = 0
            for place in self._members[number]:
                for to in self._edges[place]:
                    if (target := self._component[to]) != number:
                        found |= below[target] | 1 << target
            below[number] = found
        return below


def _less(left: int, spent: int) -> int:
    """What is left of the steps that are allowed. Raises TooLargeError."""
    if left < spent:
        raise TooLargeError
    return left - spent


def _pairs(one: dict[int, int], other: dict[int, int]) -> Iterator[tuple[int, int]]:
    return ((a, b) for a, mask in one.items() for b, and_mask in other.items() if mask & and_mask)


def components(edges: list[dict[int, int]]) -> list[int]:
    """The strongly connected component of each position (Tarjan's algorithm, without recursion)."""
    count = len(edges)
    index, low, component = [-1] * count, [0] * count, [-1] * count
    stack: list[int] = []
    seen = number = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = seen
        seen += 1
        stack.append(root)
        while work:
            place, targets = work[-1]
            for to in targets:
                if index[to] < 0:
                    index[to] = low[to] = seen
                    seen += 1
                    stack.append(to)
                    work.append((to, iter(edges[to])))
                    break
                if component[to] < 0:
                    low[place] = min(low[place], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[place])
                if low[place] == index[place]:
                    while component[place] < 0:
                        component[stack.pop()] = number
                    number += 1
    return component
