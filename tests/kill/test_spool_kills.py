"""kill -9 of anything while a directory with files of every format is emptied: nothing is lost, and cleanup is never ahead of Kafka."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self

import psutil
import pytest

from tests.kill.arrived import Arrived
from tests.kill.drops import SHAPES, Drops
from tests.kill.killing import found, kill
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

Victim = Literal["driver", "start", "jvm", "worker", "daemon", "all"]
"""`start`: the driver, and again while it starts. `all`: the driver and everything it started, at the same moment."""
VICTIMS: tuple[Victim, ...] = ("driver", "start", "jvm", "worker", "daemon", "all")
TASKS = 2
BATCH_BYTES = 64 * 2**10
RECORD_BYTES = 55
"""No record of these files is shorter, whatever its format."""
START_SECONDS = 3.0
"""An agent that starts is killed within so many seconds."""
TRUNCATED = ("lines", "csv", "jsonl")
ROUNDS = 9
"""Of the long test; each victim once in each of them."""


class Scene:
    """A directory, files that go on being dropped there, an agent with one connector for each format, and a topic for all."""

    def __init__(self, agent: AgentProcess, root: Path, bootstrap: str, topic: str, dice: random.Random, largest: int) -> None:
        self.agent = agent
        self.places = {name: root / name for name in ("in", "finished", "failed")}
        for place in self.places.values():
            place.mkdir()
        self.drops = Drops(self.places["in"], uuid.uuid4().hex[:8], dice, largest)
        self.arrived = Arrived(bootstrap, topic, self.drops, self.places["finished"])
        self.kills = 0
        self._dice = dice
        self._stop = threading.Event()
        self._writer = threading.Thread(target=self._write, name="writer", daemon=True)
        for form in SHAPES:
            agent.define(form.replace("_", "-"), self._definition(form, topic))

    def _definition(self, form: str, topic: str) -> dict[str, object]:
        return {
            "source": {
                "type": "spool_dir",
                "dir": str(self.places["in"]),
                "pattern": f"{form}-*",
                "ready": {"min_age": "0s"},
                "scan_interval": "500ms",
                "format": {"type": form, **SHAPES[form].options},
                "cleanup": {"policy": "move", "to": str(self.places["finished"]), "failed_to": str(self.places["failed"])},
            },
            "record": {"topic": topic},
            "delivery": {"tasks_max": TASKS, "max_batch_bytes": f"{BATCH_BYTES // 2**10}KiB"},
        }

    def _write(self) -> None:
        """Drop files of all formats, in any order, as long as not too many wait."""
        while not self._stop.wait(0.02):
            if self.drops.waiting < 3 * len(SHAPES):
                self.drops.drop(self._dice.choice(list(SHAPES)))

    def __enter__(self) -> Self:
        for form in SHAPES:
            self.drops.drop(form)
        self._writer.start()
        self.arrived.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._writer.join()
        self.arrived.__exit__()

    def strike(self, victim: Victim) -> None:
        """Kill `victim` after a random number of records, and return when records arrive again."""
        self.arrived.wait_records(self._dice.randrange(1, 2000))
        {"driver": self._kill_driver, "start": self._kill_start, "all": self._kill_all}.get(victim, lambda: self._kill_child(victim))()
        self.kills += 1
        self.arrived.look()
        if not self.agent.is_running:
            self.agent.start()
        self.arrived.wait_records(1)

    def finish(self, deadline: float = 180.0) -> None:
        """Drop no more; wait until nothing is left where it was dropped, then compare for the last time."""
        self._stop.set()
        self._writer.join()
        wait_until(lambda: not self.drops.waiting, deadline, lambda: f"left behind: {sorted(self.places['in'].iterdir())}")
        self.arrived.look()

    def check(self) -> None:
        """All promises."""
        arrived = self.arrived
        assert not arrived.lost, f"lost: {arrived.lost}"
        assert not arrived.early, f"cleaned up before Kafka had it: {arrived.early}"
        assert not arrived.unknown, f"{arrived.unknown} records that nobody wrote"
        assert not arrived.disordered, f"{arrived.disordered} records out of order"
        assert {name for name in self.drops.expected if (self.places["finished"] / name).is_file()} == set(self.drops.expected)
        again = {name: count for name, count in arrived.settled.items() if arrived.counts[name].total() != count}
        assert not again, f"sent again after they were cleaned up: {again}"
        assert arrived.repeated <= self.kills * len(SHAPES) * TASKS * BATCH_BYTES / RECORD_BYTES, (
            "more than what was not committed is repeated"
        )
        for name in self.drops.truncated:
            assert (self.places["failed"] / name).is_file(), f"{name} is damaged and was not set aside"
            assert (self.places["failed"] / f"{name}.error.json").is_file()
        assert len(list(self.places["failed"].iterdir())) == 2 * len(self.drops.truncated)

    def _kill_driver(self) -> None:
        """Asserts that nothing it had started survives it."""
        self.agent.kill()

    def _kill_start(self) -> None:
        self.agent.kill()
        self.agent.start()
        time.sleep(self._dice.uniform(0, START_SECONDS))  # the moment is the test
        self.agent.kill()

    def _kill_all(self) -> None:
        for process in self.agent.descendants():
            with suppress(psutil.NoSuchProcess):  # it has ended with its parent
                process.kill()
        self.agent.kill()

    def _kill_child(self, victim: Victim) -> None:
        find: dict[str, Callable[[], psutil.Process | None]] = {
            "jvm": self.agent.jvm,
            "daemon": lambda: next(iter(self.agent.python_processes()), None),
            "worker": lambda: self._dice.choice(workers) if (workers := self.agent.python_processes()[1:]) else None,
        }
        kill(found(find[victim], lambda: f"no {victim}: {self.agent.descendants()}"))


@pytest.fixture
def make_scene(
    agent: AgentProcess, tmp_path: Path, broker: DevBroker, make_topic: Callable[..., str], rng: random.Random
) -> Callable[[int], Scene]:
    """`make_scene(largest)`: no file has more records than that."""
    return lambda largest: Scene(agent, tmp_path, broker.bootstrap, make_topic(), rng, largest)


@pytest.mark.timeout(600)
def test_files_of_all_formats_survive_kills_and_are_cleaned_up_behind_kafka(
    make_scene: Callable[[int], Scene], agent: AgentProcess
) -> None:
    scene = make_scene(1000)
    with scene:
        scene.drops.drop_truncated("csv")
        agent.start()
        for victim in ("worker", "all"):
            scene.strike(victim)
        scene.finish()
    scene.check()
    agent.stop()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nothing_is_lost_over_many_kills(
    make_scene: Callable[[int], Scene], agent: AgentProcess, rng: random.Random, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = make_scene(20_000)
    with scene:
        agent.start()
        for number in range(ROUNDS):
            scene.drops.drop_truncated(TRUNCATED[number % len(TRUNCATED)])
            for victim in rng.sample(VICTIMS, len(VICTIMS)):
                scene.strike(victim)
        scene.finish(300)
    agent.stop()
    arrived = scene.arrived
    with capsys.disabled():
        print(
            f"\nseed {seed}: {scene.kills} kills, {len(scene.drops.expected)} files, {sum(scene.drops.expected.values()):,} records, "
            f"{arrived.repeated:,} repeated, {len(arrived.early)} files cleaned up early, {arrived.lost or 'none'} lost"
        )
    scene.check()
