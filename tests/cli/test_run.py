"""`copycat run --until-idle`: exactly what is there, once; and what it writes while it works."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.cli import run
from copycat_agent.cli.run import account
from copycat_agent.cli.run_progress import failed_files
from copycat_agent.sources import Lag
from copycat_agent.worker import State, Status
from tests.rig.kafka import values

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker
    from tests.cli.conftest import Done


@pytest.fixture
def run_to_the_end(copycat: Callable[..., Done], connectors: Path, broker: DevBroker, tmp_path: Path) -> Callable[..., Done]:
    """`copycat run --until-idle`, which has to be good."""

    def run(*options: str) -> Done:
        where = ("--state-dir", str(tmp_path / "state"), "--bootstrap-servers", broker.bootstrap)
        done = copycat("run", "--until-idle", connectors, *where, *options)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_each_line_once_over_several_runs_the_unfinished_last_one_included(
    run_to_the_end: Callable[..., Done], connectors: Path, define: Callable[..., Path], broker: DevBroker, topic: str
) -> None:
    """A bad definition beside it is told, and stops no good one."""
    (connectors / "bad.yaml").write_text("name: bad\n")
    logs = define("app", topic)
    (logs / "a.log").write_text("".join(f"a {number}\n" for number in range(1000)))
    (logs / "b.log").write_text("b 0\nb 1 without an end")
    done = run_to_the_end()
    assert "bad.yaml" in done.stderr
    assert "app: stopped: 1,002 records read" in done.stdout
    assert "1,002 acknowledged" in done.stdout
    with (logs / "a.log").open("a") as log:
        log.write("a 1000\n")
    assert "app: stopped: 1 records read" in run_to_the_end().stdout
    arrived = values(broker.bootstrap, topic)
    assert [value for value in arrived if value and value.startswith(b"a")] == [b"a %d" % number for number in range(1001)]
    assert [value for value in arrived if value and value.startswith(b"b")] == [b"b 0", b"b 1 without an end"]


def test_only_runs_what_it_names_and_the_log_is_one_json_object_per_line_and_holds_no_data_of_users(
    run_to_the_end: Callable[..., Done], define: Callable[..., Path], broker: DevBroker, make_topic: Callable[..., str]
) -> None:
    one, other = make_topic(), make_topic()
    long_line = "canary-of-a-user" * 100_000  # over line.max_bytes: a bad record
    for name, topic in (("one", one), ("other", other)):
        logs = define(name, topic, "errors: {tolerance: all}\n")
        (logs / "a.log").write_text(f"canary-of-a-user\n{long_line}\ncanary-of-a-user\n")
    done = run_to_the_end("--only", "other", "--verbose")
    assert done.stdout.startswith("other: stopped: 3 records read")
    assert done.stdout.count("\n") == 1
    assert values(broker.bootstrap, one) == []
    assert values(broker.bootstrap, other) == [b"canary-of-a-user"] * 2
    lines = done.stderr.splitlines()
    assert len(lines) > 5
    for line in lines:
        assert {"ts", "level", "logger", "event"} <= set(json.loads(line))
    assert "canary-of-a-user" not in done.stderr + done.stdout


def test_a_file_that_cannot_be_read_is_told_and_makes_the_run_fail(
    copycat: Callable[..., Done], connectors: Path, define: Callable[..., Path], broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    logs = define("app", topic)
    (connectors / "app.yaml").write_text((connectors / "app.yaml").read_text().replace("log_file,", "log_file, follow_symlinks: true,"))
    (logs / "a.log").write_text("a\n")
    (logs / "loop.log").symlink_to(logs / "loop.log")  # what even root cannot open
    done = copycat("run", "--until-idle", connectors, "--state-dir", str(tmp_path / "state"), "--bootstrap-servers", broker.bootstrap)
    assert (done.returncode, values(broker.bootstrap, topic)) == (1, [b"a"]), done.stderr
    assert "1 file could not be read" in done.stdout


INTERRUPTS_ITSELF = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


def test_an_interrupt_while_the_commands_are_imported_shows_no_traceback(
    copycat: Callable[..., Done], environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text(INTERRUPTS_ITSELF)
    done = copycat("version", env={"PYTHONPATH": f"{tmp_path / 'early'}:{environment['PYTHONPATH']}"})
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


SIGNALS_ITSELF = """
import os, sys

