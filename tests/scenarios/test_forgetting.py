"""What is saved of files is forgotten once they were seen to be gone, or when it heaps up; nothing is sent again for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from copycat_agent.model import OFFSETS_TOPIC
from copycat_agent.sources.log_file.offset_expiry import KEPT_GENERATIONS
from tests.rig.kafka import consume
from tests.rig.shipping import Shipping
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.executor import InlineExecutor
    from copycat_agent.watch import Watcher

WRITTEN_ANEW = KEPT_GENERATIONS + 4
BOTH = pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])


@pytest.fixture
def shipping(tmp_path: Path, broker: DevBroker, inline: InlineExecutor, watcher: Watcher, make_topic: Callable[..., str]) -> Shipping:
    return Shipping(tmp_path, "app", broker.bootstrap, make_topic(), inline, watcher)


def arrived(shipping: Shipping, count: int | None = None) -> list[str]:
    """What a read_committed consumer sees, sorted."""
    return sorted((one.value or b"").decode() for one in consume(shipping.bootstrap, shipping.topic, "read_committed", count))


def told(shipping: Shipping) -> set[str]:
    """Keys of files of which Kafka has a position."""
    assert shipping._store is not None
    last = {tuple(json.loads(one.key or b"[]")): one.value for one in consume(shipping.bootstrap, OFFSETS_TOPIC, "read_committed")}
    ours = {key: value for key, value in last.items() if (key[0], key[2]) == (shipping._store.agent_uuid, "position")}
    return {key[3] for key, value in ours.items() if value is not None}


@BOTH
def test_a_file_that_is_excluded_for_longer_than_forget_after_is_not_sent_again(shipping: Shipping, guarantee: str) -> None:
    delivery, source = {"guarantee": guarantee}, {"forget_after": "1s", "rotate_wait": "0s"}
    append(shipping.logs / "kept.log", "1")
    append(shipping.logs / "gone.log", "2")
    shipping.start(source=source, delivery=delivery)
    assert arrived(shipping, 2) == ["1", "2"]
    wait_until(lambda: all(one.position for one in shipping.offsets.values()), message="saved")
    shipping.stop()
    (shipping.logs / "gone.log").unlink()
    shipping.start(source={**source, "exclude": ["kept.log"]}, delivery=delivery)
    wait_until(lambda: [one.path for one in shipping.offsets.values()] == [str(shipping.logs / "kept.log")], message="one is forgotten")
    shipping.stop()
    shipping.start(source=source, delivery=delivery)
    append(shipping.logs / "kept.log", "3")
    assert arrived(shipping, 3) == ["1", "2", "3"]
    if guarantee == "exactly_once":
        wait_until(lambda: told(shipping) == {one.key for one in shipping.offsets}, message=lambda: f"{told(shipping)}")
    shipping.stop()
    assert arrived(shipping) == ["1", "2", "3"]


@pytest.mark.parametrize("guarantee", [pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once"])
def test_a_file_that_is_written_anew_again_and_again_leaves_few_rows_here_and_in_kafka(shipping: Shipping, guarantee: str) -> None:
    path, most = shipping.logs / "status.log", KEPT_GENERATIONS + 1
    path.write_text("status 00\n")
    shipping.start(delivery={"guarantee": guarantee, "linger": "10ms"})
    for number in range(1, WRITTEN_ANEW):
        arrived(shipping, number)
        path.write_text(f"status {number:02}\n")
    assert arrived(shipping, WRITTEN_ANEW) == [f"status {number:02}" for number in range(WRITTEN_ANEW)]
    wait_until(lambda: len(shipping.offsets) <= most, 90, lambda: f"{len(shipping.offsets)} rows")
    if guarantee == "exactly_once":
        wait_until(lambda: told(shipping) == {one.key for one in shipping.offsets}, message=lambda: f"{told(shipping)}")
    shipping.stop()
    assert len(arrived(shipping)) == WRITTEN_ANEW
