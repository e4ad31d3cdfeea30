"""The definitions in `connectors.d/` load as they are, and their tests pass; those with a query are tested in tests/spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.definitions import load_directory
from copycat_agent.options import AgentOptions
from copycat_agent.transforms.sql import sql_at
from copycat_agent.workbench.trying import run_tests
from tests.rig.recipes import SHIPPED, load_shipped

if TYPE_CHECKING:
    from pathlib import Path

UNTESTED = {"tables-parquet"}
"""A test quotes text, and this one reads a binary format."""


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_each_loads_under_its_own_name_and_its_tests_pass(path: Path, tmp_path: Path) -> None:
    definition = load_shipped(path, tmp_path)
    assert definition.name == path.name.removesuffix(".disabled").removesuffix(".yaml")
    assert bool(definition.tests) is (definition.name not in UNTESTED)
    if sql_at(definition.transforms) is None:
        assert [outcome for outcome in run_tests(definition) if not outcome.good] == []


def test_all_of_them_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka_password").write_text("not shown")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    for path in SHIPPED:
        (tmp_path / path.name.removesuffix(".disabled")).write_bytes(path.read_bytes())
    loaded = load_directory(tmp_path, AgentOptions())
    assert (loaded.problems, len(loaded.definitions)) == ((), len(SHIPPED))
