"""Going on behind what is written: paused, with another definition, without its memory or with an old one, and when the store forgets."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from copycat_agent import failpoints
from copycat_agent.delivery import files_delivery
from copycat_agent.errors import BlockedError
from copycat_agent.offsets import OffsetStore
from copycat_agent.sinks.directory_store import DirectoryStore
from copycat_agent.sources.kafka.kafka_source import KafkaSource
from copycat_agent.worker import worker as worker_module
from copycat_agent.worker.connector import AFTER
from tests.lake.conftest import as_json
from tests.rig.kafka import create_topic, delete_topic
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.sinks.sink_stores import SinkStore
    from tests.lake.conftest import Lake

SOON: dict[str, Any] = {"roll": {"records": 40, "age": "300ms"}}


def more(lake: Lake, begin: int, end: int) -> None:
    lake.send(as_json({"n": number, "text": f"t{number}"} for number in range(begin, end)))


def test_another_path_and_format_hold_from_there_on(lake: Lake) -> None:
    more(lake, 0, 100)
    lake.run(sink={"format": "jsonl", "path": "old"})
    more(lake, 100, 200)
    lake.run(sink={"format": "parquet", "path": "new", "compression": "zstd"})
    found = lake.written()
    lake.assert_each_once(found)
    assert {one.directory: {row["n"] // 100 for row in one.rows} for one in found} == {"old": {0}, "new": {1}}


def test_a_reload_that_changes_path_and_format_loses_and_repeats_nothing(lake: Lake) -> None:
    lake.start(sink={**SOON, "path": "old"})
    more(lake, 0, 100)
    lake.wait_written(100)
    changed = lake.definition(sink={**SOON, "path": "new", "format": "parquet"})
    assert lake._worker is not None
    lake._worker.apply([changed])
    more(lake, 100, 200)
    found = lake.wait_written(200)
    lake.stop()
    lake.assert_each_once(found)
    assert {one.directory for one in found} == {"old", "new"}


def test_a_lost_state_directory_makes_no_difference(lake: Lake) -> None:
    for begin in (0, 100, 200):
        more(lake, begin, begin + 100)
        lake.run(sink=SOON)
        lake.assert_each_once()
        shutil.rmtree(lake.state_dir)


def test_an_old_state_directory_makes_no_difference(lake: Lake) -> None:
    more(lake, 0, 100)
    lake.run(sink=SOON)
    shutil.copytree(lake.state_dir, lake.state_dir.with_name("old"))
    more(lake, 100, 300)
    lake.run(sink=SOON)
    shutil.rmtree(lake.state_dir)
    lake.state_dir.with_name("old").rename(lake.state_dir)
    more(lake, 300, 400)
    lake.run(sink=SOON)
    lake.assert_each_once()
    assert sum(len(one.rows) for one in lake.written()) == 400


def test_a_name_that_comes_back_goes_on_behind_what_was_written_under_the_other_one(lake: Lake) -> None:
    for begin, name, earlier in ((0, "one", []), (100, "two", ["one"]), (200, "one", ["two"]), (300, "one", ["two"])):
        lake.name = name
        for old in earlier:
            with OffsetStore.open(lake.state_dir) as store:
                store.rename(old, name)
        more(lake, begin, begin + 100)
        lake.run(sink=SOON, renamed_from=earlier)
        assert lake.last.state == "stopped", lake.last.reason
        lake.assert_each_once()
    shutil.rmtree(lake.state_dir)
    lake.run(sink=SOON)
    lake.assert_each_once()


def test_a_name_that_another_connector_has_now_has_no_part_in_what_was_renamed(lake: Lake) -> None:
    """Also if positions are lost: what the new one has written says nothing of the other's records."""
    more(lake, 0, 100)
    lake.name = "b"
    lake.run(sink={**SOON, "path": "b"})
    more(lake, 100, 300)
    lake.name = "a"
    lake.run(sink={**SOON, "path": "a"})
    shutil.rmtree(lake.state_dir)
    lake.name, lake.taken = "b", ("a",)
    found = lake.run(sink={**SOON, "path": "b"}, renamed_from=["a"])
    lake.assert_each_once([one for one in found if one.directory == "b"])


