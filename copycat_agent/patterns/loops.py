"""Loops of an automaton, and how they interact: which double the work, and which can share a text with another one.

Components are numbered so that edges lead to the same or a smaller number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from copycat_agent.patterns.automaton import Automaton, TooLargeError

_PAIRS = 500_000
"""How many steps of pairs of positions are examined, about 0.1 s, before a loop counts as bad."""
_TRIPLES = 200_000
"""How many steps of triples are examined before two loops count as sharing a text."""
_MOST_CHAINS = 50
_NEVER = 2**62
"""A gap longer than any text."""

Chains = tuple[tuple[int, ...], ...]
"""For each chain of loops the gaps between neighbours, sorted: a chain of one loop has none."""


class Loops:
    """The loops of an automaton. Position 0 is a loop that matches everything: what a search skips."""

    def __init__(self, automaton: Automaton) -> None:
        self._edges = [{to: mask for to, (mask, _, _) in edges.items() if mask} for edges in automaton.edges]
        self._twice = [{to: ways for to, (_, twice, ways) in edges.items() if twice} for edges in automaton.edges]
        self._component = components(self._edges)
        self._members: dict[int, list[int]] = {}
        for place, number in enumerate(self._component):
            self._members.setdefault(number, []).append(place)
        self._loops = [number for number, places in sorted(self._members.items()) if len(places) > 1 or places[0] in self._edges[places[0]]]
        self._below = self._reachable()
        self._left = _TRIPLES
        self._left_gaps = self._left_ways = _PAIRS

    def doubled(self) -> int | None:
        """Returns a position in a loop that has two ways through the same text; None if there is none."""
        for loop in self._loops:
            for place in self._members[loop]:
                if any(self._component[to] == loop for to in self._twice[place]):
                    return place
            if len(self._members[loop]) > 1 and (found := self._meeting(loop)) is not None:
                return found
        return None

    def _meeting(self, loop: int) -> int | None:
        """Returns a position where two ways that parted within a loop meet again; None if there is none."""
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

    def ways(self) -> int:
        """Returns in how many ways one text may lead to one position, with equal rounds through each loop. Raises TooLargeError."""
        together = self._together()
        into: dict[int, list[tuple[int, int, int]]] = {}
        for place in range(len(self._edges)):
            for to, mask in self._away(place).items():
                into.setdefault(self._component[to], []).append((place, mask, self._twice[place].get(to, 1)))
        most: dict[int, int] = {}
        for number in sorted(self._members, reverse=True):  # its predecessors have been seen
            entries = [(place, mask, ways * most[self._component[place]]) for place, mask, ways in into.get(number, ())]
            most[number] = max((self._at_once(entry, entries, together) for entry in entries), default=1)
        return max(most.values())

    def _at_once(self, entry: tuple[int, int, int], entries: list[tuple[int, int, int]], together: set[tuple[int, int]]) -> int:
        """Returns how many ways may enter together with this one, on the same character."""
        place, mask, _ = entry
        self._left_ways = _less(self._left_ways, len(entries))
        return sum(
            ways for other, also, ways in entries if mask & also and (other == place or (min(place, other), max(place, other)) in together)
        )

    def _away(self, place: int) -> dict[int, int]:
        """Returns the edges that leave the position's own loop: `chains` counts how a loop and what follows it share a text."""
        own = self._component[place]
        return {to: mask for to, mask in self._edges[place].items() if self._component[to] != own}

    def _together(self) -> set[tuple[int, int]]:
        """Returns pairs of positions, the smaller one first, that one text can reach after its ways have parted outside of a loop."""
        away = [self._away(place) for place in range(len(self._edges))]
        rest = [pair for edges in away for pair in _pairs(edges, edges) if pair[0] < pair[1]]
        seen, left = set(rest), _PAIRS
        while rest:
            one, other = rest.pop()
            left = _less(left, len(self._edges[one]) * len(self._edges[other]))
            for after in _pairs(self._edges[one], self._edges[other]):
                ordered = (min(after), max(after))
                if after[0] != after[1] and ordered not in seen:
                    seen.add(ordered)
                    rest.append(ordered)
        return seen

    def chains(self) -> tuple[Chains, Chains, int]:
        """Returns chains of loops that share a text, without position 0 and from it on; and a position in the last loop of the longest."""
        found: dict[int, Chains] = {}
        longest: dict[int, tuple[int, int]] = {}
        start = self._component[0]
        for loop in self._loops:  # the loops it leads to have been processed
            shared = [other for other in found if self._below[loop] >> other & 1 and self._share(loop, other)]
            found[loop] = _worst([(), *(tuple(sorted((*gaps, self._gap(loop, other)))) for other in shared for gaps in found[other])])
            length, last = max((longest[other] for other in shared), default=(0, self._members[loop][0]))
            longest[loop] = (length + 1, last)
        searching = found.pop(start)
        del longest[start]
        return _worst([(), *(gaps for each in found.values() for gaps in each)]), searching, max(longest.values(), default=(1, 0))[1]

    def _gap(self, one: int, other: int) -> int:
        """Returns the least number of characters between two places where a text may be cut between two loops that share it.

        One way leaves the first loop, another stays in it for that long and then leaves, and in the second loop they meet.
        """
        now = {(p, p) for p in self._members[one]}
        staying, left = set[tuple[int, int]](), set[tuple[int, int]]()
        for gap in count():
            try:
                if gap and self._meet(now, left, one, other):
                    return gap
                now = {pair for p, q in now for pair in self._stay(p, q, one, other)} - staying
            except TooLargeError:
                return 1
            if not now:
                return _NEVER
            staying |= now
        raise AssertionError

    def _stay(self, gone: int, stays: int, one: int, other: int) -> Iterator[tuple[int, int]]:
        self._left_gaps = _less(self._left_gaps, len(self._edges[gone]) * len(self._edges[stays]))
        for pair in _pairs(self._edges[gone], self._edges[stays]):
            if self._component[pair[1]] == one != self._component[pair[0]] and self._leads(pair[0], other):
                yield pair

    def _meet(self, now: set[tuple[int, int]], seen: set[tuple[int, int]], one: int, other: int) -> bool:
        """Returns whether the way that stayed can leave the loop here and meet the other in the second loop. `seen` have not met so far."""
        rest = list(now)
        while rest:
            gone, late = rest.pop()
            self._left_gaps = _less(self._left_gaps, len(self._edges[gone]) * len(self._edges[late]))
            for pair in _pairs(self._edges[gone], self._edges[late]):
                if self._component[pair[1]] == one or pair in seen or not (self._leads(pair[0], other) and self._leads(pair[1], other)):
                    continue
                if pair[0] == pair[1]:
                    return True
                seen.add(pair)
                rest.append(pair)
        return False

    def _leads(self, place: int, loop: int) -> bool:
        number = self._component[place]
        return number == loop or bool(self._below[number] >> loop & 1)

    def _share(self, one: int, other: int) -> bool:
        """Returns whether a text leads round one loop, to the other, and round that: then it may be cut anywhere between them."""
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
        """Returns the components that each component leads to, as bits."""
        below: dict[int, int] = {}
        for number in sorted(self._members):
            found = 0
            for place in self._members[number]:
                for to in self._edges[place]:
                    if (target := self._component[to]) != number:
                        found |= below[target] | 1 << target
            below[number] = found
        return below


def _worst(chains: Sequence[tuple[int, ...]]) -> Chains:
    """Returns the chains that no other one exceeds, with more loops or smaller gaps."""
    kept: list[tuple[int, ...]] = []
    for chain in sorted(set(chains), key=lambda gaps: (-len(gaps), gaps)):
        if not any(all(ours <= theirs for ours, theirs in zip(better, chain, strict=False)) for better in kept):
            kept.append(chain)
    return tuple(kept) if len(kept) <= _MOST_CHAINS else ((1,) * len(kept[0]),)


def _less(left: int, spent: int) -> int:
    """Returns the steps that are left. Raises TooLargeError when there are too few."""
    if left < spent:
        raise TooLargeError
    return left - spent


def _pairs(one: dict[int, int], other: dict[int, int]) -> Iterator[tuple[int, int]]:
    return ((a, b) for a, mask in one.items() for b, and_mask in other.items() if mask & and_mask)


def components(edges: list[dict[int, int]]) -> list[int]:
    """Returns the strongly connected component of each position (Tarjan's algorithm, without recursion)."""
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
