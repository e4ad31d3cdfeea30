"""Blocks of lines, handed to librdkafka as arrays: the same promises as values one by one, or the usual way."""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from copycat_agent.dev_broker import DevBroker, free_port
from copycat_agent.errors import BlockedError, DataError, RetriableError
from copycat_agent.model import BrokerView, ClientView
from copycat_agent.options import KafkaOptions
from copycat_agent.options.kafka_access import OauthOptions
from copycat_agent.producer import RawLines, TaskProducer, block_client, block_library
from copycat_agent.producer.block_client import BlockClient, Heard, fits, open_client
from copycat_agent.producer.block_library import BlockLibrary, MessageStruct, UnfitError, check, loaded_path
from copycat_agent.producer.client import ClientReports
from copycat_agent.producer.settings import producer_settings
from tests.rig.kafka import consume, create_topic, unique_topic, values
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from copycat_agent.producer.client import Message

VERSION = confluent_kafka.libversion()[1]
MUCH = 2**30


def never() -> bool:
    return False


def kafka(bootstrap: str, **client: str) -> KafkaOptions:
    return KafkaOptions(bootstrap_servers=(bootstrap,), client=client)


def lines_of(sent: list[bytes], delimiter: bytes = b"\n") -> RawLines:
    """These lines, and the beginning of another one."""
    data = b"".join(line + delimiter for line in sent)
    return RawLines(data + b"not yet", len(data), delimiter)


def references(lines: RawLines) -> int:
    """How many hold the block."""
    return sys.getrefcount(lines.data)


def in_values(producer: TaskProducer, topic: str, sent: list[bytes], tail: Message = ()) -> None:
    producer.send(topic, sent, tail)


def in_blocks(producer: TaskProducer, topic: str, sent: list[bytes], tail: Message = ()) -> None:
    assert producer.takes_blocks(tail, MUCH)
    assert producer.send_block(topic, lines_of(sent), tail) == len(sent)


Send = Callable[..., None]


@pytest.fixture(params=[in_values, in_blocks])
def send(request: pytest.FixtureRequest) -> Send:
    found: Send = request.param
    return found


@pytest.fixture
def make_producer(broker: DevBroker) -> Iterator[Callable[..., TaskProducer]]:
    """`make_producer(**client)` gives a producer on the shared broker that has begun a batch."""
    made: list[TaskProducer] = []

    def make(bootstrap: str = broker.bootstrap, **client: str) -> TaskProducer:
        producer = TaskProducer(kafka(bootstrap, **client), "test")
        producer.begin(never)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        if hasattr(producer, "topics"):
            producer.close()


@pytest.fixture
def library() -> BlockLibrary:
    return BlockLibrary(ctypes.CDLL(loaded_path()))


# The contract, both ways.


@pytest.mark.parametrize("tail", [(), (b"key", -1, None, None, 0, None), (b"", 0), (None, 2)])
def test_what_is_flushed_is_in_the_topic_in_order(
    make_producer: Callable[..., TaskProducer], broker: DevBroker, send: Send, tail: Message
) -> None:
    topic = create_topic(broker.bootstrap, unique_topic(), 3 if 2 in tail else 1)
    producer = make_producer()
    sent = [b"a", b"", b"c" * 5000, b"\r", "ü\0".encode()]
    send(producer, topic, sent, tail)
    send(producer, topic, [b"second"], tail)
    producer.flush()
    assert not producer.has_unflushed
    found = consume(broker.bootstrap, topic)
    assert [one.value for one in found] == [*sent, b"second"]
    assert {one.key for one in found} == {tail[0] if tail else None}
    assert {one.partition for one in found} == {2 if 2 in tail else 0}
    assert not any(one.headers for one in found)
    assert all(abs((one.timestamp_ms or 0) / 1000 - time.time()) < 60 for one in found)


def test_a_full_queue_blocks_and_drops_nothing(
    make_producer: Callable[..., TaskProducer], broker: DevBroker, topic: str, send: Send
) -> None:
    producer = make_producer(**{"queue.buffering.max.messages": "10"})
    sent = [b"%d" % number for number in range(500)]
    send(producer, topic, sent)
    producer.flush()
    assert values(broker.bootstrap, topic) == sent


def test_a_stop_request_lets_a_full_queue_drain(
    make_producer: Callable[..., TaskProducer], broker: DevBroker, topic: str, send: Send
) -> None:
    producer = make_producer(**{"queue.buffering.max.messages": "10"})
    producer.begin(lambda: True)
    sent = [b"%d" % number for number in range(200)]
    send(producer, topic, sent)
    producer.flush()
    assert values(broker.bootstrap, topic) == sent


