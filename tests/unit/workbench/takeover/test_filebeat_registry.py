"""Filebeat's registry, in the form that libbeat's memlog store writes: a snapshot, and a log of operations behind it."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.workbench.takeover import filebeat_registry
from tests.unit.workbench.takeover.peers import LINES, assert_never_crashes, judged, offsets, read_on, refused, successor, taken_over


class Registry:
    """A registry that is written operation by operation, as Filebeat does it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.count = 0
        directory.mkdir(parents=True)
        (directory / "meta.json").write_text('{"version":"1"}')
        self.log = directory / "log.json"
        self.log.touch()

    def set(self, key: str, value: dict[str, Any]) -> None:
        self._operation("set", {"k": key, "v": value})

    def remove(self, key: str) -> None:
        self._operation("remove", {"k": key})

    def checkpoint(self, entries: dict[str, Any]) -> None:
        """A snapshot; the log is cut, as Filebeat does it last."""
        self.count += 1
        lines = ",\n".join(json.dumps({"_key": key, **value}, separators=(",", ":")) for key, value in entries.items())
        (self.directory / f"{self.count}.json").write_text(f"[{lines}\n]")
        (self.directory / "active.dat").write_text(str(self.directory / f"{self.count}.json"))
        self.log.write_text("")

    def _operation(self, name: str, operation: dict[str, Any]) -> None:
        self.count += 1
        with self.log.open("a") as file:
            for line in ({"op": name, "id": self.count}, operation):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")


def of_log(path: Path, offset: int, **more: Any) -> tuple[str, dict[str, Any]]:
    """An entry of input `log`."""
    info = path.stat()
    told = f"native::{info.st_ino}-{info.st_dev}"
    value = {
        "id": told, "prev_id": "", "source": str(path), "offset": offset, "timestamp": [2061628216741, int(time.time())], "ttl": -1,
        "type": "log", "meta": None, "identifier_name": "native", "FileStateOS": {"inode": info.st_ino, "device": info.st_dev},
    }  # fmt: skip
    return f"filebeat::logs::{told}", value | more


def of_filestream(path: Path, offset: int, told: str = "", kind: str = "native", **more: Any) -> tuple[str, dict[str, Any]]:
    """An entry of input `filestream`."""
    info = path.stat()
    told = told or f"{info.st_ino}-{info.st_dev}"
    value = {
        "ttl": -1, "updated": [280187083606991, int(time.time())], "cursor": {"offset": offset, "eof": False},
        "meta": {"source": str(path), "identifier_name": kind},
    }  # fmt: skip
    return f"filestream::my-id::{kind}::{told}", value | more


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "data" / "registry" / "filebeat")


@pytest.mark.parametrize("make", [of_log, of_filestream])
@pytest.mark.parametrize("place", ["data/registry/filebeat", "data/registry", "data", "."])
def test_the_agent_goes_on_where_an_input_was(tmp_path: Path, registry: Registry, log: Path, make: Any, place: str) -> None:
    registry.set(*make(log, 4))
    (tmp_path / "data" / "meta.json").write_text('{"uuid":"6b1c","first_start":"2026-11-28T15:27:44Z"}')  # Filebeat's own, in path.data
    takeover = taken_over(successor(log), state=filebeat_registry.read(tmp_path / place))
    told = judged(takeover)["app.log"]
    assert told.taken
    assert told.why == "same device and inode, a line ends before byte 4, 10 bytes more since"
    assert read_on(log, takeover.rows["app"]) == [b"two", b"three"]


def test_the_log_counts_behind_the_snapshot_and_removes(registry: Registry, log: Path) -> None:
    other = log.with_name("other.log")
    other.write_bytes(LINES)
    key, value = of_log(log, 4)
    registry.checkpoint({key: value, of_log(other, 4)[0]: of_log(other, 4)[1], "httpjson::x": {"cursor": {"offset": 3}}})
    registry.set(*of_log(log, 8))
    registry.remove(of_log(other, 4)[0])
    state = filebeat_registry.read(registry.directory)
    assert [(one.path, one.position) for one in state.positions] == [(str(log), 8)]
    assert state.notes[0].startswith("1 entries")


