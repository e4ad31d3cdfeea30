"""Started without stdin, stdout or stderr: their numbers must not become those of other files."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import COMMAND

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&- >&- 2>&-"])
def test_a_command_without_standard_streams_does_its_work(closed: str, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "connectors.d").mkdir()
    command = " ".join((*COMMAND, "check", "connectors.d", closed))
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_closed_descriptors_are_occupied_by_the_null_device(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "from copycat_agent.cli.main import occupy_standard_streams; import os; occupy_standard_streams()\n"
        "open(os.environ['OUT'], 'w').write(' '.join(os.readlink(f'/proc/self/fd/{n}') for n in (0, 2)))"
    )
    out = tmp_path / "out"
    subprocess.run(
        ["sh", "-c", f'{COMMAND[0]} -c "$CODE" <&- 2>&-'], env=environment | {"CODE": code, "OUT": str(out)}, timeout=60, check=True
    )
    assert out.read_text() == "/dev/null /dev/null"
