"""22 of faults.md: a line that carries less than a run within the message time-out still gets everything across, with few repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from copycat_agent.errors import RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.producer import ProducerPool
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.waiting import wait_until
from tests.unit.batch.rig import batch_of, definition, never, split_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import ProxiedBroker

LINES = 10_000
LINE_BYTES = 101


@pytest.fixture
def producers() -> Iterator[ProducerPool]:
    producers = ProducerPool()
    yield producers
    producers.close()


def test_a_slow_line_gets_everything_across_with_few_repeats(
    producers: ProducerPool, proxied_broker: ProxiedBroker, tmp_path: Path
) -> None:
    topic = create_topic(proxied_broker.bootstrap, unique_topic())
    path = tmp_path / "f"
    path.write_bytes(b"".join(b"%0100d\n" % number for number in range(LINES)))
    connector = definition(proxied_broker.bootstrap, topic, client={"message.timeout.ms": "6000", "compression.type": "none"})
    split = split_of(path)
    proxied_broker.proxy.throttle(LINES * LINE_BYTES / 12)  # all of it takes twice the message time-out
    failures: list[RetriableError] = []

    def is_done() -> bool:
        nonlocal split
        (result,) = run_batch(batch_of(connector, split, max_seconds=8.0), producers, never)
        if result.error is not None:
            assert isinstance(result.error, RetriableError)
            failures.append(result.error)
        split = replace(split, offset=result.offset)
        return split.offset.records == LINES

    wait_until(is_done, 100, lambda: f"at {split.offset.position} after {failures}")
    proxied_broker.proxy.forward()
    arrived = [record.value for record in consume(proxied_broker.bootstrap, topic)]
    assert len(set(arrived)) == LINES
    assert len(failures) <= 2
    assert len(arrived) < 2.5 * LINES