class Finder:
    left = {moment}

    def find_spec(self, name, *_):
        if name.startswith("copycat_agent.cli.") or "copycat_agent.cli.main" in sys.modules:
            Finder.left -= 1
            if not Finder.left:
                os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    ("command", "number", "moment", "code"),
    [
        (("run",), signal.SIGTERM, 2, 0),
        (("run",), signal.SIGINT, 200, 0),
        (("run", "--until-idle"), signal.SIGTERM, 200, 130),
        (("run", "--dry-run"), signal.SIGINT, 200, 130),
        (("backfill",), signal.SIGINT, 2, 130),
        *(pytest.param(("run",), signal.SIGTERM, moment, 0, marks=pytest.mark.long) for moment in (20, 200, 500)),
        pytest.param(("backfill",), signal.SIGTERM, 200, 130, marks=pytest.mark.long),
    ],
)
def test_a_stop_that_is_asked_for_while_the_commands_are_imported_ends_as_any_other(
    copycat: Callable[..., Done],
    environment: dict[str, str],
    tmp_path: Path,
    command: tuple[str, ...],
    number: int,
    moment: int,
    code: int,
) -> None:
    """`moment` counts modules that are looked for."""
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text(SIGNALS_ITSELF.format(moment=moment, number=int(number)))
    where = ("--state-dir", str(tmp_path / "state"))
    done = copycat(*command, "nowhere", *where, env={"PYTHONPATH": f"{tmp_path / 'early'}:{environment['PYTHONPATH']}"})
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


LOST = Lag(troubled_files=2)


@pytest.mark.parametrize(
    ("status", "until_idle", "code"),
    [
        (Status("app", State.STOPPED), True, 0),
        (Status("app", State.STOPPED, lag=LOST), True, 1),
        (Status("app", State.STOPPED, lag=LOST), False, 0),
        (Status("app", State.STOPPED, unsaved=True), False, 1),
        (Status("app", State.STOPPED, unsaved=True), True, 1),
        (Status("app", State.FAILED), True, 1),
    ],
)
def test_the_exit_code_tells_what_was_not_read_or_not_saved(status: Status, until_idle: bool, code: int) -> None:
    assert run._exit_code([Status("other", State.STOPPED), status], [], until_idle=until_idle, stopped=False) == code


def test_a_run_to_the_end_fails_when_a_file_was_bad() -> None:
    whole = {"totals": {"files": {"failed": 0}}, "files": [{"path": "/in/a", "state": "done", "why": ""}]}
    bad = {"totals": {"files": {"failed": 1}}, "files": [{"path": "/in/b", "state": "failed", "why": "gzip: it ends too early"}]}
    stopped = [Status("app", State.STOPPED)]
    assert run._exit_code(stopped, [whole], until_idle=True, stopped=False) == 0
    assert run._exit_code(stopped, [whole, bad], until_idle=True, stopped=False) == 1
    assert failed_files([whole, bad]) == ["  failed: /in/b: gzip: it ends too early"]


def test_a_signal_ends_a_run_to_the_end_as_interrupted_unless_something_failed() -> None:
    stopped = Status("app", State.STOPPED)
    assert run._exit_code([stopped], [], until_idle=True, stopped=True) == 130
    assert run._exit_code([replace(stopped, unsaved=True)], [], until_idle=True, stopped=True) == 1
    assert run._exit_code([stopped], [], until_idle=False, stopped=True) == 0


def test_the_account_names_files_that_could_not_be_read() -> None:
    assert "2 files could not be read" in account([Status("app", lag=LOST)])
    assert "1 file could not be read" in account([Status("app", lag=Lag(troubled_files=1))])
    assert "could not" not in account([Status("app")])
    assert "offsets could not be saved" in account([Status("app", unsaved=True)])


@pytest.mark.parametrize("moment", [2, 200])
def test_a_hangup_while_run_is_being_imported_does_not_end_it(
    copycat: Callable[..., Done], environment: dict[str, str], connectors: Path, tmp_path: Path, moment: int
) -> None:
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text(SIGNALS_ITSELF.format(moment=moment, number=int(signal.SIGHUP)))
    done = copycat("run", connectors, env={"PYTHONPATH": f"{tmp_path / 'early'}:{environment['PYTHONPATH']}"})
    assert done.returncode == 78, "there is no definition"
