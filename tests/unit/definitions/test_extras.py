"""A definition that needs an extra which is not installed is refused, with the command that installs it."""

from __future__ import annotations

import sys

import pytest

from tests.unit.definitions.conftest import GOOD, Load

QUERY = 'transforms: [{sql: "SELECT message FROM records"}]\n'


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The module cannot be imported, as `sys.modules` has it for one that is blocked."""
    monkeypatch.setitem(sys.modules, request.param, None)


@pytest.mark.parametrize("without", ["pandas"], indirect=True)
def test_a_query_without_its_extra_is_a_problem_of_the_definition(load: Load, without: None) -> None:
    (problem,) = load(GOOD + QUERY).problems
    assert (problem.line, problem.column, problem.code) == (4, 15, "not-installed")
    assert problem.hint == "pip install 'copycat-agent[sql]'"


def test_a_query_with_its_extra_is_none(load: Load) -> None:
    assert load(GOOD + QUERY).problems == ()
