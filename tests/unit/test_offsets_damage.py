"""Promises of the offset store when things break: old or new, never garbage; moved aside, never overwritten; no guessing."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import CopycatError, FatalError, RetriableError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.sqlite_errors import RETRIABLE, translate
from copycat_agent.offsets.state_dir import StateDir
from copycat_agent.offsets.store_file import quarantine
from tests.rig.disk import mounted

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PART = SourcePartition("nginx", "1:2:3")

COMMIT_FOREVER = """
import sys
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.store_file import quarantine
store = OffsetStore.open(sys.argv[1])
start = max((offset.position for offset in store.read("nginx").values()), default=0)
for number in range(start + 1, 10**9):
    store.commit({SourcePartition("nginx", key): SourceOffset(number, path="x" * 500) for key in "abcdefgh"})
    print(number, flush=True)
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A closed store with a few pages of offsets."""
    path = tmp_path / "state"
    with OffsetStore.open(path) as store:
        store.commit({SourcePartition("nginx", f"key-{number}"): SourceOffset(number, path=f"/logs/{number}") for number in range(300)})
        store.commit({PART: SourceOffset(42)})
    return path


@pytest.fixture
def crashed(state: Path, tmp_path: Path) -> Path:
    """A store as a killed agent leaves it: the last commits only in the write-ahead log."""
    with OffsetStore.open(state) as store:
        store.commit({SourcePartition("nginx", f"key-{number}"): SourceOffset(number + 1000) for number in range(300)})
        shutil.copytree(state, tmp_path / "crashed")
    assert (tmp_path / "crashed" / "offsets.db-wal").stat().st_size > 0
    return tmp_path / "crashed"


def snapshot(state: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in state.iterdir() if file.name != "lock"}


def assert_quarantined(state: Path, before: dict[str, bytes]) -> None:
    """The store refuses to open, keeps every byte under another name, and goes on refusing until a person decides."""
    with pytest.raises(FatalError, match="damaged") as caught:
        OffsetStore.open(state)
    assert "restore a backup" in caught.value.hint
    (moved,) = [name for name in snapshot(state) if ".damaged-" in name and not name.endswith(("-wal", "-shm"))]
    assert str(state / moved) in caught.value.message
    for name, content in before.items() - {("offsets.db-shm", before.get("offsets.db-shm", b""))}:  # an index, no data
        assert snapshot(state)[name.replace("offsets.db", moved)] == content
    assert not (state / "offsets.db").exists()
    for _ in range(2):
        with pytest.raises(FatalError, match="nobody has decided"):
            OffsetStore.open(state)


@pytest.mark.parametrize("content", [b"", b"\0" * 8192, b"junk" * 5000, b'{"curr_offs":', b"SQLite format 3\0" + b"\1" * 4000])
def test_a_store_that_is_none_is_moved_aside_and_not_started_over(state: Path, content: bytes) -> None:
    (state / "offsets.db").write_bytes(content)
    assert_quarantined(state, snapshot(state))


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.97])
def test_a_truncated_store_is_moved_aside(state: Path, share: float) -> None:
    os.truncate(state / "offsets.db", int((state / "offsets.db").stat().st_size * share))
    assert_quarantined(state, snapshot(state))


def test_a_damaged_store_takes_its_log_along_and_neither_is_changed(crashed: Path) -> None:
    (crashed / "offsets.db").write_bytes(b"junk" * 5000)
    assert_quarantined(crashed, snapshot(crashed))


def test_a_log_without_its_database_is_damage(crashed: Path) -> None:
    (crashed / "offsets.db").unlink()
    with pytest.raises(FatalError, match="write-ahead log"):
        OffsetStore.open(crashed)
    assert [name for name in snapshot(crashed) if name.endswith("-wal") and ".damaged-" in name]


def test_a_database_of_something_else_is_moved_aside(state: Path) -> None:
    (state / "offsets.db").unlink()
    with closing(sqlite3.connect(state / "offsets.db")) as connection:
        connection.execute("CREATE TABLE precious (a)")
    assert_quarantined(state, snapshot(state))


def test_a_flipped_byte_is_found_or_harmless(state: Path, tmp_path: Path) -> None:
    """Every byte of a row counts; only bytes that mean nothing (free space, counters of SQLite) may change unseen."""
    with OffsetStore.open(state) as store:
        store.commit({SourcePartition("nginx", f"more-{number}"): SourceOffset(number, path=f"/logs/{number}") for number in range(600)})
        expected = store.read("nginx")
    whole = (state / "offsets.db").read_bytes()
    chance = random.Random(20261121)
    found = 0
    for number in range(60):
        copy = tmp_path / f"flip-{number}"
        copy.mkdir(mode=0o700)
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= chance.randrange(1, 256)
        (copy / "offsets.db").write_bytes(damaged)
        try:
            with OffsetStore.open(copy) as store:
                assert store.read("nginx") == expected
        except FatalError:
            found += 1
    assert found > 20, "two fifths of the file are rows, and the rest is mostly unused space"


def test_a_flipped_byte_in_the_log_yields_an_older_state_or_is_found(crashed: Path, tmp_path: Path) -> None:
    old, new = {*range(300), 42}, {*range(1000, 1300), 42}
    whole = (crashed / "offsets.db-wal").read_bytes()
    chance = random.Random(20261121)
    for number in range(30):
        copy = tmp_path / f"flip-{number}"
        shutil.copytree(crashed, copy)
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= chance.randrange(1, 256)
        (copy / "offsets.db-wal").write_bytes(damaged)
        try:
            with OffsetStore.open(copy) as store:
                assert {offset.position for offset in store.read("nginx").values()} in (old, new)
        except FatalError:
            continue


def test_a_value_changed_behind_the_agents_back_is_found(state: Path) -> None:
    with closing(sqlite3.connect(state / "offsets.db")) as connection:
        connection.execute("UPDATE offsets SET position = '43' WHERE key = ?", (PART.key,))
        connection.commit()
    with pytest.raises(FatalError, match="checksum"):
        OffsetStore.open(state)


def test_removing_the_marker_starts_over_and_nothing_that_was_kept_is_touched(state: Path) -> None:
    for content in (b"first", b"second"):
        (state / "offsets.db").write_bytes(content)
        with pytest.raises(FatalError):
            OffsetStore.open(state)
        (state / "offsets.db.quarantined").unlink()
    with OffsetStore.open(state) as store:
        assert store.connectors() == ()
    kept = sorted(content for name, content in snapshot(state).items() if ".damaged-" in name)
    assert kept == [b"first", b"second"]


def test_a_restored_backup_is_taken_once_the_marker_is_gone(state: Path) -> None:
    backup = (state / "offsets.db").read_bytes()
    (state / "offsets.db").write_bytes(b"")
    with pytest.raises(FatalError):
        OffsetStore.open(state)
    (state / "offsets.db").write_bytes(backup)
    (state / "offsets.db.quarantined").unlink()
    with OffsetStore.open(state) as store:
        assert store.read("nginx")[PART].position == 42


class CrashError(BaseException):
    """As if the process had ended here."""


def test_a_crash_in_the_middle_of_a_quarantine_leaves_no_clean_slate(state: Path) -> None:
    class Crashing(StateDir):
        def sync(self) -> None:
            raise CrashError

    (state / "offsets.db").write_bytes(b"junk")
    directory = Crashing.acquire(state)
    with pytest.raises(CrashError):
        quarantine(directory, state / "offsets.db", "test")
    directory.release()
    (state / "offsets.db").rename(state / "offsets.db.damaged-by-hand")
    with pytest.raises(FatalError, match="nobody has decided"):
        OffsetStore.open(state)


def test_accept_empty_goes_on_at_once_and_keeps_the_damaged_store(state: Path) -> None:
    (state / "offsets.db").write_bytes(b"junk")
    with OffsetStore.open(state, accept_empty=True) as store:
        assert store.connectors() == ()
        store.commit({PART: SourceOffset(1)})
    assert b"junk" in snapshot(state).values()
    with OffsetStore.open(state) as store:
        assert store.read("nginx") == {PART: SourceOffset(1)}


def test_accept_empty_does_not_empty_a_store_that_is_whole(state: Path) -> None:
    with OffsetStore.open(state, accept_empty=True) as store:
        assert store.read("nginx")[PART].position == 42


def test_no_database_and_no_marker_is_a_new_agent(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "new") as store:
        assert store.connectors() == ()


def test_what_a_kill_left_of_a_creation_is_swept_away(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "offsets.db.new").write_bytes(b"half")
    (tmp_path / "offsets.db.new-journal").write_bytes(b"half")
    OffsetStore.open(tmp_path).close()
    assert not list(tmp_path.glob("*.new*"))


def test_an_unknown_newer_schema_is_refused_and_left_alone(state: Path) -> None:
    with closing(sqlite3.connect(state / "offsets.db")) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = snapshot(state)
    with pytest.raises(FatalError, match="newer copycat-agent \\(schema 999"):
        OffsetStore.open(state)
    assert snapshot(state)["offsets.db"] == before["offsets.db"]
    assert not (state / "offsets.db.quarantined").exists()


def test_the_log_of_a_killed_agent_is_read(crashed: Path) -> None:
    with OffsetStore.open(crashed) as store:
        assert store.read("nginx")[SourcePartition("nginx", "key-7")].position == 1007


@pytest.mark.parametrize("kills", [6, pytest.param(60, marks=pytest.mark.long)])
def test_killed_at_any_moment_the_store_is_old_or_new(tmp_path: Path, kills: int) -> None:
    """So often kill -9 in a loop of commits: what was reported as committed is there, and no commit is half there."""
    state, chance = tmp_path / "state", random.Random(20261121)
    for _ in range(kills):
        with subprocess.Popen([sys.executable, "-c", COMMIT_FOREVER, str(state)], stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
            process.kill()
            reported = int([first, *process.stdout.read().splitlines()][-1])
        with OffsetStore.open(state) as store:
            positions = {offset.position for offset in store.read("nginx").values()}
        assert len(positions) == 1, "a commit is half there"
        (position,) = positions
        assert position in (reported, reported + 1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, "256k") as disk:
        yield disk


def test_a_full_disk_is_retriable_and_nothing_is_lost(small_disk: Path) -> None:
    with OffsetStore.open(small_disk) as store:
        store.commit({PART: SourceOffset(1)})
        ballast = small_disk / "ballast"
        with pytest.raises(OSError), ballast.open("wb", buffering=0) as stream:  # noqa: PT011, PT012 - ENOSPC, at some write
            while True:
                stream.write(b"x" * 4096)
        many = {SourcePartition("nginx", f"{number}"): SourceOffset(2, path="x" * 100) for number in range(200)}
        for _ in range(3):
            with pytest.raises(RetriableError, match="no space"):
                store.commit({**many, PART: SourceOffset(2)})
        assert store.read("nginx") == {PART: SourceOffset(1)}
        ballast.unlink()
        store.commit({**many, PART: SourceOffset(2)})
    with OffsetStore.open(small_disk) as store:
        assert store.read("nginx") == {**many, PART: SourceOffset(2)}


FAILING_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int calls = 0;
static int fails(int fd) {
    char link[64], name[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return getenv("FAIL_AT") && readlink(link, name, sizeof name - 1) > 0 && !strcmp(strrchr(name, '/') + 1, getenv("FAIL_FILE"))
        && ++calls == atoi(getenv("FAIL_AT"));
}
int fsync(int fd) { if (fails(fd)) { errno = EIO; return -1; } return ((int (*)(int)) dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { if (fails(fd)) { errno = EIO; return -1; } return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(fd); }
"""