def test_an_address_that_comes_back_goes_on_behind_what_was_written_to_the_other_one(lake: Lake) -> None:
    for begin, place in ((0, "a"), (100, "b"), (200, "a")):
        more(lake, begin, begin + 100)
        lake.run(sink={**SOON, "uri": f"file://{lake.root}/{place}"})
    lake.assert_each_once()
    shutil.rmtree(lake.state_dir)
    lake.run(sink={**SOON, "uri": f"file://{lake.root}/a"})
    lake.assert_each_once()


@pytest.mark.parametrize("moves", ["name", "uri"])
def test_a_batch_that_outlives_a_reload_repeats_nothing_under_another_name_or_address(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, moves: str
) -> None:
    monkeypatch.setattr(worker_module, "STOP_SECONDS", 0.1)
    uploaded, go_on = threading.Event(), threading.Event()

    def stand_still(place: str) -> None:
        if place == "files-uploaded" and not uploaded.is_set():
            uploaded.set()
            go_on.wait(100)

    monkeypatch.setattr(failpoints, "hit", stand_still)
    more(lake, 0, 100)
    lake.start(sink={**SOON, "uri": f"file://{lake.root}/a"})
    assert uploaded.wait(60)
    old, sink = lake.name, {"roll": {"records": 30, "age": "300ms"}, "uri": f"file://{lake.root}/a"}
    if moves == "name":
        lake.name = "new"
        changed, earlier = lake.definition(sink=sink, renamed_from=[old]), {"new": (old,)}
    else:
        changed, earlier = lake.definition(sink={**sink, "uri": f"file://{lake.root}/b"}), {}
    assert lake._worker is not None
    lake._worker.apply([changed], earlier=earlier)
    wait_until(lambda: lake.status.reason == AFTER or lake.written(), 60, lambda: f"{lake.status}")
    go_on.set()
    lake.wait_written(100)
    wait_until(lambda: not lake.status.lag.bytes, 60, lambda: f"{lake.status}")
    lake.stop()
    lake.assert_each_once()
    assert {one.name.last - one.name.first for one in lake.written()} > {39}, "the batch has claimed its range"


def test_an_agent_that_stops_does_not_wait_for_a_batch_beyond_its_deadline(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker_module, "LEAVE_SECONDS", 60.0)
    uploaded, go_on = threading.Event(), threading.Event()

    def stand_still(place: str) -> None:
        if place == "files-uploaded" and not uploaded.is_set():
            uploaded.set()
            go_on.wait(100)

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", stand_still)
        more(lake, 0, 100)
        lake.start(sink=SOON)
        assert uploaded.wait(60)
        assert lake.stop(0.5).state == "stopped"
        assert "did not end in time" not in caplog.text
        go_on.set()
    lake.run(sink=SOON)
    lake.assert_each_once()


@pytest.mark.parametrize("start", [{"start_at": "end"}, {"start_at": "2099-01-01T00:00:00Z"}])
def test_a_lost_state_directory_makes_no_difference_with_another_start(lake: Lake, start: dict[str, str]) -> None:
    lake.follow(sink=SOON, source=start)
    more(lake, 0, 100)
    if start["start_at"] == "end":
        lake.wait_written(100)
    lake.stop()
    if start["start_at"] != "end":
        lake.run(sink=SOON)
    shutil.rmtree(lake.state_dir)
    more(lake, 100, 200)
    lake.follow(sink=SOON, source=start)
    more(lake, 200, 300)
    lake.wait_written(300)
    lake.stop()
    lake.assert_each_once()


