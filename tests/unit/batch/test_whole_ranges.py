"""Batches of records that go together, from a source on the author's contract: all of them are settled, or none."""

from __future__ import annotations

import functools
import json
import time
import types
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.batch import refused_record_search
from copycat_agent.batch.run import BatchRun
from copycat_agent.batch.sql_run import SqlRun
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.errors import BlockedError, DataError, FatalError, SentInPartError
from copycat_agent.executor import run_batch
from copycat_agent.model import SourceOffset, SourcePartition, Split, Stretch
from copycat_agent.sources.contract import ENDLESS
from copycat_agent.sources.contract_stream import RecordStream, SourceFraming
from tests.unit.batch import rig
from tests.unit.batch.fake_lane import FakeBroker, FakeLane, FakeSteps
from tests.unit.batch.test_sql_ways import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from copycat_agent.model import SplitResult


class Numbers:
    """Records with the numbers of a range; `odd` stands in place of some. Reading takes `seconds`."""

    def __init__(self, odd: dict[int, Any] | None = None, seconds: float = 0.0) -> None:
        self.odd = odd or {}
        self.seconds = seconds

    def read(self, stretch: Stretch) -> Iterator[tuple[dict[str, Any], Any]]:
        time.sleep(self.seconds)
        for number in range(stretch.start["at"], stretch.end["at"]):
            yield {"id": self.odd.get(number, number)}, None

    def apply(self, stretch: Stretch, position: Any, *, finished: bool) -> Any:
        del position
        assert finished
        return stretch.end


class Topics:
    """Every topic but `missing` is there."""

    def partitions(self, topic: str) -> int:
        if topic == "missing":
            raise BlockedError("topic missing is missing")
        return 1


class Kafka:
    """A producer whose cluster refuses values that hold `refused`, and says so when they are flushed."""

    broken = False
    run_bytes = 2**24
    topics = Topics()

    def __init__(self, refused: bytes = b"\0") -> None:
        self.refused = refused
        self.sent: list[bytes] = []
        self._open: list[bytes] = []

    def may_send(self, *_about: Any) -> bool:
        return True

    def send(self, _topic: str, values: Iterable[bytes], _tail: Any) -> None:
        self._take(values)

    def send_each(self, messages: Iterable[Any]) -> None:
        self._take(message[1] for message in messages)

    def _take(self, values: Iterable[Any]) -> None:
        new = [value if isinstance(value, bytes) else str(value).encode() for value in values]
        self.sent += new
        self._open += new

    def flush(self) -> None:
        taken, self._open = self._open, []
        if any(self.refused in value for value in taken):
            raise DataError("the record is too large")

    def weigh(self, _size: int) -> None:
        pass

    def smaller_batches(self) -> None:
        pass


def encoder_of(source: Numbers, topic: str = "t", **more: Any) -> Encoder:
    encoder = Encoder(rig.definition("x:1", topic, value="json", **more))
    encoder.frames = SourceFraming(source, "made up")  # type: ignore[assignment]
    encoder.source = types.SimpleNamespace(open=RecordStream, saved=saved_as_it_is)  # type: ignore[assignment]
    return encoder


def saved_as_it_is(result: SplitResult, _options: Any) -> tuple[SourceOffset, Any]:
    return result.offset, result.losses


def made(
    source: Numbers,
    count: int,
    kafka: Kafka,
    *,
    whole: bool = True,
    seconds: float = 60.0,
    stopping: Callable[[], bool] = rig.never,
    topic: str = "t",
    **more: Any,
) -> BatchRun:
    encoder = encoder_of(source, topic, **more)
    stretch = Stretch("a", "a", {"at": 0}, {"at": count}, whole=whole, most_bytes=10**7)
    split = Split(SourcePartition("app", "a"), "a", "", SourceOffset(0, cursor='{"at":0}'), ENDLESS, stretch=stretch)
    return BatchRun(rig.batch_of(encoder.definition, split, max_seconds=seconds), encoder, kafka, stopping)  # type: ignore[arg-type]


TO_INT: dict[str, Any] = {"steps": [{"convert": {"id": "int"}}]}


@pytest.mark.parametrize("bad", [0, 5])
def test_a_bad_record_ends_the_connector_wherever_it_stands(bad: int) -> None:
    run = made(Numbers({bad: "x"}), 10, Kafka(), **TO_INT)
    with pytest.raises(FatalError, match="convert") as raised:
        run.run()
    (progress,) = run.progresses
    result = progress.result(raised.value)
    assert isinstance(result.error, FatalError)
    assert f"record {bad + 1}," in result.error.message
    assert result.offset == result.split.offset, "nothing of the range is settled"


def test_a_missing_topic_of_a_later_record_is_that_and_nothing_is_settled() -> None:
    run = made(Numbers({5: "missing"}), 10, Kafka(), topic="{id}")
    run.run()
    (progress,) = run.progresses
    result = progress.result(None)
    assert isinstance(result.error, BlockedError)
    assert result.offset == result.split.offset


