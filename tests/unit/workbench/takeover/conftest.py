"""The log that a peer has read a part of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.workbench.takeover.peers import LINES


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of `LINES`."""
    path = tmp_path / "logs" / "app.log"
    path.parent.mkdir()
    path.write_bytes(LINES)
    return path
