"""Files that a service manager keeps open: a process that ends without a word leaves them to the next one."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from copycat_agent.agent.descriptor_store import SystemdDescriptorStore, known_files
from copycat_agent.systemd import ServiceManager
from tests.rig.service_manager import ServiceManager as Systemd
from tests.rig.waiting import wait_until
from tests.unit.sources.rig import Agent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.offsets import OffsetStore


class Service:
    """Connectors in this process, which `kill` and `stop` end as if it were another one each time."""

    def __init__(self, systemd: Systemd) -> None:
        self.systemd = systemd
        self.agents: list[Agent] = []
        systemd.serve(os.getpid())
        self.kept = self._begin()

    def agent(self, *include: str, **options: Any) -> Agent:
        agent = Agent(include, name=f"app{len(self.agents)}", **options)
        self.agents.append(agent)
        self._give(agent)
        return agent

    def kill(self, **options: Any) -> None:
        """The process is gone, and the next one begins; with other `options` of its connectors, where given."""
        self.kept.freeze()
        self.next(**options)

    def stop(self, *, restart: bool) -> None:
        self.kept.freeze()
        for agent in self.agents:
            agent._store(agent.source.leave())
        if not restart:
            self.systemd.stop()
        self.next()

    def next(self, **options: Any) -> None:
        self.systemd.catch_up()
        for agent in self.agents:
            agent.source.close()
        self.kept = self._begin()
        for agent in self.agents:
            agent.options = agent.options.model_copy(update=options)
            self._give(agent)

    def is_kept(self, count: int) -> bool:
        wait_until(lambda: len(self.systemd.names) == count, 30, lambda: f"{self.systemd.links()}")
        return True

    def _begin(self) -> SystemdDescriptorStore:
        manager = ServiceManager(dict(self.systemd.environment))
        manager.passed.update(self.systemd.passed())
        manager.most_stored = min(manager.most_stored, self.systemd.limit)
        rows = {agent.name: agent.store for agent in self.agents}
        store = SimpleNamespace(connectors=lambda: tuple(rows), read=lambda name: rows[name])
        return SystemdDescriptorStore(manager, known_files(cast("OffsetStore", store), rebuild=False))

    def _give(self, agent: Agent) -> None:
        agent.keeper = self.kept
        agent.source = agent._make()


@pytest.fixture
def systemd() -> Iterator[Systemd]:
    with Systemd() as systemd:
        yield systemd


@pytest.fixture
def service(systemd: Systemd) -> Service:
    return Service(systemd)


def test_a_file_deleted_between_two_looks_is_read_on_by_the_next_process(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    agent = service.agent(str(log))
    agent.drain()
    assert service.is_kept(1)
    with log.open("a") as writer:
        writer.write("two\n")
    log.unlink()
    service.kill()
    agent.drain()
    assert agent.lines == [b"one", b"two"]
    assert agent.losses == []
    assert service.is_kept(0), "it is read, and takes up no disk space"


def test_generations_without_a_name_are_read_in_their_order_before_the_file_that_has_it_now(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    agent = service.agent(str(log))
    for line in ("one", "two", "three"):
        log.write_text(f"{line}\n")
        agent.scan()
        log.unlink()
    log.write_text("four\n")
    service.kill()
    agent.drain()
    assert agent.lines == [b"one", b"two", b"three", b"four"]
    assert service.is_kept(1)


def test_a_whole_directory_may_be_gone(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "deep/app.log"
    log.parent.mkdir()
    log.write_text("one\n")
    agent = service.agent(f"{tmp_path}/*/*.log")
    agent.scan()
    shutil.rmtree(log.parent)
    service.kill()
    agent.drain()
    assert agent.lines == [b"one"]


def test_a_file_that_was_moved_out_of_reach_is_read_on(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "logs/app.log"
    log.parent.mkdir()
    log.write_text("one\n")
    agent = service.agent(f"{tmp_path}/logs/*.log")
    agent.scan()
    (tmp_path / "old").mkdir()
    log.rename(tmp_path / "old/app.log.1")
    service.kill()
    agent.drain()
    assert agent.lines == [b"one"]
    assert agent.losses == []


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
@pytest.mark.parametrize("lines", [3, 3000])
def test_a_file_that_was_packed_and_deleted_meanwhile_arrives_once(service: Service, tmp_path: Path, pattern: str, lines: int) -> None:
    log = tmp_path / "app.log"
    expected = [f"{number} {'x' * 20}".encode() for number in range(lines)]
    log.write_bytes(b"".join(line + b"\n" for line in expected))
    agent = service.agent(f"{tmp_path}/{pattern}")
    agent.scan()
    agent.work(lambda: "stop")
    with gzip.open(tmp_path / "app.log.1.gz", "wb") as archive:
        archive.write(log.read_bytes())
    log.unlink()
    log.write_bytes(b"new\n")
    service.kill()
    agent.drain()
    assert agent.lines == [*expected, b"new"]
    assert agent.losses == []
    agent.drain()
    service.kill()
    agent.drain()
    assert agent.lines == [*expected, b"new"]


def test_what_a_writer_makes_of_a_deleted_file_meanwhile_is_read_and_what_it_destroys_is_counted(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    agent = service.agent(str(log), rotate_wait=60.0)
    with log.open("w") as writer:
        writer.write("one\ntwo\n")
        writer.flush()
        agent.scan()
        log.unlink()
        writer.truncate(0)
        writer.seek(0)
        writer.write("new\n")
        writer.flush()
        service.kill()
        agent.drain()
    assert agent.lines == [b"new"]
    assert sum(loss.end - loss.start for loss in agent.losses) == 8


def test_what_is_excluded_by_now_is_not_read_and_not_kept(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("secret\n")
    agent = service.agent(f"{tmp_path}/*.log")
    agent.scan()
    log.unlink()
    service.kill(exclude=("app.log*",))
    agent.drain()
    assert agent.lines == []
    assert [(loss.start, loss.end) for loss in agent.losses] == [(0, 7)]
    assert service.is_kept(0)


def test_a_file_that_had_left_its_patterns_is_not_read_when_its_log_is_excluded_by_now(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("secret\n")
    agent = service.agent(f"{tmp_path}/*.log")
    agent.scan()
    log.rename(tmp_path / "app.log.1")
    agent.scan()
    (tmp_path / "app.log.1").unlink()
    service.kill(exclude=("app.*",))
    agent.drain()
    assert agent.lines == []
    assert service.is_kept(0)


def test_what_is_no_regular_file_is_neither_read_nor_waited_for(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    agent = service.agent(str(log))
    agent.scan()
    assert service.is_kept(1)
    name = service.systemd.names[0]
    log.unlink()
    service.systemd.stop()
    reader, writer = os.pipe()
    service.systemd.keep(name, reader)
    service.kill()
    agent.drain()
    os.close(writer)
    assert agent.lines == []
    assert service.is_kept(0)


def test_what_no_row_knows_is_removed_and_closed(service: Service, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x")
    service.systemd.keep("copycat-1-2-3", os.open(tmp_path / "other", os.O_RDONLY))
    service.systemd.keep("connection", os.open(tmp_path / "other", os.O_RDONLY))
    service.kill()
    assert service.is_kept(0)
    assert not [fd for fd in Path("/proc/self/fd").iterdir() if fd.resolve() == tmp_path / "other"]


def test_a_restart_counts_nothing_as_lost_and_a_stop_counts_it_at_the_next_start(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\ntwo\n")
    agent = service.agent(str(log))
    agent.scan()
    agent.work(lambda: "stop")
    log.unlink()
    agent.scan()
    service.stop(restart=True)
    agent.scan()
    assert agent.losses == []
    service.stop(restart=False)
    agent.drain()
    agent.drain()
    assert agent.lines == [b"one"]
    assert [(loss.start, loss.end) for loss in agent.losses] == [(4, 8)]


def test_a_connector_that_ends_while_the_agent_runs_leaves_nothing_with_the_service_manager(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    agent = service.agent(str(log))
    agent.scan()
    log.unlink()
    agent.scan()
    assert service.is_kept(1)
    agent._store(agent.source.leave())
    agent.source.close()
    assert service.is_kept(0)
    service.next()
    agent.drain()
    assert [(loss.start, loss.end) for loss in agent.losses] == [(0, 4)]


def test_a_file_of_two_connectors_is_kept_once_until_both_have_read_it(service: Service, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    first, second = service.agent(str(log)), service.agent(str(log))
    first.scan()
    second.scan()
    log.unlink()
    service.kill()
    first.drain()
    assert service.is_kept(1)
    second.drain()
    assert first.lines == second.lines == [b"one"]
    assert service.is_kept(0)


def test_files_without_a_name_come_first_when_there_is_no_room_for_all(tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(4)]
    for log in logs:
        log.write_text(f"{log.name}\n")
    with Systemd(limit=2) as systemd:
        service = Service(systemd)
        agent = service.agent(f"{tmp_path}/*.log")
        agent.scan()
        assert service.is_kept(2)
        for log in logs[1:]:
            log.unlink()
        agent.scan()
        systemd.catch_up()
        assert [link.endswith("(deleted)") for link in systemd.links()] == [True, True]
        service.kill()
        agent.drain()
    assert len(agent.lines) == 3
    assert len(agent.losses) == 1, "what there was no room for is counted"


def test_files_that_take_turns_are_kept_when_they_have_left_their_patterns(service: Service, tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"{number}.log").write_text(f"{number}\n")
    agent = service.agent(f"{tmp_path}/*.log", max_open_files=3)
    agent.scan()
    assert service.is_kept(0)
    held = [file.path for file in agent.source._catalog.followed.descriptors.open_files]
    Path(held[0]).unlink()
    agent.scan()
    assert service.is_kept(1)
    service.kill()
    agent.drain()
    assert len(agent.lines) == 6
