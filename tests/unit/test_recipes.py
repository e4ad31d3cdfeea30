"""The recipes of docs/records.md: each loads and its tests pass; those with a query run in tests/spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.definitions.formatting import format_text
from copycat_agent.encoding.layout import host_name
from copycat_agent.transforms.sql import sql_at
from copycat_agent.workbench.trying import run_tests
from tests.rig.recipes import Recipe, recipes

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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


def shown(page: str) -> Iterator[tuple[str, str]]:
    """Each output of `copycat try` that a page shows, with the definition of the page's that it is of."""
    blocks = FENCE.findall((ROOT / page).read_text("utf-8"))
    (definition,) = [text for language, text in blocks if language == "yaml" and "name: nginx-access" in text]
    return ((definition, text) for language, text in blocks if not language and text.startswith("$ copycat try "))


@pytest.mark.parametrize("page", ["README.md", "docs/tools.md"])
def test_what_pages_show_of_try_is_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ((definition, output),) = shown(page)
    (tmp_path / "sample.log").write_text("".join(f"{line}\n" for line in re.findall(r"^ +\d+ \| (.*)$", output, re.MULTILINE)))
    (tmp_path / "nginx.yaml").write_text(definition)
    command = ["try", str(tmp_path / "sample.log"), "-d", str(tmp_path / "nginx.yaml"), "--no-color"]
    done = CliRunner().invoke(app, command)
    assert (done.stdout + done.stderr).replace(host_name(), "web1") == output.partition("\n")[2]