def test_operations_that_a_snapshot_holds_already_do_not_count_again(registry: Registry, log: Path) -> None:
    """Filebeat was killed between the snapshot and the cut of its log."""
    registry.set(*of_log(log, 4))
    before = registry.log.read_text()
    registry.checkpoint(dict([of_log(log, 8)]))
    registry.log.write_text(before)
    assert [one.position for one in filebeat_registry.read(registry.directory).positions] == [8]


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_an_operation_that_a_crash_left_unfinished_was_not_saved(registry: Registry, log: Path, cut: int) -> None:
    registry.set(*of_log(log, 4))
    registry.set(*of_log(log, 8))
    registry.log.write_bytes(registry.log.read_bytes()[:-cut])
    assert [one.position for one in filebeat_registry.read(registry.directory).positions] == [8 if cut == 1 else 4]


def test_a_file_that_was_rotated_is_found_by_its_inode_whether_a_pattern_has_its_new_name_or_not(registry: Registry, log: Path) -> None:
    registry.set(*of_log(log, 4))
    state = filebeat_registry.read(registry.directory)
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"new\n")
    for pattern in (log, f"{log}*"):
        takeover = taken_over(successor(pattern), state=state)
        assert [one.taken for one in takeover.decisions].count(True) == 1
        assert sorted(read_on(pattern, takeover.rows["app"])) == [b"new", b"three", b"two"]


def test_a_file_that_came_and_was_rotated_away_after_filebeat_stopped_is_read_as_well(registry: Registry, log: Path) -> None:
    registry.set(*of_log(log, 4))
    state = filebeat_registry.read(registry.directory)
    log.rename(log.with_name("app.log.2"))
    log.with_name("app.log.1").write_bytes(b"between\n")
    log.write_bytes(b"new\n")
    takeover = taken_over(successor(log), state=state)
    assert sorted(read_on(log, takeover.rows["app"])) == [b"between", b"new", b"three", b"two"]


def test_a_file_that_the_registry_does_not_know_is_read_from_its_beginning_whatever_start_at_says(registry: Registry, log: Path) -> None:
    """It may have come after Filebeat stopped."""
    registry.set(*of_log(log, 14))
    log.with_name("new.log").write_bytes(b"new\n")
    takeover = taken_over(successor(log.with_name("*.log"), start_at="end"), state=filebeat_registry.read(registry.directory))
    told = judged(takeover)["new.log"]
    assert (told.position, told.why) == (None, "the peer knows nothing of it")
    assert "read from the beginning" in told.then
    assert read_on(log.with_name("*.log"), takeover.rows["app"], start_at="end") == [b"new"]


def test_where_no_position_is_proven_the_files_are_read_from_their_beginning_whatever_start_at_says(registry: Registry, log: Path) -> None:
    registry.set(*of_log(log, 5))
    takeover = taken_over(successor(log, start_at="end"), state=filebeat_registry.read(registry.directory))
    assert offsets(takeover) == {}
    assert "from the beginning (14 bytes)" in judged(takeover)["app.log"].then
    assert read_on(log, takeover.rows["app"], start_at="end") == LINES.splitlines()


def test_files_of_other_connectors_leave_start_at_alone(registry: Registry, log: Path) -> None:
    other = log.with_name("other.log")
    other.write_bytes(LINES)
    registry.set(*of_log(other, 4))
    takeover = taken_over(successor(log, start_at="end"), state=filebeat_registry.read(registry.directory))
    assert takeover.rows == {}
    assert "byte 14" in judged(takeover)["app.log"].then


def test_of_two_inputs_that_read_a_file_the_lesser_position_is_taken(registry: Registry, log: Path) -> None:
    registry.set(*of_log(log, 8))
    registry.set(*of_filestream(log, 4))
    takeover = taken_over(successor(log), state=filebeat_registry.read(registry.directory))
    assert read_on(log, takeover.rows["app"]) == [b"two", b"three"]


def test_another_file_under_the_name_is_not_the_one_that_was_read(registry: Registry, log: Path) -> None:
    registry.set(*of_log(log, 4))
    beside = log.with_name(".tmp")
    beside.write_bytes(LINES)
    beside.rename(log)
    told = judged(taken_over(successor(log), state=filebeat_registry.read(registry.directory)))["app.log"]
    assert (told.taken, told.is_there) == (False, False)
    assert told.why.startswith("gone: another file has its name")
    assert "from the beginning" in told.then


