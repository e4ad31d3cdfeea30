"""`run_batch` on real files and a real broker: how far a split is settled, what is counted, and that it never raises."""

from __future__ import annotations

import grp
import os
import pickle
import pwd
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copycat_agent.batch import refused_record_search, run
from copycat_agent.batch.progress import SplitProgress
from copycat_agent.dev_broker import free_port
from copycat_agent.encoding import encoder
from copycat_agent.errors import BlockedError, DataError, FatalError, FileError, RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.model import Batch, Counts, Fingerprint, SourceOffset, SourcePartition, Split, SplitResult, TaskId
from copycat_agent.producer import ProducerPool, TaskProducer, task_memory
from copycat_agent.sources.files.access import access_of
from copycat_agent.sources.files.reading.stream import SplitFile
from copycat_agent.transforms import Steady
from tests.rig.examples import examples
from tests.rig.kafka import consume, create_topic, unique_topic, values
from tests.rig.proxy import PRODUCE
from tests.unit.batch.rig import append, batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.producer import Message
    from tests.conftest import ProxiedBroker

LIMIT = 200
"""Bytes of a record that a refusing topic still takes."""


def balanced(counts: Counts) -> bool:
    return counts.read == counts.acknowledged + counts.dead_lettered + counts.dropped + counts.rejected


def test_a_split_is_settled_to_its_last_complete_line(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"one", b"two")
    append(path, b"unfinished")
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path)), producers, never)
    assert (result.offset.position, result.offset.records, result.at_end, result.error) == (8, 2, True, None)
    assert result.counts == Counts(read=2, read_bytes=8, acknowledged=2)
    assert values(broker.bootstrap, topic) == [b"one", b"two"]
    assert pickle.loads(pickle.dumps(result)) == result


