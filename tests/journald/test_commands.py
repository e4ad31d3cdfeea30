"""What the commands say of a journal. None of them needs Kafka."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from copycat_agent.extending import Probed
from copycat_agent.sources import SOURCES
from tests.journald.conftest import needs_journals
from tests.rig.cache import CACHE
from tests.rig.in_process import caller
from tests.rig.journals import lines, write_journal
from tests.rig.kafka import consume

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def copycat(tmp_path: Path) -> Callable[..., Done]:
    """`copycat("check", ...)`, as a process of its own."""

    def call(*arguments: object) -> Done:
        command = [sys.executable, "-m", "copycat_agent", *map(str, arguments)]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "NO_COLOR": "1", **CACHE}
        return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment, cwd=tmp_path)

    return call


@pytest.fixture
def quick(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """As `copycat`, in this process."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    return caller(capsys, monkeypatch)


@pytest.fixture
def define(tmp_path: Path, journal: Path) -> Callable[..., Path]:
    """`define(source options, sections)` writes connectors.d/app.yaml."""

    def write(source: dict[str, Any] | None = None, **sections: Any) -> Path:
        path = tmp_path / "connectors.d/app.yaml"
        path.parent.mkdir(exist_ok=True)
        chosen = {"type": "journald", "directory": str(journal), **(source or {})}
        kafka = {"bootstrap_servers": ["127.0.0.1:1"]}
        document = {"name": "app", "source": chosen, "record": {"topic": "logs"}, "kafka": kafka, **sections}
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    return write


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": "loud"}, "priority"),
        ({"match": ["MESSAGE"]}, "match"),
        ({"match": ["--file=/etc/shadow"]}, "match"),
        ({"match": ["/usr/bin/sshd"]}, "match"),
        ({"units": ["--file=/etc/shadow"]}, "units"),
        ({"units": ["a b"]}, "units"),
        ({"boot": "-1"}, "boot"),
        ({"start_at": "yesterday"}, "start_at"),
        ({"directory": "relative"}, "directory"),
        ({"namespace": "a/b"}, "namespace"),
        ({"max_bytes": "1GiB"}, "max_bytes"),
        ({"unit": ["a"]}, "unit"),
    ],
)
def test_what_journalctl_would_not_take_is_told_with_its_place(
    quick: Callable[..., Done], define: Callable[..., Path], options: dict[str, Any], words: str
) -> None:
    done = quick("check", define(options).parent)
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
    assert "app.yaml:" in done.stdout + done.stderr


