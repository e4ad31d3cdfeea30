"""The offset file of a standalone Connect worker is read as Java wrote it, and a name alone proves nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from copycat_agent.workbench.takeover import FileDecision, Takeover, connect_offsets
from copycat_agent.workbench.takeover.peer_state import STATE_BYTES_MAX, PeerState
from tests.unit.workbench.takeover.peers import (
    LINES,
    assert_never_crashes,
    java_map,
    judged,
    offsets,
    read_on,
    read_spooled,
    refused,
    spooling,
    successor,
    taken_over,
)


def written(tmp_path: Path, *offsets: tuple[str, dict[str, object], object]) -> PeerState:
    """What is read of a worker's file that holds these."""
    entries = {json.dumps([name, partition]).encode(): None if at is None else json.dumps(at).encode() for name, partition, at in offsets}
    path = tmp_path / "connect.offsets"
    path.write_bytes(java_map(entries))
    return connect_offsets.read(path)


def stream(tmp_path: Path, log: Path, position: int) -> PeerState:
    return written(tmp_path, ("app", {"filename": str(log)}, {"position": position}))


def test_offsets_of_file_streams_and_spooled_files_are_read(tmp_path: Path) -> None:
    state = written(
        tmp_path,
        ("app", {"filename": "/a.log"}, {"position": 4}),
        ("spool", {"fileName": "a.csv"}, {"offset": 7}),
        ("app", {"filename": "/deleted.log"}, None),
        ("jdbc", {"table": "t"}, {"id": 1}),
    )
    assert [(one.pipeline, one.path, one.position) for one in state.positions] == [("app", "/a.log", 4), ("spool", "a.csv", 7)]
    assert state.notes[0].startswith("2 offsets in ")
    assert state.saved_ns == (tmp_path / "connect.offsets").stat().st_mtime_ns


def test_a_name_alone_proves_nothing_and_is_taken_when_a_person_trusts_it(tmp_path: Path, log: Path) -> None:
    state = stream(tmp_path, log, 4)
    told = judged(taken_over(successor(log), state=state))["app.log"]
    assert not told.taken
    assert "keeps only its name" in told.why
    assert "--trust-names" in told.why
    assert "read from the beginning" in told.then
    takeover = taken_over(successor(log), state=state, trust_names=True)
    assert judged(takeover)["app.log"].taken
    assert read_on(log, takeover.rows["app"]) == [b"two", b"three"]


@pytest.mark.parametrize(
    ("content", "position", "why"),
    [
        (LINES, 5, "not just behind a line's end"),
        (LINES, 15, "it was cut, or written anew"),
        ("één\ntwo\n".encode(), 4, "counts characters"),
        (b"\x1f\x8b\x08\x00" + LINES, 8, "packed"),
    ],
)
def test_a_position_that_the_file_refutes_is_not_taken_whoever_is_trusted(
    tmp_path: Path, log: Path, content: bytes, position: int, why: str
) -> None:
    log.write_bytes(content)
    takeover = taken_over(successor(log), state=stream(tmp_path, log, position), trust_names=True)
    told = judged(takeover)["app.log"]
    assert (told.taken, told.is_there) == (False, True)
    assert why in told.why
    assert offsets(takeover) == {}


def test_a_file_that_is_younger_than_the_offsets_is_another_one(tmp_path: Path, log: Path) -> None:
    state = stream(tmp_path, log, 4)
    os.utime(tmp_path / "connect.offsets", ns=(1, 1))
    told = judged(taken_over(successor(log), state=state._replace(saved_ns=1), trust_names=True))["app.log"]
    assert "made after" in told.why


def test_a_file_that_is_gone_is_named(tmp_path: Path, log: Path) -> None:
    state = stream(tmp_path, log, 4)
    log.unlink()
    told = judged(taken_over(successor(log), state=state, trust_names=True))["app.log"]
    assert (told.taken, told.is_there) == (False, False)
    assert told.why.startswith("gone")


def test_positions_of_other_connectors_are_for_them_alone(tmp_path: Path, log: Path) -> None:
    state = stream(tmp_path, log, 4)
    told = judged(taken_over(successor(log, pipelines=frozenset({"other"})), state=state, trust_names=True))["app.log"]
    assert not told.taken


