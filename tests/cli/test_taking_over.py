"""`copycat import --positions`: it says of each file what becomes of it, and saves what is proven, when it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from copycat_agent.offsets import OffsetStore
from tests.cli.conftest import Said
from tests.unit.workbench.takeover.peers import LINES, java_map, read_on
from tests.unit.workbench.takeover.test_filebeat_registry import Registry, of_log

FILEBEAT = """filebeat.inputs:
  - type: filestream
    id: shop
    paths: ["{logs}/*.log"]
output.kafka:
  hosts: ["127.0.0.1:9092"]
  topic: logs.shop
"""
CONNECT = "name=Shop_1\nconnector.class=FileStreamSource\nfile={log}\ntopic=logs.shop\nbootstrap.servers=127.0.0.1:9092\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    directory = tmp_path / "logs"
    directory.mkdir()
    for name in ("a.log", "b.log", "c.log"):
        (directory / name).write_bytes(LINES)
    return directory


@pytest.fixture
def taking(tmp_path: Path, logs: Path, in_process: Callable[..., Said]) -> Callable[..., Said]:
    """`taking("--write")`: of a.log the first line is read, of b.log a line and a half; c.log is not known, d.log is gone."""
    configuration = tmp_path / "filebeat.yml"
    configuration.write_text(FILEBEAT.format(logs=logs))
    registry = Registry(tmp_path / "registry" / "filebeat")
    registry.set(*of_log(logs / "a.log", 4))
    registry.set(*of_log(logs / "b.log", 6))
    gone = logs / "d.log"
    gone.write_bytes(LINES)
    registry.set(*of_log(gone, 4))
    gone.unlink()

    def call(*options: str | Path) -> Said:
        arguments = ("import", "filebeat", configuration, "--positions", tmp_path / "registry", *options)
        return in_process(*arguments, "--state-dir", tmp_path / "state")

    return call


def test_it_says_of_each_file_what_becomes_of_it_and_saves_nothing(taking: Callable[..., Said], tmp_path: Path) -> None:
    said = taking()
    lines = [line.strip() for line in said.out.splitlines()]
    told = {name: next(line for line in lines if f"/{name}:" in line) for name in ("a.log", "b.log", "c.log", "d.log")}
    assert "goes on at byte 4: same device and inode, a line ends before byte 4, 10 bytes more since" in told["a.log"]
    assert "not taken: 6 is not just behind a line's end" in told["b.log"]
    assert "it is read from the beginning (14 bytes)" in told["b.log"]
    assert "the peer knows nothing of it; it is read from the beginning" in told["c.log"]
    assert "not taken: gone" in told["d.log"]
    assert lines[-1].endswith("3 positions, 1 taken; nothing is saved yet: --write does, while the product is stopped")
    assert said.code == 1, "the position of a file that is there is not taken"
    assert not (tmp_path / "state").exists()


def test_what_is_proven_is_saved_and_a_run_goes_on_there(taking: Callable[..., Said], tmp_path: Path, logs: Path) -> None:
    out = tmp_path / "connectors.d"
    said = taking("--write", "-o", out)
    assert "1 taken, saved" in said.out
    assert [path.name for path in out.iterdir()] == ["shop.yaml"]
    with OffsetStore.open(tmp_path / "state") as store:
        rows = store.saved("shop")
    assert sorted(read_on(logs / "*.log", rows)) == sorted([*LINES.splitlines(), *LINES.splitlines(), b"two", b"three"])


def test_positions_that_are_saved_already_are_kept_without_force(taking: Callable[..., Said], tmp_path: Path) -> None:
    taking("--write")
    with OffsetStore.open(tmp_path / "state") as store:
        before = store.saved("shop")
    said = taking("--write")
    assert said.code == 1
    assert "positions are saved already of shop, and nothing was changed" in said.err
    with OffsetStore.open(tmp_path / "state") as store:
        assert store.saved("shop") == before
    assert "1 taken, saved" in taking("--write", "--force").out


def test_nothing_is_written_when_a_state_cannot_be_read(taking: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "registry" / "filebeat" / "log.json").write_text("{}\n{}\n")
    said = taking("--write", "-o", tmp_path / "out")
    assert said.code == 1
    assert "log.json" in said.err
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "out").exists()


def test_no_store_is_made_when_no_position_is_of_a_file_that_is_read(tmp_path: Path, logs: Path, in_process: Callable[..., Said]) -> None:
    configuration, registry = tmp_path / "filebeat.yml", Registry(tmp_path / "registry")
    configuration.write_text(FILEBEAT.format(logs=tmp_path / "others"))
    registry.set(*of_log(logs / "a.log", 4))
    options = ("--positions", registry.directory, "--state-dir", tmp_path / "state", "--write")
    assert "1 position, 0 taken\n" in in_process("import", "filebeat", configuration, *options).out
    assert not (tmp_path / "state").exists()


def test_where_nothing_is_proven_it_is_saved_that_the_files_are_read_from_their_beginning_and_positions_may_still_follow(
    taking: Callable[..., Said], logs: Path
) -> None:
    whole = (logs / "a.log").read_bytes()
    (logs / "a.log").write_bytes(b"cut")
    assert "3 positions, 0 taken, saved\n" in taking("--write").out
    (logs / "a.log").write_bytes(whole)
    assert "3 positions, 1 taken, saved\n" in taking("--write").out


def test_for_programs(taking: Callable[..., Said]) -> None:
    found = json.loads(taking("--format", "json").out)
    assert found["written"] is False
    assert {Path(one["path"]).name: one["taken"] for one in found["positions"]} == {
        "a.log": True, "b.log": False, "c.log": False, "d.log": False,
    }  # fmt: skip


def test_a_connector_of_connect_is_known_by_its_own_name(tmp_path: Path, logs: Path, in_process: Callable[..., Said]) -> None:
    configuration, offsets = tmp_path / "shop.properties", tmp_path / "connect.offsets"
    configuration.write_text(CONNECT.format(log=logs / "a.log"))
    keys = {name: json.dumps([name, {"filename": str(logs / "a.log")}]).encode() for name in ("Shop_1", "other")}
    offsets.write_bytes(java_map({keys["Shop_1"]: b'{"position":8}', keys["other"]: b'{"position":4}'}))
    call = ("import", "connect", configuration, "--positions", offsets, "--state-dir", tmp_path / "state")
    assert "--trust-names takes it" in in_process(*call).out
    said = in_process(*call, "--trust-names", "--write")
    assert "goes on at byte 8: same name" in said.out
    with OffsetStore.open(tmp_path / "state") as store:
        assert read_on(logs / "a.log", store.saved("shop-1")) == [b"three"]


def test_options_that_go_with_positions_alone_are_refused(tmp_path: Path, in_process: Callable[..., Said]) -> None:
    configuration = tmp_path / "filebeat.yml"
    configuration.write_text(FILEBEAT.format(logs=tmp_path))
    assert in_process("import", "filebeat", configuration, "--write").code == 2
