"""How the work of a failing match grows with the text in a backtracking engine.

Two ways through the same loop with the same text: the work doubles with each round. Two loops that can share a text between them: another
power of its length. After Weber and Seidl, "On the degree of ambiguity of finite automata" (1991), which Weideman and others applied to
backtracking (2016). The computed power may be too high, never too low.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from copycat_agent.patterns.automaton import Alphabet, Automaton, TooLargeError
from copycat_agent.patterns.loops import Chains, Loops
from copycat_agent.patterns.trees import MAX_REPEAT, Node, Tree, nodes, write

EXPONENTIAL = 99
"""A power that stands for exponential growth."""
UNCOUNTED = 2**64
"""Stands for more ways than any text is short enough for."""


class Cost(NamedTuple):
    """Work grows with the text's length to the power of `matching` from a fixed start, of `searching` when a match may begin anywhere.

    The chains give an upper bound (`Loops.chains`), to be multiplied by `ways`. `part` is the part of the pattern that makes the work grow
    fastest, rewritten; "" if it is not known.
    """

    matching: int
    searching: int
    part: str = ""
    ways: int = 1
    matching_chains: Chains = ()
    searching_chains: Chains = ()


def cost(tree: Tree) -> Cost:
    """Returns what a pattern may cost."""
    try:
        return _cost(tree, tree.nodes, tree.flags, Alphabet(tree))
    except (TooLargeError, RecursionError):
        return Cost(EXPONENTIAL, EXPONENTIAL)


def is_anchored(tree: Tree) -> bool:
    """Returns whether it can match only at the beginning of a text."""
    first = tree.nodes
    while first and first[0][0] == "SUBPATTERN":
        first = nodes(first[0][1][3])
    if not first or first[0][0] != "AT":
        return False
    place = str(first[0][1])
    return place == "AT_BEGINNING_STRING" or (place == "AT_BEGINNING" and not tree.flags & re.MULTILINE)


def searching(parts: list[Node], flags: int, alphabet: Alphabet) -> Automaton:
    """Returns the automaton of these nodes for a search anywhere: position 0 matches what precedes."""
    automaton = Automaton(alphabet)
    anywhere = automaton.add(alphabet.all)
    automaton.edges[0][0] = (alphabet.all, 0, 1)
    automaton.ends = max((ways for _, ways in automaton.join(anywhere, automaton.sequence(parts, flags)).last.values()), default=1)
    return automaton


def _cost(tree: Tree, parts: list[Node], flags: int, alphabet: Alphabet) -> Cost:
    automaton = searching(parts, flags, alphabet)
    loops = Loops(automaton)
    bad = loops.doubled()
    if bad is not None:
        loop = automaton.loops[bad]
        return Cost(EXPONENTIAL, EXPONENTIAL, "" if loop is None else write(tree, [loop]))
    matching, anywhere, last = loops.chains()
    loop = automaton.loops[last]
    more = [_cost(tree, nodes(body), inner, alphabet) for body, inner in automaton.inside]
    unbounded = [each.matching for each, (body, _) in zip(more, automaton.inside, strict=True) if int(body.getwidth()[1]) >= MAX_REPEAT]
    extra = (1,) * sum(unbounded)
    matching, anywhere = (tuple(extra + gaps for gaps in chains) for chains in (matching, anywhere))
    return Cost(
        min(EXPONENTIAL, _power(matching)),
        min(EXPONENTIAL, _power(anywhere)),
        "" if loop is None else write(tree, [loop]),
        min(UNCOUNTED, math.prod([_ways(loops), automaton.ends, *(each.ways for each in more)])),
        matching,
        anywhere,
    )


def _power(chains: Chains) -> int:
    return 1 + max(map(len, chains))


def _ways(loops: Loops) -> int:
    try:
        return loops.ways()
    except TooLargeError:
        return UNCOUNTED


def steps(chains: Chains, length: int) -> int:
    """Returns in how many ways a text of this length may be cut between the loops of a chain, at each of its characters."""
    return max(
        length * math.prod(length // gap + len(gaps) + 1 for gap in gaps) // math.factorial(len(gaps) + 1) if gaps else length
        for gaps in chains
    )
