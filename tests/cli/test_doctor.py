"""`copycat doctor` as its user meets it: exit codes, what is shown, and that it changes nothing."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from copycat_agent.cli.main import app
from copycat_agent.dev_broker import free_port
from copycat_agent.workbench.doctor import kafka_checks
from tests.cli.conftest import COMMAND, Done
from tests.faults.conftest import LIKE_ANYONE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker


@pytest.fixture
def doctor(connectors: Path, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """`doctor(bootstrap, *options)` on `connectors`. In this process: a Python for each would take half of the time."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    logger, root = logging.getLogger("copycat_agent"), logging.getLogger()
    before = logger.level, root.level, list(root.handlers)

    def call(bootstrap: str, *options: str) -> Done:
        arguments = ["doctor", str(connectors), "--state-dir", str(tmp_path / "state"), "--bootstrap-servers", bootstrap, *options]
        done = CliRunner().invoke(app, arguments)
        logger.setLevel(before[0])
        root.setLevel(before[1])
        root.handlers[:] = before[2]
        return Done(arguments, done.exit_code, done.stdout, done.stderr or str(done.exception or ""))

    return call


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits as long as a broker on a busy machine may take."""
    monkeypatch.setattr(kafka_checks, "CLUSTER_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
def test_all_good_is_exit_0_and_quiet_shows_only_the_count(
    doctor: Callable[..., Done], define: Callable[..., Path], broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    (define("app", topic) / "a.log").write_text("a\n")
    done = doctor(broker.bootstrap)
    assert done.returncode == 0, done.stdout
    for section in ("host\n", "limits\n", "state\n", "connector app\n", f"kafka {broker.bootstrap}\n"):
        assert section in done.stdout
    assert "\x1b" not in done.stdout
    quiet = doctor(broker.bootstrap, "-q")
    assert (quiet.returncode, quiet.stdout.count("\n")) == (0, 1)
    assert "0 failed, 0 warnings" in quiet.stdout
    assert not (tmp_path / "state").exists(), "it changes nothing"


def test_only_a_broker_that_is_not_there_is_exit_69_and_takes_seconds(doctor: Callable[..., Done], define: Callable[..., Path]) -> None:
    (define("app") / "a.log").write_text("a\n")
    begun = time.monotonic()
    done = doctor(f"127.0.0.1:{free_port()}", "-q")
    assert done.returncode == 69, done.stdout
    assert "Connection refused" in done.stdout
    assert time.monotonic() - begun < 55, "far less than what a client waits for a broker by default"
    assert kafka_checks.CLUSTER_SECONDS < 15


@pytest.mark.usefixtures("patient")
def test_a_missing_topic_is_exit_1_a_warning_alone_exit_3(
    doctor: Callable[..., Done], define: Callable[..., Path], broker: DevBroker, topic: str
) -> None:
    logs = define("app", "no-such-topic")
    (logs / "a.log").write_text("a\n")
    assert doctor(broker.bootstrap).returncode == 1
    define("app", topic)
    (logs / "a.log").unlink()
    done = doctor(broker.bootstrap)
    assert done.returncode == 3, done.stdout
    assert "no file matches" in done.stdout


@pytest.mark.usefixtures("patient")
def test_definitions_that_do_not_load_are_told_and_none_at_all_is_exit_78(
    doctor: Callable[..., Done], define: Callable[..., Path], connectors: Path, broker: DevBroker, topic: str
) -> None:
    (connectors / "bad.yaml").write_text("name: bad\n")
    done = doctor(broker.bootstrap)
    assert done.returncode == 78
    (define("app", topic) / "a.log").write_text("a\n")
    done = doctor(broker.bootstrap)
    assert done.returncode == 1
    assert "connector bad\n  FAIL  definition" in done.stdout


@pytest.mark.usefixtures("patient")
def test_json_is_a_list_of_steps(doctor: Callable[..., Done], define: Callable[..., Path], broker: DevBroker) -> None:
    (define("app", "no-such-topic") / "a.log").write_text("a\n")
    steps = json.loads(doctor(broker.bootstrap, "--format", "json").stdout)
    (bad,) = [step for step in steps if step["verdict"] == "fail"]
    assert bad["name"] == "topic"
    assert "kafka-topics.sh" in bad["fix"]


def test_names_cannot_act_on_the_terminal(doctor: Callable[..., Done], define: Callable[..., Path], broker: DevBroker, topic: str) -> None:
    logs = define("app", topic)
    (logs / "a.log").write_text("a\n")
    (logs / "e\x1b[31mvil.log").symlink_to("nowhere")
    assert "\x1b" not in doctor(broker.bootstrap).stdout


def test_a_user_that_is_not_there_is_an_error_in_words(doctor: Callable[..., Done], define: Callable[..., Path]) -> None:
    define("app")
    done = doctor("127.0.0.1:1", "--user", "no-such-user")
    assert (done.returncode, "there is no user no-such-user" in done.stderr) == (1, True)


def test_a_name_out_of_a_secret_file_is_masked(doctor: Callable[..., Done], define: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "user").write_text("canary")
    security = f"{{protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: '${{file:{tmp_path}/user}}', password: x}}"
    define("app", more=f"kafka: {{security: {security}}}\n")
    done = doctor(f"127.0.0.1:{free_port()}")
    assert " as ****" in done.stdout
    assert "canary" not in done.stdout


@pytest.mark.skipif(os.geteuid() == 0 and not LIKE_ANYONE, reason="no setpriv, and root may read everything")
def test_what_lies_below_a_closed_directory_is_told_with_the_command_that_opens_it(
    define: Callable[..., Path], connectors: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    logs = define("app")
    (logs / "in").mkdir()
    path = connectors / "app.yaml"
    path.write_text(path.read_text("utf-8").replace("*.log", "in/*.log"), "utf-8")
    state = logs / "in" / "state"
    doctor = [*LIKE_ANYONE, *COMMAND, "doctor", str(connectors), "--state-dir", str(state), "--bootstrap-servers", "127.0.0.1:1"]
    logs.chmod(0o000)
    done, listed = (
        subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        for command in (doctor, [*LIKE_ANYONE, *COMMAND, "offsets", "list", "--state-dir", str(state)])
    )
    logs.chmod(0o755)
    assert f"may not pass through {logs}, so {logs}/in cannot be seen" in done.stdout, done.stdout + done.stderr
    assert "setfacl" in done.stdout
    assert "state directory" in listed.stderr
    assert "--state-dir" in listed.stderr
