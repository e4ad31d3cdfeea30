"""How the work of a match that fails grows with the text, as a backtracking engine does it.

Two ways through the same loop with the same text: the work doubles with each round. Two loops that can share a text between them: another
power of its length. After Weber and Seidl, "On the degree of ambiguity of finite automata" (1991), which Weideman and others took to
backtracking (2016). The power may be found too high, never too low.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from copycat_agent.patterns.alphabet import Alphabet
from copycat_agent.patterns.automaton import Automaton, TooLargeError
from copycat_agent.patterns.loops import Loops
from copycat_agent.patterns.trees import Node, Tree, nodes, write

EXPONENTIAL = 99
"""A power beyond all bounds."""
UNCOUNTED = 64
"""More partings than any text can be short enough for."""


class Cost(NamedTuple):
    """Work grows with the text's length to the power of `matching` from one place, of `searching` when it may begin anywhere.

    It may double once for each of the `partings` besides. `part` is the part of the pattern that makes it grow fastest, written anew;
    "" when it is not known.
    """

    matching: int
    searching: int
    part: str = ""
    partings: int = 0


def cost(tree: Tree) -> Cost:
    """What a pattern may cost."""
    try:
        return _cost(tree, tree.nodes, tree.flags, Alphabet(tree))
    except (TooLargeError, RecursionError):
        return Cost(EXPONENTIAL, EXPONENTIAL)


def is_anchored(tree: Tree) -> bool:
    """Whether it can match at the beginning of a text only."""
    first = tree.nodes
    while first and first[0][0] == "SUBPATTERN":
        first = nodes(first[0][1][3])
    if not first or first[0][0] != "AT":
        return False
    place = str(first[0][1])
    return place == "AT_BEGINNING_STRING" or (place == "AT_BEGINNING" and not tree.flags & re.MULTILINE)


def _cost(tree: Tree, parts: list[Node], flags: int, alphabet: Alphabet) -> Cost:
    automaton = Automaton(alphabet)
    anywhere = automaton.add(alphabet.all)
    automaton.edges[0][0] = (alphabet.all, 0)
    automaton.join(anywhere, automaton.sequence(parts, flags))
    loops = Loops(automaton)
    bad = loops.doubled()
    if bad is not None:
        loop = automaton.loops[bad]
        return Cost(EXPONENTIAL, EXPONENTIAL, "" if loop is None else write(tree, [loop]))
    matching, searching, last = loops.chains()
    loop = automaton.loops[last]
    more = [_cost(tree, nodes(body), inner, alphabet) for body, inner in automaton.inside]
    extra = sum(each.matching for each in more)
    partings = _partings(loops) + sum(each.partings for each in more)
    part = "" if loop is None else write(tree, [loop])
    return Cost(min(EXPONENTIAL, matching + extra), min(EXPONENTIAL, searching + extra), part, partings)


def _partings(loops: Loops) -> int:
    try:
        return loops.partings()
    except TooLargeError:
        return UNCOUNTED