@pytest.mark.parametrize("start", ["end", "2999-01-01T00:00:00Z"])
def test_a_state_directory_that_is_lost_before_the_first_file_makes_no_difference(lake: Lake, start: str) -> None:
    more(lake, 0, 10)
    sections: dict[str, Any] = {"source": {"start_at": start}, "sink": {"roll": {"age": "1h"}}}
    lake.follow(**sections)
    begins = lake.root / "_copycat" / lake.name / "starts" / lake.topic / "0"
    wait_until(begins.exists, 30, lambda: f"{lake.status}")
    more(lake, 10, 20)
    wait_until(lambda: lake.status.lag.waiting_records == 10, 30, lambda: f"{lake.status}")
    lake.stop()
    shutil.rmtree(lake.state_dir)
    more(lake, 20, 30)
    found = lake.run(**sections)
    assert sorted(row["n"] for one in found for row in one.rows) == [*range(10, 30)]


@pytest.mark.parametrize("offset", [0, 150])
def test_a_position_that_was_set_makes_no_difference(lake: Lake, offset: int) -> None:
    more(lake, 0, 100)
    lake.run(sink=SOON)
    more(lake, 100, 200)
    with OffsetStore.open(lake.state_dir) as store:
        ((partition, saved),) = store.read(lake.name).items()
        store.reset({partition: replace(saved, position=offset, cursor=json.dumps({"offset": offset}))})
    lake.run(sink=SOON)
    lake.assert_each_once()


def test_records_that_retention_deletes_while_nothing_can_be_written_are_in_the_ledger_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    more(lake, 0, 100)
    lake.run(sink=SOON)
    more(lake, 100, 200)
    admin = AdminClient({"bootstrap.servers": lake.bootstrap})
    admin.delete_records([TopicPartition(lake.topic, 0, 200)])[TopicPartition(lake.topic, 0)].result(30)
    attempts = list[str]()

    def full(_store: DirectoryStore, key: str, _data: bytes) -> bool:
        attempts.append(key)
        raise BlockedError("no room", "make room")

    with monkeypatch.context() as while_full:
        while_full.setattr(DirectoryStore, "put_if_absent", full)
        lake.start(sink=SOON, errors={"retry_max_delay": "50ms"})
        wait_until(lambda: len(attempts) > 2, 30, lambda: f"{lake.status}")
    wait_until(lambda: lake.losses and not lake.status.lag.bytes, 30, lambda: f"{lake.status}")
    losses = lake.losses
    lake.stop()
    assert [one.records for one in losses] == [100], losses


def test_a_store_that_was_emptied_is_waited_for_in_words(lake: Lake) -> None:
    more(lake, 0, 100)
    lake.run(sink=SOON)
    lake.root.rename(lake.root.with_name("elsewhere"))
    more(lake, 100, 150)
    lake.start(sink=SOON)
    wait_until(lambda: lake.status.state == "blocked", 30, lambda: f"{lake.status}")
    assert "lacks what it had" in lake.status.reason, lake.status.reason
    assert lake.written() == []
    wait_until(lambda: is_back(lake), 30, "another attempt has made directories each time")
    lake.wait_written(150)
    lake.stop()
    lake.assert_each_once()


def is_back(lake: Lake) -> bool:
    """Put the store where it was, if nobody makes one there at the same moment."""
    shutil.rmtree(lake.root, ignore_errors=True)
    try:
        lake.root.with_name("elsewhere").rename(lake.root)
    except OSError:
        return False
    return True


def test_what_retention_deletes_first_is_in_the_ledger(lake: Lake) -> None:
    more(lake, 0, 100)
    lake.run(sink=SOON)
    more(lake, 100, 200)
    admin = AdminClient({"bootstrap.servers": lake.bootstrap})
    place = TopicPartition(lake.topic, 0, 150)
    admin.delete_records([place])[TopicPartition(lake.topic, 0)].result(30)
    lake.start(sink=SOON)
    lake.wait_written(150)
    wait_until(lambda: lake.losses, 60)
    losses = lake.losses
    lake.stop()
    assert [one.records for one in losses] == [50], losses
    assert sorted(row["n"] for one in lake.written() for row in one.rows) == [*range(100), *range(150, 200)]


