"""`copycat run --master`: what it refuses before anything is started."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from copycat_agent.cli import exits

if TYPE_CHECKING:
    from pathlib import Path

MASTER = ("--master", "spark://127.0.0.1:1")


def run(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command, with a Kafka address where nobody answers."""
    command = [sys.executable, "-m", "copycat_agent", "run", str(directory), "--state-dir", str(directory / "state"), *options]
    command += ["--bootstrap-servers", "127.0.0.1:1"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("option", ["--until-idle", "--dry-run"])
def test_a_run_to_the_end_is_another_command(tmp_path: Path, option: str) -> None:
    found = run(tmp_path, option, *MASTER)
    assert found.returncode == exits.USAGE
    assert "copycat backfill DEFINITION --master URL" in found.stderr


def test_definitions_of_this_host_alone_are_nothing_to_run(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text("name: app\nsource: {type: log_file, include: [/l/*]}\nrecord: {topic: t}\n")
    found = run(tmp_path, *MASTER)
    assert found.returncode == exits.DEFINITION_ERROR
    assert "app: source log_file is not read on a cluster" in found.stderr
    assert "second agent on this host" in found.stderr
    assert not (tmp_path / "state").exists()
