"""Promises of patterns: none holds a task up, whatever the text is, and those that cannot run at full speed."""

from __future__ import annotations

import contextlib
import re
import time
from random import Random

import pytest

from copycat_agent.errors import DataError
from copycat_agent.formats import grouping, multiline_options
from copycat_agent.patterns import Pattern, compile_pattern, most_characters
from copycat_agent.patterns.ambiguity import EXPONENTIAL, cost, searching, steps
from copycat_agent.patterns.automaton import Alphabet
from copycat_agent.patterns.trees import Tree, parse
from copycat_agent.transforms import containers, syslog

NGINX = r'^(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<bytes>\d+|-)'
MIB = 2**20
PATIENCE_SECONDS = 20
"""No measure of speed: what hangs does so for years. Of this thread's processor time, for others may have the processor."""

LINEAR = [
    NGINX, "", "ERROR", r"^\d{4}-", r"^.*$", r"^(\S+): (.*)", r'^(?:[^"\\]|\\.)*"', r"^(?:[a-z]+\.)+com", r"^(?:a++)+b",
    r"^(?:ab?)*c",
    r"^(?>\\.|[^\\\"]+)+x", r"^(\d{1,3}\.){3}\d{1,3}$", r"^(?:(?:25[0-5]|\d{1,2})[.]){3}", r"^(?i:[a-z]+)[0-9]", r"^\s*#",
    r"^(a|b)*$", r"^(?P<a>[^,]*)(?:,(?P<b>[^,]*))*$",
]  # fmt: skip
EXPONENTIALS = [
    "(a+)+$", "(a|aa)+$", "(.*)*x", "(a*)*b", "(a+)*b", "(a|a)*b", "(a|ab|b)*c", r"(\w+\s?)*$", r"^(([a-z])+.)+[A-Z]([a-z])+$",
    "(a|aa){30}c",
    r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
    "(?:x(a*)?b)*c", "(?=(a+)+b)x", r"(.)(\1|a)+b", "((a|b)+c?)*d", r'"(?:\\.|[^\\"]+)+"', "(?i:(k|\u212aa?)+)x", "(?:[^\\d]+[^x]*)*$",
    "(?s:(.|\n)*)x",
]  # fmt: skip
POWERS = [(r"\d+x", 1, 2), (r"^(.*) - (.*)$", 2, 2), (r"^.* .* .* .*$", 4, 4), (r"foo\d+x", 1, 1), (r"\s*$", 1, 2), (r"^\d+\d+\d+$", 3, 3),
          (r"(?i)^[a-z]+K+", 2, 2), (r"^\w*\W*\w*$", 2, 2), (r"^\w*\W*$", 1, 1), (r"(?=.*a)(?=.*b).*c", 3, 4)]  # fmt: skip


@pytest.mark.parametrize("text", LINEAR)
def test_what_has_one_way_only_is_left_to_python(text: str) -> None:
    pattern = compile_pattern(text)
    assert pattern.most > MIB * 1000
    assert pattern.doubt == ""


@pytest.mark.parametrize("text", EXPONENTIALS)
def test_what_may_double_with_each_character_is_found_and_named(text: str) -> None:
    pattern = compile_pattern(text)
    assert pattern.most == -1
    assert "doubles" in pattern.doubt or "cannot be told" in pattern.doubt


def test_the_doubtful_part_is_shown() -> None:
    assert "its part (a+)+ can match" in compile_pattern("^x(a+)+$").doubt


def test_many_ways_to_match_without_any_loop_count_too() -> None:
    assert compile_pattern("^" + "a?" * 30 + "a" * 30).most == -1
    assert compile_pattern("^a?a?b").most == compile_pattern("^a?a?a?b").most * 2
    # twelve places, each with ten ways: 10**12 tries on 13 characters
    assert compile_pattern("^" + ("(?:" + "|".join(["(a)"] * 10) + ")") * 12 + "b").most == -1
    for nothing in ("(?:|)", r"(?:\b|)", "(|)"):  # forty times nothing in two ways, before, in and behind the text
        for text in ("^{}x", "^x{}y", "^x{}$", "^{}$", "^(?:x{}|y)z", "(?=ab{}c)a"):
            assert compile_pattern(text.format(nothing * 40)).most == -1, text
    assert compile_pattern("^(?=" + "a?" * 30 + "a" * 30 + ")").most == -1
    assert compile_pattern("^(?:25[0-5]|[01]?[0-9]{1,2})[.]x").most > 10**6


@pytest.mark.parametrize(("text", "matching", "searching"), POWERS)
def test_the_power_of_the_length_is_found(text: str, matching: int, searching: int) -> None:
    pattern = compile_pattern(text)
    assert cost(parse(text)).matching == matching
    chains = cost(parse(text)).matching_chains if pattern.anchored else cost(parse(text)).searching_chains
    assert max(map(len, chains)) == searching - 1
    assert most_characters(((1,) * (searching - 1),), 8) <= pattern.most


def test_loops_that_share_a_text_at_few_places_cost_less() -> None:
    """A line may be cut between `.*` and `.*` only where ` - - ` stands: at every fourth character at most."""
    near, far = (compile_pattern(text) for text in ("^(.*) (.*)x", "^(.*) - - (.*)x"))
    assert cost(parse(far.text)).matching_chains == ((2,),)
    assert cost(parse("^(.*)abc(.*)x")).matching_chains == ((3,),)
    assert cost(parse("^(.*)aaa(.*)x")).matching_chains == ((1,),)
    assert far.most > near.most


