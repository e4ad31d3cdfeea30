"""A file system that turns read-only under the agent, as ext4 does after an error: nothing that was committed is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.offsets import OffsetStore

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

COMMIT = """
import subprocess, sys
from copycat_agent.errors import FatalError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
store = OffsetStore.open(sys.argv[1] + "/state")
for number in range(50):
    store.commit({SourcePartition("a", "1:2:3:0"): SourceOffset(number)})
    committed = number
subprocess.run(["mount", "-o", "remount,abort", sys.argv[1]], check=True)
refused = 0
for number in range(50, 60):
    try:
        store.commit({SourcePartition("a", "1:2:3:0"): SourceOffset(number)})
        committed = number
    except FatalError:
        refused += 1
assert store.failure is not None
print(committed, refused)
"""


def mount(image: Path, directory: Path) -> None:
    if subprocess.run(["mount", "-o", "loop", image, directory], capture_output=True, check=False).returncode:
        pytest.skip("loop mounts are not allowed here")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """An ext4 file system in a file, and where it is mounted."""
    image, directory = tmp_path / "image", tmp_path / "disk"
    directory.mkdir()
    with image.open("wb") as file:
        file.truncate(16 * 2**20)
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    mount(image, directory)
    directory.chmod(0o700)
    yield image, directory
    subprocess.run(["umount", "-l", directory], check=True)


def test_a_file_system_that_turns_read_only_ends_all_commits_and_loses_none(disk: tuple[Path, Path]) -> None:
    image, directory = disk
    done = subprocess.run([sys.executable, "-c", COMMIT, str(directory)], capture_output=True, text=True, check=True, cwd=ROOT)
    committed, refused = map(int, done.stdout.split())
    assert refused == 59 - committed > 0
    subprocess.run(["umount", directory], check=True)
    mount(image, directory)
    with OffsetStore.open(directory / "state") as store:
        (offset,) = store.read("a").values()
    assert offset.position in {committed, committed + 1}