def test_a_line_that_the_broker_refuses_is_a_data_error_and_the_producer_goes_on(
    make_producer: Callable[..., TaskProducer], broker: DevBroker, send: Send
) -> None:
    topic = create_topic(broker.bootstrap, unique_topic(), config={"max.message.bytes": "2000"})
    producer = make_producer(**{"batch.size": "1000", "compression.type": "none"})
    send(producer, topic, [*[b"%03d" % number for number in range(500)], b"x" * 4000, *[b"%03d" % number for number in range(500, 999)]])
    with pytest.raises(DataError, match=r"^Kafka refused a record: Broker: Message size too large"):
        producer.flush()
    assert not producer.broken
    send(producer, topic, [b"after"])
    producer.flush()
    found = values(broker.bootstrap, topic)
    assert b"x" * 4000 not in found
    assert found[-1] == b"after"
    assert {b"000", b"998"} <= set(found), "its neighbours may be taken"


def test_a_topic_that_is_not_there_is_told(make_producer: Callable[..., TaskProducer], send: Send) -> None:
    producer = make_producer(**{"topic.metadata.propagation.max.ms": "0", "message.timeout.ms": "3000"})

    def send_and_flush() -> None:
        send(producer, unique_topic("missing"), [b"a"])
        producer.flush()

    with pytest.raises(BlockedError):
        send_and_flush()
    assert producer.broken


def test_without_a_broker_flushing_ends_retriable_and_the_producer_is_broken(
    make_producer: Callable[..., TaskProducer], send: Send
) -> None:
    producer = make_producer(f"127.0.0.1:{free_port()}", **{"message.timeout.ms": "300"})
    send(producer, "t", [b"a", b"b"])
    with pytest.raises(RetriableError, match="Connection refused"):
        producer.flush()
    assert producer.broken
    assert producer.has_unflushed


@pytest.mark.parametrize("count", [1, 50])
def test_a_stop_request_cuts_the_wait_for_a_broker(
    make_producer: Callable[..., TaskProducer], monkeypatch: pytest.MonkeyPatch, count: int, send: Send
) -> None:
    monkeypatch.setattr("copycat_agent.producer.learnt.SETTLE_SECONDS", 0.3)
    producer = make_producer(f"127.0.0.1:{free_port()}", **{"message.timeout.ms": "300000", "queue.buffering.max.messages": "10"})
    producer.begin(lambda: True)

    def send_and_flush() -> None:
        send(producer, "t", [b"a"] * count)
        producer.flush()

    with pytest.raises(RetriableError):
        send_and_flush()
    assert producer.broken


def test_a_full_queue_of_a_dead_broker_ends_retriable(make_producer: Callable[..., TaskProducer], send: Send) -> None:
    producer = make_producer(f"127.0.0.1:{free_port()}", **{"message.timeout.ms": "300", "queue.buffering.max.messages": "10"})
    with pytest.raises(RetriableError):
        send(producer, "t", [b"a"] * 500)
    assert producer.broken


def test_closing_does_not_wait_for_a_broker(make_producer: Callable[..., TaskProducer], send: Send) -> None:
    producer = make_producer(f"127.0.0.1:{free_port()}")
    send(producer, "t", [b"a"] * 1000)
    begin = time.monotonic()
    producer.close()
    assert time.monotonic() - begin < 10  # its messages would be waited for 30 s


def test_a_closed_producer_is_freed_at_once(broker: DevBroker, topic: str, send: Send) -> None:
    gc.disable()
    try:
        producer = TaskProducer(kafka(broker.bootstrap), "test")
        send(producer, topic, [b"a"])
        gone = weakref.ref(producer)
        producer.close()
        del producer
        assert gone() is None
    finally:
        gc.enable()


def test_statistics_are_told(make_producer: Callable[..., TaskProducer], topic: str, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.producer.settings.OURS", {
        "statistics.interval.ms": "100", "enable.idempotence": "true", "acks": "all", "delivery.report.only.error": True,
    })  # fmt: skip
    producer = make_producer()
    send(producer, topic, [b"a"])
    producer.flush()

    def view() -> ClientView | None:
        producer.attend()
        found = producer.take_view()
        return found if found is not None and found.brokers and not found.queue_records else None

    found = wait_until(view)
    assert found is not None
    assert {broker.state for broker in found.brokers} == {"UP"}


# Both ways in one run.


def test_values_come_behind_blocks_and_no_block_comes_behind_them_in_a_run(
    make_producer: Callable[..., TaskProducer], broker: DevBroker, topic: str
) -> None:
    producer = make_producer()
    in_blocks(producer, topic, [b"1", b"2"])
    producer.send_each([(topic, b"3")])
    assert producer.send_block(topic, lines_of([b"4"]), ()) == 0
    producer.send(topic, [b"4"], ())
    producer.flush()
    in_blocks(producer, topic, [b"5"])
    producer.flush()
    assert values(broker.bootstrap, topic) == [b"1", b"2", b"3", b"4", b"5"]


