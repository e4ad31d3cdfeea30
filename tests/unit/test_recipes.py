"""The recipes of docs/records.md: each loads and its tests pass; those with a query run in tests/spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.definitions.formatting import format_text
from copycat_agent.samples import run_tests
from copycat_agent.transforms.sql import sql_at
from tests.rig.recipes import Recipe, recipes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_each_recipe_makes_of_its_lines_what_its_tests_say(recipe: Recipe, tmp_path: Path) -> None:
    definition = recipe.load(tmp_path)
    assert definition.tests
    if sql_at(definition.transforms) is None:
        assert [outcome for outcome in run_tests(definition) if not outcome.good] == []


def test_there_are_at_least_ten_and_few_need_spark(tmp_path: Path) -> None:
    queries = [recipe.title for recipe in recipes() if sql_at(recipe.load(tmp_path).transforms) is not None]
    assert (len(recipes()) >= 10, len(queries)) == (True, 1)


@pytest.mark.parametrize("recipe", recipes(), ids=lambda recipe: recipe.title)
def test_each_recipe_is_in_the_form_of_fmt(recipe: Recipe) -> None:
    assert format_text(recipe.definition.encode()) == recipe.definition
