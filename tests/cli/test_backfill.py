"""`copycat backfill` as a user runs it: exit codes, the account on stdout, what it says when it cannot go on."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from copycat_agent.agent import AgentSettings
from copycat_agent.backfill import dry_run
from copycat_agent.backfill.backfill import BackfillJob, on_this_host
from copycat_agent.backfill.path_runs import PathRun, PathRuns, choose, is_worked_on
from copycat_agent.cli.backfill import _with_ways_out, begin, keep_account
from copycat_agent.cli.backfill_job import BackfillRequest, delivered_before, moment, rate_of, resolve_run, window_of
from copycat_agent.definitions import load_file
from copycat_agent.errors import FatalError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, Definition, KafkaOptions
from copycat_agent.sources.files.identity import identify
from copycat_agent.sources.log_file.beginning.manual_position import place
from copycat_agent.sources.spool_dir.spool_options import SpoolDirOptions
from tests.cli.conftest import COMMAND
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.dev_broker import DevBroker
    from tests.cli.conftest import Done


def numbered(count: int, word: str) -> str:
    return "".join(f"2026-11-21T05:00:00Z {word} {number}\n" for number in range(count))


def test_paths_are_sent_once_and_accounted_for_with_their_places_in_kafka(
    copycat: Callable[..., Done], connectors: Path, define: Callable[..., Path], tmp_path: Path, broker: DevBroker, topic: str
) -> None:
    logs = define("app", topic, "errors: {tolerance: all}\n")
    (logs / "app.log").write_text(numbered(500, "plain"))
    (logs / "app.log.1.gz").write_bytes(gzip.compress(numbered(300, "packed").encode()))
    where = ("--bootstrap-servers", broker.bootstrap, "--state-dir", tmp_path / "state", "--format", "json")
    done = copycat("backfill", connectors / "app.yaml", f"{logs}/*", *where)
    assert (done.returncode, done.stderr) == (0, "")
    account = json.loads(done.stdout)
    assert (account["complete"], account["totals"]["records"]["acknowledged"]) == (True, 800)
    arrived = consume(broker.bootstrap, topic)
    assert sorted((one.value or b"").decode() for one in arrived) == sorted((numbered(500, "plain") + numbered(300, "packed")).splitlines())
    for file in account["files"]:
        word = b"packed" if file["path"].endswith("gz") else b"plain"
        found = [one.offset for one in arrived if word in (one.value or b"")]
        (place,) = file["delivered"]
        assert (place["topic"], place["first"], place["last"]) == (topic, min(found), max(found))
    (logs / "app.log").rename(logs / "app.log.2")
    (logs / "app.log.1.gz").unlink()
    again = copycat("backfill", connectors / "app.yaml", f"{logs}/*", *where[:-2])
    assert again.returncode == 0
    assert "app.log.2: skipped: delivered by backfill" in again.stdout
    assert "app: finished: 1 file (1 skipped)" in again.stdout
    assert len(consume(broker.bootstrap, topic)) == 800


@pytest.fixture
def definition(connectors: Path, define: Callable[..., Path], tmp_path: Path) -> Definition:
    """Reads `tmp_path/app-logs/*.log`; no broker is there."""
    define("app")
    assert (tmp_path / "app-logs").is_dir()
    loaded = load_file(connectors / "app.yaml", AgentOptions(kafka=KafkaOptions(bootstrap_servers=("127.0.0.1:1",))))
    assert loaded.definition is not None
    return loaded.definition


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    return AgentSettings(AgentOptions(), tmp_path / "state")


def asked(*paths: Path, again: bool = False, resume: bool = False) -> BackfillRequest:
    return BackfillRequest(tuple(map(str, paths)), None, 0, again=again, resume=resume)


def resolve(definition: Definition, settings: AgentSettings, request: BackfillRequest) -> tuple[BackfillJob, PathRun | None]:
    with PathRuns(settings.state_dir).held():
        return resolve_run(definition, settings, request)


def refusal(capsys: pytest.CaptureFixture[str], call: Callable[[], object]) -> str:
    """What a call says before it ends the command with exit 2."""
    with pytest.raises(typer.Exit) as ended:
        call()
    assert ended.value.exit_code == 2
    return capsys.readouterr().err


def test_an_unfinished_run_is_resumed_or_begun_anew_on_request_only(
    definition: Definition, settings: AgentSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "app-logs/a.log"
    log.write_text("x\n")
    assert "there is nothing to resume" in refusal(capsys, lambda: resolve(definition, settings, asked(log, resume=True)))
    _, first = resolve(definition, settings, asked(log))
    assert first is not None
    words = refusal(capsys, lambda: resolve(definition, settings, asked(log)))
    assert "did not come to its end (0 of 1 files done, 0 records passed)" in words
    assert "--resume" in words
    assert "--again" in words
    _, resumed = resolve(definition, settings, asked(log, resume=True))
    assert resumed == first
    _, second = resolve(definition, settings, asked(log, again=True))
    assert second is not None
    assert second.directory != first.directory
    assert [run.state for run in PathRuns(settings.state_dir).all() if run.directory == first.directory] == ["given_up"]


def test_a_run_that_is_worked_on_is_left_alone(definition: Definition, settings: AgentSettings, tmp_path: Path) -> None:
    """To end it would take its offsets away under it."""
    log = tmp_path / "app-logs/a.log"
    log.write_text("x\n")
    _, run = resolve(definition, settings, asked(log))
    assert run is not None
    with OffsetStore.open(run.directory):
        for how in ({}, {"again": True}, {"resume": True}):
            with pytest.raises(FatalError, match="already runs"):
                resolve(definition, settings, asked(log, **how))
    assert resolve(definition, settings, asked(log, resume=True))[1] == run


def test_nobody_else_looks_for_runs_until_the_store_of_a_new_one_is_locked(
    definition: Definition, settings: AgentSettings, tmp_path: Path
) -> None:
    """Two that begin at the same moment both took a file, since neither saw that the other works on it."""
    log = tmp_path / "app-logs/a.log"
    log.touch()

    def check() -> None:
        with (settings.state_dir / "backfill/lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    work, run = begin(definition, settings, asked(log), on_this_host, check)
    with work:
        assert run is not None
        assert is_worked_on(run)


@pytest.mark.parametrize("saved", [False, True])
def test_a_file_that_another_backfill_reads_now_is_refused_until_it_is_done(
    definition: Definition, settings: AgentSettings, tmp_path: Path, saved: bool
) -> None:
    """Both would send the rest of it. A saved offset also tells it under another name."""
    log, other = tmp_path / "app-logs/a.log", tmp_path / "app-logs/b.log"
    log.write_text("x\ny\n")
    other.write_text("x\n")
    _, run = resolve(definition, settings, asked(log))
    assert run is not None
    info = log.stat()
    with log.open("rb") as file:
        partition = SourcePartition("app", identify(file.fileno(), info).key(0))
    half = SourceOffset(2, path=str(log), size=4)
    with OffsetStore.open(run.directory) as store:
        if saved:
            store.commit({partition: half})
            log = log.rename(tmp_path / "app-logs/c.log")
        with pytest.raises(FatalError, match=r"\.log is being read by the backfill that began"):
            resolve(definition, settings, asked(other, log))
        resolve(definition, settings, asked(other))
        resolve(definition, settings, asked(other, log, again=True))
        store.commit({partition: replace(half, position=4, done=True)})
        resolve(definition, settings, asked(tmp_path / "app-logs"))


def test_a_run_is_not_resumed_by_a_definition_whose_offsets_count_something_else(
    definition: Definition, settings: AgentSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "app-logs/a.log"
    log.write_text("x\n")
    resolve(definition, settings, asked(log))
    source = SpoolDirOptions.model_validate({"type": "spool_dir", "dir": str(tmp_path), "format": {"type": "json"}})
    other = definition.model_copy(update={"source": source})
    assert "another source.format" in refusal(capsys, lambda: resolve(other, settings, asked(log, resume=True)))


def test_an_earlier_run_whose_store_cannot_be_read_says_nothing(definition: Definition, settings: AgentSettings, tmp_path: Path) -> None:
    log = tmp_path / "app-logs/a.log"
    log.write_text("x\n")
    _, run = resolve(definition, settings, asked(log))
    assert run is not None
    (run.directory / "offsets.db").write_bytes(b"no database" * 1000)
    assert delivered_before(definition, settings, None) is not None


def test_a_run_keeps_its_store_if_that_cannot_be_read_at_its_end(
    definition: Definition, settings: AgentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else says what it has delivered."""
    log = tmp_path / "app-logs/a.log"
    log.write_text("x\n")
    _, run = resolve(definition, settings, asked(log))
    assert run is not None
    offset = SourceOffset(2, path=str(log), size=2, done=True)
    with OffsetStore.open(run.directory) as store:
        store.commit({SourcePartition("app", "1:2:3:0"): offset})

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", is_full)
        assert not keep_account(run, {"state": "finished"})
    assert "No space left on device; --resume tries that again" in capsys.readouterr().err
    assert resolve(definition, settings, asked(log, resume=True))[1] == run
    assert keep_account(run, {"state": "finished"})
    assert [row for _, row, _ in PathRuns(settings.state_dir).rows("app")] == [offset]


