"""Sources on the author's contract: positions that only they compare, whatever a batch makes of their records."""

from __future__ import annotations

import json
import math
import pickle
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from copycat_agent import logs
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.formats import Parsed, Unparsed
from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult, Stretch
from copycat_agent.offsets import saved_rows
from copycat_agent.options import DeliveryOptions
from copycat_agent.sources.contract import ENDLESS, POSITION_BYTES_MAX, Found, LostRecords, PolledOptions, as_text, same_position
from copycat_agent.sources.contract_partitions import RecordPartitions
from copycat_agent.sources.contract_source import ContractSource
from copycat_agent.sources.contract_stream import RecordStream, SourceFraming
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from copycat_agent.sources.planner import Changes


class Options(PolledOptions):
    """Made up."""

    type: Literal["made_up"] = "made_up"


class Shelves:
    """Shelves of numbered books, each with a position `{"at": n}`."""

    def __init__(self, *, whole: bool = False) -> None:
        self.books: dict[str, int] = {}
        self.whole = whole
        self.told: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.closed = threading.Event()

    def look(self, saved: Mapping[str, Any], *, to_the_end: bool) -> Iterator[Found]:
        del saved, to_the_end
        if self.failure is not None:
            raise self.failure
        yield from (Found(name, {"at": 0}, {"at": count}, count) for name, count in list(self.books.items()))

    def plan(self, found: Found, position: Any) -> Stretch | None:
        return Stretch(found.key, found.key, position, found.end, whole=self.whole, most_bytes=10_000) if position != found.end else None

    def read(self, stretch: Stretch) -> Iterator[tuple[dict[str, Any], Any]]:
        for number in range(stretch.start["at"], stretch.end["at"]):
            yield {"book": number}, {"at": number + 1}

    def apply(self, stretch: Stretch, position: Any, *, finished: bool) -> Any:
        return stretch.end if finished else position

    def committed(self, positions: Mapping[str, Any]) -> None:
        self.told.append(dict(positions))

    def close(self) -> None:
        self.closed.set()


def made(shelves: Shelves, saved: dict[SourcePartition, SourceOffset] | None = None) -> ContractSource:
    return ContractSource("app", Options(), DeliveryOptions(), saved or {}, logs.get("test"), shelves, RecordPartitions(shelves))


def looked(source: ContractSource) -> Changes:
    """One look, waited for; what it asks to be saved is not confirmed yet."""
    source.scan()
    wait_until(lambda: source.end_timed_out(at_once=False) and source.needs_scan, 30)
    return source.scan()


def settled(split: Split, count: int, records: SourceFraming) -> SplitResult:
    """What a task makes of a split when Kafka has its first `count` records."""
    stream = RecordStream(split, records)
    frames = list(stream.frames(records, split.offset.position, ENDLESS))
    total = sum(frame.total for frame in frames if isinstance(frame, Parsed))
    offset = replace(split.offset, position=split.offset.position + min(count, total), records=split.offset.records + min(count, total))
    return stream.complete(SplitResult(split, offset, at_end=count >= total))


def test_where_a_partition_begins_is_saved_before_anything_of_it_is_planned() -> None:
    shelves = Shelves()
    shelves.books = {"a": 3}
    source = made(shelves)
    changes = looked(source)
    ((partition, offset),) = changes.offsets.items()
    assert (partition, offset.position, json.loads(offset.cursor)) == (SourcePartition("app", "a"), 0, {"at": 0})
    assert source.plan(1).splits == ()
    source.finish((), changes)
    (split,) = source.plan(1).splits
    assert split.stretch is not None
    assert (split.stretch.start, split.stretch.end) == ({"at": 0}, {"at": 3})
    assert pickle.loads(pickle.dumps(split)) == split
    assert source.plan(1).splits == (), "one stretch at a time"
    source.close()
    assert shelves.closed.is_set()


@pytest.mark.parametrize(("count", "position"), [(0, {"at": 0}), (2, {"at": 2}), (5, {"at": 5})])
def test_what_is_settled_moves_the_position_that_far(count: int, position: dict[str, int]) -> None:
    shelves = Shelves()
    shelves.books = {"a": 5}
    source, records = made(shelves), SourceFraming(shelves, "made up")
    changes = looked(source)
    source.finish((), changes)
    (split,) = source.plan(1).splits
    result = settled(split, count, records)
    assert json.loads(result.offset.cursor) == position
    changes = source.changes_of((result,))
    source.finish((result,), changes)
    (view,) = source.files()
    assert (json.loads(view.cursor), view.records) == (position, count)
    if count:
        wait_until(lambda: shelves.told == [{"a": position}], 30, "the source is told what is saved")
    more = source.plan(1).splits
    assert bool(more) is (count < 5)
    source.close()


