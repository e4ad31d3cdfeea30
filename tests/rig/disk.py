"""A small file system that a test can fill."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def mounted(directory: Path, size: str) -> Iterator[Path]:
    """A private tmpfs of `size` (as mount spells it) below `directory`. Skips the test where mounting is not allowed."""
    mount = directory / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)
