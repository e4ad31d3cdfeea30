"""Spool directories: each file once, whole, in order, and cleaned up only once Kafka has it. Numbers are those of `spool-dir.md`."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.rig.agent import AgentProcess
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.shipping import Shipping

NOW = {"min_age": "0s"}


def spool(**options: Any) -> dict[str, Any]:
    """A source section that reads what is there at once."""
    return {"type": "spool_dir", "ready": NOW, **options}


def drop(directory: Path, name: str, *lines: str) -> Path:
    """A file that comes whole, by rename."""
    partial = directory / f".{name}.partial"
    partial.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return partial.rename(directory / name)


@pytest.fixture
def incoming(shipping: Shipping) -> Path:
    """The spool directory."""
    return shipping.logs


def test_31_rows_arrive_with_their_headers_and_the_file_is_only_in_finished(shipping: Shipping, incoming: Path, tmp_path: Path) -> None:
    finished = tmp_path / "finished"
    finished.mkdir()
    source = spool(format={"type": "csv", "header": True}, cleanup={"policy": "move", "to": str(finished)})
    shipping.start(source=source, record={"headers": {"file": "{@file.name}", "row": "{@record.number}"}})
    drop(incoming, "a.csv", "id,name", "1,x", "2,y")
    records = shipping.records(until=2)
    assert [json.loads(record.value or b"") for record in records] == [{"id": "1", "name": "x"}, {"id": "2", "name": "y"}]
    assert [dict(record.headers)["row"] for record in records] == [b"1", b"2"]
    assert dict(records[0].headers)["file"] == b"a.csv"
    wait_until((finished / "a.csv").exists, message="the cleanup")
    assert list(incoming.iterdir()) == []


def test_32_and_52_a_stop_in_the_middle_loses_and_repeats_nothing(shipping: Shipping, incoming: Path) -> None:
    lines = numbers(0, 5000)
    limits = {"records_per_second": 100}  # it is not through for most of a minute
    shipping.start(source=spool(), limits=limits)
    drop(incoming, "a", *lines)
    shipping.records(until=50)
    shipping.stop()
    before = len(shipping.lines())
    assert 50 <= before < 5000
    shipping.start(source=spool())
    assert shipping.lines(until=5000) == lines
    shipping.wait_caught_up()
    assert [offset.records for offset in shipping.offsets.values()] == [5000]


def test_34_nothing_is_cleaned_up_while_the_broker_does_not_answer(shipping: Shipping, incoming: Path, broker: DevBroker) -> None:
    shipping.start(source=spool(cleanup={"policy": "delete"}))
    drop(incoming, "first", "0")
    shipping.lines(until=1)
    wait_until(lambda: not (incoming / "first").exists(), message="its cleanup")
    broker.pause()
    try:
        drop(incoming, "a", "1", "2")
        wait_until(lambda: shipping.status.lag.files == 1, message="the file to be seen")
        time.sleep(0.5)  # long enough to do the wrong thing
        assert (incoming / "a").exists()
        assert shipping.status.lag.files == 1
    finally:
        broker.resume()
    assert shipping.lines(until=3) == ["0", "1", "2"]
    wait_until(lambda: not (incoming / "a").exists(), message="the cleanup")


@pytest.mark.long
def test_35_a_killed_agent_goes_on_in_the_middle_of_the_file(tmp_path: Path, broker: DevBroker, make_topic: Callable[..., str]) -> None:
    incoming, topic = tmp_path / "in", make_topic()
    incoming.mkdir()
    agent = AgentProcess(tmp_path, broker.bootstrap)
    document = {
        "source": {"type": "spool_dir", "dir": str(incoming), "ready": NOW, "cleanup": {"policy": "delete"}},
        "record": {"topic": topic},
        "delivery": {"max_batch_bytes": "64KiB"},
    }
    agent.define("drops", document)
    lines = numbers(0, 200_000)
    drop(incoming, "a", *lines)
    with agent.start():
        consume(broker.bootstrap, topic, until=5000)
        agent.kill()
        there = len(consume(broker.bootstrap, topic))
        assert there < len(lines)
        agent.start()
        consume(broker.bootstrap, topic, until=lambda found: len({record.value for record in found}) == len(lines), deadline=90)
        wait_until(lambda: not (incoming / "a").exists(), 60, "the cleanup")
    found = [record.value for record in consume(broker.bootstrap, topic)]
    assert set(found) == {line.encode() for line in lines}
    assert len(found) - len(lines) < there, "what was committed was not sent again"


def test_37_a_file_that_grows_is_not_read_until_it_is_quiet(shipping: Shipping, incoming: Path) -> None:
    shipping.start(source=spool(ready={"min_age": "6s"}))
    path = drop(incoming, "a", "0")
    for number in range(1, 8):
        time.sleep(1.0)  # all of them are longer than it has to be quiet, and each far shorter, also on a busy machine
        assert shipping.status.counts.read == 0
        with path.open("a") as file:
            file.write(f"{number}\n")
    os.utime(path, (time.time() + 3600, time.time() + 3600))
    written = time.monotonic()
    assert shipping.lines(until=8) == [str(number) for number in range(8)]
    assert time.monotonic() - written >= 6.0


def test_39_without_cleanup_a_file_is_read_once_and_stays(shipping: Shipping, incoming: Path) -> None:
    drop(incoming, "a", "1")
    shipping.start(source=spool(scan_interval="100ms"))
    shipping.lines(until=1)
    time.sleep(1.0)  # ten scans
    shipping.stop()
    shipping.start(source=spool())
    drop(incoming, "b", "2")
    assert shipping.lines(until=2) == ["1", "2"]
    assert (incoming / "a").exists()


def test_45_files_go_in_order_one_at_a_time(shipping: Shipping, incoming: Path) -> None:
    for name, mtime in (("c", 1000), ("b", 2000), ("a", 2000)):
        path = drop(incoming, name, *(f"{name}{number}" for number in range(100)))
        os.utime(path, (mtime, mtime))
    shipping.start(source=spool(order_by="mtime"), delivery={"tasks_max": 1})
    assert "".join(dict.fromkeys(line[0] for line in shipping.lines(until=300))) == "cab"


def test_46_each_file_is_read_by_exactly_one_task(shipping: Shipping, incoming: Path) -> None:
    for number in range(100):
        drop(incoming, f"f{number:03}", f"{number}.1", f"{number}.2")
    shipping.start(source=spool(), delivery={"tasks_max": 4})
    shipping.records(until=200)
    shipping.wait_caught_up()
    assert sorted(shipping.lines()) == sorted(f"{number}.{row}" for number in range(100) for row in (1, 2))


def test_47_and_49_empty_and_excluded_and_unfinished_files_hold_up_nobody(shipping: Shipping, incoming: Path) -> None:
    drop(incoming, "a-empty")
    drop(incoming, "b.csv", "1")
    drop(incoming, "c.bak", "no")
    (incoming / ".hidden").write_text("no\n")
    (incoming / "d.csv.PROCESSING").write_text("no\n")
    shipping.start(source=spool(pattern=["*", ".*"], exclude=["*.bak"], cleanup={"policy": "delete"}))
    assert shipping.lines(until=1) == ["1"]
    wait_until(lambda: not (incoming / "a-empty").exists(), message="the cleanup of the empty file")
    left = [".hidden", "c.bak", "d.csv.PROCESSING"]  # what is deleted has another name for a moment
    wait_until(lambda: sorted(path.name for path in incoming.iterdir()) == left, message=lambda: f"{list(incoming.iterdir())}")
    assert shipping.lines() == ["1"]


def test_51_only_new_files_are_read_after_a_restart(shipping: Shipping, incoming: Path) -> None:
    for name in "abcd":
        drop(incoming, name, name)
    shipping.start(source=spool())
    shipping.lines(until=4)
    shipping.wait_caught_up()
    shipping.stop()
    drop(incoming, "e", "e")
    drop(incoming, "f", "f")
    shipping.start(source=spool())
    assert sorted(shipping.lines(until=6)) == list("abcdef")


@pytest.mark.parametrize("watch", ["auto", "poll"])
def test_55_a_new_file_is_seen_in_an_idle_directory(shipping: Shipping, incoming: Path, watch: str) -> None:
    shipping.start(source=spool(watch=watch, scan_interval="1h" if watch == "auto" else "500ms"))
    assert shipping.status.state == "running"
    drop(incoming, "a", "1")
    shipping.lines(until=1)
    assert shipping.stop(50).state == "stopped", "it does not wait for the next scan"


def test_57_a_new_file_starts_while_a_long_one_is_read(shipping: Shipping, incoming: Path) -> None:
    shipping.start(source=spool(), delivery={"tasks_max": 2}, limits={"records_per_second": 4000})
    lines = numbers(0, 400_000)  # far longer than any machine needs to see the other file: the test does not wait for its end
    drop(incoming, "long", *lines)
    wait_until(lambda: shipping.status.counts.acknowledged)
    drop(incoming, "short", "short")
    arrived = shipping.records(until=lambda found: any(record.value == b"short" for record in found))
    others = [(record.value or b"").decode() for record in arrived if record.value != b"short"]
    assert 0 < len(others) < len(lines)
    assert others == lines[: len(others)]