def test_the_budget_in_bytes_ends_a_batch_between_blocks(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", *[b"x" * 99] * 30_000)
    other = write(tmp_path / "g", b"later")
    work = batch_of(definition(broker.bootstrap, topic), split_of(path), split_of(other), max_bytes=2**20)
    first, second = run_batch(work, producers, never)
    assert 0 < first.offset.position < path.stat().st_size
    assert (first.at_end, first.error) == (False, None)
    assert (second.offset.position, second.at_end, second.error) == (0, False, None)


def test_a_stop_request_settles_what_is_sent(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "f", *[b"x" * 99] * 30_000)
    sent: list[int] = []
    send = TaskProducer.send

    def noted(self: TaskProducer, topic: str, some: list[bytes], tail: Message) -> None:
        send(self, topic, some, tail)
        sent.append(len(some))

    monkeypatch.setattr(TaskProducer, "send", noted)
    work = batch_of(definition(broker.bootstrap, topic), split_of(path))
    (result,) = run_batch(work, producers, lambda: bool(sent))
    assert result.error is None
    assert not result.at_end
    assert result.counts.acknowledged == len(values(broker.bootstrap, topic)) == result.offset.records > 0


def test_a_run_that_cannot_be_acknowledged_settles_what_the_runs_before_it_sent(
    producers: ProducerPool, proxied_broker: ProxiedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_BYTES", 2**19)
    topic = create_topic(proxied_broker.bootstrap, unique_topic())
    path = write(tmp_path / "f", *[b"x" * 99] * 40_000)
    calls: list[int] = []
    flush = TaskProducer.flush
    monkeypatch.setattr(task_memory, "SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(task_memory.Pace, "acknowledged", lambda *_: None)  # runs of one size, however slow the machine is

    def cut_behind_the_second(self: TaskProducer) -> None:
        calls.append(1)
        flush(self)
        if len(calls) == 2:
            proxied_broker.proxy.cut()

    monkeypatch.setattr(TaskProducer, "flush", cut_behind_the_second)
    connector = definition(proxied_broker.bootstrap, topic)
    (result,) = run_batch(batch_of(connector, split_of(path), max_seconds=60.0), producers, lambda: len(calls) > 2)
    assert isinstance(result.error, RetriableError)
    assert result.offset.position == 2 * (2**20 // 100 * 100)
    assert balanced(result.counts)
    proxied_broker.proxy.forward()
    arrived = len(consume(proxied_broker.bootstrap, topic))
    assert arrived >= result.offset.records == result.counts.acknowledged


def test_the_search_for_a_refused_record_goes_by_groups_also_when_the_budget_is_spent(
    producers: ProducerPool, make_topic: Callable[..., str], broker: DevBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(config={"max.message.bytes": "40000"})
    path = write(tmp_path / "f", *[b"x" * 99] * 300, b"y" * 50_000)
    calls = []
    flush = TaskProducer.flush

    def counted(self: TaskProducer) -> None:
        calls.append(1)
        flush(self)

    monkeypatch.setattr(TaskProducer, "flush", counted)
    monkeypatch.setattr(refused_record_search, "LOOK_SECONDS", 60.0)  # a group is cut short when making its messages takes so long
    connector = definition(broker.bootstrap, topic, errors={"tolerance": "all"}, client={"compression.type": "none"})
    (result,) = run_batch(batch_of(connector, split_of(path), max_bytes=path.stat().st_size), producers, never)
    assert (result.error, result.counts.rejected, result.offset.position) == (None, 1, path.stat().st_size)
    assert len(calls) < 150  # one by one it is more than 300; how many groups it is depends on how fast the broker answers


def test_the_search_for_a_refused_record_hears_a_stop_request_between_lines_that_come_alone(
    producers: ProducerPool, make_topic: Callable[..., str], broker: DevBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(config={"max.message.bytes": "1000"})
    path = write(tmp_path / "f", *[b"x" * 30, b"y" * 300] * 50, b"z" * 3000)
    searching = []
    flush = TaskProducer.flush

    def note(self: TaskProducer) -> None:
        try:
            flush(self)
        except DataError:
            searching.append(1)
            raise

    monkeypatch.setattr(TaskProducer, "flush", note)
    line = {"max_bytes": 100, "on_too_long": "truncate"}
    record = {"headers": {"h": "x" * 2000 + "{@offset}"}}
    connector = definition(broker.bootstrap, topic, line=line, record=record, client={"compression.type": "none"})
    tolerant = connector.model_copy(update={"errors": connector.errors.model_copy(update={"tolerance": "all"})})
    (result,) = run_batch(batch_of(tolerant, split_of(path)), producers, lambda: bool(searching))
    assert result.error is None
    assert 0 < result.offset.position < path.stat().st_size
    assert balanced(result.counts)


def test_a_lost_connection_is_ridden_out_without_repeats(producers: ProducerPool, proxied_broker: ProxiedBroker, tmp_path: Path) -> None:
    topic = create_topic(proxied_broker.bootstrap, unique_topic())
    path = write(tmp_path / "f", *[b"%d" % number for number in range(1000)])
    proxied_broker.proxy.drop_response(PRODUCE)
    (result,) = run_batch(batch_of(definition(proxied_broker.bootstrap, topic), split_of(path)), producers, never)
    assert (result.error, result.counts.acknowledged) == (None, 1000)
    assert values(proxied_broker.bootstrap, topic) == [b"%d" % number for number in range(1000)]


def test_without_a_broker_nothing_moves_and_the_error_is_a_value(producers: ProducerPool, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"one")
    connector = definition(f"127.0.0.1:{free_port()}", "t")
    (result,) = run_batch(batch_of(connector, split_of(path)), producers, lambda: True)
    assert isinstance(result.error, RetriableError)
    assert (result.offset, result.counts) == (SourceOffset(0), Counts())


def test_without_an_address_the_connector_fails(producers: ProducerPool, tmp_path: Path) -> None:
    connector = definition("x", "t").model_copy(update={"kafka": definition("x", "t").kafka.model_copy(update={"bootstrap_servers": ()})})
    (result,) = run_batch(batch_of(connector, split_of(write(tmp_path / "f", b"one"))), producers, never)
    assert isinstance(result.error, FatalError)


@pytest.mark.parametrize("broken", [b"not a pickle", pickle.dumps("no definition")])
def test_a_definition_that_cannot_be_used_is_an_error_value(producers: ProducerPool, tmp_path: Path, broken: bytes) -> None:
    split = split_of(write(tmp_path / "f", b"one"))
    (result,) = run_batch(Batch(TaskId("app", 0), broken, (split,), 1, 1.0), producers, never)
    assert isinstance(result.error, FatalError)
    assert result.offset == split.offset


@pytest.mark.parametrize("where", ["step", "convert"])
def test_a_bug_in_a_step_is_told_by_place_without_any_data(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, where: str
) -> None:
    connector = definition(broker.bootstrap, topic)
    work = batch_of(connector, split_of(write(tmp_path / "f", b"secret-word")))
    compiled = encoder.compiled(work.definition)

    def bug(what: Any) -> Any:
        raise KeyError(what)

    if where == "step":
        compiled.transforms = (Steady(bug),)
    else:
        compiled.layout.convert_value = bug
    try:
        (result,) = run_batch(work, producers, never)
    finally:
        encoder.compiled.cache_clear()
    assert isinstance(result.error, FatalError)
    assert "KeyError at test_run_batch.py" in str(result.error)
    assert "secret-word" not in repr(result.error)
    assert result.offset.position == 0


def test_one_file_that_cannot_be_read_leaves_its_siblings_alone(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    good, gone, last = write(tmp_path / "a", b"a"), write(tmp_path / "b", b"b"), write(tmp_path / "c", b"c")
    splits = [split_of(path) for path in (good, gone, last)]
    gone.unlink()
    results = run_batch(batch_of(definition(broker.bootstrap, topic), *splits), producers, never)
    assert [type(result.error) for result in results] == [type(None), FileError, type(None)]
    assert [result.offset.position for result in results] == [2, 0, 2]
    assert values(broker.bootstrap, topic) == [b"a", b"c"]


def test_a_file_with_other_bytes_before_the_offset_is_changed_and_not_read(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "f", b"one", b"two")
    connector = definition(broker.bootstrap, topic)
    (first,) = run_batch(batch_of(connector, split_of(path)), producers, never)
    write(path, b"ONE", b"TWO", b"three")
    second = Split(first.split.partition, str(path), str(path), first.offset, path.stat().st_size)
    (result,) = run_batch(batch_of(connector, second), producers, never)
    assert (result.changed, result.offset, result.error) == (True, first.offset, None)
    assert values(broker.bootstrap, topic) == [b"one", b"two"]


def test_a_file_cut_after_it_was_read_is_changed_and_what_was_read_counts(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "f", b"one", b"two")
    flush = TaskProducer.flush

    def cut(self: Any) -> None:
        flush(self)
        os.truncate(path, 2)

    monkeypatch.setattr(TaskProducer, "flush", cut)
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path)), producers, never)
    assert (result.changed, result.offset.position, result.offset.records) == (True, 8, 2)


def test_a_file_cut_while_it_is_read_is_changed_and_its_offset_stays(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "f", b"one", b"two")
    read = SplitFile.read_disk

    def cut(self: SplitFile, position: int, size: int) -> bytes:
        data = read(self, position, size)
        if len(data) > 4:  # more than is looked at to find out about the encoding
            os.truncate(path, 2)
        return data

    monkeypatch.setattr(SplitFile, "read_disk", cut)
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path)), producers, never)
    assert (result.changed, result.offset.position, result.at_end) == (True, 0, False)


def test_the_offset_carries_a_fingerprint_of_what_was_read(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"one", b"two")
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path)), producers, never)
    assert result.offset.fingerprint != Fingerprint()
    assert result.offset.fingerprint.head_bytes == 8