class NoRoomOnce:
    """A store whose second scratch directory cannot be made."""

    def __init__(self, store: SinkStore) -> None:
        self._store, self._asked = store, 0

    def scratch(self) -> Path:
        self._asked += 1
        if self._asked == 2:
            raise BlockedError("no room", "make room")
        return self._store.scratch()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_partition_without_room_for_its_files_takes_no_results_from_those_before(
    make_lake: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake(2)
    lake.send(as_json(({"n": number} for number in range(100)), 2))
    store = NoRoomOnce(DirectoryStore(lake.root))
    monkeypatch.setattr(files_delivery, "_store", lambda _uri: store)
    lake.run(delivery={"tasks_max": 1}, errors={"retry_max_delay": "50ms"})
    assert lake.last.retries, "one had no room"
    assert lake.last.counts.acknowledged == 100, "of files that were written"
    lake.assert_each_once()


@pytest.mark.parametrize("place", ["files-claimed", "files-checked", "files-published"])
@pytest.mark.parametrize("rest", [0, 50])
def test_what_retention_deletes_is_in_the_ledger_if_its_writer_fails_behind_the_claim(lake: Lake, place: str, rest: int) -> None:
    more(lake, 0, 100)
    lake.run(sink=SOON)
    more(lake, 100, 200)
    admin = AdminClient({"bootstrap.servers": lake.bootstrap})
    admin.delete_records([TopicPartition(lake.topic, 0, 200 - rest)])[TopicPartition(lake.topic, 0)].result(30)
    with failpoints.armed(f"{place}:1:error"):
        lake.start(sink={"roll": {"records": 1000, "age": "300ms"}})
        wait_until(lambda: lake.losses and not lake.status.lag.bytes, 60, lambda: f"{lake.status}")
    losses = lake.losses
    lake.stop()
    assert [one.records for one in losses] == [100 - rest], losses
    assert sorted(row["n"] for one in lake.written() for row in one.rows) == [*range(100), *range(200 - rest, 200)]


def test_a_topic_that_was_made_anew_stops_the_connector_for_good_and_another_name_reads_it(lake: Lake) -> None:
    more(lake, 0, 10)
    before = lake.run(sink=SOON)
    admin = AdminClient({"bootstrap.servers": lake.bootstrap})
    admin.delete_topics([lake.topic])[lake.topic].result(30)
    wait_until(lambda: made_again(lake), 30)
    more(lake, 0, 25)
    assert "deleted and made again" in refused(lake)
    shutil.rmtree(lake.state_dir)  # as `copycat offsets reset` does
    assert f"the files of {lake.topic}/0 at file://{lake.root} hold records of an earlier topic {lake.topic}" in refused(lake)
    assert lake.written() == before
    lake.name = "lake-2"
    found = lake.run(sink={**SOON, "path": "new"})
    lake.assert_each_once([one for one in found if one.directory == "new"])


def test_a_topic_that_is_made_anew_between_two_looks_is_in_no_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    between, look = threading.Lock(), KafkaSource.look

    def alone(source: KafkaSource, saved: Any, *, to_the_end: bool) -> list[Any]:
        with between:
            return list(look(source, saved, to_the_end=to_the_end))

    monkeypatch.setattr(KafkaSource, "look", alone)
    lake.start(source={"discover_interval": "1h"}, sink=SOON)
    more(lake, 0, 10)
    before = lake.wait_written(10)
    with between:
        delete_topic(lake.bootstrap, lake.topic)
        wait_until(lambda: made_again(lake), 30)
        more(lake, 0, 60)
    wait_until(lambda: lake.status.state == "failed", 30, lambda: f"{lake.status}")
    assert "deleted and made again" in lake.stop().reason
    assert lake.written() == before


def refused(lake: Lake) -> str:
    """Start a connector that fails. Returns the reason."""
    lake.start(sink=SOON)
    wait_until(lambda: lake.status.state == "failed", 30, lambda: f"{lake.status}")
    reason = lake.stop().reason
    assert "give the connector another name, without renamed_from, and another uri or path" in reason, reason
    return reason


def made_again(lake: Lake) -> bool:
    try:
        create_topic(lake.bootstrap, lake.topic)
    except KafkaException:  # it is still being deleted
        return False
    return True