COMMIT_ON_A_FAILING_DISK = """
import ctypes, os, sys
from copycat_agent.errors import FatalError
from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.store_file import quarantine
store = OffsetStore.open(sys.argv[1])
libc = ctypes.CDLL(None)
libc.setenv(b"FAIL_FILE", sys.argv[2].encode(), 1)
libc.setenv(b"FAIL_AT", sys.argv[3].encode(), 1)  # only syncs from here on count
committed = failed = 0
for number in range(1, 3001):
    try:
        store.commit({SourcePartition("a", "1"): SourceOffset(number)})
        assert not failed, "a commit succeeded after a failed fsync"
        committed = number
    except FatalError:
        failed += 1
store.close()
print(committed, failed)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_failed_fsync_is_never_tried_again(tmp_path: Path) -> None:
    """One single EIO, then the disk is fine again: the store must refuse for the rest of the process all the same."""
    (tmp_path / "eio.c").write_text(FAILING_DISK)
    library = tmp_path / "eio.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "eio.c", "-ldl"], check=True)
    for name, nth in (("offsets.db-wal", "1"), ("offsets.db-wal", "400"), ("offsets.db", "1")):  # the last: while the log is folded in
        state = tmp_path / f"state-{name}-{nth}"
        result = subprocess.run(
            [sys.executable, "-c", COMMIT_ON_A_FAILING_DISK, str(state), name, nth],
            env={**os.environ, "LD_PRELOAD": str(library)},
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        committed, failed = map(int, result.stdout.split())
        assert failed == 3000 - committed > 0
        assert (state / "offsets.db-wal").stat().st_size > 0, "the log was dropped after a failed fsync"
        with OffsetStore.open(state) as store:
            positions = [offset.position for offset in store.read("a").values()]
        assert positions in ([committed], [committed + 1]) or committed == 0


def test_every_result_code_of_sqlite_has_a_meaning() -> None:
    for name in dir(sqlite3):
        if name.startswith("SQLITE_") and isinstance(getattr(sqlite3, name), int):
            error = sqlite3.OperationalError("words")
            error.sqlite_errorcode = getattr(sqlite3, name)
            meaning = translate(error)
            assert isinstance(meaning, CopycatError)
            assert isinstance(meaning, RetriableError) is (getattr(sqlite3, name) & 0xFF in RETRIABLE)
    for code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        error = sqlite3.OperationalError("words")
        error.sqlite_errorcode = code
        assert isinstance(translate(error), FatalError)


def test_a_new_process_helps_when_the_disk_failed_and_not_when_the_file_is_gone(tmp_path: Path) -> None:
    with OffsetStore.open(tmp_path / "gone") as store:
        assert store.failure is None
        (tmp_path / "gone" / "offsets.db").unlink()
        with pytest.raises(FatalError, match="was removed"):
            store.commit({SourcePartition("a", "1"): SourceOffset(1)})
        assert store.failure is None, "a new process would begin with an empty store"
    with OffsetStore.open(tmp_path / "failed") as store:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR  # what a failed fsync gives
        with pytest.raises(FatalError), store.using():
            raise error
        assert "failed" in str(store.failure)
    assert "failed" in str(store.failure), "also when it is closed"
