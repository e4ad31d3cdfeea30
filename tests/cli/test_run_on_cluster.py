"""`--master`: what `run` refuses before anything is started, and that `check` and `doctor` say the same."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from copycat_agent.cli import exits

if TYPE_CHECKING:
    from pathlib import Path

MASTER = ("--master", "spark://127.0.0.1:1")


def run(directory: Path, *options: str, command: str = "run") -> subprocess.CompletedProcess[str]:
    """The command, with a Kafka address where nobody answers."""
    arguments = [sys.executable, "-m", "copycat_agent", command, str(directory), *options]
    if command != "check":
        arguments += ["--state-dir", str(directory / "state"), "--bootstrap-servers", "127.0.0.1:1"]
    return subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=60)


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


def test_check_and_doctor_refuse_in_the_same_words_and_what_is_switched_off_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("spark: {conf: {spark.driver.host: 192.0.2.5}}\nkafka: {bootstrap_servers: ['127.0.0.1:1']}\n")
    connectors = tmp_path / "connectors.d"
    connectors.mkdir()
    (tmp_path / "secret").write_text("canary")
    log = "source: {type: log_file, include: [/l/*]}\nrecord: {topic: t}\n"
    (connectors / "app.yaml").write_text(f"name: app\n{log}")
    (connectors / "off.yaml").write_text(f"name: off\nenabled: false\n{log}")
    there = f"source: {{type: objects, uri: 'file://{tmp_path}/'}}\nrecord: {{topic: t"
    (connectors / "good.yaml").write_text(f"name: good\n{there}}}\n")
    (connectors / "token.yaml").write_text(f"name: token\n{there}, headers: {{token: '${{file:{tmp_path}/secret}}'}}}}\n")
    assert run(connectors, command="check").returncode == exits.GOOD
    asked = run(connectors, "--master", "spark://192.0.2.7:7077", command="check")
    assert asked.returncode == exits.DEFINITION_ERROR
    looked = run(connectors, *MASTER, command="doctor")
    assert looked.returncode == exits.FAILED, looked.stderr
    refusals = ("source log_file is not read on a cluster", "run it by a second agent", "definition token holds secrets")
    for said in (asked.stderr, looked.stdout):
        assert [said.count(words) for words in refusals] == [1, 1, 1], said
        assert "canary" not in said
    assert "good good" in asked.stdout
    assert "it cannot be reached: Connection refused" in looked.stdout
    assert (asked.stderr.count("source.uri is a path"), looked.stdout.count("source.uri is a path")) == (1, 2)
