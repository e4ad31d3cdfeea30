"""Vector's checkpoints, in the form that its checkpointer serializes: fingerprints without names."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from copycat_agent.workbench.takeover import vector_checkpoints
from copycat_agent.workbench.takeover.peer_state import PeerState
from copycat_agent.workbench.takeover.vector_checkpoints import crc64
from tests.unit.workbench.takeover.peers import LINES, assert_never_crashes, judged, offsets, read_on, refused, successor, taken_over


def modified(ago_seconds: float = 0) -> str:
    """As Vector has it, to the nanosecond."""
    return (datetime.now(UTC) - timedelta(seconds=ago_seconds)).strftime("%Y-%m-%dT%H:%M:%S.%f123Z")


def document(*checkpoints: tuple[dict[str, Any], object]) -> str:
    told = [{"fingerprint": fingerprint, "position": position, "modified": modified()} for fingerprint, position in checkpoints]
    return json.dumps({"version": "1", "checkpoints": told})


def written(tmp_path: Path, *checkpoints: tuple[dict[str, Any], object], name: str = "checkpoints.json") -> Path:
    """A data directory with one component."""
    component = tmp_path / "data" / "my_files"
    component.mkdir(parents=True, exist_ok=True)
    (component / name).write_text(document(*checkpoints))
    return tmp_path / "data"


def first_line(line: bytes) -> dict[str, Any]:
    return {"first_lines_checksum": crc64(line)}


def read(tmp_path: Path, *checkpoints: tuple[dict[str, Any], object]) -> PeerState:
    return vector_checkpoints.read(written(tmp_path, *checkpoints))


def test_the_checksum_is_that_of_the_catalogue_of_crcs() -> None:
    """CRC-64/ECMA-182, check value of "123456789"."""
    assert crc64(b"123456789") == 0x6C40DF5F0B497347


@pytest.mark.parametrize("kind", ["first_lines_checksum", "first_line_checksum", "dev_inode"])
def test_the_agent_goes_on_where_the_source_was(tmp_path: Path, log: Path, kind: str) -> None:
    info = log.stat()
    told: object = [info.st_dev, info.st_ino] if kind == "dev_inode" else crc64(b"one\n")
    takeover = taken_over(successor(log), state=read(tmp_path, ({kind: told}, 8)))
    same = "same device and inode" if kind == "dev_inode" else "same checksum of the first line"
    assert judged(takeover)["app.log"].why == f"{same}, a line ends before byte 8, 6 bytes more since"
    assert read_on(log, takeover.rows["app"]) == [b"three"]


def test_checkpoints_that_a_real_file_source_has_written_are_taken(tmp_path: Path, log: Path) -> None:
    """That of Vector 0.58, killed in a log that ends in an unfinished line."""
    log.write_bytes(LINES + b"part")
    (path := written(tmp_path) / "my_files" / "checkpoints.json").write_text(
        '{"version":"1","checkpoints":[{"fingerprint":{"first_lines_checksum":1183175558019633866},"position":14,'
        '"modified":"2026-11-28T17:52:46.069948896Z"}]}'.replace("2026-11-28T17:52:46.069948896Z", modified())
    )
    takeover = taken_over(successor(log), state=vector_checkpoints.read(path.parent))
    with log.open("ab") as file:
        file.write(b" and ended\n")
    assert read_on(log, takeover.rows["app"]) == [b"part and ended"]


@pytest.mark.parametrize("told", ["", "yesterday", "9999-99-99T00:00:00Z", 5])
def test_times_that_are_none_count_for_nothing(tmp_path: Path, told: object) -> None:
    document = {"version": "1", "checkpoints": [{"fingerprint": first_line(b"one\n"), "position": 4, "modified": told}]}
    (path := written(tmp_path) / "my_files" / "checkpoints.json").write_text(json.dumps(document))
    assert vector_checkpoints.read(path.parent).saved_ns == path.stat().st_mtime_ns


def test_a_copy_of_the_state_is_as_old_as_what_it_says(tmp_path: Path) -> None:
    document = {"version": "1", "checkpoints": [{"fingerprint": first_line(b"one\n"), "position": 4, "modified": modified(3600)}]}
    (path := written(tmp_path) / "my_files" / "checkpoints.json").write_text(json.dumps(document))
    assert 3598 < path.stat().st_mtime - vector_checkpoints.read(path.parent).saved_ns / 1e9 < 3610


def test_a_checkpoint_file_that_vector_had_not_renamed_yet_is_the_younger_one_when_it_is_whole(tmp_path: Path, log: Path) -> None:
    data = written(tmp_path, (first_line(b"one\n"), 4))
    written(tmp_path, (first_line(b"one\n"), 8), name="checkpoints.new.json")
    younger = data / "my_files" / "checkpoints.new.json"
    assert [one.position for one in vector_checkpoints.read(data).positions] == [8]
    younger.write_bytes(younger.read_bytes()[:-3])
    assert [one.position for one in vector_checkpoints.read(data / "my_files").positions] == [4]
    assert log.exists()


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
def test_a_rotated_file_is_found_by_its_first_line(tmp_path: Path, log: Path, pattern: str) -> None:
    state = read(tmp_path, (first_line(b"one\n"), 8))
    log.rename(log.with_name("app.log.1"))
    log.write_bytes(b"new\n")
    include = log.with_name(pattern)
    takeover = taken_over(successor(include), state=state)
    assert sorted(read_on(include, takeover.rows["app"])) == [b"new", b"three"]


def test_files_that_begin_with_the_same_line_are_not_told_apart(tmp_path: Path, log: Path) -> None:
    log.with_name("b.log").write_bytes(LINES)
    takeover = taken_over(successor(log.with_name("*.log")), state=read(tmp_path, (first_line(b"one\n"), 8)))
    assert offsets(takeover) == {}
    assert "2 files have the same checksum" in judged(takeover)["app.log"].why


def test_a_checkpoint_of_no_file_that_is_there_is_told(tmp_path: Path, log: Path) -> None:
    takeover = taken_over(successor(log), state=read(tmp_path, (first_line(b"other\n"), 8), ({"checksum": 5}, 3)))
    told = [one.why for one in takeover.decisions if one.position is not None]
    assert told[0] == "no file that is read is that one"
    assert "by checksum, which cannot be compared" in told[1]
    assert [one.path for one in takeover.decisions if one.position is None] == [str(log)]


def test_hostile_checkpoints_are_refused_with_words(tmp_path: Path) -> None:
    assert "is no directory" in refused("vector", tmp_path / "none")
    assert "no checkpoints" in refused("vector", tmp_path)
    data = written(tmp_path, (first_line(b"one\n"), 8), ({"dev_inode": [1, 2]}, 4))
    path = data / "my_files" / "checkpoints.json"
    assert_never_crashes("vector", data, path.read_bytes(), path)
    for wrong in (-1, 1.5, "8", None, True, 2**63):
        written(tmp_path, (first_line(b"one\n"), wrong))
        assert "no whole number" in refused("vector", data)
    for told in ({}, {"a": 1, "b": 2}, {"dev_inode": [1]}, {"dev_inode": [1, -2]}, {"first_lines_checksum": "x"}):
        written(tmp_path, (told, 1))
        refused("vector", data)
    path.write_text('{"version": "2", "checkpoints": []}')
    assert "version 1" in refused("vector", data)
