"""States that are damaged, very large or made to harm: each is read within bounds or refused with words, and none is changed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import struct
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from copycat_agent.errors import CopycatError
from copycat_agent.workbench.takeover import PEERS, PeerState, bolt, filebeat_registry, fluent_bit_database
from copycat_agent.workbench.takeover.peer_state import HeadProof, PeerPosition, StateFile
from tests.unit.workbench.takeover.bolts import SIZE, inline
from tests.unit.workbench.takeover.peers import LINES, java_map, judged, offsets, successor, taken_over
from tests.unit.workbench.takeover.test_filebeat_registry import Registry, of_log
from tests.unit.workbench.takeover.test_fluent_bit_database import INSERT, connected
from tests.unit.workbench.takeover.test_otel_storage import known, value, written
from tests.unit.workbench.takeover.test_vector_checkpoints import document, first_line

MANY = 2_000
CPU_SECONDS = 15.0
"""Many times what it takes, and a small part of what it would take if each position were compared with each file."""


def filebeat(directory: Path, log: Path) -> None:
    Registry(directory / "registry" / "filebeat").set(*of_log(log, 4))


def fluent_bit(directory: Path, log: Path) -> None:
    """Killed, so that the row is in the write-ahead log only."""
    directory.mkdir()
    with closing(connected(directory / "live.db")) as database:
        database.execute(INSERT, (str(log), 4, log.stat().st_ino))
        for end in ("", "-wal"):
            shutil.copyfile(directory / f"live.db{end}", directory / f"tail.db{end}")
    (directory / "live.db").unlink()


def vector(directory: Path, log: Path) -> None:
    (directory / "in").mkdir(parents=True)
    (directory / "in" / "checkpoints.json").write_text(document((first_line(log.read_bytes()[:4]), 4)))


def connect(directory: Path, log: Path) -> None:
    directory.mkdir()
    (directory / "connect.offsets").write_bytes(java_map({json.dumps(["shop", {"filename": str(log)}]).encode(): b'{"position":4}'}))


def rsyslog(directory: Path, log: Path) -> None:
    directory.mkdir()
    (directory / f"imfile-state:{log.stat().st_ino}").write_text(json.dumps({"filename": str(log), "strt_offs": 4}))


def flume(directory: Path, log: Path) -> None:
    directory.mkdir()
    told = [{"inode": log.stat().st_ino, "pos": 4, "file": str(log)}]
    (directory / "taildir_position.json").write_text(json.dumps(told))


def otel(directory: Path, log: Path) -> None:
    directory.mkdir()
    written(directory, inline({b"file_input.knownFiles": value(known(LINES[:8], 4))}))


@pytest.mark.parametrize("write", [filebeat, fluent_bit, vector, connect, rsyslog, flume, otel])
def test_nothing_of_a_peers_state_is_changed_or_added(tmp_path: Path, log: Path, write: Callable[[Path, Path], None]) -> None:
    directory, product = tmp_path / "peer", write.__name__.replace("_", "-")
    write(directory, log)
    state = directory / {"connect": "connect.offsets", "otel": "storage"}.get(product, "")
    before = everything_of(tmp_path)
    assert [one.position for one in PEERS[product](state).positions] == [4]
    taken_over(successor(log), state=PEERS[product](state), trust_names=True)
    assert everything_of(tmp_path) == before


def everything_of(directory: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Contents, inodes, and times of change of all that is below a directory."""
    found = {}
    for path in (directory, *directory.rglob("*")):
        info = path.stat()
        found[str(path)] = (path.read_bytes() if path.is_file() else b"", info.st_ino, info.st_mtime_ns, info.st_ctime_ns)
    return found


@pytest.mark.parametrize("torn", [b"", b'{"op":"set","id":2}\n', b'{"op":"set","id":2}\n{"k":"filebeat::lo', b'{"op":"se'])
@pytest.mark.parametrize("zeros", [0, 1, 5000])
def test_what_a_crash_of_the_host_left_behind_the_last_operation_of_filebeat_was_not_saved(
    tmp_path: Path, log: Path, torn: bytes, zeros: int
) -> None:
    registry = Registry(tmp_path / "registry")
    registry.set(*of_log(log, 4))
    with registry.log.open("ab") as file:
        file.write(torn + b"\0" * zeros)
    assert [one.position for one in filebeat_registry.read(registry.directory).positions] == [4]


@pytest.mark.parametrize("name", ["3.json.new", "checkpoint.new", "99.json.tmp", "x3.json", "-3.json"])
def test_a_snapshot_that_filebeat_had_not_finished_does_not_count(tmp_path: Path, log: Path, name: str) -> None:
    registry = Registry(tmp_path / "registry")
    registry.set(*of_log(log, 4))
    (registry.directory / name).write_text("[{")
    assert [one.position for one in filebeat_registry.read(registry.directory).positions] == [4]