def test_a_batch_that_ends_with_the_last_record_of_a_whole_stretch_has_finished_it() -> None:
    shelves = Shelves(whole=True)
    stretch = Stretch("a", "a", {"at": 0}, {"at": 3}, whole=True)
    split = Split(SourcePartition("app", "a"), "a", "", SourceOffset(7, cursor='{"at":0}'), ENDLESS, stretch=stretch)
    stream = RecordStream(split, SourceFraming(shelves, "made up"))
    (frame,) = stream.frames(SourceFraming(shelves, ""), 7, ENDLESS)
    assert isinstance(frame, Parsed)
    assert (frame.start, frame.end, frame.fitting(1, 1)) == (7, 10, 3), "no budget cuts it"
    result = stream.complete(SplitResult(split, replace(split.offset, position=10, records=10), at_end=False))
    assert json.loads(result.offset.cursor) == {"at": 3}
    with pytest.raises(RetriableError, match="1 of 3 records were sent before the batch had to end"):
        stream.is_still(8)


class Torn(Shelves):
    """Shelves whose books 2 and 3 are lost, and whose book 4 nobody can read."""

    def read(self, stretch: Stretch) -> Iterator[tuple[Any, Any]]:
        for fields, position in super().read(stretch):
            if position["at"] == 3:
                yield LostRecords("two books were burnt", 1), position
            elif position["at"] == 4:
                yield LostRecords("a page is torn", 1, damaged=True), position
            elif position["at"] == 5:
                yield Unparsed("a book in no language"), position
            else:
                yield fields, position


@pytest.mark.parametrize(("count", "position", "lost"), [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 5, 2), (4, 6, 2)])
def test_what_is_lost_is_entered_with_the_position_that_passes_it(count: int, position: int, lost: int) -> None:
    stretch = Stretch("a", "a", {"at": 0}, {"at": 6})
    split = Split(SourcePartition("app", "a"), "a", "", SourceOffset(0, cursor='{"at":0}'), ENDLESS, stretch=stretch)
    result = settled(split, count, SourceFraming(Torn(), "made up"))
    assert json.loads(result.offset.cursor or "{}") == {"at": position}
    shown = [(one.start, one.records, one.size_bytes, one.reason, one.detail) for one in result.losses]
    assert shown == [(2, 1, 0, "destroyed", "two books were burnt"), (2, 1, 0, "damaged", "a page is torn")][:lost]


def test_a_bad_record_and_a_lost_one_are_frames_like_others_and_read_again_as_before() -> None:
    records = SourceFraming(Torn(), "made up")
    split = Split(SourcePartition("app", "a"), "a", "", SourceOffset(0), ENDLESS, stretch=Stretch("a", "a", {"at": 0}, {"at": 6}))
    stream = RecordStream(split, records)
    (frame,) = stream.frames(records, 0, ENDLESS)
    assert isinstance(frame, Parsed)
    assert frame.values == [{"book": 0}, {"book": 1}, Unparsed("a book in no language"), {"book": 5}]
    (again,) = stream.frames(records, 2, ENDLESS)
    assert isinstance(again, Parsed)
    assert again.values == frame.values[2:]
    assert len(stream.complete(SplitResult(split, replace(split.offset, position=4), at_end=True)).losses) == 2


def test_much_that_is_lost_makes_few_entries_whose_sum_is_right() -> None:
    class Burnt(Shelves):
        def read(self, stretch: Stretch) -> Iterator[tuple[Any, Any]]:
            for _, position in super().read(stretch):
                yield LostRecords("burnt", 2), position

    stretch = Stretch("a", "a", {"at": 0}, {"at": 500})
    split = Split(SourcePartition("app", "a"), "a", "", SourceOffset(0, cursor='{"at":0}'), ENDLESS, stretch=stretch)
    result = settled(split, 0, SourceFraming(Burnt(), "made up"))
    assert json.loads(result.offset.cursor) == {"at": 500}
    assert (len(result.losses), sum(one.records for one in result.losses)) == (20, 1000)
    assert result.losses[-1].detail == "burnt; and others"


def test_what_has_to_be_sent_again_is_read_from_the_position_before_it() -> None:
    shelves = Shelves()
    records = SourceFraming(shelves, "made up")
    split = Split(SourcePartition("app", "a"), "a", "", SourceOffset(0), ENDLESS, stretch=Stretch("a", "a", {"at": 0}, {"at": 2500}))
    stream = RecordStream(split, records)
    first = list(stream.frames(records, 0, ENDLESS))
    assert [frame.end for frame in first] == [1000, 2000, 2500]
    again = next(stream.frames(records, 1234, ENDLESS))
    assert isinstance(again, Parsed)
    assert (again.start, again.values[0]) == (1234, {"book": 1234})


