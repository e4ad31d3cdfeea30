"""Which Kafka cluster this is: asked once, by nobody for long, and again after a failure."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from copycat_agent.api.connect import cluster_ids
from copycat_agent.api.connect.cluster_ids import ClusterIds
from copycat_agent.errors import RetriableError
from copycat_agent.options import KafkaOptions
from tests.rig.waiting import wait_until

ONE, OTHER = KafkaOptions(bootstrap_servers=("k1:9092",)), KafkaOptions(bootstrap_servers=("k2:9092",))


class Cluster:
    """Answers with the name of its first broker, once it may, unless it fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may = threading.Event()
        self.may.set()
        self.fails = False

    def ask(self, kafka: KafkaOptions) -> str:
        self.asked.append(kafka.bootstrap_servers[0])
        assert self.may.wait(30)
        if self.fails:
            raise RetriableError("no answer in time")
        return f"id of {kafka.bootstrap_servers[0]}"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(cluster_ids, "WAIT_SECONDS", 30.0)
    made = Cluster()
    yield made
    made.may.set()


def test_it_is_asked_once_for_each_cluster(cluster: Cluster) -> None:
    ids = ClusterIds(cluster.ask)
    assert [ids.of(ONE), ids.of(ONE), ids.of(OTHER), ids.of(OTHER)] == ["id of k1:9092"] * 2 + ["id of k2:9092"] * 2
    assert cluster.asked == ["k1:9092", "k2:9092"]


def test_nobody_waits_for_a_cluster_that_does_not_answer(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_ids, "WAIT_SECONDS", 0.01)
    cluster.may.clear()
    ids = ClusterIds(cluster.ask)
    assert [ids.of(ONE) for _ in range(3)] == [None] * 3
    wait_until(lambda: cluster.asked == ["k1:9092"], message="it is asked, on a thread of its own")
    cluster.may.set()
    wait_until(lambda: ids.of(ONE) == "id of k1:9092")
    assert cluster.asked == ["k1:9092"]


def test_after_a_failure_it_is_asked_again_but_not_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.fails = True
    monkeypatch.setattr(cluster_ids, "AGAIN_SECONDS", 3600.0)
    ids = ClusterIds(cluster.ask)
    assert [ids.of(ONE), ids.of(ONE)] == [None, None]
    assert cluster.asked == ["k1:9092"]
    monkeypatch.setattr(cluster_ids, "AGAIN_SECONDS", -1.0)
    cluster.fails = False
    assert ids.of(ONE) == "id of k1:9092"
