"""Small file systems that a test can fill, or take the power from."""

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


def make_disk(image: Path, size_bytes: int = 16 * 2**20) -> None:
    """An empty ext4 in a file."""
    image.touch()
    os.truncate(image, size_bytes)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)


@contextmanager
def ext4(image: Path, mount: Path) -> Iterator[None]:
    """`image` at `mount`, which is there. A copy of the image is what a power cut leaves. Skips the test where mounting is not allowed."""
    command = ["mount", "-o", "loop", str(image), str(mount)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    yield
    subprocess.run(["umount", str(mount)], check=True)
