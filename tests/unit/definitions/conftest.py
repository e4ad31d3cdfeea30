"""A directory of definitions to write into, and the load of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from copycat_agent.definitions import LoadResult, load_directory
from copycat_agent.options import AgentOptions

GOOD = "name: app\nsource: {type: log_file, include: [/var/log/app.log]}\nrecord: {topic: logs.app}\n"
"""A whole definition in three lines: tests add sections from line 4 on."""

Load = Callable[..., LoadResult]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An empty `connectors.d`."""
    made = tmp_path / "connectors.d"
    made.mkdir()
    return made


@pytest.fixture
def load(directory: Path) -> Load:
    """Writes texts as `a.yaml`, `b.yaml`, ... and loads the directory with the given environment, empty by default."""

    def write_and_load(
        *texts: str | bytes, environ: Mapping[str, str] | None = None, agent: AgentOptions | None = None, resolve_env: bool = True
    ) -> LoadResult:
        for letter, text in zip("abcdefgh", texts, strict=False):
            (directory / f"{letter}.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_directory(directory, agent or AgentOptions(), resolve_env=resolve_env, environ=environ or {})

    return write_and_load
