"""What becomes of records whose step, template or converter fails, and what the options of `record` make of a record."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from copycat_agent.encoding import encoder
from copycat_agent.errors import CopycatError, DataError, FatalError, RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.model import Batch, Counts, Split, SplitResult
from copycat_agent.transforms import Draft, Steady
from copycat_agent.transforms.base import GuardedTransform
from tests.rig.kafka import consume, create_topic, unique_topic, values
from tests.unit.batch.rig import after, batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.encoding.encoder import Encoder
    from copycat_agent.options import Definition
    from copycat_agent.producer import ProducerPool
    from copycat_agent.transforms.base import OnError

SET = [{"set": {"of": "app"}}]


@contextmanager
def changed(work: Batch) -> Iterator[Encoder]:
    """The encoder that the batch uses, to put stand-ins into."""
    try:
        yield encoder.compiled(work.definition)
    finally:
        encoder.compiled.cache_clear()


def picky(draft: Draft) -> bool:
    """Fails for lines with `bad`."""
    if "bad" in draft.fields()["message"]:
        raise DataError("not a good one")
    return True


def ship(connector: Definition, split: Split, producers: ProducerPool, on_error: OnError | None) -> SplitResult:
    """One batch through a picky step with this policy."""
    work = batch_of(connector, split)
    with changed(work) as made:
        made.transforms = (GuardedTransform(Steady(picky), "transforms[0] picky", None, on_error),)
        (result,) = run_batch(work, producers, never)
    return result


@pytest.mark.parametrize(("tolerance", "on_error"), [("none", "dlq"), ("all", "dlq"), ("all", None)])
def test_on_error_dlq_writes_a_letter_that_names_the_step(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, tolerance: str, on_error: OnError | None
) -> None:
    letters = create_topic(broker.bootstrap, unique_topic())
    errors = {"tolerance": tolerance, "dlq": {"topic": letters}}
    split = split_of(write(tmp_path / "f", b"one", b"bad one", b"two"))
    result = ship(definition(broker.bootstrap, topic, steps=SET, errors=errors), split, producers, on_error)
    assert (result.error, result.offset.position, result.counts) == (None, 16, Counts(3, 16, 2, dead_lettered=1))
    (letter,) = consume(broker.bootstrap, letters)
    said = dict(letter.headers)
    assert (letter.value, said["copycat.stage"], said["copycat.step"]) == (b"bad one", b"transform", b"transforms[0] picky")
    assert (said["copycat.error"], said["copycat.message"]) == (b"DataError", b"transforms[0] picky: not a good one")
    assert values(broker.bootstrap, topic) == [b'{"message":"one"}', b'{"message":"two"}']


@pytest.mark.parametrize(("tolerance", "on_error"), [("all", "stop"), ("none", "stop"), ("none", None)])
def test_on_error_stop_ends_just_before_the_record(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, tolerance: str, on_error: OnError | None
) -> None:
    split = split_of(write(tmp_path / "f", b"one", b"bad one", b"two"))
    result = ship(definition(broker.bootstrap, topic, steps=SET, errors={"tolerance": tolerance}), split, producers, on_error)
    assert isinstance(result.error, FatalError)
    assert "bytes 4 to 12, stage transform: transforms[0] picky: not a good one" in result.error.message
    assert ("another on_error" if on_error else "tolerance: all") in result.error.hint
    assert (result.offset.position, result.counts.acknowledged) == (4, 1)


@pytest.mark.parametrize(("on_error", "expected"), [("keep", Counts(3, 16, 3, kept=1)), ("drop", Counts(3, 16, 2, dropped=1))])
def test_what_a_step_that_failed_lets_pass_is_counted_and_named_without_its_data(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, on_error: OnError, expected: Counts
) -> None:
    split = split_of(write(tmp_path / "f", b"one", b"bad one", b"two"))
    result = ship(definition(broker.bootstrap, topic, steps=SET), split, producers, on_error)
    assert (result.error, result.offset.position, result.counts, result.rejections) == (None, 16, expected, ())
    (failure,) = result.step_failures
    assert failure == (split.path, 4, 12, "transforms[0] picky: not a good one", 2, on_error == "keep", False)
    assert (b'{"message":"bad one"}' in values(broker.bootstrap, topic)) is (on_error == "keep")


def test_a_batch_of_dropped_records_only_moves_the_offset(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    split = split_of(write(tmp_path / "f", *[b"drop me"] * 500))
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic, drop="^drop"), split), producers, never)
    assert (result.error, result.at_end, result.offset.position, result.counts) == (None, True, 4000, Counts(500, 4000, dropped=500))
    assert values(broker.bootstrap, topic) == []


@pytest.mark.parametrize(
    "error", [RetriableError("the registry does not answer"), FatalError("the schema is refused")], ids=["retry", "end"]
)
@pytest.mark.parametrize("record", [{}, {"key": "{message}", "origin_headers": True}], ids=["steady", "own"])
@pytest.mark.parametrize("tracked", [False, True])
def test_a_converter_that_cannot_work_ends_the_batch_with_all_before_it_settled(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, error: CopycatError, record: dict[str, Any], tracked: bool
) -> None:
    split = split_of(write(tmp_path / "f", b"one", b"two", b"three", b"four"))
    other = split_of(write(tmp_path / "g", b"other"))
    connector = definition(broker.bootstrap, topic, steps=SET, record=record, errors={"tolerance": "all"})
    work = batch_of(connector, split, other)
    work = Batch(work.task, work.definition, work.splits, work.max_bytes, work.max_seconds, tracked=tracked)
    well: list[bool] = []

    def convert(fields: dict[str, str]) -> bytes:
        if fields["message"] == "three" and not well:
            raise error
        return fields["message"].encode()

    with changed(work) as made:
        made.layout.convert_value = convert
        first, untouched = run_batch(work, producers, never)
        assert (str(first.error), type(first.error)) == (str(error), type(error))
        assert (first.offset.position, first.counts) == (8, Counts(2, 8, 2))
        assert untouched.offset.position == 0
        again, _ = run_batch(batch_of(connector, after(split, first.offset), other), producers, never)
        assert (type(again.error), again.offset, again.counts) == (type(error), first.offset, Counts())
        well.append(True)
        last, _ = run_batch(batch_of(connector, after(split, first.offset), other), producers, never)
    assert (last.error, last.offset.position) == (None, 19)
    assert values(broker.bootstrap, topic) == [b"one", b"two", b"three", b"four", b"other"]


FIELDS: dict[str, Any] = {"text": "grün", "object": {"a": [1, None]}, "number": 1.5, "null": None, "yes": True}


def test_a_value_is_a_template_or_one_field_as_it_is(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    def value_of(template: str, converter: str = "") -> list[bytes | None]:
        topic = make_topic()
        connector = definition(broker.bootstrap, topic, steps=SET, record={"value": template}, value=converter, errors={"tolerance": "all"})
        work = batch_of(connector, split_of(write(tmp_path / "f", b"line")))
        with changed(work) as made:
            made.transforms = (Steady(lambda draft: draft.fields().update(FIELDS) is None),)
            (result,) = run_batch(work, producers, never)
        assert (result.error, result.at_end) == (None, True)
        return [one.value for one in consume(broker.bootstrap, topic)] or [rejection.reason.encode() for rejection in result.rejections]

    assert value_of("{text}") == ["grün".encode()]
    assert value_of("{text}", "json") == ['"grün"'.encode()]
    assert value_of("{object}") == [b'{"a":[1,null]}']
    assert value_of("{object.a}", "string") == [b"[1,null]"]
    assert value_of("{number}") == [b"1.5"]
    assert value_of("{yes}") == [b"true"]
    assert value_of("{null}") == [b"field 'null' is null, so there is no value to send"], "no line deletes a key by chance"
    assert value_of("{text} {number} {message}") == ["grün 1.5 line".encode()]
    assert value_of("{none}") == [b"field 'none' is missing, so there is no value to send"]
    assert value_of("<{none}>") == [b"field 'none' is missing"]


def test_a_value_of_a_line_needs_no_transform(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    connector = definition(broker.bootstrap, topic, record={"value": "{@offset} {message}"})
    (result,) = run_batch(batch_of(connector, split_of(write(tmp_path / "f", b"a", b"b"))), producers, never)
    assert (result.error, values(broker.bootstrap, topic)) == (None, [b"0 a", b"2 b"])


def test_the_time_of_an_event_is_what_a_step_has_set(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    connector = definition(broker.bootstrap, topic, steps=SET, record={"timestamp": "event"}, errors={"tolerance": "all"})
    work = batch_of(connector, split_of(write(tmp_path / "f", b"1700000000000", b"none", b"0", b"-5")))

    def stamp(draft: Draft) -> bool:
        text = draft.fields()["message"]
        draft.timestamp_ms = None if text == "none" else int(text)
        return True

    with changed(work) as made:
        made.transforms = (Steady(stamp),)
        (result,) = run_batch(work, producers, never)
    times = [one.timestamp_ms or 0 for one in consume(broker.bootstrap, topic)]
    assert (times[0], times[1] > 1_700_000_000_000, times[2:]) == (1_700_000_000_000, True, [1])
    assert [(one.stage, one.start) for one in result.rejections] == [("record", 21)], "Kafka has no time before 1970"


def test_the_brokers_time_comes_with_the_topics_that_are_made(producers: ProducerPool, broker: DevBroker, tmp_path: Path) -> None:
    topic = unique_topic()
    connector = definition(broker.bootstrap, topic, record={"timestamp": "broker"}, create={})
    (result,) = run_batch(batch_of(connector, split_of(write(tmp_path / "f", b"a"))), producers, never)
    assert (result.error, result.counts.acknowledged) == (None, 1)
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.describe_configs([resource])[resource].result(30)
    assert found["message.timestamp.type"].value == "LogAppendTime"


@pytest.mark.parametrize("name", ["__consumer_offsets", "a b", "..", "a/b", "x" * 300])
def test_a_line_cannot_choose_a_topic_that_was_not_foreseen(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, name: str
) -> None:
    split = split_of(write(tmp_path / "f", topic.encode(), name.encode()))
    connector = definition(broker.bootstrap, topic, record={"topic": "{message}"}, errors={"tolerance": "all"})
    (result,) = run_batch(batch_of(connector, split), producers, never)
    assert (result.error, [one.stage for one in result.rejections]) == (None, ["record"])
    assert values(broker.bootstrap, topic) == [topic.encode()]
