"""What is saved of files that are gone does not heap up; what is saved of any other file stays."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from copycat_agent.model import SourceOffset, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.sources.files.identity import Identity, InodeFinder, identify_by_name
from copycat_agent.sources.log_file import offset_expiry
from tests.unit.sources.rig import agent_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.sources.planner import Changes
    from tests.unit.sources.rig import Agent

OTHER = {SourcePartition("other", "1:2:3:0"): SourceOffset(5)}


def kept_in(agent: Agent, store: OffsetStore) -> None:
    """What the agent saves goes to `store` as well."""
    save = agent._store

    def both(changes: Changes) -> None:
        save(changes)
        store.commit(changes.offsets, changes.forget, changes.losses)

    agent._store = both  # type: ignore[method-assign]


def cycles(directory: Path, agent: Agent, count: int, *, files: int = 1, first: int = 0) -> None:
    """So many times some files are made, read and deleted."""
    for number in range(first, first + count * files, files):
        paths = [directory / f"{one}.log" for one in range(number, number + files)]
        for path in paths:
            path.write_bytes(b"line %s\n" % path.name.encode())
        agent.scan()
        agent.work()
        for path in paths:
            path.unlink()
        agent.scan()


def later(agent: Agent, seconds: float) -> None:
    """Scan as if so much time had passed."""
    with (
        mock.patch("copycat_agent.sources.log_file.offset_expiry.time.monotonic", side_effect=lambda: time.monotonic_ns() / 1e9 + seconds),
        mock.patch("copycat_agent.sources.log_file.offset_expiry.time.time", side_effect=lambda: time.time_ns() / 1e9 + seconds),
    ):
        agent.scan()


def test_files_that_come_and_go_are_forgotten_after_forget_after_and_nobody_elses(tmp_path: Path) -> None:
    agent = agent_for(tmp_path, forget_after=1000.0)
    with OffsetStore.in_memory() as store:
        store.commit(OTHER)
        kept_in(agent, store)
        cycles(tmp_path, agent, 100)
        later(agent, 500)
        assert len(store.read("app")) == 100
        later(agent, 1500)
        assert not store.read("app")
        assert store.read("other") == OTHER
    assert len(agent.lines) == len(set(agent.lines)) == 100
    assert agent.losses == []


@pytest.fixture
def anyones() -> Iterator[Path]:
    """A directory in which permissions count, whoever runs the tests: root acts as nobody meanwhile."""
    directory = Path(tempfile.mkdtemp(prefix="copycat-forgetting-"))
    directory.chmod(0o777)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    yield directory
    if is_root:
        os.seteuid(0)
    shutil.rmtree(directory)


@pytest.fixture
def nobodys(anyones: Path) -> Path:
    """`anyones`, in which whoever runs the tests can make files that the agent may not read."""
    if os.getuid() != 0:
        pytest.skip("only root can make files of root")
    return anyones


def write(path: Path, *lines: bytes) -> None:
    with path.open("ab") as file:
        file.writelines(line + b"\n" for line in lines)


def exclude(agent: Agent, *patterns: str) -> None:
    """As a reload does."""
    agent.options = agent.options.model_copy(update={"exclude": patterns})
    agent.stop()


@pytest.mark.parametrize("ended", ["stop", "restart"])
def test_what_is_excluded_for_a_while_is_not_sent_again(tmp_path: Path, ended: str) -> None:
    path, agent = tmp_path / "app.log", agent_for(tmp_path, forget_after=1000.0)
    write(path, b"one", b"two")
    agent.drain()
    exclude(agent, "app.log")
    for seconds in (500, 1500, 3000):
        later(agent, seconds)
    getattr(agent, ended)()
    later(agent, 5000)
    later(agent, 7000)
    exclude(agent)
    write(path, b"three")
    agent.drain()
    assert agent.lines == [b"one", b"two", b"three"]


def test_what_lies_in_a_directory_that_cannot_be_listed_is_not_forgotten_over_restarts(anyones: Path) -> None:
    logs = anyones / "logs"
    logs.mkdir()
    agent = agent_for(logs, forget_after=1000.0)
    write(logs / "app.log", b"one", b"two")
    agent.drain()
    logs.chmod(0)
    for ended in (agent.stop, agent.restart):
        ended()
        for seconds in (0, 1500, 3000, 5000):
            later(agent, seconds)
    logs.chmod(0o755)
    later(agent, 9000)
    agent.drain()
    assert agent.lines == [b"one", b"two"]
    assert agent.losses == []


def test_what_left_its_patterns_is_kept_while_it_is_on_disk_and_forgotten_once_it_is_gone(tmp_path: Path) -> None:
    path, agent = tmp_path / "app.log", agent_for(tmp_path, "app.log", forget_after=1000.0)
    write(path, b"one")
    agent.drain()
    path.rename(tmp_path / "app.log.1")
    agent.drain()
    later(agent, 1500)
    later(agent, 3000)
    assert len(agent.store) == 1
    (tmp_path / "app.log.1").rename(tmp_path / "app.log.2")
    later(agent, 4500)
    assert len(agent.store) == 1
    (tmp_path / "app.log.2").unlink()
    later(agent, 6000)
    assert not agent.store
    assert agent.losses == []


def test_a_directory_that_is_gone_takes_what_is_saved_of_its_files_along(tmp_path: Path) -> None:
    pod, agent = tmp_path / "pods" / "a" / "b", agent_for(tmp_path, "pods/*/*/*.log", forget_after=1000.0)
    pod.mkdir(parents=True)
    write(pod / "0.log", b"one")
    agent.drain()
    shutil.rmtree(pod.parent)
    agent.drain()
    later(agent, 1500)
    assert not agent.store


def test_a_file_is_not_seen_to_be_gone_where_another_file_system_is(tmp_path: Path) -> None:
    path, other = tmp_path / "app.log", tmp_path / "other.log"
    write(path, b"one")
    write(other, b"two")
    found = identify_by_name(str(path), path.lstat(), follow_symlinks=False)
    assert found is not None
    elsewhere = found._replace(device=found.device + 1)
    assert InodeFinder().seen(str(path), found) is True
    assert InodeFinder().seen(str(path), elsewhere) is True, "its device has another number now"
    path.unlink()
    assert InodeFinder().seen(str(path), found) is False
    assert InodeFinder().seen(str(path), elsewhere) is None
    assert InodeFinder().seen(str(path), elsewhere, {found.device}) is False
    assert InodeFinder().seen(str(tmp_path / "gone" / "too" / "app.log"), found) is False
    assert InodeFinder().seen(str(tmp_path / "gone" / "too" / "app.log"), elsewhere) is None
    assert InodeFinder().seen(str(other), Identity(found.device, other.stat().st_ino, found.birth_ns + 1)) is False, (
        "its inode is another's"
    )


@pytest.mark.parametrize("ended", ["runs on", "stop", "restart"])
def test_a_sibling_that_may_not_be_read_does_not_bring_finished_generations_back(nobodys: Path, ended: str) -> None:
    log, agent = nobodys / "app.log", agent_for(nobodys, "app.log", forget_after=1000.0)
    write(log, b"one")
    agent.drain()
    os.seteuid(0)
    write(nobodys / "app.log.bak", b"nobody's business")
    (nobodys / "app.log.bak").chmod(0o600)
    os.seteuid(65534)
    log.rename(nobodys / "app.log.1")
    write(log, b"two")
    agent.drain()
    for number in range(1, 6):
        later(agent, 1500 * number)
        agent.drain()
        if ended != "runs on":
            getattr(agent, ended)()
    assert Counter(agent.lines) == Counter([b"one", b"two"])
    assert agent.losses == []


@pytest.mark.parametrize("ended", ["runs on", "stop", "restart"])
def test_one_that_may_not_be_read_holds_nothing_else_up_and_is_read_when_it_may(nobodys: Path, ended: str) -> None:
    log, agent = nobodys / "app.log", agent_for(nobodys, "app.log")
    write(log, b"one")
    agent.drain()
    agent.stop()
    log.rename(nobodys / "app.log.2")
    write(nobodys / "app.log.1", b"two")
    (nobodys / "app.log.1").chmod(0)
    write(log, b"three")
    agent.drain()
    assert list(agent.source.passed_over()) == [str(nobodys / "app.log.1")]
    assert agent.state is not None
    assert agent.state.values["rotations"] == 0, "no rotation stays open"
    if ended != "runs on":
        getattr(agent, ended)()
    agent.drain()
    shutil.copy(log, nobodys / "app.log.copy")
    write(log, b"four")
    log.rename(nobodys / "app.log.0")
    agent.drain()
    assert list(agent.source.passed_over()) == [str(nobodys / "app.log.1")]
    (nobodys / "app.log.1").chmod(0o644)
    agent.drain()
    agent.drain()
    assert Counter(agent.lines) == Counter([b"one", b"two", b"three", b"four"])
    assert agent.source.passed_over() == {}


def test_a_file_that_is_rewritten_again_and_again_leaves_few_rows_and_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, agent = tmp_path / "status.log", agent_for(tmp_path)
    for number in range(60):
        path.write_bytes(b"status %d\n" % number)
        agent.drain()
        assert len(agent.store) <= offset_expiry.KEPT_GENERATIONS + 1
    assert agent.lines == [b"status %d" % number for number in range(60)]
    assert sum("forgotten before forget_after" in record.getMessage() for record in caplog.records) == 1
    agent.restart()
    agent.drain()
    assert len(agent.lines) == 60
    assert agent.losses == []


def test_rows_that_an_earlier_version_heaped_up_are_few_after_the_first_look(tmp_path: Path) -> None:
    path, agent = tmp_path / "status.log", agent_for(tmp_path)
    path.write_bytes(b"one\n")
    agent.drain()
    key = next(iter(agent.store))
    identity, _ = Identity.parse(key.key)
    now = agent.store.pop(key)
    for number in range(20_000):
        previous = SourceOffset(4, 1, done=True, path=str(path), size=4, gone_ms=int(time.time() * 1000))
        agent.store[SourcePartition("app", identity.key(number))] = previous
    agent.store[SourcePartition("app", identity.key(20_000))] = now
    agent.restart()
    agent.drain()
    assert len(agent.store) == offset_expiry.KEPT_GENERATIONS + 1
    assert agent.lines == [b"one"]


def test_of_very_many_files_that_are_gone_the_oldest_rows_go_first_and_no_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(offset_expiry, "KEPT_GONE", 10)
    monkeypatch.setattr(offset_expiry, "_AGE_SECONDS", 0.0)
    agent = agent_for(tmp_path, "*.log")
    for number in range(12):
        write(tmp_path / f"stays-{number}.log", b"stays %d" % number)
    agent.drain()
    for number in range(12):
        (tmp_path / f"stays-{number}.log").rename(tmp_path / f"stays-{number}.old")
    agent.drain()
    cycles(tmp_path, agent, 30)
    agent.scan()
    kept = sorted(offset.path for offset in agent.store.values() if offset.path)
    assert kept == sorted([str(tmp_path / f"{n}.log") for n in range(20, 30)] + [str(tmp_path / f"stays-{n}.old") for n in range(12)])
    assert sum("forgotten before forget_after" in record.getMessage() for record in caplog.records) == 1
    assert agent.losses == []


@pytest.mark.long
def test_ten_thousand_files_leave_a_small_store(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    agent = agent_for(logs, forget_after=1.0)
    with OffsetStore.open(tmp_path / "state") as store:
        store.commit(OTHER)
        kept_in(agent, store)
        largest = 0
        for turn in range(200):
            cycles(logs, agent, 1, files=50, first=50 * turn)
            largest = max(largest, sum(path.stat().st_size for path in (tmp_path / "state").iterdir()))
        later(agent, 60)
        assert not store.read("app")
        assert store.read("other") == OTHER
    assert len(set(agent.lines)) == len(agent.lines) == 10_000
    assert largest < 12 * 2**20
