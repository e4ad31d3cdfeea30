"""`copycat try`: sample lines in, records out, with types; where a pattern stopped is marked, and failures have their exit codes."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from tests.cli.conftest import COMMAND
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typer.testing import Result

DEFINITION = r"""name: app
source: {type: log_file, include: [/var/log/app/*.log]}
transforms:
  - regex: '^(?P<level>[A-Z]+) (?P<status>\d+) (?P<text>.*)$'
  - drop_if: {level: DEBUG}
record: {topic: "logs.{level}", key: "{status}", headers: {host: h}}
errors: {tolerance: all, dlq: {topic: logs.dlq}}
"""
LINES = "INFO 200 fine\nDEBUG 1 x\nINFO oops\n"


@pytest.fixture
def copycat(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """As the other tests' `copycat`, in this process: ten times as fast."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(map(str, arguments)), env={"NO_COLOR": "1"})


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    path = tmp_path / "app.yaml"
    path.write_text(DEFINITION)
    (tmp_path / "app.log").write_text(LINES)
    return path


def test_records_come_out_with_what_became_of_each_line(copycat: Callable[..., Result], definition: Path) -> None:
    done = copycat("try", "app.log", "-d", definition)
    assert done.exit_code == 1
    blocks = done.stdout.split("\n\n")
    assert blocks[0].splitlines() == [
        "   1 | INFO 200 fine",
        "  sent     logs.INFO  key 200",
        "           header host: h",
        '           level   "INFO"',
        '           status  "200"',
        '           text    "fine"',
    ]
    assert blocks[1].splitlines() == ["   2 | DEBUG 1 x", "  dropped  by transforms[1] drop_if"]
    line, caret, failed = blocks[2].splitlines()
    assert caret.index("^") == line.index("oops")
    assert caret.endswith(r"^ expects (?P<status>\d+)")
    assert failed.startswith("  failed   dead letter to logs.dlq, stage transform: transforms[0] regex: ")
    assert done.stderr == "3 records in: 1 out, 1 dropped (transforms[1] drop_if), 1 failed (transforms[0] regex)\n"


def test_a_good_sample_exits_0_and_verbose_shows_what_each_step_changes(copycat: Callable[..., Result], definition: Path) -> None:
    done = copycat("try", "app.log", "-d", definition, "-n", "2", "-v")
    assert (done.exit_code, "there is more in the file" in done.stderr) == (0, True)
    assert '  transforms[0] regex\n    - message\n    + level  "INFO"\n' in done.stdout
    assert "  transforms[1] drop_if  lets it pass\n" in done.stdout
    assert "  transforms[1] drop_if  drops it\n" in done.stdout


def test_stdin_pipes_and_packed_files_are_samples_too(environment: dict[str, str], definition: Path, tmp_path: Path) -> None:
    (tmp_path / "app.log.gz").write_bytes(gzip.compress(LINES.encode()))
    for script in ("{0} try - -d app.yaml < app.log", "cat app.log.gz | {0} try - -d app.yaml", "{0} try <(cat app.log) -d app.yaml"):
        done = subprocess.run(
            ["bash", "-c", script.format(" ".join(COMMAND))], cwd=definition.parent, env=environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout.count("  sent ")) == (1, 1), done.stderr


def test_for_programs_there_is_json(copycat: Callable[..., Result], definition: Path) -> None:
    done = copycat("try", "app.log", "-d", definition, "--format", "json")
    said = json.loads(done.stdout)
    assert [one["fate"] for one in said["records"]] == ["sent", "dropped", "dead-lettered"]
    first = said["records"][0]
    assert first["outputs"][0] | {"payload": None} == {
        "topic": "logs.INFO", "key": "200", "value": {"level": "INFO", "status": "200", "text": "fine"}, "payload": None,
        "headers": {"host": "h"}, "timestamp_ms": None, "partition": None,
    }  # fmt: skip
    assert [(step["step"], step["outcome"]) for step in first["steps"]] == [
        ("transforms[0] regex", "done"),
        ("transforms[1] drop_if", "done"),
    ]
    assert (first["start"], first["end"], first["input"]) == (0, 14, "INFO 200 fine")


def test_a_bad_definition_is_told_as_check_tells_it(copycat: Callable[..., Result], definition: Path) -> None:
    definition.write_text(DEFINITION.replace("drop_if", "dropif"))
    done = copycat("try", "app.log", "-d", definition)
    assert (done.exit_code, done.stdout) == (78, "")
    assert re.search(r"app\.yaml:5:5: error\[unknown-type\] unknown transform 'dropif'", done.stderr)


@pytest.mark.parametrize(("file", "code", "words"), [("absent.log", 1, "No such file"), (".", 1, "not a regular file")])
def test_a_sample_that_cannot_be_read_is_told(copycat: Callable[..., Result], definition: Path, file: str, code: int, words: str) -> None:
    done = copycat("try", file, "-d", definition)
    assert (done.exit_code, words in done.stderr, "Traceback" in done.stderr) == (code, True, False)


def test_what_a_sample_holds_cannot_act_on_the_terminal(copycat: Callable[..., Result], definition: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.log").write_bytes(b"INFO 1 \x1b[31m\x9b\x7f\nb\x1bd\xff\n")
    done = copycat("try", "evil.log", "-d", definition, "-v")
    assert "\x1b" not in done.stdout
    assert "\\x1b[31m" in done.stdout


def test_watch_goes_on_whenever_a_file_is_saved_until_ctrl_c(environment: dict[str, str], definition: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [*COMMAND, "try", "app.log", "-d", "app.yaml", "--watch"]
    with out.open("wb") as stdout, subprocess.Popen(command, stdout=stdout, stderr=stdout, env=environment, cwd=tmp_path) as process:
        wait_until(lambda: out.read_text().count("waiting for") == 1, 60, "the first look")
        (tmp_path / "new.yaml").write_text(DEFINITION.replace("host: h", "host: other"))
        os.replace(tmp_path / "new.yaml", definition)  # noqa: PTH105 - as editors save
        wait_until(lambda: "header host: other" in out.read_text(), 60, "a saved definition")
        definition.write_text("name: [")
        wait_until(lambda: "error[" in out.read_text(), 60, "what is wrong with a bad one")
        definition.write_text(DEFINITION)
        (tmp_path / "app.log").write_text("WARN 7 changed\n")
        wait_until(lambda: "logs.WARN" in out.read_text(), 60, "a saved sample")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert "Traceback" not in out.read_text()


def test_stdin_cannot_be_watched(copycat: Callable[..., Result], definition: Path) -> None:
    assert copycat("try", "-", "-d", definition, "--watch").exit_code == 2