def test_nobody_is_asked_while_all_there_is_has_yet_to_be_read() -> None:
    """A reader whose answers are not the same twice would be asked for what nobody reads."""
    shelves = Shelves()
    shelves.books = {"a": 3}
    source, records = made(shelves), SourceFraming(shelves, "made up")
    source.finish((), looked(source))
    (split,) = source.plan(1).splits
    source.scan()
    assert source.end_timed_out(at_once=False) == math.inf
    result = settled(split, 3, records)
    source.finish((result,), source.changes_of((result,)))
    wait_until(lambda: source.end_timed_out(at_once=False) and source.needs_scan, 30)
    source.close()


def test_a_run_to_the_end_looks_once_more_behind_where_a_partition_begins() -> None:
    """A source may know only then what is there, and a first look can be quicker than the next one is due."""
    shelves = Shelves()
    shelves.books = {"a": 0}
    source = made(shelves)
    source.finish((), looked(source))
    assert not source.drained()
    shelves.books = {"a": 3}
    wait_until(lambda: source.end_timed_out(at_once=True) and source.needs_scan, 30)
    source.finish((), source.scan())
    assert not source.drained()
    (split,) = source.plan(1).splits
    result = settled(split, 3, SourceFraming(shelves, "made up"))
    source.finish((result,), source.changes_of((result,)))
    wait_until(lambda: source.end_timed_out(at_once=True) and source.needs_scan, 30)
    source.finish((), source.scan())
    wait_until(source.drained, 30, "it comes to an end")
    source.close()


def test_partitions_take_turns_and_shares() -> None:
    shelves = Shelves()
    shelves.books = dict.fromkeys("abcd", 1)
    source = made(shelves)
    source.finish((), looked(source))
    assert [one.path for one in source.plan(2).splits] == ["a", "b"]
    assert [one.path for one in source.plan(1).splits] == ["c", "d"]
    assert source.lag().files == 4
    source.close()


def test_a_source_that_cannot_be_asked_is_retriable_and_one_that_is_at_fault_is_not() -> None:
    shelves = Shelves()
    source = made(shelves)
    shelves.failure = RetriableError("no network")
    with pytest.raises(RetriableError, match="no network"):
        looked(source)
    shelves.failure = KeyError("a secret")
    wait_until(lambda: source.end_timed_out(at_once=False) and source.needs_scan, 30)
    with pytest.raises(FatalError, match=r"source made_up: KeyError at test_contract.py:\d+; "):
        source.scan()
    source.close()


def test_after_a_start_a_source_is_told_what_is_saved_unless_somebody_only_looks() -> None:
    at_4 = [{"a": {"at": 4}}]
    for offset, options, told in (
        (SourceOffset(4, records=4), Options(), at_4),
        (SourceOffset(0, mtime_ns=1), Options(), at_4),  # there was nothing between two positions
        (SourceOffset(0), Options(), []),  # it has yet to move
        (SourceOffset(4, records=4), Options().looking(), []),
    ):
        shelves = Shelves()
        saved = {SourcePartition("app", "a"): replace(offset, path="a", cursor='{"at":4}')}
        source = ContractSource("app", options, DeliveryOptions(), saved, logs.get("test"), shelves, RecordPartitions(shelves))
        looked(source)
        assert shelves.told == told
        source.close()


def test_a_stretch_without_records_moves_its_partition() -> None:
    shelves = Shelves()
    stretch = Stretch("a", "a", {"at": 3}, {"at": 3})
    split = Split(SourcePartition("app", "a"), "a", "", SourceOffset(0, cursor='{"at":0}'), ENDLESS, stretch=stretch)
    result = settled(split, 0, SourceFraming(shelves, "made up"))
    assert (json.loads(result.offset.cursor), result.offset.records, result.offset.mtime_ns > 0) == ({"at": 3}, 0, True)


def test_a_position_is_json_of_some_size_and_compared_as_json() -> None:
    assert as_text({"a": [1, "b", None]}) == '{"a":[1,"b",null]}'
    assert same_position({"a": 1, "b": [None]}, {"b": [None], "a": 1})
    assert not any(same_position({"a": 1}, {"a": other}) for other in (1.0, True, "1", 2))
    with pytest.raises(FatalError, match="no JSON value"):
        as_text({"a": object()})
    with pytest.raises(FatalError, match="262,144 are the most"):
        as_text("x" * POSITION_BYTES_MAX)


def test_a_cursor_is_stored_beside_a_position_that_stays_a_number() -> None:
    partition, offset = SourcePartition("app", "stream"), SourceOffset(12, records=12, path="x", cursor='{"offset":{"id":5}}')
    row = saved_rows.encode(partition, offset)
    assert saved_rows.decode(row[:-1]) == (partition, offset)
    assert row[2] == "12"
    cut = replace(offset, cursor="", cut="1 0 5 0 0 - 0")
    assert saved_rows.decode(saved_rows.encode(partition, cut)[:-1]) == (partition, cut)
