"""Promises of patterns: none holds a task up, whatever the text is, and those that cannot run at full speed."""

from __future__ import annotations

import contextlib
import re
import time

import pytest

from copycat_agent.errors import DataError
from copycat_agent.formats import presets, wrapped
from copycat_agent.patterns import Pattern, compile_pattern
from copycat_agent.patterns.ambiguity import cost
from copycat_agent.patterns.pattern import most_characters
from copycat_agent.patterns.trees import parse
from copycat_agent.transforms import containers, syslog

NGINX = r'^(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<bytes>\d+|-)'
MIB = 2**20
PATIENCE_SECONDS = 20
"""No measure of speed: what hangs does so for years."""

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
    assert compile_pattern("^(?:25[0-5]|[01]?[0-9]{1,2})[.]x").most > 10**6


@pytest.mark.parametrize(("text", "matching", "searching"), POWERS)
def test_the_power_of_the_length_is_found(text: str, matching: int, searching: int) -> None:
    pattern = compile_pattern(text)
    assert cost(parse(text)).matching == matching
    assert most_characters(searching, 3) <= pattern.most <= most_characters(searching, 0)


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
    begin = time.monotonic()
    with contextlib.suppress(DataError):
        pattern.search(line)
    assert time.monotonic() - begin < PATIENCE_SECONDS


def test_every_way_to_match_is_bounded() -> None:
    pattern, text = compile_pattern("x?(a+)+$"), "a" * 5000 + "b"
    for look in (pattern.match, pattern.fullmatch, lambda text: pattern.sub("", text), lambda text: pattern.search_within(text, 0.01)):
        with pytest.raises(DataError, match="longer than"):
            look(text)


def test_a_text_that_takes_too_long_is_the_record_s_error() -> None:
    with pytest.raises(DataError, match="longer than 100 ms") as caught:
        compile_pattern("(a+)+$").search("a" * 5000 + "b")
    assert "aaaa" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_doubtful_pattern_still_finds_what_is_there() -> None:
    found = compile_pattern(r"^(?P<words>(\w+\s?)*)!$").search("so it is!")
    assert found is not None
    assert found.groupdict() == {"words": "so it is"}
    assert compile_pattern("(a+)+").sub("<>", "baab") == "b<>b"


def test_the_patterns_that_we_wrote_ourselves_are_bounded() -> None:
    values = [value for module in (syslog, containers, wrapped) for value in vars(module).values()]
    ours = [value.pattern for value in values if isinstance(value, re.Pattern)]
    ours += [presets._JAVA, presets._PYTHON]
    assert len(ours) > 10
    assert [text for text in ours if cost(parse(text)).matching > 2] == []


@pytest.mark.parametrize(
    "text", ["(", "a{2,1}", "(?P<a>x)(?P<a>y)", "[", "*", "(?<=a+)b", "a" * 3 + "(?P<1>x)", r"\p{L}", "(" * 3000 + ")" * 3000]
)
def test_what_is_no_pattern_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="not a regular expression: "):
        compile_pattern(text)


def test_a_huge_pattern_is_looked_at_within_bounds() -> None:
    begin = time.monotonic()
    pattern = compile_pattern("^" + "|".join(f"({chr(97 + number % 26)}+x?)*{number}" for number in range(300)) + "$")
    assert time.monotonic() - begin < PATIENCE_SECONDS
    assert isinstance(pattern, Pattern)
    assert pattern.most < MIB
