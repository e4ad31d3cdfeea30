"""Samples for `copycat tap`: the first records of a batch as Kafka got them, only when asked for, only when settled."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from copycat_agent.executor import run_batch
from copycat_agent.model import Sample
from tests.rig.kafka import consume
from tests.unit.batch.rig import batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.producer import ProducerPool


@pytest.mark.parametrize("bulk", [True, False])
def test_samples_are_the_first_records_as_they_were_sent(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, bulk: bool
) -> None:
    paths = [write(tmp_path / name, b"one", b"x" * 5000) for name in "ab"]
    record = {"origin_headers": not bulk, "key": "{@file.name}", "headers": {"big": "h" * 5000}, "timestamp": "file"}
    splits = [split_of(path) for path in paths]
    results = run_batch(batch_of(definition(broker.bootstrap, topic, record=record), *splits, samples=3), producers, never)
    samples = results[0].samples
    assert results[1].samples == ()
    assert [(one.path, one.start, one.end, one.topic, one.key) for one in samples] == [
        (str(paths[0]), 0, 4, topic, b"a"), (str(paths[0]), 4, 5005, topic, b"a"), (str(paths[1]), 0, 4, topic, b"b"),
    ]  # fmt: skip
    assert [one.value for one in samples] == [b"one", b"x" * 4096, b"one"]
    assert dict(samples[0].headers)["big"] == b"h" * 4096
    sent = consume(broker.bootstrap, topic)
    assert [name for name, _ in samples[0].headers] == [name for name, _ in sent[0].headers]


@pytest.mark.parametrize("bulk", [True, False])
def test_secrets_of_the_definition_are_hidden_in_samples_and_sent_as_they_are(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, bulk: bool
) -> None:
    path = write(tmp_path / "f", b"x" * 4090 + b"canary-value")
    record = {"origin_headers": not bulk, "key": "canary-key", "headers": {"auth": "Bearer canary-header"}}
    connector = definition(broker.bootstrap, topic, record=record)
    connector.keep_secret(["canary-key", "canary-header", "canary-value"])
    (result,) = run_batch(batch_of(connector, split_of(path), samples=3), producers, never)
    (sample,) = result.samples
    assert (sample.key, sample.value) == (b"********", b"x" * 4090 + b"******")
    assert dict(sample.headers)["auth"] == b"Bearer ********"
    (sent,) = consume(broker.bootstrap, topic)
    assert (sent.key, sent.value, dict(sent.headers)["auth"]) == (b"canary-key", b"x" * 4090 + b"canary-value", b"Bearer canary-header")


def test_without_asking_there_are_none(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(write(tmp_path / "f", b"x"))), producers, never)
    assert result.samples == ()


def test_a_plain_record_has_no_key_no_headers_and_the_time_of_sending(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "f", b"x")
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path), samples=9), producers, never)
    assert result.samples == (Sample(topic, None, b"x", (), None, str(path), 0, 2),)


def test_a_dead_letter_is_a_sample_too(producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path) -> None:
    dlq = make_topic()
    connector = definition(broker.bootstrap, make_topic(), line={"max_bytes": 5}, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    (result,) = run_batch(batch_of(connector, split_of(write(tmp_path / "f", b"x" * 9)), samples=1), producers, never)
    assert [(one.topic, one.value) for one in result.samples] == [(dlq, b"xxxxx")]


def test_what_kafka_refused_is_no_sample(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(config={"max.message.bytes": "300"})
    path = write(tmp_path / "f", b"one", os.urandom(600).hex().encode())
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path), samples=5), producers, never)
    assert result.error is not None
    assert result.samples == ()
