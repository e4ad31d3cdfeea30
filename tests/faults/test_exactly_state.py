"""The state directory damaged, lost, copied and put back; the topic of positions locked, emptied, and of another cluster: each line once.

What the agent's disk says never decides: Kafka's positions do. Where the two do not belong together, nothing is sent until a person
decides.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from copycat_agent.delivery.exactly_once import guarantee
from copycat_agent.model import OFFSETS_TOPIC
from copycat_agent.offsets import LaneCommit, OffsetStore
from copycat_agent.watch import Watcher
from tests.faults.state_host import MARKER, TABLES, Host
from tests.rig.disk import ext4, make_disk
from tests.rig.kafka import create_topic, delete_topic, unique_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.conftest import ProxiedBroker


pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""


@pytest.fixture(scope="module")
def watcher() -> Iterator[Watcher]:
    """Real file-system events."""
    watcher = Watcher()
    yield watcher
    watcher.close()


@pytest.fixture
def make_host(
    tmp_path: Path, broker: DevBroker, topic: str, watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Host]]:
    """`make_host(name="host", bootstrap="", **as_for_Host)`; all send to one topic. Nothing of it runs after the test."""
    monkeypatch.setattr(guarantee, "DOUBT_SECONDS", 0.2)
    made: list[Host] = []

    def make(name: str = "host", bootstrap: str = "", **more: object) -> Host:
        made.append(Host(tmp_path / name, bootstrap or broker.bootstrap, topic, watcher, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for host in made:
        host.close()


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    """A host that has sent ten lines, in two starts, and is stopped."""
    host = make_host()
    for _ in range(2):
        host.write(5)
        host.start()
        host.wait_sent()
        host.stop()
    return host


def goes_on(host: Host, lines: int = 5) -> None:
    """It starts, sends what is written now, and what it has sent altogether is what was written, in order."""
    host.write(lines)
    host.start()
    host.wait_sent()
    host.stop()
    assert host.committed() == host.written


def adopt(host: Host, which: str = "local") -> None:
    """What `copycat offsets adopt` does while no agent runs."""
    with OffsetStore.open_existing(host.state_dir) as store:
        store.adopt(host.name, which)  # type: ignore[arg-type]


def refusal(host: Host) -> str:
    """Start it: it has to refuse, and to send nothing. Returns what it says."""
    before = len(host.committed())
    host.write(5)
    host.start()
    said = host.wait("failed").reason
    host.stop()
    assert len(host.committed()) == before
    return said


def lose(host: Host) -> None:
    for name in TABLES:
        (host.state_dir / name).unlink(missing_ok=True)


def test_a_store_that_is_deleted_is_made_anew_from_the_topic(host: Host) -> None:
    lose(host)
    goes_on(host)
    (host.state_dir / "offsets.db").unlink()
    goes_on(host)


def test_a_store_that_is_deleted_under_the_agent_s_hands_ends_it_and_the_next_start_goes_on(host: Host) -> None:
    host.start()
    host.wait("running")
    lose(host)
    host.write(5)
    wait_until(lambda: host.store.failure is not None, 60, lambda: f"{host.status}")
    host.stop()
    goes_on(host)


def test_an_older_backup_is_brought_to_where_kafka_is(host: Host, tmp_path: Path) -> None:
    backup = host.copy_state(tmp_path / "backup")
    goes_on(host)
    host.put_back(backup, *TABLES)
    goes_on(host)
    host.put_back(backup, *TABLES)
    goes_on(host)


def test_a_whole_backup_looks_like_a_copy_and_goes_on_from_the_topic_when_a_person_says_so(host: Host, tmp_path: Path) -> None:
    backup = host.copy_state(tmp_path / "backup")
    goes_on(host)
    host.put_back(backup)
    said = refusal(host)
    assert "is a copy" in said
    assert f"copycat offsets adopt {host.name} --from-topic" in said
    adopt(host, "topic")
    goes_on(host)
    lose(host)
    goes_on(host)


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 0xFF
    path.write_bytes(content)


def truncate(path: Path, place: float) -> None:
    os.truncate(path, int(place * path.stat().st_size))


def zero(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    begin = int(place * len(content))
    content[begin : begin + 4096] = bytes(len(content[begin : begin + 4096]))
    path.write_bytes(content)


DAMAGE = (flip, truncate, zero)


def hurt(host: Host, snapshot: Path, name: str, damage: Callable[[Path, float], None], place: float) -> None:
    """The store as of `snapshot`, then damaged; it goes on with each line once."""
    for path in host.state_dir.glob("offsets.db*"):
        path.unlink()
    host.put_back(snapshot, *TABLES)
    damage(host.state_dir / name, place)
    goes_on(host, 1)


def living_copy(host: Host, to: Path) -> Path:
    """The state directory with what is in its write-ahead log only."""
    host.start()
    host.write(5)
    host.wait_sent()
    copy = host.copy_state(to)
    host.stop()
    assert (copy / "offsets.db-wal").stat().st_size
    return copy


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda one: one.__name__)
def test_a_damaged_store_is_set_aside_and_made_anew_from_the_topic(
    host: Host, tmp_path: Path, damage: Callable[[Path, float], None]
) -> None:
    stopped = host.copy_state(tmp_path / "stopped")
    hurt(host, stopped, "offsets.db", damage, 0.0)
    assert (host.state_dir / MARKER).exists(), "it was seen"
    alive = living_copy(host, tmp_path / "alive")
    hurt(host, alive, "offsets.db-wal", damage, 0.5)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_damage_anywhere_costs_nothing(host: Host, tmp_path: Path, rng: random.Random) -> None:
    snapshot = living_copy(host, tmp_path / "snapshot")
    for name in ("offsets.db", "offsets.db-wal"):
        for damage in DAMAGE:
            for _ in range(25):
                hurt(host, snapshot, name, damage, rng.random())


def rolled_back(host: Host, tmp_path: Path, rng: random.Random, rounds: int) -> None:
    """Copies under the agent's hands, file by file, at any moment; what was saved later is lost, as when power is cut."""
    for number in range(rounds):
        host.start()
        host.write(rng.randint(1, 20))
        if rng.random() < 0.5:
            host.wait_sent()
            host.write(rng.randint(1, 20))
        copy = host.copy_state(tmp_path / f"copy-{number}")
        host.write(rng.randint(1, 20))
        if rng.random() < 0.5:
            host.wait_sent()
        host.stop()
        host.put_back(copy, *TABLES)
    goes_on(host)


