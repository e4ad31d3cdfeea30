"""Packages, built once per run from this checkout (a minute or two)."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parents[2]
BUILD_SECONDS = 900


@pytest.fixture(scope="session")
def packages() -> dict[str, Path]:
    """Suffix (`.deb`, `.rpm`) -> file in dist/."""
    done = subprocess.run([str(PROJECT / "scripts/package")], capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    built = [PROJECT / line.rpartition(" ")[2] for line in done.stdout.splitlines() if line.startswith("created package: ")]
    return {path.suffix: path for path in built}


@pytest.fixture(scope="session")
def deb(packages: dict[str, Path]) -> Path:
    """The package for Debian and Ubuntu."""
    return packages[".deb"]


@pytest.fixture(scope="session")
def rpm(packages: dict[str, Path]) -> Path:
    """The package for Fedora and RHEL."""
    return packages[".rpm"]


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that any user may enter; pytest's own are for their owner only."""
    with tempfile.TemporaryDirectory(prefix="copycat-packages-") as name:
        Path(name).chmod(0o755)
        yield Path(name)
