"""Faults 40 and 48 and what needs a whole agent of `log-file.md`: rotation without pause, many kills, large files, endless lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.faults.scene import Memory, Topics, Trickle
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.faults.scene import Scene

pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""
MIB, GIB = 2**20, 2**30
LINE_BYTES = 16 * 1024
BATCH_BYTES = 4 * MIB
TASKS = 2


class Away(Trickle):
    """Rotates to names that no pattern finds: only what is held open can still be read."""

    def _rotate(self) -> None:
        self.rotations += 1
        for writer in self._writers:
            writer.path.rename(writer.path.with_name(f"{writer.path.name}.{self.rotations}"))
            writer.reopen()


@pytest.mark.parametrize(
    ("files", "rotations", "every_seconds"),
    [(3, 12, 0.2), pytest.param(1, 300, 1.0, marks=[pytest.mark.long, pytest.mark.timeout(900)])],
)
def test_rotation_without_pause_loses_and_repeats_nothing(scene: Scene, files: int, rotations: int, every_seconds: float) -> None:
    """Fault 40."""
    writers = [scene.writer(f"app{number}.log") for number in range(files)]
    with Away(writers, per_second=5000, rotate_seconds=every_seconds) as load:
        wait_until(lambda: load.rotations >= rotations, rotations * every_seconds * 2 + 30, "the logs are rotated")
    verdict = scene.verdict()
    assert verdict, verdict
    scene.settle()
    assert scene.status["lag"]["lost_bytes"] == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_twenty_kills_at_any_moment_lose_nothing_and_repeat_little(make_scene: Callable[..., Scene], rng: random.Random) -> None:
    """I4: 600,000 lines."""
    scene = make_scene(limits={"records_per_second": 20_000}, delivery={"tasks_max": TASKS, "max_batch_bytes": "256KiB"})
    for number in range(4):
        scene.writer(f"app{number}.log").write_block(150_000, (10, 60))
    with Topics(scene.bootstrap, scene.topic) as topic:
        for _ in range(20):
            goal = topic.size() + rng.randrange(1, 20_000)
            scene.agent.start()
            wait_until(lambda: topic.size() >= goal, 60, lambda: scene.agent.log[-3000:])  # noqa: B023 - called at once
            scene.agent.kill()
        assert topic.size() < scene.ledger.written, "it was killed midway"
    scene.define()
    scene.agent.start()
    verdict = scene.verdict(deadline=120)
    assert verdict.is_complete, verdict
    assert verdict.duplicated <= 20 * TASKS * 256 * 1024 / 40, verdict
    scene.agent.stop()


def _line(number: int) -> bytes:
    return b"%015d %s\n" % (number, bytes([97 + number % 26]) * (LINE_BYTES - 17))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_file_of_two_gibibytes_is_read_on_where_it_was_after_a_kill_and_across_its_boundary(make_scene: Callable[..., Scene]) -> None:
    """F12, I5, K10: a backlog that is far larger than what the agent may keep in memory."""
    scene = make_scene(delivery={"tasks_max": TASKS, "max_batch_bytes": f"{BATCH_BYTES // MIB}MiB"})
    log, count = scene.logs / "app.log", 2 * GIB // LINE_BYTES
    with log.open("wb") as file:
        file.writelines(_line(number) for number in range(count - 1))
        file.write(_line(count - 1)[:-65] + b"\n")
    assert log.stat().st_size == 2 * GIB - 64
    with Topics(scene.bootstrap, scene.topic) as topic:
        scene.agent.start()
        wait_until(lambda: topic.size() >= count // 2, 200, lambda: f"{topic.size()}")
        scene.agent.kill()
        assert topic.size() < count, "it was killed midway"
        scene.agent.start()
        wait_until(lambda: topic.size() > count // 2, 60, lambda: f"{topic.size()}")
        with Memory(scene.agent) as memory:
            wait_until(lambda: scene.state == "running" and _position(scene) == 2 * GIB - 64, 200, lambda: f"{scene.status}")
        with log.open("ab") as file:
            file.writelines(b"%015d\n" % number for number in range(count, count + 20))
        wait_until(lambda: _position(scene) == 2 * GIB - 64 + 20 * 16, 60, lambda: f"{scene.status}")
        scene.agent.stop()
        total = topic.size()
    print(f"{memory.most():.0f} MiB, {total - count - 20} records repeated")
    seen, following, repeats = -1, 0, 0
    for number in _numbers(scene, total):
        repeats += number <= seen
        following += number == seen + 1
        seen = max(seen, number)
    assert (seen, following) == (count + 19, count + 20), "every line, in order"
    assert repeats <= TASKS * BATCH_BYTES / LINE_BYTES, "only what was not committed"
    assert memory.most() < 600


def _position(scene: Scene) -> int:
    (file,) = scene.ask(f"/v1/connectors/{scene.name}/files")["files"]
    return int(file["position"])


def _numbers(scene: Scene, total: int) -> Iterator[int]:
    """What the records begin with, without keeping them."""
    consumer = Consumer({"bootstrap.servers": scene.bootstrap, "group.id": "count", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(scene.topic, 0, 0)])
    while total:
        for message in consumer.consume(1000, timeout=1.0):
            assert not message.error(), message.error()
            yield int((message.value() or b"")[:15])
            total -= 1
    consumer.close()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", ["dlq", "truncate", "drop"])
def test_a_gibibyte_without_a_newline_passes_in_bounded_memory(scene: Scene, policy: str) -> None:
    """Fault 48."""
    dead = create_topic(scene.bootstrap, unique_topic())
    scene.define(source={"line": {"max_bytes": "64KiB", "on_too_long": policy}}, errors={"tolerance": "all", "dlq": {"topic": dead}})
    log = scene.logs / "endless.log"
    with Memory(scene.agent) as memory:
        wait_until(lambda: memory.mark() >= 4, 60, "samples before")
        before = memory.mark()
        with log.open("wb") as file:
            for _ in range(1024):
                file.write(b"x" * MIB)
        wait_until(lambda: GIB in _positions(scene), 120, lambda: f"{_positions(scene)}")
        with log.open("ab") as file:
            file.write(b"y\nnext\n")
        scene.settle()
    values = [record.value or b"" for record in consume(scene.bootstrap, scene.topic)][1:]
    cut = b"x" * 64 * 1024
    assert values == ([cut, b"next"] if policy == "truncate" else [b"next"])
    assert [record.value for record in consume(scene.bootstrap, dead)] == ([cut] if policy == "dlq" else [])
    assert scene.status["counts"]["too_long"] == 1
    print(f"{memory.most(0, before):.0f} MiB before, {memory.most(before):.0f} MiB at most")
    assert memory.most(before) < memory.most(0, before) + 80


def _positions(scene: Scene) -> list[int]:
    return [int(file["position"]) for file in scene.ask(f"/v1/connectors/{scene.name}/files")["files"]]
