"""When a file is written: so many records or bytes are there, the oldest has waited, nothing more comes; and never at a stop."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from copycat_agent.options import KafkaOptions
from copycat_agent.producer.topic_ranges import TopicRanges
from copycat_agent.sources import SOURCES
from copycat_agent.sources.kafka import rolling
from copycat_agent.workbench.doctor.users import find_user
from tests.lake.conftest import Lake, as_json, number_of
from tests.lake.written import Written, written
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker


class Clock:
    """What tells how long records have waited. It stands still unless a test sets it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(rolling, "time", made := Clock())
    return made


def send_and_see(lake: Lake, number: int, waiting: int) -> None:
    """Send a record, and wait until the connector knows of it; so many wait then."""
    lake.send(as_json([{"n": number}]))
    wait_until(lambda: lake.status.lag.waiting_records == waiting, 60, lambda: f"{number}: {lake.status}")


def sizes(found: list[Written]) -> list[int]:
    return [len(one.rows) for one in found]


def test_a_backlog_makes_full_files_and_a_run_to_the_end_writes_the_rest(lake: Lake) -> None:
    lake.send(as_json({"n": number} for number in range(1050)))
    found = lake.run(sink={"path": "a", "roll": {"records": 200, "age": "1h"}})
    lake.assert_each_once(found)
    assert sizes(found) == [200, 200, 200, 200, 200, 50]


def test_files_have_about_so_many_bytes(lake: Lake) -> None:
    lake.send(as_json({"n": number, "text": "x" * 1000} for number in range(1000)))
    found = lake.run(sink={"path": "a", "roll": {"bytes": "256KiB", "age": "1h"}})
    lake.assert_each_once(found)
    assert all(200 * 1024 < one.path.stat().st_size < 300 * 1024 for one in found[:-1]), [one.path.stat().st_size for one in found]


def test_enough_records_are_written_at_once_and_fewer_wait(lake: Lake) -> None:
    lake.follow(sink={"path": "a", "roll": {"records": 100, "age": "1h"}})
    lake.send(as_json({"n": number} for number in range(90)))
    wait_until(lambda: lake.status.lag.waiting_records == 90, 30, lambda: f"{lake.status}")
    assert (lake.status.lag.records, lake.status.lag.files, lake.written()) == (90, 0, [])
    assert lake._worker is not None
    tap = lake._worker.tap(lake.name, 1, 60)
    lake.send(as_json({"n": number} for number in range(90, 110)))
    assert next(tap).value == b'{"n":0}'
    assert sum(sizes(lake.wait_written(100))) >= 100
    wait_until(lambda: lake.status.lag.records == 110 - sum(sizes(lake.written())), 30, lambda: f"{lake.status}")
    assert lake.status.guarantee == "exactly_once"
    lake.stop()


def test_a_record_of_a_trickle_is_in_a_file_once_it_has_waited_for_so_long(clock: Clock, lake: Lake) -> None:
    lake.follow(sink={"path": "a", "roll": {"age": "4s"}})
    for number in range(24):
        send_and_see(lake, number, number % 8 + 1)
        assert len(lake.written()) == number // 8, "none has waited for so long"
        clock.now += 0.5
        if number % 8 == 7:
            lake.wait_written(number + 1)
    assert sizes(lake.written()) == [8, 8, 8]
    lake.stop()


def rows(root: Path) -> list[int]:
    return [number_of(row) for one in written(root) for row in one.rows]


@pytest.mark.parametrize("config", [{"retention.ms": "6000"}, {"retention.bytes": "100000"}])
def test_records_do_not_wait_until_their_topic_deletes_them(make_lake: Callable[..., Lake], config: dict[str, str]) -> None:
    lake = make_lake(config=config)
    sink = {"roll": {"age": "1h"}}
    probe = SOURCES["kafka"].probe
    assert probe is not None
    ((name, value),) = config.items()
    found = list(probe(lake.definition(sink=sink).source, find_user(None)))
    assert [one.text.partition(":")[0] for one in found if one.name == "retention"] == [f"topic {lake.topic} has {name}={value}"]
    lake.follow(sink=sink)
    lake.send(as_json({"n": number} for number in range(300)))
    lake.wait_written(300, 30)
    lake.stop()


def test_what_is_only_compacted_or_kept_for_ever_has_no_retention(broker: DevBroker, make_topic: Callable[..., str]) -> None:
    compacted, endless = make_topic(1, {"cleanup.policy": "compact", "retention.ms": "5"}), make_topic(1, {"retention.ms": "-1"})
    ranges = TopicRanges(KafkaOptions(bootstrap_servers=(broker.bootstrap,)), committed=True)
    found = ranges.retention([compacted, endless])
    ranges.close()
    assert found == dict.fromkeys((compacted, endless), (math.inf, math.inf))


def test_what_no_more_comes_behind_is_written_soon(clock: Clock, lake: Lake) -> None:
    lake.follow(sink={"path": "a", "roll": {"age": "1h", "idle": "2s"}})
    for number in range(20):
        clock.now += 1.5
        send_and_see(lake, number, number + 1)
    assert lake.written() == []
    clock.now += 2.0
    assert sizes(lake.wait_written(20)) == [20]
    lake.stop()


def test_a_stop_writes_nothing_and_a_start_goes_on(lake: Lake) -> None:
    roll = {"records": 1000, "age": "1h"}
    lake.follow(sink={"roll": roll})
    lake.send(as_json({"n": number} for number in range(50)))
    wait_until(lambda: lake.status.lag.waiting_records == 50, 30, lambda: f"{lake.status}")
    lake.stop()
    assert lake.written() == []
    lake.start(sink={"roll": roll})
    lake.wait_written(50)
    lake.stop()
    lake.assert_each_once()


def test_partitions_and_topics_that_come_later_are_written(make_lake: Callable[..., Lake], make_topic: Callable[..., str]) -> None:
    lake, other = make_lake(2), make_topic()
    lake.start(source={"topics": [lake.topic, other.replace(".", "[.]")], "discover_interval": "300ms"}, sink={"roll": {"age": "200ms"}})
    lake.send(as_json(({"n": number} for number in range(20)), 2))
    lake.wait_written(20)
    topic, lake.topic = lake.topic, other
    lake.send(as_json({"n": number} for number in range(100, 120)))
    lake.wait_written(40)
    wait_until(lambda: {one.name.topic for one in lake.written()} == {topic, other}, 60)
    lake.stop()
