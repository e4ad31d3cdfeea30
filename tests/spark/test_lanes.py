"""exactly_once through bounded Spark jobs, whose Python workers change from one job to the next."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest

from copycat_agent.spark.jobs import JobExecutor
from copycat_agent.watch import Watcher
from tests.rig.kafka import consume, wait_for_markers
from tests.rig.shipping import Shipping
from tests.spark.conftest import workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.spark.host import SparkHost


pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""


@pytest.fixture
def shipping(tmp_path: Path, broker: DevBroker, host: SparkHost, make_topic: Callable[..., str]) -> Iterator[Shipping]:
    """A connector over `tmp_path / "logs"`, not started."""
    executor, watcher = JobExecutor(host), Watcher()
    made = Shipping(tmp_path, "app", broker.bootstrap, make_topic(), executor, watcher)
    yield made
    made.close()
    executor.close()
    watcher.close()


def committed(shipping: Shipping) -> list[int]:
    """The numbers that readers of what is committed see."""
    wait_for_markers(shipping.bootstrap, shipping.topic)
    seen = consume(shipping.bootstrap, shipping.topic, isolation="read_committed")
    return [json.loads(record.value or b"")["n"] for record in seen]


@pytest.mark.parametrize("query", [True, pytest.param(False, marks=pytest.mark.long)])
def test_each_record_is_there_once_whoever_runs_the_jobs(shipping: Shipping, query: bool) -> None:
    fields = "SELECT r.n FROM (SELECT from_json(message, 'n int') AS r FROM records)"
    path = shipping.logs / "app.log"
    for begin in range(0, 400, 200):
        with path.open("a") as file:
            file.writelines(f'{{"n": {number}}}\n' for number in range(begin, begin + 200))
        delivery = {"guarantee": "exactly_once", "tasks_max": 1}
        shipping.start(transforms=[{"sql": fields}] if query else [], delivery=delivery, until_idle=True).wait_idle()
        counts = shipping.stop().counts
        assert (counts.read, counts.acknowledged) == (200, 200)
        if begin == 0:  # not for those who use the session after this test: Spark hands them a worker that is dead
            for worker in workers():
                with suppress(psutil.NoSuchProcess):  # it has ended with its daemon, the first of them
                    worker.kill()
    assert committed(shipping) == list(range(400))
