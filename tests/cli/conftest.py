"""What tests of the command line work with: `copycat` as a process of its own, with an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "copycat_agent")
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A user without settings, with the caches of this machine."""
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "XDG_CACHE_HOME": cache, "PYTHONPATH": str(PROJECT), "COLUMNS": "100"}


@pytest.fixture
def copycat(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Done]:
    """`copycat("check", "connectors.d", env={...})` runs in `tmp_path` to its end, with nothing on stdin and no terminal."""

    def call(*arguments: str | Path, env: dict[str, str] | None = None) -> Done:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)], cwd=tmp_path, env=environment | (env or {}), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=90, check=False,
        )  # fmt: skip

    return call


@pytest.fixture
def connectors(tmp_path: Path) -> Path:
    """An empty `connectors.d`."""
    directory = tmp_path / "connectors.d"
    directory.mkdir()
    return directory


@pytest.fixture
def define(connectors: Path, tmp_path: Path) -> Callable[..., Path]:
    """`define("app", topic)` writes a good definition that reads `tmp_path/NAME-logs/*.log`, whose directory it returns."""

    def write(name: str, topic: str = "t", more: str = "") -> Path:
        directory = tmp_path / f"{name}-logs"
        directory.mkdir(exist_ok=True)
        source = f"source: {{type: log_file, include: ['{directory}/*.log']}}"
        (connectors / f"{name}.yaml").write_text(f"name: {name}\n{source}\nrecord: {{topic: {topic}}}\n{more}", "utf-8")
        return directory

    return write
