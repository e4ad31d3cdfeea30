"""Promise: a pattern means the same whichever engine runs it."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.patterns import TimedPattern
from copycat_agent.patterns.trees import parse, write
from tests.rig.examples import examples

LEAVES = [
    "a", "b", "c", " ", "1", ".", r"\d", r"\w", r"\s", r"\S", r"\W", r"\D", "[ab]", "[^a]", r"[\w-]", r"[^\d\n]", r"[\W1]", r"\b", r"\B",
    "^",
    "$",
    r"\A", r"\Z", "é", r"\.", "a{e}", "x{i<=1}", "{", r"\n", "[a-c1-2é]", "k", r"\u212a", "(?i:K)", "(?i:s)", "(?s:.)", "(?P<n>a|b)(?P=n)",
    "(?<=a)", "(?<!b)", "(?<=[ab]1)", r"[\]\[&~|-]",
]  # fmt: skip
REPEATS = ["*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{0,2}?", "*+", "++", "{,2}", "{2,}"]


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(st.sampled_from(["(", "(?=", "(?!", "(?>"]), inner).map(lambda two: f"{two[0]}{two[1]})"),
        st.tuples(inner, st.sampled_from(REPEATS)).map(lambda two: f"(?:{two[0]}){two[1]}"),
    )


PATTERNS = st.recursive(st.sampled_from(LEAVES), _grown, max_leaves=8)
TEXTS = st.text(alphabet="abck K1\n.é{e}]&\u017fs\u212a", max_size=12)
FLAGS = st.sampled_from(["", "(?i)", "(?m)", "(?s)", "(?a)", "(?ai)", "(?x)"])


def _seen(match: Any) -> Any:
    return match and (match.span(), match.groups())


@settings(max_examples=examples(300), deadline=None)
@given(PATTERNS, TEXTS, FLAGS)
def test_both_engines_find_the_same(pattern: str, text: str, flags: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            native = re.compile(flags + pattern)
        except re.error:
            return
        tree = parse(flags + pattern)
    timed = TimedPattern(lambda: write(tree), tree.flags)
    for mine, other in ((native.search, timed.search), (native.match, timed.match), (native.fullmatch, timed.fullmatch)):
        assert _seen(mine(text)) == _seen(other(text))
    assert native.sub("<>", text) == timed.sub("<>", text)


@pytest.mark.parametrize(
    "pattern", ["a{e}b", "x{i<=1}", "(?P<a>x)(?(a)y|z)", r"[[a]", "a{,3}", "(?i:ß)", r"\N{EURO SIGN}", r"(a)\1", "(?s:.)."]
)
def test_a_tree_that_is_written_is_the_same_tree(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = parse(pattern)
    written = write(tree)
    assert write(parse(written)) == written