@pytest.mark.parametrize("product", list(PEERS))
@pytest.mark.timeout(60)
def test_a_pipe_where_a_state_should_be_holds_nobody_up(tmp_path: Path, product: str) -> None:
    for name in ("log.json", "meta.json", "checkpoints.json", "tail.db", "imfile-state:5", "taildir_position.json", "receiver_filelog_"):
        os.mkfifo(tmp_path / name)
    for state in (tmp_path, tmp_path / "tail.db", tmp_path / "taildir_position.json"):
        with pytest.raises(CopycatError):
            PEERS[product](state)


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_database_with_a_log_that_is_too_large_or_no_file_is_not_copied(tmp_path: Path, log: Path, end: str) -> None:
    database = tmp_path / "tail.db"
    with closing(connected(database, "DELETE")) as connection:
        connection.execute(INSERT, (str(log), 4, log.stat().st_ino))
    beside = Path(f"{database}{end}")
    with beside.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(CopycatError, match="are more than"):
        fluent_bit_database.read(database)
    beside.unlink()
    os.mkfifo(beside)
    with pytest.raises(CopycatError, match="not a regular file"):
        fluent_bit_database.read(database)


def test_a_value_that_a_database_makes_of_nothing_is_not_made(tmp_path: Path) -> None:
    database = tmp_path / "tail.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE in_tail_files (id, name GENERATED ALWAYS AS (zeroblob(900000000)), offset, inode, created)")
        connection.execute("INSERT INTO in_tail_files (id, offset, inode, created) VALUES (1, 4, 5, 6)")
        connection.commit()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CopycatError, match="no text"):
        fluent_bit_database.read(database)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_keys_of_bolt_that_lie_over_one_another_are_not_copied_without_bound(tmp_path: Path) -> None:
    """A page of 60,000 entries, each with all that follows for its key."""
    count, size = 60_000, 2**22
    whole = inline({b"a": b"b"})
    page = struct.pack("<QHHI", 2, 2, count, size // SIZE) + b"".join(
        struct.pack("<IIII", 0, 16 * (count - index), size // 2, 0) for index in range(count)
    )
    content = (whole[: 2 * SIZE] + page).ljust(size, b"\0")
    begun = time.process_time()
    with pytest.raises(CopycatError, match="over one another"):
        list(bolt.entries(StateFile(tmp_path / "receiver_filelog_", content, 1), b"default"))
    assert time.process_time() - begun < CPU_SECONDS


@pytest.fixture
def many(tmp_path: Path) -> list[Path]:
    directory = tmp_path / "many"
    directory.mkdir()
    paths = [directory / f"{number:05}.log" for number in range(MANY)]
    for number, path in enumerate(paths):
        path.write_bytes(b"%05d\ntwo\n" % number)
    return paths


@pytest.mark.parametrize("peer", ["by inode", "by inode, gone", "by first bytes", "by first bytes without a name", "by name"])
@pytest.mark.timeout(300)
def test_a_state_of_very_many_files_takes_as_long_as_each_of_them(many: list[Path], peer: str) -> None:
    def first(path: Path) -> HeadProof:
        return HeadProof(lambda read: read(0, 6), path.read_bytes()[:6], "first 6 bytes")

    makers: dict[str, Callable[[Path], PeerPosition]] = {
        "by inode": lambda path: PeerPosition(6, str(path), inode=path.stat().st_ino),
        "by inode, gone": lambda path: PeerPosition(6, str(path), inode=path.stat().st_ino + 2**40),
        "by first bytes": lambda path: PeerPosition(6, str(path), head=first(path)),
        "by first bytes without a name": lambda path: PeerPosition(6, head=first(path)),
        "by name": lambda path: PeerPosition(6, str(path)),
    }
    state = PeerState(tuple(makers[peer](path) for path in many), time.time_ns())
    begun = time.process_time()
    takeover = taken_over(successor(many[0].parent / "*.log"), state=state, trust_names=True)
    took = time.process_time() - begun
    assert len(offsets(takeover)) == (0 if peer == "by inode, gone" else MANY)
    assert took < CPU_SECONDS


def test_a_very_large_log_is_not_read_for_its_position(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    with log.open("wb") as file:
        file.seek(2**40)
        file.write(b"\nlast\n")
    begun = time.process_time()
    position = PeerPosition(2**40 + 1, str(log), inode=log.stat().st_ino)
    takeover = taken_over(successor(log), state=PeerState((position,), time.time_ns()))
    assert judged(takeover)["app.log"].taken
    assert time.process_time() - begun < CPU_SECONDS


@pytest.mark.parametrize("product", PEERS)
def test_a_state_that_the_kernel_refuses_is_told_whoever_asks_for_it(product: str, tmp_path: Path) -> None:
    """One whose name is too long, as here, or in another user's directory, which root would read."""
    with pytest.raises(CopycatError, match="run this as a user who may read"):
        PEERS[product](tmp_path / ("x" * 300))