def test_a_disk_that_lost_what_it_had_written_costs_nothing(host: Host, tmp_path: Path, rng: random.Random) -> None:
    rolled_back(host, tmp_path, rng, 3)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_disk_that_lost_what_it_had_written_costs_nothing_often(
    make_host: Callable[..., Host], tmp_path: Path, rng: random.Random
) -> None:
    rolled_back(make_host(tasks=2), tmp_path, rng, 100)


def cut(host: Host, disk: Path, mount: Path, rng: random.Random, rounds: int) -> None:
    """Power cuts: what the disk holds at a moment is all that is left. `disk` is its image, `mount` where it is mounted."""
    host.state_dir = mount / "state"
    for _ in range(rounds):
        with ext4(disk, mount):
            host.start()
            host.wait("running")
            host.write(rng.randint(1, 20))
            if rng.random() < 0.5:
                host.wait_sent()
                host.write(rng.randint(1, 20))
            with host.store._lock:  # nothing is half copied; what is not on the disk yet is not in the copy
                shutil.copyfile(disk, disk.with_suffix(".cut"))
            host.write(rng.randint(1, 20))
            if rng.random() < 0.5:
                host.wait_sent()
            host.stop()
        disk.with_suffix(".cut").replace(disk)
    with ext4(disk, mount):
        goes_on(host)


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.long)])
def test_a_power_cut_at_any_moment_costs_nothing(make_host: Callable[..., Host], tmp_path: Path, rng: random.Random, rounds: int) -> None:
    disk, mount = tmp_path / "disk", tmp_path / "mount"
    mount.mkdir()
    make_disk(disk)
    cut(make_host(), disk, mount, rng, rounds)


def test_of_two_agents_with_one_state_directory_one_goes_on_and_the_other_refuses(host: Host, make_host: Callable[..., Host]) -> None:
    host.start()
    host.wait("running")
    clone = make_host("clone")
    host.copy_state(clone.state_dir)
    clone.logs.rmdir()
    clone.logs.symlink_to(host.logs)  # the worst case: the very same files
    clone.start()
    clone.wait("running")
    host.write(5)
    assert "this host, or its state directory, is a copy" in host.wait("failed").reason
    wait_until(lambda: host.committed() == host.written, 60, lambda: f"{len(host.committed())} of {len(host.written)}; {clone.status}")
    host.stop()
    host.write(5)
    host.start()
    assert "is a copy" in host.wait("failed").reason, "it stays so"
    wait_until(lambda: host.committed() == host.written, 60, lambda: f"{len(host.committed())} of {len(host.written)}; {clone.status}")


