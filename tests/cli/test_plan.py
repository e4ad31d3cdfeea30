"""`copycat plan`, and the look at saved offsets under it: also while an agent holds the store."""

from __future__ import annotations

import itertools
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.model import SourceOffset, SourcePartition, offsets_in
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.store_reader import saved_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Done


def test_it_shows_each_file_with_what_is_left_and_the_topic(
    copycat: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app", "'logs.{@file.name}'")
    (logs / "a.log").write_text("one\ntwo\n")
    (logs / "b.log").touch()
    done = copycat("plan", connectors, "--state-dir", tmp_path / "state")
    assert done.returncode == 0, done.stderr
    assert "app: 1 of 2 files have 8 bytes to read -> logs.{@file.name}" in done.stdout
    assert f"{logs}/a.log: at 0 of 8, 8 to read" in done.stdout
    assert not (tmp_path / "state").exists(), "it changes nothing"


def test_it_and_explain_say_where_exactly_once_is_promised(
    quick: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    log = define("app") / "a.log"
    log.write_text("one\n")
    state = ("--state-dir", tmp_path / "state")
    assert "exactly once" not in quick("plan", connectors, *state).stdout
    assert "guarantee" not in quick("explain", log, connectors, *state).stdout
    path = connectors / "app.yaml"
    path.write_text(f"{path.read_text()}delivery: {{guarantee: exactly_once}}\n")
    assert "app: 1 of 1 files have 4 bytes to read -> " in (shown := quick("plan", connectors, *state).stdout)
    assert shown.splitlines()[0].endswith(", exactly once")
    assert "exactly once, for consumers with isolation.level=read_committed" in quick("explain", log, connectors, *state).stdout
    (entry,) = json.loads(quick("plan", connectors, "--format", "json", *state).stdout)
    assert entry["guarantee"] == "exactly_once"


def test_start_at_end_shows_where_a_first_run_would_begin(
    quick: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app")
    path = connectors / "app.yaml"
    path.write_text(path.read_text().replace("log_file,", "log_file, start_at: end,"))
    (logs / "a.log").write_text("one\ntwo\n")
    (entry,) = json.loads(quick("plan", connectors, "--format", "json", "--state-dir", tmp_path / "state").stdout)
    assert [(file["position"], file["to_read"]) for file in entry["files"]] == [(8, 0)]


def test_problems_unknown_names_and_nothing_to_plan(
    quick: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    (connectors / "bad.yaml").write_text("name: bad\n")
    assert quick("plan", connectors, "--state-dir", tmp_path / "state").returncode == 78
    define("app")
    done = quick("plan", connectors, "--state-dir", tmp_path / "state")
    assert (done.returncode, "bad.yaml" in done.stderr, "app: 0 of 0" in done.stdout) == (0, True, True)
    assert quick("plan", connectors, "--only", "nobody", "--state-dir", tmp_path / "state").returncode == 2


def planned(quick: Callable[..., Done], connectors: Path, tmp_path: Path, *options: str) -> list[dict[str, Any]]:
    done = quick("plan", connectors, "--state-dir", tmp_path / "state", "--format", "json", *options)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_each_file_says_why_and_the_topic_and_key_that_are_its_own(
    quick: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app", "'logs.{@file.name}'")
    path = connectors / "app.yaml"
    path.write_text(path.read_text().replace("record: {", 'record: {key: "{message}", '))
    (logs / "a.log").write_text("one\n")
    (logs / "b.log").symlink_to(logs / "a.log")
    (entry,) = planned(quick, connectors, tmp_path)
    ((file,), passed) = entry["files"], entry["passed_over"]
    assert (file["topic"], file["record_key"], file["why"].startswith("start_at")) == ("logs.a.log", None, True)
    assert [(one["path"], "symbolic link" in one["why"]) for one in passed] == [(f"{logs}/b.log", True)]
    done = quick("plan", connectors, "--state-dir", tmp_path / "state")
    assert f"{logs}/a.log: at 0 of 4, 4 to read, start_at" in done.stdout
    assert "-> logs.a.log [" in done.stdout
    assert f"{logs}/b.log: passed over, is a symbolic link" in done.stdout
    assert done.stderr == ""


def test_of_many_files_those_with_something_to_read_come_first_and_the_rest_is_counted(
    quick: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app")
    for number in range(60):
        (logs / f"{number:02}.log").touch()
    (logs / "z.log").write_text("one\n")
    done = quick("plan", connectors, "--state-dir", tmp_path / "state")
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["app", "  unless said otherwise, start_at beginning", f"  {logs}/z.log"]
    assert lines[-1] == "  ... and 11 more files; --all shows them"
    assert len(quick("plan", connectors, "--all", "--state-dir", tmp_path / "state").stdout.splitlines()) == 63
    assert len(planned(quick, connectors, tmp_path)[0]["files"]) == 61


def test_connectors_on_the_same_files_are_told_once_each(
    quick: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app")
    text = (connectors / "app.yaml").read_text()
    for name, topic in (("second", "t"), ("third", "t"), ("elsewhere", "u")):
        (connectors / f"{name}.yaml").write_text(text.replace("name: app", f"name: {name}").replace("topic: t", f"topic: {topic}"))
    (logs / "a.log").write_text("one\n")
    done = quick("plan", connectors, "--state-dir", tmp_path / "state")
    assert (done.returncode, done.stderr.count("warning: "), "elsewhere" in done.stderr) == (0, 3, False)
    assert f"app and second both read {logs}/a.log" in done.stderr
    assert "all 4 enabled connectors: 4 of 4 files have 16 bytes to read" in done.stdout


def test_what_would_be_lost_and_what_waits_is_told(
    quick: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app")
    path = connectors / "app.yaml"
    path.write_text(path.read_text().replace("*.log'", "*.log*'"))
    for name, seconds in (("a.log.1", 1000), ("a.log", 2000)):
        (logs / name).write_text("one\ntwo\n")
        os.utime(logs / name, (seconds, seconds))
    (entry,) = planned(quick, connectors, tmp_path)
    assert {one["path"]: (one["state"], one["after"], one["log"]) for one in entry["files"]} == {
        f"{logs}/a.log.1": ("following", None, f"{logs}/a.log"),
        f"{logs}/a.log": ("waiting", f"{logs}/a.log.1", f"{logs}/a.log"),
    }
    assert f"waiting for {logs}/a.log.1" in quick("plan", connectors, "--state-dir", tmp_path / "state").stdout
    key = entry["files"][0]["key"]
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit({SourcePartition("app", key): SourceOffset(4, 1, path=entry["files"][0]["path"], size=20)})
    (entry,) = planned(quick, connectors, tmp_path)
    assert [(one["start"], one["end"], one["size_bytes"]) for one in entry["losses"]] == [(8, 20, 12)]


def offsets(position: int) -> dict[SourcePartition, SourceOffset]:
    return {SourcePartition("app", f"1:{number:x}:0:0"): SourceOffset(position, path="/x") for number in range(50)}


def test_saved_offsets_are_seen_while_an_agent_holds_the_store(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit(offsets(1))
        before = sorted(path.name for path in (tmp_path / "state").iterdir())
        assert saved_offsets(tmp_path / "state") == offsets(1)
        store.commit(offsets(2))
        assert saved_offsets(tmp_path / "state") == offsets(2)
        assert sorted(path.name for path in (tmp_path / "state").iterdir()) == before, "it leaves nothing behind"
    assert saved_offsets(tmp_path / "state") == offsets(2)


def test_a_look_during_commits_sees_one_commit_whole(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit(offsets(0))
        over = threading.Event()

        def write() -> None:
            for position in itertools.takewhile(lambda _: not over.is_set(), itertools.count(1)):
                store.commit(offsets(position))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            looks = latest = 0
            while looks < 100 or latest < 100:
                positions = {offset.position for offset in offsets_in(saved_offsets(tmp_path / "state")).values()}
                assert len(positions) == 1, "half of a commit"
                (position,) = positions
                assert position >= latest
                looks, latest = looks + 1, position
        finally:
            over.set()
            thread.join()


def test_a_checkpoint_between_the_copies_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit(offsets(1))
        copied: list[str] = []

        def copyfile(source: str | Path, target: str | Path) -> None:
            Path(target).write_bytes(Path(source).read_bytes())
            if not copied:  # the database is copied, its log is not
                store.commit(offsets(2))
                store._fold_wal(0)
            copied.append(str(source))

        monkeypatch.setattr("copycat_agent.offsets.store_reader.shutil.copyfile", copyfile)
        assert saved_offsets(tmp_path / "state") == offsets(2)
        assert len(copied) == 4


def test_no_state_is_no_offsets_and_a_store_that_is_none_is_an_error(tmp_path: Path) -> None:
    assert saved_offsets(tmp_path / "nothing") == {}
    (tmp_path / "offsets.db").write_bytes(b"x" * 5000)
    with pytest.raises(FatalError, match="cannot be read"):
        saved_offsets(tmp_path)
