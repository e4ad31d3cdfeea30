"""Where a pattern stopped, and what it wants to find there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.workbench.trying import stopped, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.options import Definition


@pytest.mark.parametrize(
    ("step", "line", "at", "element"),
    [
        (r"regex: '^(?P<level>\w+) (?P<n>\d+)$'", "INFO x1", 5, r"(?P<n>\d+)"),
        (r"regex: ['^a(?P<x>b)X', '^ab(?P<y>c)!', '^(?P<z>X)']", "abcd", 3, "!"),
        (r"regex: '^(?P<all>aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg)$'", "x", 0, None),
        ("grok: '%{IP:client} %{NUMBER:took:float}'", "10.0.0.1 soon", 9, "%{NUMBER:took:float}"),
        ("grok: '%{IP:[client][ip]}!%{SPACE}x'", "10.0.0.1", 8, "!"),
        ("grok: '%{HTTPD_COMMONLOG}'", "10.0.0.1", 0, None),
    ],
)
def test_the_place_and_the_element_are_told(define: Callable[..., Definition], step: str, line: str, at: int, element: str | None) -> None:
    definition = define(f"transforms: [{{{step}}}]")
    (record,) = take(definition, line.encode()).records
    found = stopped(definition, record.steps[0])
    assert found is not None
    assert (found.text, found.at) == (line, at)
    assert found.element == element if element else len(found.element) < 70


def test_a_field_that_is_no_text_and_a_step_without_a_pattern_have_no_place(define: Callable[..., Definition]) -> None:
    definition = define("transforms: [{json: {}}, {regex: {pattern: '(?P<b>x)', field: a}}]")
    bad, number = take(definition, b'x\n{"a": 1}\n').records
    assert stopped(definition, bad.steps[0]) is None
    assert stopped(definition, number.steps[1]) is None