def test_the_copy_that_goes_on_as_an_agent_of_its_own_sends_its_own_lines_once(host: Host, make_host: Callable[..., Host]) -> None:
    clone = make_host("clone")
    host.copy_state(clone.state_dir)
    goes_on(host)
    assert "is a copy" in refusal(clone)
    adopt(clone)
    clone.start()
    clone.wait("running")
    host.start()
    host.write(3)
    clone.write(3)
    expected = sorted(host.written + clone.written)
    wait_until(lambda: sorted(host.committed()) == expected, 60, lambda: f"{host.status} {clone.status}")


def test_a_transaction_of_another_program_in_the_partition_of_positions_is_waited_for(host: Host, broker: DevBroker) -> None:
    with OffsetStore.open_existing(host.state_dir) as store:
        place = store.lanes(host.name).place
    assert place is not None
    other = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "another program", "transaction.timeout.ms": 600_000})
    other.init_transactions(60)
    other.begin_transaction()
    other.produce(OFFSETS_TOPIC, b"x", b"another program's", partition=place.partition)
    assert other.flush(60) == 0
    before = host.committed()
    host.write(5)
    host.start()
    wait_until(lambda: "once all older transactions" in host.status.reason, 60, lambda: f"{host.status}")
    assert host.status.state == "starting"
    assert host.committed() == before, "nothing is planned before all is known"
    other.abort_transaction(60)
    host.wait_sent()
    host.stop()
    assert host.committed() == host.written


def take_ahead(host: Host) -> None:
    """The store knows of commits that the topic has lost: a hundred steps."""
    with OffsetStore.open_existing(host.state_dir) as store:
        (head,) = store.lanes(host.name).heads.values()
        store.commit({}, moved=LaneCommit(host.name, {0: head._replace(seq=head.seq + 100)}, list(store.saved(host.name))))


def refuses_and_adopts(host: Host) -> None:
    """The topic of positions has lost this connector's: nothing is sent, the ways out are named, and the first repeats nothing."""
    said = refusal(host)
    assert "the topic was emptied, made anew, or has lost acknowledged records" in said
    assert f"go on from the positions of this host: copycat offsets adopt {host.name};" in said
    assert f"copycat offsets adopt {host.name} --from-topic" in said
    assert f"copycat offsets reset {host.name}" in said
    assert refusal(host) == said, "it stays so"
    adopt(host)
    goes_on(host)
    lose(host)
    goes_on(host)


def test_a_topic_of_positions_that_has_lost_some_is_refused_and_adopting_repeats_nothing(host: Host) -> None:
    take_ahead(host)
    refuses_and_adopts(host)


def test_to_reset_sends_everything_again_and_from_then_on_once(host: Host) -> None:
    take_ahead(host)
    refusal(host)
    with OffsetStore.open_existing(host.state_dir) as store:
        store.begin_anew(host.name)
    host.start()
    before = host.written[:-5]
    wait_until(lambda: host.committed() == before + host.written, 60, lambda: f"{host.status}")
    host.stop()
    host.write(5)
    host.start()
    wait_until(lambda: host.committed() == before + host.written, 60, lambda: f"{host.status}")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_topic_of_positions_that_is_deleted_also_while_it_is_used(make_host: Callable[..., Host], own_broker: DevBroker) -> None:
    host = make_host(bootstrap=own_broker.bootstrap)
    create_topic(own_broker.bootstrap, host.topic)
    for is_running in (False, True):
        goes_on(host)
        if is_running:
            host.start()
            host.wait("running")
        delete_topic(own_broker.bootstrap, OFFSETS_TOPIC)
        if is_running:
            host.write(5)
            wait_until(lambda: OFFSETS_TOPIC in host.status.reason, 60, lambda: f"{host.status}")
            host.stop()
        refuses_and_adopts(host)


def test_another_cluster_is_refused_and_adopting_goes_on_there(host: Host, proxied_broker: ProxiedBroker) -> None:
    first, before = (host.bootstrap, host.topic), len(host.written)
    host.bootstrap, host.topic = proxied_broker.bootstrap, create_topic(proxied_broker.bootstrap, unique_topic())
    said = refusal(host)
    assert "belong to Kafka cluster" in said
    assert f"copycat offsets adopt {host.name}" in said
    adopt(host)
    host.start()
    wait_until(lambda: host.committed() == host.written[before:], 60, lambda: f"{host.status}")
    host.stop()
    host.bootstrap, host.topic = first
    assert "belong to Kafka cluster" in refusal(host)