def test_what_became_of_a_block_is_told_by_the_flush_that_follows_the_values_behind_it(
    make_producer: Callable[..., TaskProducer], broker: DevBroker
) -> None:
    topic = create_topic(broker.bootstrap, unique_topic(), config={"max.message.bytes": "2000"})
    producer = make_producer(**{"compression.type": "none"})
    in_blocks(producer, topic, [b"x" * 4000])
    producer.send(topic, [b"fine"], ())
    with pytest.raises(DataError):
        producer.flush()
    assert values(broker.bootstrap, topic) == [b"fine"]


def test_only_much_and_only_what_arrays_can_carry_goes_in_blocks(make_producer: Callable[..., TaskProducer], topic: str) -> None:
    producer = make_producer()
    assert producer.send_block(topic, lines_of([b"a"]), ()) == 0, "nothing is made ready"
    for tail, size in [
        ((), 2**20),
        ((), 2**62),
        ((None, -1, None, None, 17, None), MUCH),
        ((None, -1, None, None, 0, [("h", b"1")]), MUCH),
    ]:
        assert not producer.takes_blocks(tail, size)
    assert not fits((None, -1, None, None, 0, [("h", b"")]))
    assert producer.takes_blocks((b"key", 3, None, None, 0, None), MUCH)
    assert producer.send_block(topic, lines_of([b"a"]), (None, -1, None, None, 17, None)) == 0


def test_a_block_with_a_line_that_the_client_would_refuse_is_not_taken(make_producer: Callable[..., TaskProducer], topic: str) -> None:
    producer = make_producer(**{"message.max.bytes": "1000", "batch.size": "1000"})
    assert producer.takes_blocks((), MUCH)
    for size, taken in [(480, 3), (490, 0), (2000, 0)]:
        assert producer.send_block(topic, lines_of([b"a", b"x" * size, b"b"]), ()) == taken
    assert producer.send_block(topic, lines_of([b"a", b"x" * 480]), (b"k" * 10,)) == 0
    producer.flush()


