"""Every byte that a task gives up on is an entry of the ledger, once, whatever the way it went and however batches are cut."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from copycat_agent.batch import policy, run
from copycat_agent.batch.progress import ENTRIES_MAX, SplitLosses
from copycat_agent.executor import run_batch
from copycat_agent.model import Counts, Loss, SourceOffset, SourcePartition
from copycat_agent.sources.files.reading.stream import SplitFile
from tests.rig.examples import examples
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.unit.batch.rig import after, append, batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.producer import ProducerPool

PARTITION = SourcePartition("app", "f")
SHORT = {"max_bytes": 100}
GOOD, EMPTY, DROPPED, LONG, LONG_DROPPED, REFUSED = b"good", b"", b"drop me", b"long" * 50, b"drop " * 50, b"R" * 1100
"""The long ones are over the smaller line.max_bytes of the property, REFUSED is over what the client sends, too."""
CLIENT = {"message.max.bytes": "1000", "batch.size": "1000"}


def loss(start: int, end: int, reason: str = "rejected", records: int = 1, detail: str = "d") -> Loss:
    return Loss(PARTITION, "/f", start, end, end - start, records, reason, detail, 0)  # type: ignore[arg-type]


def test_neighbours_with_one_reason_are_one_entry() -> None:
    losses = SplitLosses()
    for one in (loss(0, 5), loss(5, 9), loss(20, 30), loss(30, 31, "too_long"), loss(31, 40, detail="other")):
        losses.add(one)
    assert [(one.start, one.end, one.size_bytes, one.records, one.reason) for one in losses] == [
        (0, 9, 9, 2, "rejected"), (20, 30, 10, 1, "rejected"), (30, 31, 1, 1, "too_long"), (31, 40, 9, 1, "rejected"),
    ]  # fmt: skip


def test_an_entry_says_that_its_causes_differ() -> None:
    losses = SplitLosses()
    for place, detail in enumerate("aabb"):
        losses.add(loss(place, place + 1, detail=detail))
    assert [one.detail for one in losses] == ["a; and others"]


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 3), st.sampled_from(["rejected", "too_long"])), max_size=200))
def test_entries_are_bounded_and_their_sums_exact(pieces: list[tuple[int, int, str]]) -> None:
    losses, place, size, records = SplitLosses(), 0, Counter[str](), Counter[str]()
    for length, gap, reason in pieces:
        losses.add(loss(place + gap, place + gap + length, reason))
        place += gap + length
        size[reason] += length
        records[reason] += 1
    found = list(losses)
    assert len(found) <= ENTRIES_MAX + 1
    for reason in ("rejected", "too_long"):
        mine = [one for one in found if one.reason == reason]
        assert (sum(one.size_bytes for one in mine), sum(one.records for one in mine)) == (size[reason], records[reason])
    assert all(0 <= one.start < one.end <= place and one.size_bytes <= one.end - one.start for one in found)


@pytest.fixture(scope="module")
def topics(broker: DevBroker) -> tuple[str, str]:
    """A topic and a dead-letter topic for all examples."""
    return create_topic(broker.bootstrap, unique_topic()), create_topic(broker.bootstrap, unique_topic())


def lost_bytes(line: bytes, size: int, limit: int, on_too_long: str, dlq: str) -> int:
    """What is lost of a line of which `size` bytes have been passed, its delimiter included. `dlq`: none, raw or bare."""
    if len(line) > limit:
        kept = limit if on_too_long == "truncate" or (on_too_long == "dlq" and dlq == "raw") else 0
        return size - kept
    return size if line == REFUSED else 0  # too large for a dead letter, too


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.sampled_from([GOOD, GOOD, EMPTY, DROPPED, LONG, LONG_DROPPED, REFUSED]), max_size=20),
    rest=st.sampled_from([b"", b"unfinished", LONG]),
    ends=st.lists(st.integers(1, 5000), max_size=4).map(sorted),
    final=st.booleans(),
    skip_empty=st.booleans(),
    bulk=st.booleans(),
    on_too_long=st.sampled_from(["dlq", "truncate", "drop"]),
    dlq=st.sampled_from(["none", "raw", "bare"]),
    limit=st.sampled_from([100, 2000]),
)
def test_bytes_read_are_bytes_delivered_dropped_on_purpose_or_lost(
    producers: ProducerPool,
    broker: DevBroker,
    topics: tuple[str, str],
    tmp_path: Path,
    lines: list[bytes],
    rest: bytes,
    ends: list[int],
    final: bool,
    skip_empty: bool,
    bulk: bool,
    on_too_long: str,
    dlq: str,
    limit: int,
) -> None:
    topic, dead_letters = topics
    path = write(tmp_path / "f", *lines)
    append(path, rest)
    connector = definition(
        broker.bootstrap,
        topic,
        drop="" if bulk else "^drop",
        line={"max_bytes": limit, "on_too_long": on_too_long, "skip_empty": skip_empty},
        errors={"tolerance": "all", **({} if dlq == "none" else {"dlq": {"topic": dead_letters, "include_raw": dlq == "raw"}})},
        client=CLIENT,
    )
    size = path.stat().st_size
    losses: list[Loss] = []
    offset, total = SourceOffset(0), Counts()
    for end in [end for end in ends if end < size] + [size]:
        (result,) = run_batch(batch_of(connector, after(split_of(path, end=end, final=final and end == size), offset)), producers, never)
        assert result.error is None
        offset, total = result.offset, total + result.counts
        losses += result.losses
        assert pickle.loads(pickle.dumps(result)) == result
    expected = place = 0
    for line in path.read_bytes()[: offset.position].split(b"\n"):
        passed = min(len(line) + 1, offset.position - place)
        whole = rest if place + len(line) == size else line
        expected += lost_bytes(whole, passed, limit, on_too_long, dlq)
        place += passed
    assert sum(one.size_bytes for one in losses) == expected
    assert sum(one.records for one in losses if one.reason == "too_long") == total.too_long
    assert all(one.end <= offset.position and one.path == str(path) and one.at_ms for one in losses)


def test_a_file_full_of_bad_records_is_one_entry(producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "f", *[REFUSED] * 300)
    connector = definition(broker.bootstrap, topic, errors={"tolerance": "all"}, client=CLIENT)
    (result,) = run_batch(batch_of(connector, split_of(path)), producers, never)
    (one,) = result.losses
    assert one[1:7] == (str(path), 0, 1101 * 300, 1101 * 300, 300, "rejected")
    assert one.detail.startswith("stage send: ")
    assert result.counts.rejected == 300


def test_good_and_bad_records_in_turn_are_few_entries_with_exact_sums(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "f", *[GOOD, REFUSED, GOOD, LONG] * 500)
    connector = definition(
        broker.bootstrap, topic, line={"max_bytes": 1100, "on_too_long": "drop"}, errors={"tolerance": "all"}, client=CLIENT
    )
    (result,) = run_batch(batch_of(connector, split_of(path)), producers, never)
    assert len(result.losses) <= ENTRIES_MAX
    assert sum(one.size_bytes for one in result.losses) == 500 * 1101
    assert sum(one.records for one in result.losses) == 500


@pytest.mark.parametrize("has_dlq", [True, False])
def test_records_that_kafka_refuses_after_all_are_lost_once_although_their_run_is_sent_again(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, has_dlq: bool
) -> None:
    topic, dlq = make_topic(config={"max.message.bytes": "300"}), make_topic(config={"max.message.bytes": "1000"})
    big = os.urandom(600).hex().encode()
    paths = [write(tmp_path / f"f{n}", b"first", big, b"last") for n in range(3)]
    errors = {"tolerance": "all", **({"dlq": {"topic": dlq}} if has_dlq else {})}
    results = run_batch(batch_of(definition(broker.bootstrap, topic, errors=errors), *map(split_of, paths)), producers, never)
    for result in results:
        (one,) = result.losses
        assert (one.start, one.end, one.size_bytes, one.records, one.reason) == (6, 1207, 1201, 1, "rejected")
    if has_dlq:
        assert {record.value for record in consume(broker.bootstrap, dlq)} == {None}


def test_a_dead_letter_that_was_cut_loses_what_it_does_not_carry(
    producers: ProducerPool, broker: DevBroker, topics: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "RAW_BYTES_CUT", 100)
    path = write(tmp_path / "f", GOOD, REFUSED)
    errors = {"tolerance": "all", "dlq": {"topic": topics[1]}}
    (result,) = run_batch(batch_of(definition(broker.bootstrap, topics[0], errors=errors, client=CLIENT), split_of(path)), producers, never)
    (one,) = result.losses
    assert (one.start, one.end, one.size_bytes, one.records, one.reason) == (105, 1106, 1001, 1, "rejected")


def test_losses_of_several_runs_one_of_them_sent_again_count_once(
    producers: ProducerPool, broker: DevBroker, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "RUN_BYTES", 500)
    refused = os.urandom(600).hex().encode()
    path = write(tmp_path / "f", LONG, GOOD, LONG * 20, LONG, refused, LONG)
    connector = definition(
        broker.bootstrap,
        make_topic(config={"max.message.bytes": "300"}),
        line={"max_bytes": 1300, "on_too_long": "drop"},
        errors={"tolerance": "all"},
    )
    losses: list[Loss] = []
    offset = SourceOffset(0)
    while offset.position < path.stat().st_size:
        (result,) = run_batch(batch_of(connector, after(split_of(path), offset), max_bytes=5000), producers, never)
        assert result.error is None
        offset = result.offset
        losses += result.losses
    assert sorted((one.reason, one.size_bytes, one.records) for one in losses) == [("rejected", 1201, 1), ("too_long", 4001, 1)]


def test_nothing_is_lost_of_a_stretch_that_is_not_settled(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "f", LONG, LONG)
    connector = definition(broker.bootstrap, topic, line={**SHORT, "on_too_long": "truncate"})
    read = SplitFile.read_disk

    def cut(self: SplitFile, position: int, size: int) -> bytes:
        data = read(self, position, size)
        if len(data) > 4:  # more than is looked at to find out about the encoding
            os.truncate(path, 300)
        return data

    monkeypatch.setattr(SplitFile, "read_disk", cut)
    (result,) = run_batch(batch_of(connector, split_of(path)), producers, never)
    assert (result.changed, result.offset.position, result.losses) == (True, 0, ())


def test_the_rest_of_a_long_line_that_comes_later_is_lost_with_it(
    producers: ProducerPool, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "f", b"x" * 1000)
    connector = definition(broker.bootstrap, topic, line={**SHORT, "on_too_long": "truncate"})
    (first,) = run_batch(batch_of(connector, split_of(path, end=300)), producers, never)
    (second,) = run_batch(batch_of(connector, after(split_of(path), first.offset)), producers, never)
    assert [(one.start, one.end, one.records) for one in first.losses + second.losses] == [(100, 300, 1), (300, 1001, 0)]
