"""Batches of records that go together, from a source on the author's contract: all of them are settled, or none."""

from __future__ import annotations

import json
import time
import types
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.batch import run as run_module
from copycat_agent.batch.run import BatchRun
from copycat_agent.encoding.encoder import Encoder
from copycat_agent.errors import BlockedError, DataError, FatalError, SentInPartError
from copycat_agent.model import SourceOffset, SourcePartition, Split, Stretch
from copycat_agent.sources.contract_stream import ENDLESS, Records, RecordStream
from tests.unit.batch import rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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
    """A producer whose cluster refuses values that hold `refused`, and says so when they are settled."""

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

    def settle(self) -> None:
        taken, self._open = self._open, []
        if any(self.refused in value for value in taken):
            raise DataError("the record is too large")

    def weigh(self, _size: int) -> None:
        pass

    def smaller_batches(self) -> None:
        pass


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
    definition = rig.definition("x:1", topic, value="json", **more)
    encoder = Encoder(definition)
    encoder.frames = Records(source, "made up")  # type: ignore[assignment, arg-type]
    encoder.source = types.SimpleNamespace(open=RecordStream)  # type: ignore[assignment]
    stretch = Stretch("a", "a", {"at": 0}, {"at": count}, whole=whole, most_bytes=10**7)
    split = Split(SourcePartition("app", "a"), "a", "", SourceOffset(0, cursor='{"at":0}'), ENDLESS, stretch=stretch)
    return BatchRun(rig.batch_of(definition, split, max_seconds=seconds), encoder, kafka, stopping)  # type: ignore[arg-type]


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
    monkeypatch.setattr(run_module, "SEARCH_SECONDS", 0.0)
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
