"""The definitions in `connectors.d/` load as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from copycat_agent.definitions import load_directory, load_file
from copycat_agent.options import AgentOptions

SHIPPED = sorted((Path(__file__).parents[3] / "connectors.d").iterdir())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_each_loads_under_its_own_name(path: Path, tmp_path: Path) -> None:
    name = path.name.removesuffix(".disabled")
    beside = tmp_path / name
    beside.write_bytes(path.read_bytes())
    loaded = load_file(beside, AgentOptions(), environ={})
    assert loaded.problems == ()
    assert loaded.definition is not None
    assert loaded.definition.name == name.removesuffix(".yaml")


def test_all_of_them_go_together(tmp_path: Path) -> None:
    for path in SHIPPED:
        (tmp_path / path.name.removesuffix(".disabled")).write_bytes(path.read_bytes())
    loaded = load_directory(tmp_path, AgentOptions())
    assert (loaded.problems, len(loaded.definitions)) == ((), len(SHIPPED))