def test_the_rest_of_a_long_line_settles_without_a_record(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"x" * 500, b"next")
    connector = definition(broker.bootstrap, topic, line={"max_bytes": 10, "on_too_long": "drop"})
    (first,) = run_batch(batch_of(connector, split_of(path, end=300)), producers, never)
    assert (first.offset.position, first.offset.skipping, first.counts.too_long, first.counts.dropped) == (300, True, 1, 1)
    second = Split(first.split.partition, str(path), str(path), first.offset, path.stat().st_size)
    (result,) = run_batch(batch_of(connector, second), producers, never)
    assert (result.offset.position, result.offset.skipping, result.counts.read) == (506, False, 1)
    assert values(broker.bootstrap, topic) == [b"next"]


def test_a_bad_record_stops_the_batch_just_before_it_and_settles_the_splits_before(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    one, two, three = write(tmp_path / "a", b"a"), write(tmp_path / "b", b"b", b"x" * 50, b"c"), write(tmp_path / "c", b"never")
    connector = definition(broker.bootstrap, topic, line={"max_bytes": 10})
    results = run_batch(batch_of(connector, *map(split_of, (one, two, three))), producers, never)
    assert [result.offset.position for result in results] == [2, 2, 0]
    assert all(isinstance(result.error, FatalError) and not isinstance(result.error, DataError) for result in results)
    assert values(broker.bootstrap, topic) == [b"a", b"b"]


def refusing_topic(make_topic: Callable[..., str]) -> str:
    """A topic that takes no record above about `LIMIT` bytes."""
    return make_topic(config={"max.message.bytes": str(LIMIT + 100)})


def test_every_split_of_a_run_in_which_kafka_refused_a_record_gets_to_its_own_end(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, dlq = refusing_topic(make_topic), make_topic()
    paths = [write(tmp_path / f"f{n}", b"%d first" % n, os.urandom(600).hex().encode(), b"%d last" % n) for n in range(3)]
    connector = definition(broker.bootstrap, topic, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    results = run_batch(batch_of(connector, *map(split_of, paths)), producers, never)
    assert [(result.at_end, result.error) for result in results] == [(True, None)] * 3
    assert [result.offset.position for result in results] == [path.stat().st_size for path in paths]
    assert all(balanced(result.counts) and result.counts.dead_lettered == 1 for result in results)
    assert [len(result.rejections) for result in results] == [1, 1, 1]
    assert len(consume(broker.bootstrap, dlq)) == 3


def test_a_refused_record_that_stops_the_connector_leaves_the_splits_before_it_settled(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    good, bad = write(tmp_path / "a", b"a"), write(tmp_path / "b", b"b", os.urandom(600).hex().encode(), b"c")
    results = run_batch(batch_of(definition(broker.bootstrap, refusing_topic(make_topic)), split_of(good), split_of(bad)), producers, never)
    assert [result.offset.position for result in results] == [2, 2]
    assert isinstance(results[0].error, FatalError)


def test_a_search_for_refused_records_ends_in_time_and_the_rest_is_not_taken_for_read(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_record_search, "SEARCH_SECONDS", 0.0)
    monkeypatch.setattr(refused_record_search, "LOOK_SECONDS", 60.0)  # else a slow machine cuts the first group short
    topic = refusing_topic(make_topic)
    lines = [os.urandom(200).hex().encode() for _ in range(250)]
    one, two = write(tmp_path / "a", *lines), write(tmp_path / "b", b"b")
    connector = definition(broker.bootstrap, topic, errors={"tolerance": "all"}, client={"compression.type": "none"})
    newer = replace(split_of(write(tmp_path / "c", b"c")), after=split_of(one).partition)
    first, second, third = run_batch(batch_of(connector, split_of(one), split_of(two), newer), producers, never)
    assert (first.offset.records, first.at_end, first.error) == (100, False, None)
    assert balanced(first.counts)
    assert not second.at_end or second.offset.position == 2
    assert (third.at_end, third.offset.position) == (False, 0)
    total, offset = first.counts, first.offset
    while offset.position < one.stat().st_size:
        (again,) = run_batch(
            batch_of(connector, Split(first.split.partition, str(one), str(one), offset, one.stat().st_size)), producers, never
        )
        total, offset = total + again.counts, again.offset
    assert (total.read, total.rejected) == (250, 250)


def test_a_topic_that_takes_less_at_once_than_is_sent_is_found_out_once(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(config={"max.message.bytes": "30000"})
    connector = definition(broker.bootstrap, topic, client={"compression.type": "none", "batch.size": "100000"})
    path = write(tmp_path / "f", *[b"%0100d" % number for number in range(3000)])
    split = split_of(path, end=101 * 2000)
    (first,) = run_batch(batch_of(connector, split), producers, never)
    assert (first.error, first.counts.acknowledged) == (None, 2000)
    before = len(consume(broker.bootstrap, topic))
    rest = Split(split.partition, str(path), str(path), first.offset, path.stat().st_size)
    (second,) = run_batch(batch_of(connector, rest), producers, never)
    assert (second.error, second.counts.acknowledged) == (None, 1000)
    assert values(broker.bootstrap, topic)[before:] == [b"%0100d" % number for number in range(2000, 3000)]


def test_a_file_cut_while_refused_records_are_looked_for_loses_nothing_silently(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_BYTES", 2**20)  # so that reading would go on behind the cut
    path = write(tmp_path / "f", b"head", os.urandom(600).hex().encode(), *[b"x" * 99] * 40_000)
    rewind = SplitProgress.rewind
    connector = definition(broker.bootstrap, refusing_topic(make_topic), errors={"tolerance": "all"})

    def cut_first(self: SplitProgress) -> None:
        os.truncate(path, 5)
        rewind(self)

    monkeypatch.setattr(SplitProgress, "rewind", cut_first)
    (result,) = run_batch(batch_of(connector, split_of(path)), producers, never)
    assert result.offset.position <= 5
    assert not result.at_end
    assert result.changed or isinstance(result.error, FileError)


@pytest.mark.parametrize("partition", ["key", "file"])
def test_a_missing_topic_of_one_split_leaves_its_siblings_alone(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, partition: str
) -> None:
    present = make_topic()
    prefix, suffix = present[:2], present[2:]
    one, two = write(tmp_path / "missing", b"m"), write(tmp_path / suffix, b"p")
    connector = definition(broker.bootstrap, prefix + "{@file.name}", record={"partition": partition})
    first, second = run_batch(batch_of(connector, split_of(one), split_of(two)), producers, never)
    assert (type(first.error), first.offset.position) == (BlockedError, 0)
    assert (second.error, second.offset.position) == (None, 2)
    assert values(broker.bootstrap, present) == [b"p"]


def test_a_newer_generation_does_not_overtake_what_is_left_of_an_older_one(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The older one waits for its topic; what has nothing to do with either goes."""
    present = make_topic()
    prefix, suffix = present[:2], present[2:]
    for name in "xy":
        (tmp_path / name).mkdir()
    oldest, newer, other = write(tmp_path / "missing", b"1"), write(tmp_path / suffix, b"2"), write(tmp_path / "x" / suffix, b"other")
    connector = definition(broker.bootstrap, prefix + "{@file.name}")
    before = split_of(oldest)
    behind = replace(split_of(newer), after=before.partition)
    third = replace(split_of(other), partition=SourcePartition("app", "third"), after=behind.partition)
    unrelated = replace(split_of(other), partition=SourcePartition("app", "other"))
    results = run_batch(batch_of(connector, before, behind, third, unrelated), producers, never)
    assert [one.offset.position for one in results] == [0, 0, 0, 6]
    assert [type(one.error) for one in results] == [BlockedError, type(None), type(None), type(None)]
    assert values(broker.bootstrap, present) == [b"other"]
    there = str(oldest.rename(tmp_path / "y" / suffix))
    found = replace(before, path=there, open_path=there)
    run_batch(batch_of(connector, found, behind, third), producers, never)
    assert values(broker.bootstrap, present) == [b"other", b"1", b"2", b"other"]


def test_a_missing_dead_letter_topic_found_late_leaves_no_split_taken_for_read(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_FILES", 2)
    bad, good, last = write(tmp_path / "a", os.urandom(600).hex().encode()), write(tmp_path / "b", b"b"), write(tmp_path / "c", b"c")
    connector = definition(broker.bootstrap, refusing_topic(make_topic), errors={"tolerance": "all", "dlq": {"topic": unique_topic()}})
    results = run_batch(batch_of(connector, *map(split_of, (bad, good, last))), producers, never)
    assert [result.offset.position for result in results] == [0, 0, 2]
    assert [result.at_end for result in results] == [False, False, True]
    assert any(isinstance(result.error, BlockedError) for result in results)


def test_a_run_that_is_sent_again_ends_where_reading_goes_on(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_BYTES", 4000)  # a run ends within a block, and reading anew cuts blocks elsewhere
    monkeypatch.setattr(refused_record_search, "GROUP_RECORDS", 1000)
    lines = [b"first", b"x" * 5000, *[b"%098d" % number for number in range(16_000)]]
    path = write(tmp_path / "f", *lines)
    connector = definition(broker.bootstrap, make_topic(), line={"max_bytes": 300, "on_too_long": "drop"})
    flush, calls = TaskProducer.flush, []

    def refuse_once(self: TaskProducer) -> None:
        flush(self)
        calls.append(self)
        if len(calls) == 2:
            raise DataError("as if Kafka had refused one")

    monkeypatch.setattr(TaskProducer, "flush", refuse_once)
    offset, total = SourceOffset(0), Counts()
    while offset.position < path.stat().st_size:
        (result,) = run_batch(
            batch_of(connector, Split(SourcePartition("app", "f"), str(path), str(path), offset, path.stat().st_size)), producers, never
        )
        assert result.error is None
        offset, total = result.offset, total + result.counts
    assert total == Counts(read=16_002, read_bytes=path.stat().st_size, acknowledged=16_001, dropped=1, too_long=1)
    assert offset.records == 16_002


GOOD, EMPTY, LONG, DROPPED, REFUSED = b"good", b"", b"long" * 50, b"drop me", b"R" * 1100
"""LONG is over the smaller line.max_bytes of the property below, REFUSED over the client's message.max.bytes too."""


@pytest.fixture(scope="module")
def property_topics(broker: DevBroker) -> tuple[str, str]:
    """A topic and a dead-letter topic for all examples of the property."""
    return create_topic(broker.bootstrap, unique_topic()), create_topic(broker.bootstrap, unique_topic())


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.sampled_from([GOOD, GOOD, EMPTY, LONG, DROPPED, REFUSED]), max_size=25),
    rest=st.sampled_from([b"", b"unfinished", LONG]),
    final=st.booleans(),
    skip_empty=st.booleans(),
    drops=st.booleans(),
    tolerant=st.booleans(),
    has_dlq=st.booleans(),
    bulk=st.booleans(),
    on_too_long=st.sampled_from(["dlq", "truncate", "drop"]),
    long_limit=st.sampled_from([100, 2000]),
)
def test_every_record_read_is_counted_in_exactly_one_way_and_the_offset_covers_those_only(
    producers: ProducerPool,
    broker: DevBroker,
    property_topics: tuple[str, str],
    tmp_path: Path,
    lines: list[bytes],
    rest: bytes,
    final: bool,
    skip_empty: bool,
    drops: bool,
    tolerant: bool,
    has_dlq: bool,
    bulk: bool,
    on_too_long: str,
    long_limit: int,
) -> None:
    topic, dlq = property_topics
    path = write(tmp_path / "f", *lines)
    append(path, rest)
    connector = definition(
        broker.bootstrap,
        topic,
        drop="^drop" if drops else "",
        record={"origin_headers": not bulk},
        line={"max_bytes": long_limit, "on_too_long": on_too_long, "skip_empty": skip_empty},
        errors={"tolerance": "all" if tolerant else "none", **({"dlq": {"topic": dlq}} if has_dlq else {})},
        client={"message.max.bytes": "1000", "batch.size": "1000"},
    )
    (result,) = run_batch(batch_of(connector, split_of(path, final=final)), producers, never)
    counts = result.counts
    assert balanced(counts)
    assert counts.read_bytes == result.offset.position
    assert counts.read == result.offset.records
    data = path.read_bytes()[: result.offset.position]
    assert counts.read == data.count(b"\n") + bool(data and not data.endswith(b"\n"))
    kinds = Counter(data.removesuffix(b"\n").split(b"\n")) if data else Counter()
    assert counts.too_long == sum(number for line, number in kinds.items() if len(line) > long_limit)
    if tolerant:
        assert result.error is None
        assert result.at_end
    else:
        assert counts.dead_lettered == counts.rejected == 0
        assert isinstance(result.error, FatalError | None)


def test_results_add_up_over_any_cut_into_batches(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", *[b"%d" % number for number in range(500)])
    connector = definition(broker.bootstrap, topic)
    result: SplitResult | None = None
    offset, total = SourceOffset(0), Counts()
    for end in (100, 101, 700, path.stat().st_size):
        (result,) = run_batch(batch_of(connector, Split(SourcePartition("app", "f"), str(path), str(path), offset, end)), producers, never)
        offset, total = result.offset, total + result.counts
    assert total == Counts(read=500, read_bytes=path.stat().st_size, acknowledged=500)
    assert values(broker.bootstrap, topic) == [b"%d" % number for number in range(500)]


def test_a_fingerprint_covers_256_bytes_however_little_was_read(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "f", *[b"line %03d" % number for number in range(100)])
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topic), split_of(path, start=99 * 9)), producers, never)
    assert (result.offset.position, result.offset.fingerprint.tail_bytes) == (900, 256)
    data = bytearray(path.read_bytes())
    data[700] ^= 1  # within the 256 bytes, but not in what was read last
    path.write_bytes(data)
    again = replace(split_of(path), offset=result.offset, end=900)
    (second,) = run_batch(batch_of(definition(broker.bootstrap, topic), again), producers, never)
    assert second.changed


def test_owner_group_and_mode_are_those_of_the_open_file(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"one", b"two")
    path.chmod(0o640)
    user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(path.stat().st_gid).gr_name
    connector = definition(broker.bootstrap, topic, record={"key": "{@file.owner} {@file.group} {@file.mode}"})
    (result,) = run_batch(batch_of(connector, split_of(path)), producers, never)
    assert result.error is None
    assert {message.key for message in consume(broker.bootstrap, topic)} == {f"{user} {group} 0640".encode()}


def test_an_owner_without_a_name_is_a_number() -> None:
    nobody = os.stat_result((0o100604, 1, 1, 1, 4_000_000_001, 4_000_000_002, 0, 0, 0, 0))
    assert access_of(nobody) == ("4000000001", "4000000002", "0604")
