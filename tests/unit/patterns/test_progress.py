"""Promises of `where_it_stopped`: how far a pattern got, in its own spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.patterns import elements, where_it_stopped

PATTERN = r'^(?P<client>\S+) \S+ \[(?P<ts>[^\]]+)\] "(?P<method>[A-Z]+)'


@pytest.mark.parametrize(
    ("text", "before", "text_before"),
    [
        ('10.0.0.1 - [x] "get', r'^(?P<client>\S+) \S+ \[(?P<ts>[^\]]+)\] "', '10.0.0.1 - [x] "'),
        ("10.0.0.1 - x]", r"^(?P<client>\S+) \S+ ", "10.0.0.1 - "),
        ("", "^", ""),
    ],
)
def test_it_says_where_pattern_and_text_part(text: str, before: str, text_before: str) -> None:
    stop = where_it_stopped(PATTERN, text)
    assert stop is not None
    assert PATTERN[: stop.pattern_end] == before
    assert text[: stop.text_end] == text_before
    assert PATTERN[stop.pattern_end :].startswith(stop.element)


def test_a_match_stops_nowhere() -> None:
    assert where_it_stopped(PATTERN, '10.0.0.1 - [x] "GET /') is None


def test_a_pattern_that_takes_too_long_gets_as_far_as_the_rest_does() -> None:
    stop = where_it_stopped(r"x(a+)+$", "x" + "a" * 5000 + "b")
    assert stop is not None
    assert stop.element == "$"


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (r"a\d+[]x]*?(b(c)){2,3}+$", ["a", r"\d+", "[]x]*?", "(b(c)){2,3}+", "$"]),
        (r"[^]]\)(?:\)[)])", ["[^]]", r"\)", r"(?:\)[)])"]),
        ("a|b", ["a|b"]),
        ("(?i)a{x}", ["(?i)a", "{", "x", "}"]),
    ],
)
def test_a_pattern_is_cut_between_its_elements(pattern: str, parts: list[str]) -> None:
    assert elements(pattern) == parts


@given(st.text(alphabet="ab()[]{}\\|*+?^$.1,", max_size=20))
def test_elements_put_together_are_the_pattern(pattern: str) -> None:
    assert "".join(elements(pattern)) == pattern
