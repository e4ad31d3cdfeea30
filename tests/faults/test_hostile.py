"""Directories that mean no good: files that ail one by one, names that are commands to somebody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from tests.rig.kafka import create_topic, unique_topic

if TYPE_CHECKING:
    from tests.faults.scene import Scene

pytestmark = pytest.mark.timeout(400)
"""On a machine that does much else."""
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_read_errors_and_stale_handles_hold_up_their_file_only_and_cost_no_line(tmp_path: Path) -> None:
    """The steps are in `sick_files.py`; the kernel's answers come from `sick_files.c`."""
    library, logs = tmp_path / "sick_files.so", tmp_path / "logs"
    logs.mkdir()
    source = Path(__file__).with_name("sick_files.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=120)
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.sick_files", str(logs)],
        cwd=ROOT, env={"LD_PRELOAD": str(library), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert not done.returncode, done.stdout + done.stderr
    assert "file cannot be read, the others go on" in done.stdout


NAMES = (
    b"new\nINJECTED.log",
    b"esc\x1b[31mred\x1b]0;title\x07.log",
    b"%s%n$(id).log",
    b"-rf.log",
    b"x" * 251 + b".log",
    b"latin-\xe9\x9b.log",
)
"""Names that are commands to somebody: a terminal, a line-based reader, printf, a shell, rm."""


def test_names_of_any_bytes_are_shipped_and_shown_as_text_by_every_command(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = scene.logs / os.fsdecode(b"dir\x1b[2J\nINJECTED")
    odd.mkdir()
    dead = create_topic(scene.bootstrap, unique_topic())
    os.mkfifo(odd / "pipe\n\x1b[31mINJECTED.log")
    (odd / "link.log").symlink_to("/proc/self/status\n\x1b[31mINJECTED")
    scene.define(
        source={"include": [f"{scene.logs}/**/*.log"], "line": {"max_bytes": "200B"}},
        errors={"tolerance": "all", "dlq": {"topic": dead}},
    )
    for number, name in enumerate(NAMES):
        writer = scene.ledger.writer(odd / os.fsdecode(name), f"n{number}")
        writer.write(5)
        with writer.path.open("a") as file:
            file.write("over-long" * 30 + "\n")
        writer.write(5)
    scene.wait_arrived()
    verdict = scene.verdict()
    assert verdict, verdict
    scene.settle()
    where = ("--state-dir", str(scene.agent.state_dir))
    definitions = scene.agent.connectors_dir
    monkeypatch.setenv("COLUMNS", "2000")
    for said, command in {
        "": ("status", *where),
        "dir": ("describe", scene.name, *where),
        "dir\\x1b": ("offsets", "show", scene.name, *where),
        "dir\\x1b[2J": ("losses", *where),
        "dir\\x1b[2J\\nINJECTED": ("plan", str(definitions), *where),
        "pipe\ufffd": ("doctor", str(definitions), *where),
        "latin-\\xe9\\x9b.log": ("dlq", "show", str(definitions), scene.name, "--bootstrap-servers", scene.bootstrap),
        "new\\nINJECTED.log": ("explain", str(odd / "new\nINJECTED.log"), str(definitions), *where),
    }.items():
        for more in ((), ("--format", "json")) if command[0] in {"describe", "dlq"} else ((),):
            done = CliRunner().invoke(app, [*command, *more])
            lines = (done.stdout_bytes + done.stderr_bytes).decode("utf-8").splitlines()
            assert more or any(said in line for line in lines), (command, lines)
            assert all(line.isprintable() and not line.lstrip().startswith("INJECTED") for line in lines), (command, more, lines)
    logged = scene.agent.log
    assert "pipe" in logged
    assert all(line.isprintable() and not line.lstrip().startswith("INJECTED") for line in logged.split("\n"))