def test_a_fingerprint_finds_the_file_under_any_name_and_refutes_another_one(registry: Registry, log: Path) -> None:
    content = b"".join(b"line %d\n" % number for number in range(200))
    log.write_bytes(content)
    registry.set(*of_filestream(log, 7, hashlib.sha256(content[:1024]).hexdigest(), "fingerprint"))
    state = filebeat_registry.read(registry.directory)
    takeover = taken_over(successor(log), state=state)
    assert judged(takeover)["app.log"].why.startswith("same SHA-256 of the first 1,024 bytes, a line ends before byte 7")
    assert read_on(log, takeover.rows["app"]) == content.split(b"\n")[1:-1]
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"other\n" * 300)
    takeover = taken_over(successor(log), state=state)
    assert len(read_on(log, takeover.rows["app"])) == 300 + 199
    log.with_name("app.log.1").unlink()
    for saved_ns, why in ((state.saved_ns, "it was made after"), (time.time_ns(), "it begins with other bytes")):
        told = [one for one in taken_over(successor(log), state=state._replace(saved_ns=saved_ns)).decisions if one.position is not None]
        assert [one.taken for one in told] == [False]
        assert told[0].why.startswith(f"gone: {why}")


def test_two_files_with_one_fingerprint_are_not_told_apart(registry: Registry, log: Path) -> None:
    content = b"same\n" * 300
    for name in ("a.log", "b.log"):
        log.with_name(name).write_bytes(content)
    registry.set(*of_filestream(log, 5, hashlib.sha256(content[:1024]).hexdigest(), "fingerprint"))
    takeover = taken_over(successor(log.with_name("[ab].log")), state=filebeat_registry.read(registry.directory))
    assert offsets(takeover) == {}
    assert "2 files have the same" in judged(takeover)["a.log"].why


def test_a_file_that_is_passed_over_is_not_gone(registry: Registry, log: Path) -> None:
    registry.set(*of_log(log, 4, source=str(log.with_name("link.log"))))
    log.rename(log.with_name("target"))
    log.with_name("link.log").symlink_to(log.with_name("target"))
    state = filebeat_registry.read(registry.directory)
    told = judged(taken_over(successor(log.with_name("*.log")), state=state))["link.log"]
    assert (told.taken, told.is_there) == (False, True)
    assert "set follow_symlinks: true" in told.why
    assert judged(taken_over(successor(log.with_name("*.log"), follow_symlinks="true"), state=state))["link.log"].taken


def test_what_was_not_begun_or_only_waits_to_be_removed_is_no_position(registry: Registry, log: Path) -> None:
    registry.set(*of_log(log, 4, ttl=0))
    key, value = of_filestream(log, 4)
    registry.set(key, value | {"cursor": None})
    assert filebeat_registry.read(registry.directory).positions == ()


def test_a_device_that_has_another_number_now_is_no_proof(registry: Registry, log: Path) -> None:
    info = log.stat()
    registry.set(*of_log(log, 4, FileStateOS={"inode": info.st_ino, "device": info.st_dev + 1}))
    told = judged(taken_over(successor(log), state=filebeat_registry.read(registry.directory)))["app.log"]
    assert "on another device" in told.why


def test_hostile_registries_are_refused_with_words(registry: Registry, log: Path) -> None:
    registry.checkpoint(dict([of_log(log, 4)]))
    registry.set(*of_log(log, 8))
    snapshot = registry.directory / f"{registry.count - 1}.json"
    for target in (registry.log, snapshot, registry.directory / "meta.json"):
        whole = target.read_bytes()
        assert_never_crashes("filebeat", registry.directory, whole, target)
        target.write_bytes(whole)
    for wrong in (-1, 2**63, 1.5, "4", True, None):
        key, value = of_log(log, 4)
        registry.checkpoint({key: value | {"offset": wrong}})
        assert "no whole number" in refused("filebeat", registry.directory)
    registry.checkpoint(dict([of_log(log, 4, source="/a\0b")]))
    assert "no text" in refused("filebeat", registry.directory)
    registry.checkpoint({})
    registry.count += 1
    registry.set(*of_log(log, 8))
    assert "one between is missing" in refused("filebeat", registry.directory)
    (registry.directory / "meta.json").write_text('{"version":"2"}')
    assert "another version" in refused("filebeat", registry.directory)
    assert "is no registry" in refused("filebeat", log.parent)


def test_nothing_of_the_registry_is_changed(registry: Registry, log: Path) -> None:
    registry.set(*of_log(log, 4))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in registry.directory.iterdir()}
    taken_over(successor(log), state=filebeat_registry.read(registry.directory))
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in registry.directory.iterdir()} == before
    assert list(log.parent.iterdir()) == [log]
