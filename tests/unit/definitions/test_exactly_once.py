"""`delivery.guarantee: exactly_once` goes with all that it can go with; what would outlive its transactions is told with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from copycat_agent.definitions.kafka_rules import MOST_MS, TRANSACTION_MS
from copycat_agent.model import LaneId
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.producer.settings import TRANSACTION_TIMEOUT_MS, transactional_settings
from copycat_agent.transactions.entries import transactional_id
from tests.unit.definitions.conftest import GOOD

if TYPE_CHECKING:
    from tests.unit.definitions.conftest import Load

EXACTLY = f"{GOOD}delivery: {{guarantee: exactly_once}}\n"
SPOOL = "name: app\nsource: {type: spool_dir, dir: /var/spool/app}\nrecord: {topic: logs.app}\n"

CLEAN = [
    EXACTLY,
    f"{EXACTLY}transforms: [{{sample: 0.1}}, {{json: {{}}, on_error: drop}}]\nerrors: {{tolerance: all, dlq: {{topic: d}}}}\n",
    f"{SPOOL}delivery: {{guarantee: exactly_once, ordering: none, tasks_max: 64, max_batch_time: 30s}}\n",
    f"{EXACTLY}kafka: {{client: {{message.timeout.ms: 30000, socket.timeout.ms: 30000, max.in.flight: 1, linger.ms: 100}}}}\n",
    f"{GOOD}delivery: {{max_batch_time: 1h}}\nkafka: {{client: {{message.timeout.ms: 0}}}}\n",
    EXACTLY.replace("name: app", f"name: {'a' * 63}"),
]
WRONG = [
    (f"{GOOD}delivery: {{guarantee: exactly_once, max_batch_time: 31s}}\n", (4, 53), "set 30s or less"),
    (f"{EXACTLY}kafka: {{client: {{message.timeout.ms: 30001}}}}\n", (5, 38), "lower it, or delete it"),
    (f"{EXACTLY}kafka: {{client: {{message.timeout.ms: 0}}}}\n", (5, 38), "lower it, or delete it"),
    (f"{EXACTLY}kafka: {{client: {{delivery.timeout.ms: 120000}}}}\n", (5, 39), "lower it, or delete it"),
    (f"{EXACTLY}kafka: {{client: {{socket.timeout.ms: 61000}}}}\n", (5, 37), "lower it, or delete it"),
    (f"{EXACTLY}kafka: {{client: {{transactional.id: mine}}}}\n", (5, 18), "one for each lane"),
    (f"{EXACTLY}kafka: {{client: {{transaction.timeout.ms: 900000}}}}\n", (5, 18), "max_batch_time"),
    (f"{EXACTLY}kafka: {{client: {{enable.idempotence: false}}}}\n", (5, 18), "delivery.guarantee decides this"),
    (f"{EXACTLY}kafka: {{client: {{acks: 1}}}}\n", (5, 18), "delivery.guarantee decides this"),
]


@pytest.mark.parametrize("text", CLEAN)
def test_what_goes_with_it_is_good(load: Load, text: str) -> None:
    assert load(text).problems == ()


@pytest.mark.parametrize(("text", "place", "hint"), WRONG)
def test_what_contradicts_it_is_told_with_its_place_and_a_way_out(load: Load, text: str, place: tuple[int, int], hint: str) -> None:
    (problem,) = load(text).problems
    assert (problem.line, problem.column) == place
    assert hint in problem.hint


def test_a_default_of_the_agent_that_contradicts_it_is_told_where_the_guarantee_is_asked_for(load: Load) -> None:
    agent = AgentOptions(kafka=KafkaOptions(client={"message.timeout.ms": "300000"}))
    (problem,) = load(EXACTLY, GOOD.replace("app", "b", 1), agent=agent).problems
    assert (problem.line, problem.column) == (4, 23)
    assert problem.text.startswith("message.timeout.ms of agent.yaml")
    own = f"{EXACTLY}kafka: {{client: {{message.timeout.ms: 30000}}}}\n"
    assert load(own, agent=agent).problems == ()


@pytest.mark.parametrize("name", ["message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms"])
def test_what_is_good_is_used_as_it_is(name: str) -> None:
    options = KafkaOptions(bootstrap_servers=("127.0.0.1:1",), client={name: str(MOST_MS), "log_level": "0"})
    settings = transactional_settings(options, "test", "t")
    Producer(settings)
    assert settings[name.replace("delivery", "message")] == str(MOST_MS)
    assert TRANSACTION_MS == TRANSACTION_TIMEOUT_MS


def test_no_transactional_id_is_longer_than_kafka_takes() -> None:
    lane = LaneId("0" * 36, "a" * 63, 63)
    assert len(transactional_id(lane, 1)) <= 113
