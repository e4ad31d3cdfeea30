"""Dead letters go through the definition as it is now, once, and stay where they are when that does not help."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from copycat_agent.dev_broker import free_port
from copycat_agent.dlq import LetterPlace, Replay, group_of, latest, saved_progress, survey
from copycat_agent.dlq.survey import LetterKind
from copycat_agent.errors import RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.model import SourcePartition
from copycat_agent.producer import ProducerPool, TaskProducer, topic_reader
from copycat_agent.producer.topic_reader import TopicReader
from tests.rig.kafka import consume, values
from tests.unit.batch.rig import batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.options import Definition


INODE, FILE_TIME_MS = 4711, 1_700_000_000_123


class Post:
    """A connector with dead letters: `broken` cannot make a key, `mended` can."""

    def __init__(self, broker: DevBroker, make_topic: Callable[..., str], path: Path, producers: ProducerPool) -> None:
        self.bootstrap = broker.bootstrap
        self.topic, self.dlq = make_topic(), make_topic()
        self.path = path
        self._producers = producers
        self.name = f"app-{self.dlq.rpartition('.')[2]}"

    def connector(self, key: str, **sections: Any) -> Definition:
        errors = {"tolerance": "all", "dlq": {"topic": self.dlq, **sections.pop("dlq", {})}}
        record = {"key": key, **sections.pop("record", {})}
        made = definition(self.bootstrap, self.topic, record=record, errors=errors, **sections)
        return made.model_copy(update={"name": self.name})

    def broken(self, **sections: Any) -> Definition:
        return self.connector("{missing}", **sections)

    def mended(self, **sections: Any) -> Definition:
        return self.connector("k", **sections)

    def fill(self, *lines: bytes, by: Definition | None = None, **split: Any) -> None:
        """Dead-letter these lines."""
        whole = split_of(write(self.path, *lines), **split)
        there = replace(whole, partition=SourcePartition(self.name, f"1:{INODE:x}:3:0"), mtime_ms=FILE_TIME_MS)
        (result,) = run_batch(batch_of(by or self.broken(), there), self._producers, never)
        assert result.error is None

    def arrived(self) -> list[bytes | None]:
        return values(self.bootstrap, self.topic)


@pytest.fixture(scope="module")
def producers() -> Iterator[ProducerPool]:
    producers = ProducerPool()
    yield producers
    producers.close()


@pytest.fixture
def post(broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, producers: ProducerPool) -> Post:
    return Post(broker, make_topic, tmp_path / "f", producers)


def test_mended_letters_are_sent_in_order_as_the_records_they_were(post: Post) -> None:
    record = {
        "headers": {"at": "{@file.path} {@offset} {@record.number} {@file.inode} {@connector}", "host": "{@host}"},
        "timestamp": "file", "origin_headers": True,
    }  # fmt: skip
    post.fill(b"one", b"two\r", b"", by=post.broken(record=record))
    report = Replay(post.mended(record=record)).run()
    assert (report.sent, report.dropped, report.left, report.tried) == (3, 0, 0, 3)
    records = consume(post.bootstrap, post.topic)
    assert [record.value for record in records] == [b"one", b"two", b""]
    assert {record.key for record in records} == {b"k"}
    headers = {name: (value or b"").decode() for name, value in records[1].headers}
    assert headers["copycat.offset"] == "4"
    assert headers["at"].startswith(f"{post.path} 4 2 ")
    assert headers["at"].endswith(f" {INODE} {post.name}")
    assert headers["host"] == socket.gethostname()
    assert {record.timestamp_ms for record in records} == {FILE_TIME_MS}


SPLIT: dict[str, Any] = {"multiline": {"start": r"^\d", "max_lines": 2}, "record": {"key": "{id}"}}
TRACE = (b"1 boom", b" a", b" b", b" c", b" d")


def split_by(post: Post, pattern: str) -> Definition:
    return post.connector("{id}", multiline=SPLIT["multiline"], steps=[{"regex": pattern}])


def test_parts_of_a_record_are_replayed_with_the_fields_of_the_first(post: Post) -> None:
    post.fill(*TRACE, by=split_by(post, "(?P<id>never)"), final=True)
    assert Replay(split_by(post, "(?P<id>never)")).run().left == 3
    report = Replay(split_by(post, r"(?s)^(?P<id>\d) (?P<text>.*)")).run()
    assert (report.sent, report.left) == (3, 0)
    records = consume(post.bootstrap, post.topic)
    assert [json.loads(record.value or b"")["text"] for record in records] == ["boom\n a\n", " b\n c\n", " d"]
    assert {record.key for record in records} == {b"1"}
    assert [dict(record.headers)["copycat.part"] for record in records] == [b"1", b"2", b"3"]
    assert dict(records[2].headers)["copycat.parts"] == b"3"


def test_a_part_whose_first_one_is_no_dead_letter_stays_and_says_why(post: Post) -> None:
    bad = post.connector(
        "{id}", multiline=SPLIT["multiline"], steps=[{"regex": r"(?s)^(?P<id>\d) (?P<text>.*)"}, {"convert": {"text": "int"}}]
    )
    post.fill(b"1 77", b"", b" b", b" c", by=bad, final=True)
    assert len(post.arrived()) == 1
    report = Replay(split_by(post, r"(?s)^(?P<id>\d) (?P<text>.*)")).run()
    assert (report.sent, report.left) == (0, 1)
    assert "part 2 of a record" in report.named[0].why


def test_a_second_replay_sends_nothing_again_unless_it_is_told_to(post: Post) -> None:
    post.fill(b"one", b"two")
    assert Replay(post.mended()).run().sent == 2
    assert Replay(post.mended()).run().tried == 0
    post.fill(b"three")
    assert Replay(post.mended()).run().sent == 1
    assert Replay(post.mended()).run(everything=True).sent == 3
    assert post.arrived() == [b"one", b"two", b"three", b"one", b"two", b"three"]


def test_letters_that_fail_again_stay_and_are_tried_again(post: Post) -> None:
    post.fill(b"one", b"two")
    report = Replay(post.broken()).run()
    assert (report.sent, report.left) == (0, 2)
    assert [left.why for left in report.named] == ["stage record: field 'missing' is missing"] * 2
    assert len(consume(post.bootstrap, post.dlq)) == 2
    assert Replay(post.mended()).run().sent == 2


def test_those_that_went_are_not_sent_again_although_one_before_them_stays(post: Post) -> None:
    long = b"x" * 3000
    post.fill(b"one", long, b"two")
    small = post.mended(client={"message.max.bytes": "2000", "batch.size": "2000"})
    report = Replay(small).run()
    assert (report.sent, report.left) == (2, 1)
    assert report.named[0].why.startswith("stage send: ")
    assert Replay(small).run().tried == 1
    assert Replay(post.mended()).run().sent == 1
    assert post.arrived() == [b"one", b"two", long]


def test_a_letter_that_the_topic_refuses_stays_and_its_neighbours_go(post: Post, make_topic: Callable[..., str]) -> None:
    post.topic = make_topic(config={"max.message.bytes": "1000"})
    long = b"x" * 3000
    post.fill(b"one", long, b"two")
    plain = {"compression.type": "none"}
    report = Replay(post.mended(client=plain)).run()
    assert (report.sent, report.left) == (2, 1)
    assert set(post.arrived()) == {b"one", b"two"}
    assert Replay(post.mended(client=plain)).run().tried == 1


@pytest.mark.parametrize("sections", [{"line": {"max_bytes": 10}}, {"dlq": {"include_raw": False}}])
def test_letters_without_all_their_bytes_are_told_and_stay(post: Post, sections: dict[str, Any]) -> None:
    post.fill(b"a line that is long", by=post.broken(**sections))
    report = Replay(post.mended()).run()
    assert (report.sent, report.left) == (0, 1)
    assert "bytes are not all there" in report.named[0].why
    assert post.arrived() == []


def test_an_unfinished_last_line_keeps_its_mark(post: Post) -> None:
    post.path.write_bytes(b"unfinished")
    run_batch(batch_of(post.broken(), split_of(post.path, final=True)), post._producers, never)
    assert Replay(post.mended()).run().sent == 1
    (record,) = consume(post.bootstrap, post.topic)
    assert dict(record.headers)["copycat.partial"] == b"true"


def test_what_a_transform_drops_now_is_done_with(post: Post) -> None:
    post.fill(b"drop", b"keep")
    report = Replay(post.mended(drop="drop")).run()
    assert (report.sent, report.dropped, report.left) == (1, 1, 0)
    assert Replay(post.mended()).run().tried == 0


def test_letters_of_a_step_that_was_corrected_become_the_records_they_should_have_been(post: Post) -> None:
    def steps(regex: str) -> list[dict[str, Any]]:
        return [
            {"regex": regex, "on_error": "dlq"},
            {"timestamp": {"field": "at", "format": "unix"}, "on_error": "keep"},
            {"drop_if": {"level": "DEBUG"}},
        ]

    def connector(regex: str) -> Definition:
        return post.connector("{level}", record={"timestamp": "event"}, steps=steps(regex))

    post.fill(b"1700000000 INFO good", b"1700000001,5 WARN bad", b"1700000002,5 DEBUG bad", by=connector(r"^(?P<at>\d+) (?P<level>\S+)"))
    report = Replay(connector(r"^(?P<at>\d+)(?:,\d+)? (?P<level>\S+)")).run()
    assert (report.sent, report.dropped, report.left) == (1, 1, 0)
    good, mended = consume(post.bootstrap, post.topic)
    assert (good.key, good.timestamp_ms) == (b"INFO", 1_700_000_000_000)
    assert (mended.key, mended.value, mended.timestamp_ms) == (b"WARN", b'{"at":"1700000001","level":"WARN"}', 1_700_000_001_000)


def test_a_dry_run_sends_and_remembers_nothing(post: Post) -> None:
    post.fill(b"one", b"two")
    assert Replay(post.mended(), dry_run=True).run().sent == 2
    assert post.arrived() == []
    assert Replay(post.mended()).run().sent == 2


def test_a_limit_ends_early_and_the_next_replay_goes_on(post: Post) -> None:
    post.fill(*[b"%d" % number for number in range(5)])
    assert [Replay(post.mended()).run(limit=2).sent for _ in range(4)] == [2, 2, 1, 0]
    assert post.arrived() == [b"%d" % number for number in range(5)]


def test_letters_that_are_asked_for_go_alone_and_the_others_wait_as_before(post: Post, make_topic: Callable[..., str]) -> None:
    post.dlq = make_topic(2)
    post.fill(*[b"%d" % number for number in range(6)])
    post.fill(b"theirs", by=post.broken().model_copy(update={"name": f"other-{post.name}"}))
    with TopicReader(post.mended().kafka, post.dlq, "look") as reader:
        found = latest(reader, frozenset((post.name, f"other-{post.name}")), 10)
    places = {letter.raw: LetterPlace(letter.partition, letter.offset) for letter in found}
    report = Replay(post.mended()).run(only=[places[b"4"], places[b"2"]])
    assert (report.sent, report.left, report.missed) == (2, 0, 0)
    assert sorted(value or b"" for value in post.arrived()) == [b"2", b"4"]
    strange = [places[b"2"], places[b"theirs"], LetterPlace(0, 10**9), LetterPlace(7, 0)]
    again = Replay(post.mended()).run(only=strange)
    assert (again.tried, again.missed) == (0, 4)
    assert Replay(post.broken()).run(only=[places[b"5"]]).left == 1
    assert Replay(post.mended()).run(only=[places[b"2"]], everything=True).sent == 1
    assert Replay(post.mended()).run().sent == 4
    assert sorted(value or b"" for value in post.arrived()) == [b"0", b"1", b"2", b"2", b"3", b"4", b"5"]


def test_several_partitions_are_each_remembered(post: Post, make_topic: Callable[..., str]) -> None:
    post.dlq = make_topic(3)
    for begin in range(0, 30, 5):  # without a key each batch goes to some partition
        post.fill(*[b"%d" % number for number in range(begin, begin + 5)])
    assert [Replay(post.mended()).run(limit=12).sent for _ in range(4)] == [12, 12, 6, 0]
    assert sorted(int(value or b"") for value in post.arrived()) == list(range(30))


def test_letters_of_others_and_foreign_records_are_passed_over(post: Post, make_topic: Callable[..., str]) -> None:
    post.dlq = make_topic(2)
    stranger = Producer({"bootstrap.servers": post.bootstrap})
    stranger.produce(post.dlq, b"hello", partition=0)
    stranger.produce(post.dlq, b"broken", headers=[("copycat.connector", post.name.encode()), ("copycat.offset", b"x")], partition=1)
    stranger.flush()
    other = post.broken().model_copy(update={"name": f"other-{post.name}"})
    post.fill(b"theirs", by=other)
    post.fill(b"ours")
    report = Replay(post.mended()).run()
    assert (report.sent, report.left, report.foreign) == (1, 0, 2)
    assert post.arrived() == [b"ours"]
    assert Replay(post.mended().model_copy(update={"name": other.name})).run().sent == 1


def test_letters_keep_the_name_that_the_connector_had(post: Post) -> None:
    post.fill(b"one")
    renamed = post.mended().model_copy(update={"name": f"new-{post.name}", "renamed_from": (post.name,)})
    assert Replay(renamed).run().sent == 1


def test_a_crash_between_sending_and_remembering_repeats_and_loses_nothing(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    post.fill(b"one", b"two")

    def crash(self: TopicReader, positions: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TopicReader, "save", crash)
        with pytest.raises(KeyboardInterrupt):
            Replay(post.mended()).run()
    assert Replay(post.mended()).run().sent == 2
    assert post.arrived() == [b"one", b"two"] * 2


def test_nothing_is_remembered_of_a_group_that_was_not_acknowledged(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.dlq.GROUP_LETTERS", 2)
    post.fill(*[b"%d" % number for number in range(6)])
    flush, calls = TaskProducer.flush, []

    def fail(self: TaskProducer) -> None:
        flush(self)
        calls.append(1)
        if len(calls) == 2:
            raise RetriableError("as if nobody had answered")

    with monkeypatch.context() as patched:
        patched.setattr(TaskProducer, "flush", fail)
        with pytest.raises(RetriableError):
            Replay(post.mended()).run()
    assert Replay(post.mended()).run().sent == 4


def test_a_stop_request_ends_after_a_group_that_is_remembered(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.dlq.GROUP_LETTERS", 2)
    post.fill(*[b"%d" % number for number in range(6)])
    report = Replay(post.mended(), lambda: True).run()
    assert (report.sent, report.stopped) == (2, True)
    assert Replay(post.mended()).run().sent == 4


def test_a_letter_whose_topic_is_missing_stays(post: Post) -> None:
    post.fill(b"one")
    elsewhere = post.mended(record={"topic": f"{post.topic}.missing"})
    report = Replay(elsewhere).run()
    assert (report.sent, report.left) == (0, 1)
    assert "does not exist" in report.named[0].why


def test_a_topic_that_does_not_exist_holds_no_letters(post: Post) -> None:
    assert Replay(post.mended(dlq={"topic": f"{post.dlq}.none"})).run().tried == 0


def test_without_a_broker_it_is_a_retriable_error(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_reader, "ANSWER_SECONDS", 1.0)
    connector = post.mended()
    kafka = connector.kafka.model_copy(update={"bootstrap_servers": (f"127.0.0.1:{free_port()}",)})
    with pytest.raises(RetriableError):
        Replay(connector.model_copy(update={"kafka": kafka})).run()


def test_a_survey_counts_by_connector_stage_and_error_and_what_waits(post: Post) -> None:
    post.fill(b"one", b"two", b"x" * 50, by=post.broken(line={"max_bytes": 10}))
    Producer({"bootstrap.servers": post.bootstrap}).produce(post.dlq, b"hello")
    Replay(post.mended()).run(limit=1)
    with TopicReader(post.mended().kafka, post.dlq, group_of(post.name)) as reader:
        found = survey(reader, {post.name: saved_progress(reader, post.mended())})
    kinds = {kind: (tally.letters, tally.waiting) for kind, tally in found.tallies.items()}
    frame, record = LetterKind(post.name, "frame", "DataError"), LetterKind(post.name, "record", "DataError")
    assert {kind: letters for kind, (letters, _) in kinds.items()} == {frame: 1, record: 2}
    assert sum(waiting or 0 for _, waiting in kinds.values()) == 2


def test_the_latest_letters_are_the_newest_oldest_first(post: Post) -> None:
    post.fill(*[b"%03d" % number for number in range(300)])
    with TopicReader(post.mended().kafka, post.dlq, group_of(post.name)) as reader:
        letters = latest(reader, frozenset({post.name}), 5)
    assert len(letters) == 5
    assert [letter.at_ms for letter in letters] == sorted(letter.at_ms or 0 for letter in letters)
    with TopicReader(post.mended().kafka, post.dlq, group_of(post.name)) as reader:
        assert latest(reader, frozenset({"nobody"}), 5) == ()


def test_a_new_name_does_not_send_again_what_went_under_the_old_one(post: Post) -> None:
    post.fill(b"one", b"two")
    assert Replay(post.mended()).run(limit=1).sent == 1
    renamed = post.mended().model_copy(update={"name": f"new-{post.name}", "renamed_from": (post.name,)})
    assert Replay(renamed).run().sent == 1
    assert Replay(renamed).run().tried == 0
    assert post.arrived() == [b"one", b"two"]


def test_large_letters_go_in_small_groups(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.dlq.GROUP_BYTES", 1000)
    post.fill(*[b"%0400d" % number for number in range(7)])
    told: list[int] = []
    assert Replay(post.mended()).run(limit=5, on_progress=lambda report: told.append(report.tried)).sent == 5
    assert told == [3, 5]
    assert Replay(post.mended()).run().sent == 2


def test_time_that_the_caller_takes_is_not_taken_for_silence(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    post.fill(b"one", b"two")
    monkeypatch.setattr(topic_reader, "STALL_SECONDS", 5.0)
    clock = [0.0]
    monkeypatch.setattr(topic_reader, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep))
    with TopicReader(post.mended().kafka, post.dlq, group_of(post.name)) as reader:
        read = 0
        for _ in reader.records({}):
            clock[0] += 60.0
            read += 1
    assert read == 2
