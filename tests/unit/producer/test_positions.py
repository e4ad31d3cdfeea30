"""The offsets topic: made as it has to be, and read to its end with nothing open below it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from copycat_agent.dev_broker import DevBroker, free_port
from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.options import KafkaOptions
from copycat_agent.producer import transactional
from copycat_agent.producer.admin import Admin, Question
from copycat_agent.producer.offsets_topic import OffsetsTopic
from copycat_agent.producer.probing import ClusterProbe
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.transactions.protocol import Entry
from tests.rig.kafka import create_topic, unique_topic
from tests.rig.waiting import wait_until
from tests.unit.producer.lanes_rig import World, world

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import ProxiedBroker


@pytest.fixture
def here(broker: DevBroker) -> Iterator[World]:
    """A world on the shared broker."""
    with world(broker.bootstrap) as made:
        yield made


def write(where: World, *entries: Entry, seq: int = 0) -> None:
    handle = where.begun(seq)
    where.steps.send(handle, where.place, entries)
    where.steps.flush(handle)
    where.steps.commit(handle)
    where.steps.close(handle)


def test_the_topic_is_made_compacted_and_found_again(here: World) -> None:
    topic = unique_topic("__copycat_offsets")
    assert here.steps.ensure_topic(topic) == 25
    assert here.steps.ensure_topic(topic) == 25
    probe = ClusterProbe(here.steps.options, time.monotonic() + 60)
    state = probe.look([topic]).topics[topic]
    assert state.config is not None
    assert (state.partitions, state.replicas) == (25, 1)
    assert (state.config["cleanup.policy"], state.config["min.insync.replicas"]) == ("compact", "1")
    assert state.config["unclean.leader.election.enable"] == "false"
    probe.close()


class StrictAdmin(Admin):
    """Asks brokers with rules before the real ones: each of `answers` is for one request, None lets it pass. `asked` are settings."""

    def __init__(self, options: KafkaOptions, *answers: int | None) -> None:
        super().__init__(options, stopping=lambda: False)
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []

    def ask(self, question: Question, seconds: float | None = None) -> Any:
        return super().ask(lambda client: question(cast("AdminClient", Strict(client, self))), seconds)


class Strict:
    """A client of such brokers."""

    def __init__(self, client: AdminClient, admin: StrictAdmin) -> None:
        self.client, self.answers, self.asked = client, admin.answers, admin.asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def create_topics(self, topics: list[NewTopic], **how: Any) -> dict[str, Future[None]]:
        (topic,) = topics
        self.asked.append(dict(topic.config or {}))
        code = self.answers.pop(0)
        if code is None:
            return self.client.create_topics(topics, **how)
        answer: Future[None] = Future()
        answer.set_exception(KafkaException(KafkaError(code)))
        return {topic.topic: answer}


UNCLEAN = "unclean.leader.election.enable"


@pytest.mark.parametrize("code", [KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG])
def test_brokers_that_do_not_take_one_setting_get_the_topic_without_it(here: World, code: int) -> None:
    strict = StrictAdmin(here.steps.options, code, None)
    topic = unique_topic("__copycat_offsets")
    assert OffsetsTopic(strict).ensure(topic) == 25
    strict.close()
    first, second = strict.asked
    assert {**second, UNCLEAN: "false"} == first
    assert UNCLEAN not in second


def test_who_may_not_make_the_topic_is_told_the_command_for_what_was_asked_last(here: World) -> None:
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    for answers, is_in in (([denied], True), ([KafkaError.POLICY_VIOLATION, denied], False)):
        strict = StrictAdmin(here.steps.options, *answers)
        with pytest.raises(BlockedError, match="creating topic") as caught:
            OffsetsTopic(strict).ensure("__copycat_offsets_x")
        strict.close()
        settings = " --config cleanup.policy=compact --config segment.bytes=67108864 --config min.insync.replicas=1"
        assert caught.value.hint.endswith(settings + (f" --config {UNCLEAN}=false" if is_in else ""))


def test_a_topic_with_other_partitions_is_taken_as_it_is(here: World) -> None:
    topic = create_topic(here.bootstrap, unique_topic(), 3, {"cleanup.policy": "compact"})
    assert here.steps.ensure_topic(topic) == 3


def test_a_topic_that_lets_positions_go_is_refused_with_the_command_that_mends_it(here: World) -> None:
    topic = create_topic(here.bootstrap, unique_topic(), 1, {"cleanup.policy": "delete"})
    with pytest.raises(BlockedError, match=r"cleanup\.policy=delete") as caught:
        here.steps.ensure_topic(topic)
    command = f"kafka-configs.sh --bootstrap-server {here.bootstrap} --alter --entity-type topics --entity-name {topic}"
    assert f"{command} --add-config cleanup.policy=compact" in caught.value.hint


def test_the_cluster_says_who_it_is(here: World) -> None:
    assert here.steps.cluster_id() == here.steps.cluster_id() != ""


def test_the_end_counts_what_is_open(here: World) -> None:
    assert here.steps.end(here.place) == 0
    handle = here.begun()
    here.steps.send(handle, here.place, [Entry(b"k", b"v")])
    here.steps.flush(handle)
    assert here.steps.end(here.place) == 1


def test_an_empty_place_has_no_entries(here: World) -> None:
    assert here.read() == []


def test_only_what_is_committed_is_read_from_where_it_is_asked_for(here: World) -> None:
    write(here, Entry(b"a", b"1"), Entry(b"b", b"1"))
    open_one = here.begun()
    here.steps.send(open_one, here.place, [Entry(b"a", b"2")])
    here.steps.flush(open_one)
    write(here, Entry(b"a", None))
    end = here.steps.end(here.place)
    assert here.steps.replay(here.place, 0, end) == [Entry(b"a", b"1", 0), Entry(b"b", b"1", 1), Entry(b"a", None, 5)]
    assert here.steps.replay(here.place, 1, end)[0] == Entry(b"b", b"1", 1)
    assert here.steps.replay(here.place, end, end) == []


def test_nothing_behind_the_end_is_read(here: World) -> None:
    write(here, Entry(b"a", b"1"))
    end = here.steps.end(here.place)
    write(here, Entry(b"a", b"2"))
    assert [entry.value for entry in here.steps.replay(here.place, 0, end)] == [b"1"]


def test_a_beginning_that_is_gone_is_passed_over(here: World) -> None:
    write(here, Entry(b"a", b"1"), Entry(b"b", b"2"))
    admin = AdminClient({"bootstrap.servers": here.bootstrap})
    wanted = TopicPartition(here.place.topic, here.place.partition, 1)
    admin.delete_records([wanted])[wanted].result(60)
    assert here.read() == [Entry(b"b", b"2", 1)]


def test_a_transaction_of_somebody_else_is_waited_for_and_then_told(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Producer({"bootstrap.servers": here.bootstrap, "transactional.id": unique_topic("other")})
    other.init_transactions()
    write(here, Entry(b"a", b"1"))
    assert len(here.read()) == 1
    other.begin_transaction()
    other.produce(here.place.topic, b"x", b"k", here.place.partition)
    other.flush()
    with monkeypatch.context() as impatient:
        impatient.setattr(transactional, "STALL_SECONDS", 5.0)
        with pytest.raises(RetriableError, match="a transaction of another producer is open there") as caught:
            here.read()
    assert "cannot be read beyond offset 2" in caught.value.message
    assert "transaction.timeout.ms" in caught.value.hint
    other.commit_transaction()
    assert [entry.value for entry in here.read()] == [b"1", b"x"]


def test_an_answer_that_is_lost_does_not_make_the_next_question_wait(
    proxied_broker: ProxiedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(proxied_broker.bootstrap) as there:
        write(there, Entry(b"a", b"1"))
        end = there.steps.end(there.place)
        assert len(there.steps.replay(there.place, 0, end)) == 1
        with monkeypatch.context() as context:
            context.setattr(transactional, "STALL_SECONDS", 0.5)
            proxied_broker.proxy.blackhole()
            with pytest.raises(RetriableError, match="no answer from"):
                there.steps.replay(there.place, 0, end)
        proxied_broker.proxy.forward()  # the same connections live on, and what was asked on them is never answered
        assert len(there.steps.replay(there.place, 0, end)) == 1


def test_a_broker_that_was_restarted_is_asked_with_what_is_known_now(proxied_broker: ProxiedBroker) -> None:
    with world(proxied_broker.bootstrap) as there:
        write(there, Entry(b"a", b"1"))
        end = there.steps.end(there.place)
        proxied_broker.broker.kill()
        proxied_broker.broker.start()

        def answers() -> bool:
            with suppress(RetriableError):
                return there.steps.end(there.place) == end
            return False

        wait_until(answers, 60, "it is asked with the old leader's epoch for ever")


def test_entries_that_later_ones_replace_are_let_go_where_there_are_many(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "MOST_ENTRIES", 4)
    write(here, *(Entry(b"%d" % (number % 3), b"%d" % number) for number in range(20)))
    found = here.read()
    assert len(found) <= 8
    assert {entry.key: entry.value for entry in found} == {b"0": b"18", b"1": b"19", b"2": b"17"}
    assert [entry.offset for entry in found] == sorted(entry.offset for entry in found)


def test_without_a_broker_every_question_ends_retriable_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.producer.admin.ANSWER_SECONDS", 5.0)
    steps = KafkaSteps(KafkaOptions(bootstrap_servers=(f"127.0.0.1:{free_port()}",)), "test")
    with pytest.raises(RetriableError, match="Connection refused"):
        steps.cluster_id()
    steps.close()


def test_a_stop_is_not_taken_for_a_broker_that_gives_no_answer(here: World) -> None:
    write(here, Entry(b"a", b"1"))
    steps = KafkaSteps(here.steps.options, "test", stopping=lambda: True)
    with pytest.raises(RetriableError, match="stopped before all of it was read"):
        steps.replay(here.place, 0, 1)
    steps.close()
    steps = KafkaSteps(KafkaOptions(bootstrap_servers=(f"127.0.0.1:{free_port()}",)), "test", stopping=lambda: True)
    with pytest.raises(RetriableError, match=r"stopped before 127\.0\.0\.1:[0-9]+ had answered"):
        steps.end(here.place)
    steps.close()


def test_clients_for_questions_are_freed_while_nothing_is_asked(here: World) -> None:
    def has_consumer() -> bool:
        return here.steps.consumer is not None

    write(here, Entry(b"a", b"1"))
    here.read()
    assert has_consumer()
    for number in range(5):
        write(here, Entry(b"a", b"%d" % number))
    assert not has_consumer()
    assert len(here.read()) == 6
