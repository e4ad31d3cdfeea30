"""Definitions for people to copy that have a query: their tests pass, on the session that all tests here share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.spark.sql_jobs import SqlContext
from copycat_agent.spark.sql_local import SqlQuery
from copycat_agent.transforms import sql_step
from copycat_agent.workbench.trying import run_tests
from tests.rig.recipes import SHIPPED, load_shipped, recipes

if TYPE_CHECKING:
    from pathlib import Path

    from copycat_agent.options import Definition
    from copycat_agent.spark.host import SparkHost


def query_of(definition: Definition, context: SqlContext) -> SqlQuery | None:
    """The definition's query, None when it has none."""
    step = sql_step(definition)
    return step and SqlQuery(context, context.prepared(step), step)


def test_definitions_with_a_query_make_of_their_lines_what_their_tests_say(host: SparkHost, tmp_path: Path) -> None:
    context = SqlContext(host.session(60).context)
    tried = 0
    for definition in [*(recipe.load(tmp_path) for recipe in recipes()), *(load_shipped(path, tmp_path) for path in SHIPPED)]:
        if query := query_of(definition, context):
            assert [outcome for outcome in run_tests(definition, query=query) if not outcome.good] == [], definition.name
            tried += 1
    assert tried == 2
