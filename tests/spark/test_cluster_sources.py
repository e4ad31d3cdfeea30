"""A table of a database and a data source of PySpark, read on executors of a real cluster: each row arrives once, whatever is killed."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
import pytest
import yaml

from tests.datasource.conftest import BATCHES
from tests.rig.agent import AgentProcess, is_alive
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.postgres import Postgres
from tests.rig.spark_cluster import SparkCluster, kill
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker

SECONDS = 420.0


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_rows_of_a_database_and_of_a_data_source_arrive_once_whatever_is_killed(tmp_path: Path, cache: None, broker: DevBroker) -> None:
    for name in ("cluster", "readers"):
        (tmp_path / name).mkdir()
    (tmp_path / "readers" / "batches.py").write_text(BATCHES.read_text("utf-8"), "utf-8")
    path, upto = str(tmp_path / "readers"), tmp_path / "upto"
    topics = {name: create_topic(broker.bootstrap, unique_topic(name)) for name in ("table", "stream")}
    agent = AgentProcess(tmp_path / "agent", broker.bootstrap)
    conf = {"spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}  # up in half the time
    (agent.root / "agent.yaml").write_text(yaml.safe_dump({"spark": {"conf": conf}}), "utf-8")
    with (
        Postgres() as server,
        server.database() as database,
        SparkCluster(tmp_path / "cluster", 2, path, cores=1) as cluster,
        agent,
    ):
        database.execute("CREATE TABLE numbers (id INT PRIMARY KEY)")

        def grow(first: int, last: int) -> None:
            database.execute(f"INSERT INTO numbers SELECT generate_series({first}, {last})")
            upto.with_suffix(".next").write_text(str(last))
            upto.with_suffix(".next").rename(upto)

        def arrived(name: str) -> Counter[int]:
            return Counter(json.loads(one.value or b"")["id"] for one in consume(broker.bootstrap, topics[name], "read_committed"))

        def has_all(last: int) -> None:
            """Each once."""
            for name in topics:
                wait_until(lambda name=name: len(arrived(name)) >= last, SECONDS, lambda: agent.log[-4000:])  # type: ignore[misc]
                assert arrived(name) == Counter(range(1, last + 1))

        grow(1, 500)
        login = {"url": database.url, "user": database.user, "password": database.password}
        sources = {
            "table": {"type": "jdbc", **login, "tables": ["numbers"], "mode": "incrementing", "poll_interval": "200ms"},
            "stream": {"type": "datasource", "class": "batches:Batches", "options": {"upto": str(upto)}, "poll_interval": "200ms"},
        }
        for name, source in sources.items():
            agent.define(name, {"source": source, "record": {"topic": topics[name]}, "delivery": {"guarantee": "exactly_once"}})
        agent.start("--master", cluster.url, env={"PYTHONPATH": path})
        has_all(500)
        for last, find in ((1500, cluster.pythons), (2500, cluster.executors)):
            grow(last - 999, last)
            found = wait_until(lambda find=find: _any(find), SECONDS, "there is one")  # type: ignore[misc]
            assert found is not None
            with suppress(psutil.NoSuchProcess):
                kill(found)
            has_all(last)
        agent.stop(SECONDS)


def _any(find: Callable[[], list[psutil.Process]]) -> psutil.Process | None:
    with suppress(psutil.NoSuchProcess):
        return next((one for one in find() if is_alive(one)), None)
    return None