def test_a_tracked_producer_and_one_with_tokens_take_none(broker: DevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked = TaskProducer(kafka(broker.bootstrap), "test", tracked=True)
    assert not tracked.takes_blocks((), MUCH)
    tracked.close()
    plain = TaskProducer(kafka(broker.bootstrap), "test")
    oauth = OauthOptions(method="msk_iam", region="eu-west-1")
    security = plain.spec.options.security.model_copy(update={"oauth": oauth})
    plain.spec = plain.spec._replace(options=plain.spec.options.model_copy(update={"security": security}))
    assert not plain.takes_blocks((), MUCH)
    plain.close()


# Memory.


def test_a_block_is_kept_until_it_is_acknowledged(make_producer: Callable[..., TaskProducer], topic: str) -> None:
    producer = make_producer()
    lines = lines_of([b"line %d" % number for number in range(10_000)])
    alone = references(lines)
    assert producer.takes_blocks((), MUCH)
    producer.send_block(topic, lines, ())
    assert references(lines) > alone
    producer.flush()
    assert references(lines) == alone


def test_a_block_outlives_its_client_until_nothing_can_read_it_any_more(make_producer: Callable[..., TaskProducer]) -> None:
    producer = make_producer(f"127.0.0.1:{free_port()}")
    lines = lines_of([b"line %d" % number for number in range(10_000)])
    alone = references(lines)
    assert producer.takes_blocks((), MUCH)
    producer.send_block("t", lines, ())
    producer.close()
    del producer
    wait_until(lambda: references(lines) == alone)


def test_a_client_that_nobody_closes_is_freed_with_its_object(library: BlockLibrary) -> None:
    settings = producer_settings(kafka(f"127.0.0.1:{free_port()}"), "test")
    client = BlockClient(library, settings, Heard(lambda *_: None, lambda _: None, lambda _: None))
    lines = lines_of([b"a"])
    alone = references(lines)
    messages = client.messages(lines, None)
    assert messages is not None
    assert not list(client.put("t", -1, messages))
    assert references(lines) > alone
    del client, messages
    assert references(lines) == alone


def test_a_client_that_is_not_used_is_closed_with_the_next_batch(
    make_producer: Callable[..., TaskProducer], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = make_producer()
    in_blocks(producer, topic, [b"a"])
    producer.flush()
    producer.begin(never)
    assert producer.send_block(topic, lines_of([b"a"]), ()) == 1
    producer.flush()
    monkeypatch.setattr(block_client, "MOST_IDLE_SECONDS", 0)
    producer.begin(never)
    assert producer.send_block(topic, lines_of([b"a"]), ()) == 0
    assert producer.takes_blocks((), MUCH), "it is made again"


# What librdkafka has to be.


def test_the_library_at_hand_passes(library: BlockLibrary) -> None:
    check(library, VERSION)
    assert isinstance(block_library.block_library(), BlockLibrary)


def test_another_version_is_not_used(library: BlockLibrary) -> None:
    with pytest.raises(UnfitError, match="version"):
        check(library, VERSION + 1)


class _Shifted(ctypes.Structure):
    """As if payload and size had changed places."""

    _fields_ = tuple(({"payload": "len", "len": "payload"}.get(name, name), kind) for name, kind in MessageStruct._fields_)


class _Wider(ctypes.Structure):
    """As if a field had been added at the end."""

    _fields_ = (*MessageStruct._fields_, ("more", ctypes.c_int64))


@pytest.mark.parametrize("struct", [_Shifted, _Wider])
def test_a_struct_of_another_layout_is_found_out(struct: type[ctypes.Structure]) -> None:
    """The array is of the other struct here, and the library as it is: the reverse of what a newer one would be, and told the same way."""
    library = BlockLibrary(ctypes.CDLL(loaded_path()), struct)
    with pytest.raises(UnfitError):
        check(library, VERSION)


def test_a_library_without_a_function_is_not_used() -> None:
    with pytest.raises(AttributeError):
        BlockLibrary(ctypes.CDLL(None))


def test_without_numpy_there_are_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert block_library.block_library.__wrapped__() == "numpy is not installed"


class _Unfit(TaskProducer):
    _block_library = staticmethod(lambda: "it is another one")


def test_where_it_cannot_be_used_lines_go_as_usual_and_the_log_says_so_once(
    broker: DevBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        producer = _Unfit(kafka(broker.bootstrap), "test")
        assert not producer.takes_blocks((), MUCH)
        assert producer.send_block(topic, lines_of([b"a"]), ()) == 0
        producer.send(topic, [b"a"], ())
        producer.flush()
        producer.close()
    assert len([record for record in caplog.records if "it is another one" in str(record.__dict__)]) == 1


def test_settings_that_are_calls_or_unknown_are_not_for_it(library: BlockLibrary) -> None:
    heard = Heard(lambda *_: None, lambda _: None, lambda _: None)
    settings = producer_settings(kafka("127.0.0.1:9"), "test")
    for more in ({"oauth_cb": print}, {"no.such.setting": "secret"}, {"linger.ms": "secret"}):
        assert open_client(library, settings | more, heard) is None
        with pytest.raises(UnfitError, match=r"^setting \S+ is not for it$"):
            library.client(settings | more)


def test_what_ends_the_whole_client_is_a_failure(library: BlockLibrary) -> None:
    """As an epoch that the broker does not know any more: librdkafka has a function for tests to say so."""
    failures: list[KafkaError] = []
    settings = producer_settings(kafka("127.0.0.1:9"), "test")

    class Known(BlockClient):
        @property
        def address(self) -> ctypes.c_void_p:
            return ctypes.c_void_p(self._client)

    client = Known(library, settings, Heard(lambda error, _: failures.append(error), lambda _: None, lambda _: None))
    library.test_fatal_error(client.address, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"made up")

    def heard() -> bool:
        client.poll(0.05)
        return bool(failures)

    wait_until(heard)
    assert failures[0].code() == KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert failures[0].fatal()
    client.close()


# What two clients say, taken together.


def _view(at: float, name: str, *numbers: int) -> ClientView:
    return ClientView(at, (BrokerView(name, "UP", None),), *numbers)


class _Said:
    def __init__(self, *views: Any) -> None:
        self.views = list(views)

    @property
    def has_news(self) -> bool:
        return bool(self.views)

    def take(self) -> Any:
        return self.views.pop(0)


def test_two_clients_are_one_to_who_asks() -> None:
    reports: Any = ClientReports()
    assert reports.take_view() is None
    reports.statistics, reports.of_blocks = _Said(_view(1, "a", 1, 10, 3)), _Said(_view(2, "b", 2, 20, 4), None, _view(5, "a", 7, 70, 5))
    assert reports.take_view() == ClientView(2, (BrokerView("a", "UP", None), BrokerView("b", "UP", None)), 3, 30, 7)
    assert reports.take_view() is None
    assert reports.take_view() == ClientView(5, (BrokerView("a", "UP", None),), 8, 80, 8)
    reports.without_blocks()
    reports.statistics.views.append(_view(6, "a", 0, 0, 3))
    assert reports.take_view() == ClientView(6, (BrokerView("a", "UP", None),), 0, 0, 8)