def test_a_definition_tests_itself_with_lines_of_json_and_is_begun_by_new(
    quick: Callable[..., Done], define: Callable[..., Path], tmp_path: Path
) -> None:
    case = {"input": '{"MESSAGE": "hello", "PRIORITY": "3"}', "expect": [{"value": {"message": "hello", "PRIORITY": "3"}}]}
    path = define(transforms=[{"rename": {"MESSAGE": "message"}}], tests=[case])
    done = quick("test", path.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    made = quick("new", "journald", "-o", tmp_path / "connectors.d/journal.yaml")
    assert made.returncode == 0, made.stderr
    assert "good journald: journald -> logs.journald" in quick("check", path.parent).stdout
    refused = quick("new", "journald", "--from", path)
    assert "--from looks at files, and journald reads none" in refused.stderr
    nothing = quick("new", "datasource")
    assert "datasource is no source to begin with" in nothing.stderr
    assert "journald" in nothing.stderr
    assert "reads no files" in quick("explain", path, path.parent).stdout


@needs_journals
def test_try_plan_doctor_and_a_dry_run_look_and_move_nothing(
    copycat: Callable[..., Done], quick: Callable[..., Done], define: Callable[..., Path], journal: Path, tmp_path: Path
) -> None:
    write_journal(journal, lines(0, 9))
    path = define({"priority": "3"})
    done = quick("try", "-d", path, "--records", 2)
    assert done.returncode == 0, done.stderr
    assert 'MESSAGE: "line 0"' in done.stdout
    done = quick("plan", path.parent)
    assert "app: 1 of 1 partitions have something to read -> logs" in done.stdout, done.stderr
    done = quick("doctor", path.parent)
    assert "systemd 2" in done.stdout
    assert f"may read all 1 files in {journal}" in done.stdout
    assert "the newest was written at 2023-11-14T22:13:20.009" in done.stdout
    done = copycat("run", path.parent, "--dry-run", "--state-dir", tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6


class Somebody:
    """A user who may read some of it."""

    name = "copycat"

    def __init__(self, *shut: Path) -> None:
        self._shut = {str(one) for one in shut}

    def may(self, path: str, wanted: str) -> bool:
        del wanted
        return path not in self._shut

    def closed_parent(self, path: str) -> str:
        return os.path.dirname(path) if os.path.dirname(path) in self._shut else ""  # noqa: PTH120 - a text


@needs_journals
def test_doctor_tells_what_a_user_may_not_read_and_how_to_let_it(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = SOURCES["journald"]
    options = kind.options.model_validate({"type": "journald", "directory": str(journal)})

    def probed(user: Somebody) -> dict[str, Probed]:
        assert kind.probe is not None
        return {one.name: one for one in kind.probe(options, user)}

    missing = probed(Somebody())
    assert (missing["journals"].verdict, missing["journals"].text) == ("fail", f"there are none in {journal}")
    one, two = write_journal(journal, lines(0, 2), "one"), write_journal(journal, lines(3, 4), "two")
    assert {each.verdict for each in probed(Somebody()).values()} == {"ok"}
    for shut, verdict in (((one,), "warn"), ((one, two), "fail"), ((journal,), "fail"), ((tmp_path,), "fail")):
        found = probed(Somebody(*shut))["journals"]
        assert (found.verdict, "usermod --append --groups systemd-journal copycat" in found.fix) == (verdict, True)
        assert str(shut[0]) in found.text
    (journal / "bad.journal").write_bytes(os.urandom(100_000))
    assert "corrupted" in probed(Somebody())["damage"].text
    shutil.rmtree(journal)
    journal.mkdir()
    assert probed(Somebody())["entries"].verdict == "warn"
    monkeypatch.setenv("PATH", str(tmp_path))
    gone = probed(Somebody())["journalctl"]
    assert (gone.verdict, gone.text) == ("fail", "journalctl is not there")


@needs_journals
@pytest.mark.timeout(300)
def test_a_backfill_reads_a_journal_to_its_end_and_accounts_for_it(
    copycat: Callable[..., Done], define: Callable[..., Path], journal: Path, tmp_path: Path, broker: DevBroker, topic: str
) -> None:
    write_journal(journal, lines(0, 99))
    path = define(record={"topic": topic}, kafka={"bootstrap_servers": [broker.bootstrap]}, transforms=[{"drop_if": {"PRIORITY": "7"}}])
    done = copycat("backfill", path, "--state-dir", tmp_path / "state")
    assert done.returncode == 0, done.stdout + done.stderr
    found = consume(broker.bootstrap, topic, "read_committed", 88, 60.0)
    assert [json.loads(one.value or b"")["MESSAGE"] for one in found] == [f"line {number}" for number in range(100) if number % 8 != 7]
    again = copycat("backfill", path, "--state-dir", tmp_path / "state")
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(consume(broker.bootstrap, topic, "read_committed")) == 88


def test_a_backfill_on_a_cluster_is_refused_before_anything_is_asked(copycat: Callable[..., Done], define: Callable[..., Path]) -> None:
    path = define()
    done = copycat("backfill", path, "--master", "spark://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    words = "source journald is read on this host alone: each task would read the journal of the host that it runs on; leave --master out"
    assert words in done.stderr
    here = copycat("backfill", path, "--master", "local[1]", "--plan")
    assert "on this host alone" not in here.stderr
