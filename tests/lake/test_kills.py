"""kill -9 of what writes topics into files: each record once, whatever was killed, and nothing left below the store that nobody needs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.kill.killing import ROUND, Victim, found, kill
from tests.lake.conftest import as_json, definition_of, number_of, produce
from tests.lake.written import assert_each_once, written
from tests.rig.background import Background
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

PARTITIONS = 3
PER_TICK = 30
TICK_SECONDS = 0.1


class Load(Background):
    """Numbered records, sent for as long as the block lasts."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__("load")
        self.count = 0
        self._producer, self._topic = Producer({"bootstrap.servers": bootstrap, "log_level": 0}), topic

    def _work(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            some = range(self.count, self.count + PER_TICK)
            produce(self._producer, self._topic, as_json(({"n": number, "text": f"t{number}"} for number in some), PARTITIONS))
            self.count += PER_TICK


def strike(agent: AgentProcess, victim: Victim, dice: random.Random) -> None:
    if victim in ("driver", "start"):
        agent.kill()
        agent.start()
        return
    pick: dict[Victim, Callable[[], object]] = {
        "jvm": agent.jvm,
        "daemon": lambda: next(iter(agent.python_processes()), None),
        "worker": lambda: dice.choice(workers) if (workers := agent.python_processes()[1:]) else None,
    }
    kill(found(pick[victim], lambda: f"no {victim}: {agent.descendants()}"))  # type: ignore[arg-type]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "victims"), [("parquet", ("driver",)), *(pytest.param(kind, ROUND, marks=pytest.mark.long) for kind in ("jsonl", "parquet"))]
)
def test_each_record_is_written_once_whatever_is_killed(
    agent: AgentProcess,
    broker: DevBroker,
    make_topic: Callable[..., str],
    tmp_path: Path,
    rng: random.Random,
    kind: str,
    victims: tuple[Victim, ...],
) -> None:
    topic, root = make_topic(PARTITIONS), tmp_path / "lake"
    sink = {"format": kind, "roll": {"records": 200, "age": "700ms", "idle": "300ms"}}
    agent.define("lake", definition_of("lake", [topic], root, sink=sink, delivery={"tasks_max": 2}))

    def rows() -> int:
        return sum(len(one.rows) for one in written(root))

    def grows(load: Load) -> None:
        """Until something is written that was sent after now."""
        number = load.count + PER_TICK
        wait_until(
            lambda: any(one["n"] >= number for file in written(root)[-9:] for one in file.rows),
            120,
            lambda: f"{rows()} of {load.count}; the log ends:\n{agent.log[-3000:]}",
        )

    with Load(broker.bootstrap, topic) as load:
        agent.start()
        grows(load)
        for victim in ["worker", *rng.sample(victims, len(victims))]:
            strike(agent, victim, rng)
            if victim != "start":
                grows(load)
    wait_until(lambda: rows() >= load.count, 120, lambda: f"{rows()} of {load.count}; the log ends:\n{agent.log[-3000:]}")
    agent.stop()
    records = consume(broker.bootstrap, topic)
    assert_each_once(written(root), records, number_of)
    left = [path for path in (root / "_copycat" / "lake" / "pending").rglob("*") if path.is_file()]
    assert len(left) <= PARTITIONS, left