def test_a_range_whose_reading_takes_longer_than_the_batch_is_sent_all_the_same() -> None:
    run = made(Numbers(seconds=0.3), 1000, Kafka(), seconds=0.1, record={"key": "{id}"})
    run.run()
    (progress,) = run.progresses
    assert json.loads(progress.result(None).offset.cursor) == {"at": 1000}


def test_a_stop_ends_a_range_that_goes_as_one_and_nothing_is_settled() -> None:
    run = made(Numbers(seconds=0.3), 1000, Kafka(), stopping=lambda: bool(run.progresses[0].stream), record={"key": "{id}"})
    with pytest.raises(SentInPartError, match=r"\d+ of 1,000 records were sent"):
        run.run()
    (progress,) = run.progresses
    assert progress.result(None).offset == progress.split.offset


@pytest.mark.parametrize("tolerance", ["all", "none"])
def test_a_record_that_kafka_refuses_is_looked_for_in_all_of_a_range_that_goes_as_one(
    tolerance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_record_search, "SEARCH_SECONDS", 0.0)
    kafka = Kafka(refused=b'"id":2345')
    run = made(Numbers(), 5000, kafka, errors={"tolerance": tolerance})
    (progress,) = run.progresses
    if tolerance == "none":
        with pytest.raises(FatalError, match="record 2346, stage send: the record is too large"):
            run.run()
        assert progress.result(None).offset == progress.split.offset
        return
    run.run()
    result = progress.result(None)
    assert json.loads(result.offset.cursor) == {"at": 5000}
    assert (result.counts.read, result.counts.acknowledged) == (5000, 4999)


class Numbered(Numbers):
    """Numbers of a range that can be read in several batches."""

    def read(self, stretch: Stretch) -> Iterator[tuple[dict[str, Any], Any]]:
        for number in range(stretch.start["at"], stretch.end["at"]):
            yield {"id": number}, {"at": number + 1}

    def apply(self, stretch: Stretch, position: Any, *, finished: bool) -> Any:
        return stretch.end if finished else position


@pytest.mark.parametrize("bad", [0, 7, 19])
def test_a_refused_record_behind_a_query_is_found_in_a_range_that_can_be_read_again(bad: int) -> None:
    def refuses(message: Any) -> DataError | None:
        return DataError("refused") if message[0] == "t" and json.loads(message[1])["n"] == bad + 100 else None

    broker, offset = FakeBroker(refuses=refuses), SourceOffset(0, cursor='{"at":0}')
    lane, producers, source = FakeLane(broker), broker.producers(), Numbered()
    errors = {"tolerance": "all", "dlq": {"topic": "dlq"}}
    query = {"sql": {"query": "SELECT * FROM records", "schema": "n int"}}
    steps = [{"set": {"n": "{id}"}}, {"convert": {"n": "int"}}, query]
    for _ in range(20):
        start = json.loads(offset.cursor)
        if start == {"at": 120}:
            break
        run = made(source, 120, Kafka(), whole=False, errors=errors, steps=steps)
        stretch = Stretch("a", "a", start if start["at"] else {"at": 100}, {"at": 120})
        split = replace(run.progresses[0].split, offset=offset, stretch=stretch)
        batch = replace(rig.batch_of(encoder_of(source, errors=errors, steps=steps).definition, split), delivery=lane.plan())
        encoder, make_run = encoder_of(source, errors=errors, steps=steps), functools.partial(SqlRun, query=Query())
        (result,) = results = run_batch(batch, producers, rig.never, encoder, make_run)
        assert lane.heard(results).state == "committed"
        assert result.error is None
        offset = result.offset
    assert (json.loads(offset.cursor), offset.records) == ({"at": 120}, 20)
    sent = [json.loads(message[1])["n"] for message in broker.committed if message[0] == "t"]
    assert sent == [number for number in range(100, 120) if number != bad + 100]


def one_transaction(broker: FakeBroker, stopping: Callable[[], bool]) -> SplitResult:
    """What becomes of a batch of a thousand records that go as one, with exactly_once."""
    source, keyed = Numbers(), {"key": "{id}"}
    split = made(source, 1000, Kafka()).progresses[0].split
    lane, encoder = FakeLane(broker), encoder_of(source, record=keyed)
    batch = replace(rig.batch_of(encoder.definition, split), delivery=lane.plan())
    (result,) = results = run_batch(batch, broker.producers(), stopping, encoder)
    assert lane.heard(results).state == "undone"
    assert (result.offset, broker.committed) == (split.offset, [])
    return result


def slow(_message: Any) -> None:
    time.sleep(0.001)


def test_a_range_that_takes_longer_than_a_transaction_is_blocked_and_says_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeSteps, "transaction_seconds", 0.01)
    error = one_transaction(FakeBroker(refuses_at_once=slow), rig.never).error
    assert isinstance(error, BlockedError)
    assert "could not be sent within one transaction, which lasts 0.01 s at most: it is undone" in str(error)
    assert "source.replayable: true" in str(error)


def test_a_range_that_a_stop_cuts_off_is_not_called_slow() -> None:
    broker = FakeBroker(refuses_at_once=slow)
    error = one_transaction(broker, lambda: any(one.has_sent for one in broker.owners.values())).error
    assert isinstance(error, SentInPartError)
