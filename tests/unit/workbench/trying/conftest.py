"""What tests of samples work with: definitions from text, through the real loader."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.definitions import load_file
from copycat_agent.options import AgentOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.options import Definition

LINES = "{type: log_file, include: [/var/log/app/*.log]}"


@pytest.fixture
def define(tmp_path: Path) -> Callable[..., Definition]:
    """`define("transforms: ...", source="{...}")`: a definition called app, with topic t."""

    def load(more: str = "", *, source: str = LINES, record: str = "{topic: t}") -> Definition:
        path = tmp_path / "app.yaml"
        path.write_text(f"name: app\nsource: {source}\nrecord: {record}\n{more}", "utf-8")
        loaded = load_file(path, AgentOptions(), environ={})
        assert loaded.definition is not None, loaded.problems
        return loaded.definition

    return load