@pytest.mark.parametrize("seed", range(3))
def test_no_text_has_more_ways_than_the_bound(seed: int) -> None:
    """Of random patterns: all ways of all beginnings of a text through the automaton, counted one by one."""
    random = Random(seed)
    for _ in range(250):
        tree = parse(random_pattern(random, 4))
        expected = cost(tree)
        if expected.matching >= EXPONENTIAL:
            continue
        text = ("".join(random.choice("aab") for _ in range(random.choice([1, 1, 2, 3, 4, 40]))) * 40)[:40]
        positions, ways = count_ways(tree, text)
        assert ways <= 2 * positions * expected.ways * steps(expected.searching_chains, len(text)), (tree, text)


def random_pattern(random: Random, depth: int) -> str:
    kind = random.random()
    if depth == 0 or kind < 0.35:
        return random.choice(["a", "a", "b", "b", ".", "[ab]", "[bc]"])
    parts = [random_pattern(random, depth - 1) for _ in range(2)]
    if kind < 0.6:
        return "".join(parts)
    return f"(?:{'|'.join(parts)})" if kind < 0.75 else f"(?:{parts[0]}){random.choice(['*', '+', '?', '{0,2}', '{2}', '{1,3}'])}"


def count_ways(tree: Tree, text: str) -> tuple[int, int]:
    """How many positions the automaton has, and how many ways there are."""
    automaton = searching(tree.nodes, tree.flags, Alphabet(tree))
    now, total = {0: 1}, 0
    for character in text:
        after: dict[int, int] = {}
        for place, count in now.items():
            for to, (mask, twice, most) in automaton.edges[place].items():
                if mask >> ord(character) & 1:
                    after[to] = after.get(to, 0) + count * (most if twice >> ord(character) & 1 else 1)
        now, total = after, total + sum(after.values())
    return len(automaton.sets), total


CATASTROPHES = [
    ("(a+)+$", "a" * MIB + "b"),
    ("(a|aa)+$", "a" * MIB + "b"),
    ("(.*)*x", "a" * MIB),
    (r"(\w+\s?)*$", "ab " * (MIB // 3) + "!"),
    (r"(.+)(.+)(.+)(.+)[xy]", "a" * MIB),
    (EXPONENTIALS[10], "a" * MIB + "!"),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * MIB),
    (r"\d+[xy]", "1" * MIB),
    (r"\s*$", " " * MIB + "b"),
    (r"a.*b.*c[x]", "abc" * (MIB // 3)),
    (NGINX, "x " * (MIB // 2)),
    (NGINX, '1 - - [t] "' + "G /x " * (MIB // 5)),
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("text", "line"), CATASTROPHES)
def test_no_text_of_1_mib_holds_a_pattern_up(text: str, line: str) -> None:
    pattern = compile_pattern(text)
    begin = time.thread_time()
    with contextlib.suppress(DataError):
        pattern.search(line)
    assert time.thread_time() - begin < PATIENCE_SECONDS


def test_every_way_to_match_is_bounded() -> None:
    pattern, text = compile_pattern("x?(a+)+$"), "a" * 50_000 + "b"
    for look in (pattern.match, pattern.fullmatch, lambda text: pattern.sub("", text), lambda text: pattern.search_within(text, 0.01)):
        with pytest.raises(DataError, match="longer than"):
            look(text)


def test_a_text_that_takes_too_long_is_the_record_s_error() -> None:
    with pytest.raises(DataError, match="longer than 100 ms") as caught:
        compile_pattern("(a+)+$").search("a" * 50_000 + "b")
    assert "aaaa" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_doubtful_pattern_still_finds_what_is_there() -> None:
    found = compile_pattern(r"^(?P<words>(\w+\s?)*)!$").search("so it is!")
    assert found is not None
    assert found.groupdict() == {"words": "so it is"}
    assert compile_pattern("(a+)+").sub("<>", "baab") == "b<>b"


def test_the_patterns_that_we_wrote_ourselves_are_bounded() -> None:
    values = [value for module in (syslog, containers, grouping) for value in vars(module).values()]
    ours = [value.pattern for value in values if isinstance(value, re.Pattern)]
    ours += [multiline_options._JAVA, multiline_options._PYTHON]
    assert len(ours) > 10
    assert [text for text in ours if cost(parse(text)).matching > 2] == []


@pytest.mark.parametrize(
    "text", ["(", "a{2,1}", "(?P<a>x)(?P<a>y)", "[", "*", "(?<=a+)b", "a" * 3 + "(?P<1>x)", r"\p{L}", "(" * 3000 + ")" * 3000]
)
def test_what_is_no_pattern_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression: "):
        compile_pattern(text)


def test_a_huge_pattern_is_looked_at_within_bounds() -> None:
    begin = time.thread_time()
    pattern = compile_pattern("^" + "|".join(f"({chr(97 + number % 26)}+x?)*{number}" for number in range(300)) + "$")
    assert time.thread_time() - begin < PATIENCE_SECONDS
    assert isinstance(pattern, Pattern)
    assert pattern.most < MIB
