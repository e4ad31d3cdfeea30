"""What is changed about an exactly-once connector while Kafka is ahead: guarantee, name, tasks, offsets, agent. Each line once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from copycat_agent.offsets import OffsetStore
from copycat_agent.watch import Watcher
from tests.faults.state_host import TABLES, Host
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker


pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""


@pytest.fixture(scope="module")
def watcher() -> Iterator[Watcher]:
    """Real file-system events."""
    watcher = Watcher()
    yield watcher
    watcher.close()


@pytest.fixture
def host(tmp_path: Path, broker: DevBroker, topic: str, watcher: Watcher) -> Iterator[Host]:
    """A host that has sent five lines, and is stopped."""
    host = Host(tmp_path / "host", broker.bootstrap, topic, watcher)
    goes_on(host)
    yield host
    host.close()


def goes_on(host: Host, **delivery: object) -> None:
    """It starts, sends what is written now, and each line ever written was sent once, in order."""
    host.write(5)
    host.start(**delivery)
    host.wait_sent()
    host.stop()
    assert host.committed() == host.written


def fall_behind(host: Host, backup: Path, **delivery: object) -> None:
    """As a kill between a commit and the disk leaves it: the last batch, and the opening before it, are only in Kafka."""
    host.copy_state(backup)
    goes_on(host, **delivery)
    host.put_back(backup, *TABLES)


def lose(host: Host) -> None:
    for name in TABLES:
        (host.state_dir / name).unlink(missing_ok=True)


def test_a_change_of_the_guarantee_there_and_back(host: Host) -> None:
    for guarantee in ("at_least_once", "exactly_once", "at_least_once", "exactly_once"):
        goes_on(host, guarantee=guarantee)
    lose(host)
    goes_on(host)


def test_another_number_of_tasks_while_kafka_is_ahead(host: Host, tmp_path: Path) -> None:
    for tasks in (3, 1):
        fall_behind(host, tmp_path / "backup", tasks_max=tasks)
        goes_on(host, tasks_max=4 - tasks)


def test_another_name_while_kafka_is_ahead_and_the_store_lost_afterwards(host: Host, tmp_path: Path) -> None:
    fall_behind(host, tmp_path / "backup")
    for old, new in (("app", "new"), ("new", "app")):
        with OffsetStore.open_existing(host.state_dir) as store:
            store.rename(old, new)
        host.name = new
        goes_on(host)
        lose(host)
        goes_on(host)


def test_what_a_person_sets_while_kafka_is_ahead_holds_once(host: Host, tmp_path: Path) -> None:
    fall_behind(host, tmp_path / "backup")
    with OffsetStore.open_existing(host.state_dir) as store:
        store.forget(store.read(host.name))
    before = list(host.written)
    host.start()
    wait_until(lambda: host.committed() == before + before, 60, lambda: f"{host.status}")
    host.stop()
    for lost in (False, True):
        host.write(5)
        if lost:
            lose(host)
        host.start()
        wait_until(lambda: host.committed() == before + host.written, 60, lambda: f"{host.status}")
        host.stop()


def test_a_lost_state_directory_is_taken_over_by_a_new_agent_and_the_old_one_refuses(host: Host, tmp_path: Path) -> None:
    with OffsetStore.open_existing(host.state_dir) as store:
        old = store.agent_uuid
    host.copy_state(tmp_path / "old")
    shutil.rmtree(host.state_dir)
    with OffsetStore.open(host.state_dir) as store:
        store.take_over(host.name, old)
    goes_on(host)
    lose(host)
    goes_on(host)
    host.put_back(tmp_path / "old")
    host.write(5)
    host.start()
    assert "is a copy" in host.wait("failed").reason
    assert host.committed() == host.written[:-5]


def test_beside_a_store_begun_anew_a_connector_without_lanes_waits_for_a_person(host: Host) -> None:
    (host.state_dir / "offsets.db").write_bytes(b"junk")
    goes_on(host)
    host.start(guarantee="at_least_once")
    assert "damaged" in host.wait("failed").reason
    assert host.stop().state == "failed"
    with OffsetStore.open_existing(host.state_dir) as store:
        store.begin_anew(host.name)
    before = list(host.written)
    host.start(guarantee="at_least_once")
    wait_until(lambda: host.committed() == before + before, 60, lambda: f"{host.status}")