class Spooled:
    """SpoolDir has stopped in `in/a.csv`, behind the line `3,4`; what is finished goes to `done`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.root, self.done = directory / "in", directory / "done"
        self.root.mkdir()
        self.done.mkdir()
        self.file = self.root / "a.csv"
        self.file.write_bytes(b"h,i\n1,2\n3,4\n5,6\n")
        self.offset = 3

    def taken(
        self, form: str = "{type: csv, header: true}", *, trust_names: bool = True, recursive: str = "false"
    ) -> tuple[FileDecision, Takeover]:
        state = written(self._directory, ("app", {"fileName": "a.csv"}, {"offset": self.offset}))
        cleanup = f"{{policy: move, to: '{self.done}'}}"
        taking = spooling(self.root, pipelines=frozenset({"app"}), format=form, cleanup=cleanup, recursive=recursive)
        takeover = taken_over(taking, state=state, trust_names=trust_names)
        return judged(takeover)["a.csv"], takeover


@pytest.fixture
def spooled(tmp_path: Path) -> Spooled:
    return Spooled(tmp_path)


@pytest.mark.parametrize("form", ["lines", {"type": "csv", "header": True}])
def test_a_spooled_file_is_read_on_behind_the_lines_that_were_read(spooled: Spooled, form: object) -> None:
    told, takeover = spooled.taken("lines" if form == "lines" else "{type: csv, header: true}")
    assert (told.taken, told.position) == (True, 12)
    arrived = read_spooled(spooled.root, takeover, format=form, cleanup={"policy": "move", "to": str(spooled.done)})
    assert arrived == [b"5,6" if form == "lines" else b'{"h":"5","i":"6"}']
    assert [path.name for path in spooled.done.iterdir()] == ["a.csv"]


def test_a_spooled_file_that_was_read_to_its_end_is_only_moved(spooled: Spooled) -> None:
    spooled.offset = 4
    _, takeover = spooled.taken("lines")
    assert read_spooled(spooled.root, takeover, cleanup={"policy": "move", "to": str(spooled.done)}) == []
    assert [path.name for path in spooled.done.iterdir()] == ["a.csv"]


def test_the_name_of_a_spooled_file_is_trusted_only_when_a_person_says_so(spooled: Spooled) -> None:
    assert "--trust-names takes it" in spooled.taken(trust_names=False)[0].why


@pytest.mark.parametrize("directory", ["done", "done/2026-11-28"])
def test_a_position_that_may_be_that_of_a_finished_file_is_not_taken(spooled: Spooled, tmp_path: Path, directory: str) -> None:
    (tmp_path / directory).mkdir(exist_ok=True)
    (tmp_path / directory / "a.csv").write_bytes(b"h,i\n1,2\n3,4\n")
    told, takeover = spooled.taken()
    assert "a finished file of this name" in told.why
    assert offsets(takeover) == {}


def test_a_spooled_file_that_was_changed_since_or_whose_lines_may_be_no_records_is_read_again(spooled: Spooled) -> None:
    assert "only lines can be counted" in spooled.taken("json")[0].why
    assert "only lines can be counted" in spooled.taken("{type: csv, header: true, skip_lines: 2}")[0].why
    (spooled.root / "sub").mkdir()
    (spooled.root / "sub" / "a.csv").write_bytes(b"h\n")
    assert "2 files have this name" in spooled.taken("lines", recursive="true")[0].why
    (spooled.root / "sub" / "a.csv").unlink()
    spoilt = {b'h,i\n"1,2\n3",4\n5,6\n': "surely a record", b"h\r1\n2\n3\n4\n": "surely a record", b"h\n1\n2": "it holds 2 lines"}
    for content, why in spoilt.items():
        spooled.file.write_bytes(content)
        told, takeover = spooled.taken()
        assert why in told.why
        assert offsets(takeover) == {}
    os.utime(spooled.file, (2**32, 2**32))
    assert "changed after" in spooled.taken()[0].why


def test_hostile_files_are_refused_with_words(tmp_path: Path) -> None:
    path = tmp_path / "connect.offsets"
    assert "No such file" in refused("connect", path)
    path.write_bytes(b"hello")
    assert "not the offsets of a standalone worker" in refused("connect", path)
    whole = java_map({b'["a",{"filename":"/x"}]': b'{"position":4}', b'["b",{"filename":"/y"}]': None})
    assert_never_crashes("connect", path, whole, path)
    for bad in (b"-1", b"1.5", b"true", b"9" * 5000, b'"4"', b"null"):
        path.write_bytes(java_map({b'["a",{"filename":"/x"}]': b'{"position":' + bad + b"}"}))
        refused("connect", path)
    path.write_bytes(java_map({b"{}": b"{}"}))
    assert "not [connector, partition]" in refused("connect", path)
    with path.open("wb") as file:
        file.truncate(STATE_BYTES_MAX + 1)
    assert "more than" in refused("connect", path)
    assert "is a directory" in refused("connect", tmp_path)
