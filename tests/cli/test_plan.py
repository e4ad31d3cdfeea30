"""`copycat plan`, and the look at saved offsets under it: also while an agent holds the store."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.looking import saved_offsets

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


def test_start_at_end_shows_where_a_first_run_would_begin(
    copycat: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    logs = define("app")
    path = connectors / "app.yaml"
    path.write_text(path.read_text().replace("log_file,", "log_file, start_at: end,"))
    (logs / "a.log").write_text("one\ntwo\n")
    (entry,) = json.loads(copycat("plan", connectors, "--format", "json", "--state-dir", tmp_path / "state").stdout)
    assert [(file["position"], file["to_read"]) for file in entry["files"]] == [(8, 0)]


def test_problems_unknown_names_and_nothing_to_plan(
    copycat: Callable[..., Done], define: Callable[..., Path], connectors: Path, tmp_path: Path
) -> None:
    (connectors / "bad.yaml").write_text("name: bad\n")
    assert copycat("plan", connectors, "--state-dir", tmp_path / "state").returncode == 78
    define("app")
    done = copycat("plan", connectors, "--state-dir", tmp_path / "state")
    assert (done.returncode, "bad.yaml" in done.stderr, "app: 0 of 0" in done.stdout) == (0, True, True)
    assert copycat("plan", connectors, "--only", "nobody", "--state-dir", tmp_path / "state").returncode == 2


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
        done = threading.Event()

        def write() -> None:
            for position in range(1, 300):
                store.commit(offsets(position))
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        latest = 0
        while not done.is_set():
            positions = {offset.position for offset in saved_offsets(tmp_path / "state").values()}
            assert len(positions) == 1, "half of a commit"
            (position,) = positions
            assert position >= latest
            latest = position
        thread.join()
    assert latest > 0


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

        monkeypatch.setattr("copycat_agent.offsets.looking.shutil.copyfile", copyfile)
        assert saved_offsets(tmp_path / "state") == offsets(2)
        assert len(copied) == 4


def test_no_state_is_no_offsets_and_a_store_that_is_none_is_an_error(tmp_path: Path) -> None:
    assert saved_offsets(tmp_path / "nothing") == {}
    (tmp_path / "offsets.db").write_bytes(b"x" * 5000)
    with pytest.raises(FatalError, match="cannot be read"):
        saved_offsets(tmp_path)
