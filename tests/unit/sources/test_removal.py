"""`cleanup.policy: delete` of log files: what is read goes, and nothing else."""

from __future__ import annotations

import gzip
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sources.files import clock, fingerprint
from copycat_agent.sources.files.identity import Identity, identify_by_name
from copycat_agent.sources.log_file import removal
from copycat_agent.sources.log_file.removal import FileRemoval
from copycat_agent.sources.spool_dir.cleanup.moves import CleanupItem, aside_name
from tests.unit.sources.rig import Agent

if TYPE_CHECKING:
    from pathlib import Path

WEEK_NS = 7 * 86_400_000_000_000


@pytest.fixture(autouse=True)
def _old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file was last written to a week ago, as far as the agent knows, and it looks at each scan."""
    now_ns = clock.now_ns
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + WEEK_NS)
    monkeypatch.setattr(removal, "LOOKS", (0.0, 0.0))
    monkeypatch.setattr(removal, "AGAIN_SECONDS", 0.0)


def agent(root: Path, *patterns: str, after: float = 3600.0, **options: Any) -> Agent:
    include = patterns or (f"{root}/*.log*",)
    return Agent(include, **{"cleanup": {"policy": "delete", "after": after}, **options})


def drained(one: Agent) -> Agent:
    """It has read all that is there, and looked twice more."""
    one.drain()
    for _ in range(3):
        one.scan()
    return one


def identity(path: Path) -> Identity:
    found = identify_by_name(str(path), path.stat(), follow_symlinks=False)
    assert found is not None
    return found


def test_what_is_read_and_old_goes_and_nothing_is_lost_or_sent_again(tmp_path: Path) -> None:
    for name in ("a.log", "b.log", "b.log.1"):
        (tmp_path / name).write_bytes(b"%s one\ntwo\n" % name.encode())
    one = drained(agent(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert len(one.lines) == 6
    one.restart()
    drained(one)
    (tmp_path / "a.log").write_bytes(b"a.log one\nnew\n")
    one.drain()
    assert one.lines[6:] == [b"a.log one", b"new"]
    assert one.losses == []


def test_nothing_goes_by_default_nor_before_its_time(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    drained(Agent((f"{tmp_path}/*",)))
    drained(agent(tmp_path, after=8 * 86400.0))
    assert (tmp_path / "a.log").exists()


def test_what_was_touched_lately_counts_as_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(removal, "LOOKS", (0.0, 0.0))
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    os.utime(path, (1, 1))
    drained(agent(tmp_path))
    assert path.exists(), "its time of change was set back"


UNFINISHED = {
    "empty": b"",
    "an unfinished line": b"one\nunfinished",
    "an unfinished archive": gzip.compress(b"one\n")[:-4],
    "an archive with an unfinished line": gzip.compress(b"one\nunfinished"),
    "a damaged archive": gzip.compress(b"one\n") + b"junk",
}


@pytest.mark.parametrize("content", UNFINISHED.values(), ids=list(UNFINISHED))
def test_a_file_whose_end_was_not_reached_stays(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(content)
    drained(agent(tmp_path))
    assert path.read_bytes() == content


@pytest.mark.parametrize(("last", "stays"), [(b"", True), (b"\n", False)])
def test_a_file_whose_last_line_is_over_the_limit_stays_until_that_has_its_end(tmp_path: Path, last: bytes, *, stays: bool) -> None:
    """A group of lines may be passed over as well, of which each line has its end."""
    path = tmp_path / "a.log"
    path.write_bytes(content := b"one\n" + 2000 * b"x" + last)
    kept = Agent((f"{tmp_path}/*",))
    kept.drain()
    one = agent(tmp_path)
    proof = fingerprint.of(content[:1024], content[-256:])
    passed = {one: replace(offset, position=len(content), skipping=True, fingerprint=proof) for one, offset in kept.store.items()}
    one.saved = {**passed}
    one.restart()
    drained(one)
    assert path.exists() is stays


def test_an_archive_goes_once_this_agent_has_read_it_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.log.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    kept = Agent((f"{tmp_path}/*",))
    kept.drain()
    one = agent(tmp_path)
    one.saved = kept.saved
    one.restart()
    drained(one)
    assert path.exists(), "nobody knows any more whether it was damaged"
    fresh = drained(agent(tmp_path))
    assert (fresh.lines, path.exists(), fresh.losses) == ([b"one", b"two"], False, [])


def test_what_is_not_saved_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    one = agent(tmp_path)
    one.scan()
    one.disk_full = True
    for _ in range(3):
        one.scan()
        one.work()
    assert path.exists()
    one.disk_full = False
    drained(one)
    assert not path.exists()


def test_a_file_that_a_program_has_open_for_writing_stays_until_it_closes_it(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    with path.open("ab") as file:
        one = drained(agent(tmp_path))
        assert path.exists()
        assert one.source.lag().troubled_files == 1
        file.write(b"two\n")
    drained(one)
    assert not path.exists()
    assert one.lines == [b"one", b"two"]
    assert one.source.lag().troubled_files == 0


def test_who_opened_it_just_before_it_went_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    late = []

    def delete(home: Any, item: CleanupItem, *, unless_written: bool) -> None:
        del unless_written
        late.append(path.open("ab", buffering=0))
        home.remove(item.name)

    monkeypatch.setattr(removal, "delete", delete)
    one = drained(agent(tmp_path, rotate_wait=60.0))
    assert not path.exists()
    with late[0] as file:
        file.write(b"late\n")
        drained(one)
    drained(one)
    assert one.lines == [b"one", b"late"]
    assert one.losses == []


def read_but_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """It has read the file at `path`, and was never asked to delete it."""
    path.write_bytes(b"one\n")
    one = agent(path.parent)
    with monkeypatch.context() as patch:
        patch.setattr(FileRemoval, "is_due", property(lambda _: False))
        drained(one)
    assert path.exists()
    return one


def test_another_file_that_has_the_name_by_now_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, other = tmp_path / "a.log", tmp_path / "other"
    one = read_but_there(path, monkeypatch)
    other.write_bytes(b"another\n")
    other.rename(path)
    one.source.scan()  # it looks for what is due before it looks at names
    assert path.read_bytes() == b"another\n"


def test_what_was_written_since_the_last_look_is_read_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    one = read_but_there(path, monkeypatch)
    with path.open("ab") as file:
        file.write(b"two\n")
    one.scan()
    assert path.exists()
    drained(one)
    assert (one.lines, path.exists()) == ([b"one", b"two"], False)


def test_a_deletion_that_a_kill_has_cut_short_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"one\n")
    before = Agent((f"{tmp_path}/*.log*",))
    before.drain()
    path.rename(tmp_path / aside_name(CleanupItem("", identity(path), 0, 0)))
    one = agent(tmp_path, rotate_wait=60.0)
    one.saved = before.saved
    one.restart()
    drained(one)
    assert list(tmp_path.iterdir()) == []
    assert (one.lines, one.losses) == ([], [])


def test_nothing_is_deleted_through_a_link(tmp_path: Path) -> None:
    real, linked = tmp_path / "real", tmp_path / "linked"
    real.mkdir()
    linked.mkdir()
    (real / "a.log").write_bytes(b"one\n")
    (real / "b.log").write_bytes(b"two\n")
    (linked / "there").symlink_to(real)
    (linked / "b.log").symlink_to(real / "b.log")
    one = drained(agent(tmp_path, f"{linked}/**/*.log", follow_symlinks=True, symlink_roots=(str(real),)))
    assert sorted(one.lines) == [b"one", b"two"]
    assert {path.name for path in real.iterdir()} == {"a.log", "b.log"}
    assert (linked / "b.log").is_symlink()


def test_a_file_with_several_names_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    (tmp_path / "kept").hardlink_to(tmp_path / "a.log")
    one = drained(agent(tmp_path))
    assert (tmp_path / "a.log").exists()
    (tmp_path / "kept").unlink()
    drained(one)
    assert not (tmp_path / "a.log").exists()


def test_a_directory_that_nobody_may_write_to_holds_up_no_other(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "a.log").write_bytes(b"one\n")
    (tmp_path / "b.log").write_bytes(b"two\n")
    closed.chmod(0o555)
    try:
        one = drained(agent(tmp_path, f"{tmp_path}/**/*.log"))
        assert (closed / "a.log").exists()
        assert not (tmp_path / "b.log").exists()
        assert one.source.lag().troubled_files == 1
    finally:
        closed.chmod(0o755)


def test_a_rotated_generation_goes_and_its_log_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"one\n")
    one = agent(tmp_path)
    with log.open("ab", buffering=0) as file:
        one.drain()
        log.rename(tmp_path / "app.log.1")
        file.write(b"two\n")
    with log.open("ab", buffering=0) as file:
        file.write(b"three\n")
        drained(one)
        assert [path.name for path in tmp_path.iterdir()] == ["app.log"]
        file.write(b"four\n")
        drained(one)
    assert one.lines == [b"one", b"two", b"three", b"four"]
    assert one.losses == []


def test_looks_are_as_seldom_as_the_grace_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "LOOKS", (1.0, 60.0))
    path = tmp_path / "a.log"
    one = agent(tmp_path)
    one.scan()
    path.write_bytes(b"one\n")
    drained(one)
    assert path.exists(), "the next look is in a minute"
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    drained(one)
    assert not path.exists()