def test_what_means_nothing_is_a_usage_error_that_says_why(
    definition: Definition, settings: AgentSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--again needs PATHs" in refusal(capsys, lambda: resolve(definition, settings, asked(again=True)))
    assert "--resume needs PATHs" in refusal(capsys, lambda: resolve(definition, settings, asked(resume=True)))
    assert "no file matches" in refusal(capsys, lambda: resolve(definition, settings, asked(tmp_path / "no*")))
    assert "2026-11-22T05:00:00Z" in refusal(capsys, lambda: moment("yesterday", "--since"))
    assert "20MiB/s" in refusal(capsys, lambda: rate_of("20"))
    assert "0001-01-01" in refusal(capsys, lambda: moment("0001-01-01", "--since"))
    assert "is not a time" in refusal(capsys, lambda: window_of("", None, None))
    assert "no record is written both" in refusal(capsys, lambda: window_of("2026-02-01", "2026-01-01", None))
    assert "--time-field goes with" in refusal(capsys, lambda: window_of(None, None, "at"))


def test_what_the_definition_excludes_is_not_read_however_it_is_named(
    definition: Definition, settings: AgentSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    excluding = definition.model_copy(update={"source": definition.source.model_copy(update={"exclude": ("*.bak",)})})
    logs = tmp_path / "app-logs"
    for name in ("a.log", "b.log", "b.bak", "c.bak"):
        (logs / name).write_text(numbered(3, name))
    for paths in ([logs], [logs / "*"], [logs / "a.log", logs / "b.log", logs / "b.bak", logs / "c.bak"]):
        _, run = resolve(excluding, settings, asked(*paths))
        assert run is not None
        assert [Path(path).name for path in run.files] == ["a.log", "b.log"]
        assert "source.exclude of the definition leaves out" in capsys.readouterr().err
    assert "leaves out all of these files" in refusal(capsys, lambda: resolve(excluding, settings, asked(logs / "b.bak")))


def test_times_and_rates_are_read_as_they_are_written() -> None:
    assert moment("2026-11-21T12:00:00Z", "--since") == moment("2026-11-21T13:00:00+01:00", "--since") == 1_795_262_400_000
    assert moment("2026-11-21", "--since") == round(time.mktime((2026, 11, 21, 0, 0, 0, 0, 0, -1)) * 1000)
    assert (rate_of("20MiB/s"), rate_of("1KiB"), rate_of(None)) == (20 * 2**20, 1024, 0)


def test_without_paths_a_running_agent_is_named_with_the_ways_out(settings: AgentSettings) -> None:
    with OffsetStore.open(settings.state_dir), pytest.raises(FatalError) as refused:
        OffsetStore.open(settings.state_dir)
    words = str(_with_ways_out(refused.value, None))
    assert f"pid {os.getpid()}" in words
    assert "stop the agent first, or name the files as PATHs" in words


def test_a_plan_needs_no_broker_sends_nothing_and_says_what_a_run_would_do(
    definition: Definition, settings: AgentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_run, "ANSWER_SECONDS", 0.2)
    (tmp_path / "app-logs/a.log").write_text(numbered(1000, "x"))
    (tmp_path / "app-logs/b.log.gz").write_bytes(gzip.compress(numbered(2000, "y").encode()))
    chosen = choose([f"{tmp_path}/app-logs", f"{tmp_path}/gone.log"])
    plan = dry_run.plan_of(definition, chosen, delivered_before(definition, settings, None), {}, 10_000, 0.0)
    files: dict[str, dict[str, Any]] = {one["path"].rpartition("/")[2]: one for one in plan["files"]}
    assert {name: one["action"] for name, one in files.items()} == {"a.log": "send", "b.log.gz": "send"}
    assert files["a.log"]["records"] == pytest.approx(1000, rel=0.05)
    assert files["b.log.gz"]["records"] == pytest.approx(2000, rel=0.05)
    assert plan["time"]["seconds"] == pytest.approx(plan["totals"]["unpacked_bytes"] / 10_000, rel=0.01)
    assert plan["topic"]["state"].startswith("not known: ")
    assert not settings.state_dir.exists()


def test_without_paths_it_takes_nothing_that_the_agent_would_not_take(
    quick: Callable[..., Done], connectors: Path, define: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that it would delete before another connector has read them, or offsets of another one of its name."""
    monkeypatch.setattr(dry_run, "ANSWER_SECONDS", 0.2)
    logs = define("app")
    (logs / "a.log").write_text("one\n")
    source = f"{{type: spool_dir, dir: {logs}, cleanup: {{policy: delete}}}}"
    drops = f"name: drops\nsource: {source}\nrecord: {{topic: other}}\n"
    twin = "name: app\nsource: {type: log_file, include: [/nowhere/*]}\nrecord: {topic: third}\n"
    for name, text, why in (("drops.yaml", drops, "deletes files that app"), ("twin.yml", twin, "'app' is taken by")):
        (connectors / name).write_text(text)
        plan = ("backfill", connectors / name, "--plan", "--state-dir", tmp_path / "state", "--bootstrap-servers", "127.0.0.1:1")
        refused, taken = quick(*plan), quick(*plan[:2], logs / "a.log", *plan[2:])
        assert (refused.returncode, why in refused.stderr, taken.returncode) == (78, True, 0), refused.stderr + taken.stderr


@pytest.mark.parametrize("left_out", [{}, {"start_at": "end"}, {"start_at": "2026-11-21T05:00:00Z"}, {"ignore_older": 3600.0}])
def test_what_the_connector_may_have_left_out_is_not_taken_for_delivered(
    definition: Definition, settings: AgentSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: dict[str, Any]
) -> None:
    """A position says that the bytes before it were passed, not that they were sent."""
    monkeypatch.setattr(dry_run, "ANSWER_SECONDS", 0.2)
    log = tmp_path / "app-logs/a.log"
    log.write_text(numbered(1000, "x"))
    partition, offset, _ = place("app", {}, "end", path=str(log))
    with OffsetStore.open(settings.state_dir) as store:
        store.commit({partition: offset})
    definition = definition.model_copy(update={"source": definition.source.model_copy(update=left_out)})
    plan = dry_run.plan_of(definition, choose([str(log)]), delivered_before(definition, settings, None), {}, 0, 0.0)
    assert [file["action"] for file in plan["files"]] == ["send" if left_out else "skip"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_killed_or_interrupted_goes_on_and_its_account_is_exact(
    connectors: Path, define: Callable[..., Path], environment: dict[str, str], tmp_path: Path, broker: DevBroker, topic: str, number: int
) -> None:
    logs = define("app", topic, "delivery: {max_batch_bytes: 256KiB}\n")
    expected = []
    for name in "abcd":
        (logs / f"{name}.log").write_text(numbered(40_000, name))
        expected += numbered(40_000, name).splitlines()
    options = ("--bootstrap-servers", broker.bootstrap, "--state-dir", str(tmp_path / "state"), "--format", "json")
    command = [*COMMAND, "backfill", str(connectors / "app.yaml"), str(logs), *options]
    process = subprocess.Popen(
        [*command, "--rate", "1MiB/s"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        wait_until(lambda: len(consume(broker.bootstrap, topic)) > 10_000, 60, "the first records")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    if number == signal.SIGINT:
        assert json.loads(out)["state"] == "interrupted"
        assert b"--resume" in err
    resumed = subprocess.run([*command, "--resume"], env=environment, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert resumed.returncode == 0, resumed.stderr
    account = json.loads(resumed.stdout)
    assert account["totals"]["records"]["read"] == account["totals"]["records"]["acknowledged"] == len(expected)
    arrived = [(one.value or b"").decode() for one in consume(broker.bootstrap, topic)]
    assert set(arrived) == set(expected), "nothing is lost"
    if number == signal.SIGINT:
        assert len(arrived) == len(expected), "nothing is sent twice after an orderly end"


@pytest.mark.long
def test_no_broker_is_exit_69_before_anything_is_read(
    copycat: Callable[..., Done], connectors: Path, define: Callable[..., Path], tmp_path: Path
) -> None:
    logs = define("app")
    (logs / "a.log").write_text("x\n")
    done = copycat("backfill", connectors / "app.yaml", logs, "--bootstrap-servers", "127.0.0.1:1", "--state-dir", tmp_path / "state")
    assert done.returncode == 69
    assert "no broker answers at 127.0.0.1:1" in done.stderr
    assert not (tmp_path / "state").exists()
