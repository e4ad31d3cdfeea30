"""Directories that are made of data, and none that leaves the store. What readers get back of them: `test_contents.py`."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.lake.conftest import BEGIN_MS, Lake, Sent, as_json, send
from tests.rig.kafka import consume, create_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


def test_values_that_make_no_directory_are_bad_records(lake: Lake, make_topic: Callable[..., str]) -> None:
    dlq = make_topic()
    odd: list[dict[str, Any]] = [{"name": ""}, {"name": "x" * 300}, {"name": None}, {}, {"name": "é" * 150}, {"name": "/"}, {"name": 7}]
    lake.send(as_json({"n": number, **one} for number, one in enumerate(odd)))
    found = lake.run(sink={"path": "{name}"}, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    assert {one.directory: [row["n"] for row in one.rows] for one in found} == {"%2F": [5], "7": [6]}
    assert sorted(json.loads(one.value or b"")["n"] for one in consume(lake.bootstrap, dlq)) == [0, 1, 2, 3, 4]


def test_topic_partition_key_and_time_make_paths(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake(2)
    lake.send(Sent(json.dumps({"n": number}).encode(), b"k/%d" % (number % 2), BEGIN_MS, number % 2) for number in range(10))
    found = lake.run(sink={"path": "{@topic}/p={@partition}/k={@key}/h={@timestamp:%H}"})
    lake.assert_each_once(found)
    assert [one.directory for one in found] == [f"{lake.topic}/p={number}/k=k%2F{number}/h=14" for number in range(2)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("records", [4_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_nearly_two_thousand_directories_take_bounded_memory(lake: Lake, records: int) -> None:
    directories = 1990
    lake.send(as_json({"n": number, "dir": number * 7919 % directories, "text": f"{number:0500}"} for number in range(records)))
    process = psutil.Process()
    lake.start(sink={"format": "parquet", "path": "d={dir}"}, until_idle=True)
    before = most = process.memory_info().rss
    while lake.status.state == "running" and lake.status.lag.files:
        most = max(most, process.memory_info().rss)
        time.sleep(0.05)
    lake.wait_idle(200)
    lake.stop()
    found = lake.written()
    lake.assert_each_once(found)
    assert len({one.directory for one in found}) == directories
    assert most - before < 500 * 2**20


@pytest.mark.parametrize(("size", "path", "why"), [(249, "a", "no name of more than 255 bytes"), (205, "{@topic}", "200 bytes a name")])
def test_a_topic_whose_name_is_too_long_for_files_holds_up_no_other(lake: Lake, size: int, path: str, why: str) -> None:
    long = create_topic(lake.bootstrap, f"{lake.topic}.".ljust(size, "x"))
    row = as_json([{"n": 1}])
    send(lake.bootstrap, long, row)
    lake.send(row)
    lake.start(source={"topics": [lake.topic, f"{lake.topic}.*"]}, sink={"path": path})
    lake.wait_written(1)
    wait_until(lambda: lake.status.lag.troubled_files == 1, 30, lambda: f"{lake.status}")
    assert lake._worker is not None
    assert [one.path for one in lake._worker.files(lake.name) if why in one.why] == [f"{long}/0"]
    assert lake.status.state == "running"
    lake.stop()


@pytest.mark.parametrize("spec", ["%H-%M-%S", "%S-%f"])
def test_times_of_records_make_directories(lake: Lake, spec: str) -> None:
    first = BEGIN_MS // 60_000 * 60_000
    times = [first, first + 999, first + 1000, first + 500, first + 59_999, first + 60_000, first + 1001, 1, 999]
    lake.send([Sent(json.dumps({"n": number}).encode(), timestamp_ms=at) for number, at in enumerate(times)])
    found = lake.run(sink={"path": f"at={{@timestamp:{spec}}}"})
    moments = [datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at) for at in times]
    expected = {number: f"at={moment.strftime(spec)}" for number, moment in enumerate(moments)}
    assert {row["n"]: one.directory for one in found for row in one.rows} == expected
