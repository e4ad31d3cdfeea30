"""What stands in the offsets topic: heads and positions come back as they were written, and nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import PositionsError
from copycat_agent.model import Counts, Fingerprint, Head, LaneId, Loss, Position, SourceOffset, SourcePartition, state_partition
from copycat_agent.transactions.entries import FoundEntries, head_entry, partition_of, position_entry, read, transactional_id
from copycat_agent.transactions.protocol import Entry

NAMES = st.text(st.characters(), min_size=1, max_size=20)
"""Names of files are bytes: those that are no UTF-8 have lone surrogates."""
NUMBERS = st.integers(0, 2**70)
STEPS = st.integers(0, 2**63 - 1)
PRINTS = st.builds(Fingerprint, NUMBERS, NAMES, NUMBERS, NAMES)
OFFSETS = st.builds(
    SourceOffset,
    STEPS,
    NUMBERS,
    st.booleans(),
    st.booleans(),
    NAMES,
    NUMBERS,
    NUMBERS,
    PRINTS,
    st.sampled_from(["", "gzip"]),
    NUMBERS,
    NAMES,
)


def losses(partition: SourcePartition) -> st.SearchStrategy[tuple[Loss, ...]]:
    one = st.builds(Loss, st.just(partition), NAMES, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.just("destroyed"), NAMES, NUMBERS)
    return st.lists(one, max_size=2).map(tuple)


@st.composite
def positions(draw: st.DrawFn) -> Position:
    partition = SourcePartition("c", draw(NAMES))
    counts = draw(st.builds(Counts, NUMBERS, NUMBERS, NUMBERS))
    return Position(partition, draw(STEPS), draw(STEPS), draw(OFFSETS), counts, draw(losses(partition)), draw(NAMES))


def at(key: str, offset: int = 5, *, connector: str = "c") -> Entry:
    return position_entry("u", connector, Position(SourcePartition(connector, key), 0, 1, SourceOffset(offset)))


def changed(entry: Entry, **fields: Any) -> Entry:
    return entry._replace(value=json.dumps({**json.loads(entry.value or b""), **fields}).encode())


@given(positions())
def test_a_position_comes_back_as_it_was_whatever_its_file_is_called(position: Position) -> None:
    entry = position_entry("u", "c", position)
    assert read([entry], "u", "c").positions == [position]


@given(NAMES, NAMES, STEPS, STEPS, NAMES)
def test_a_head_comes_back_with_where_it_stands(agent: str, connector: str, number: int, seq: int, nonce: str) -> None:
    entry = head_entry(LaneId(agent, connector, number), Head(seq, nonce))._replace(offset=7)
    assert read([entry], agent, connector).heads == {number: Head(seq, nonce, 7)}


@given(NAMES, NAMES, NAMES, NAMES)
def test_nobody_reads_what_is_somebody_elses(agent: str, connector: str, other_agent: str, other: str) -> None:
    if (agent, connector) == (other_agent, other):
        return
    there = head_entry(LaneId(other_agent, other, 0), Head(1, "n"))
    assert read([there], agent, connector) == FoundEntries({}, [])


@pytest.mark.parametrize(("mine", "theirs"), [("a", "ab"), ("ab", "a"), ("a", 'a"'), ('a", "b', "a"), ("é", "e"), ("a\\", "a"), ("", "a")])
def test_a_name_that_begins_like_another_is_another(mine: str, theirs: str) -> None:
    assert read([at("f", connector=theirs)], "u", mine).positions == []
    assert [one.partition for one in read([at("f", connector=mine)], "u", mine).positions] == [(mine, "f")]


def test_a_file_that_is_forgotten_has_no_position_before_it_is_read_again() -> None:
    forgotten = position_entry("u", "c", Position(SourcePartition("c", "f"), 0, 2, None))
    assert forgotten.value is None
    assert read([at("f", 5), at("g", 6), forgotten], "u", "c").positions == read([at("g", 6)], "u", "c").positions
    assert [one.offset for one in read([at("f", 5), forgotten, at("f", 1)], "u", "c").positions] == [SourceOffset(1)]


def test_a_state_that_an_earlier_version_wrote_and_forgot_is_gone() -> None:
    written = at("started")
    assert [one.partition for one in read([written], "u", "c").positions] == [state_partition("c")]
    assert not read([written, written._replace(value=None)], "u", "c").positions


def test_positions_keep_the_order_of_the_topic() -> None:
    there = read([at("f", 1), at("g", 2), at("f", 3), at("e", 4)], "u", "c").positions
    assert [one.offset for one in there] == list(map(SourceOffset, [1, 2, 3, 4]))


HEAD = head_entry(LaneId("u", "c", 0), Head(1, "n"))


@pytest.mark.parametrize(
    "entry",
    [
        changed(at("f"), v=2), changed(HEAD, v=2), changed(HEAD, v=None),
        HEAD._replace(value=b""), HEAD._replace(value=b"\xff"), HEAD._replace(value=b"[]"), HEAD._replace(value=b"5"),
        HEAD._replace(value=b"[" * 100_000), HEAD._replace(value=b'{"v":1}'),
        changed(HEAD, seq="1"), changed(HEAD, seq=1.0), changed(HEAD, seq=True), changed(HEAD, seq=None),
        changed(HEAD, seq=2**63), changed(HEAD, seq=-1), changed(at("f"), offset={"position": 2**63, "fingerprint": {}}),
        changed(at("f"), seq="1"), changed(at("f"), lane=0.5), changed(at("f"), offset={"position": "5", "fingerprint": {}}),
        changed(at("f"), offset={"position": 5.0, "fingerprint": {}}), changed(at("f"), offset={"position": 5}),
        changed(at("f"), offset={"position": 5, "fingerprint": {}, "colour": "red"}),
        changed(at("f"), losses=[[1]]), changed(at("f"), losses=5),
        Entry(b'["u", "c", "shape", 0]', b"{}"), Entry(b'["u", "c"]', b"{}"), Entry(b'["u", "c", "head", "0"]', HEAD.value),
        Entry(b'["u", "c", "position", 5]', at("f").value), Entry(b'["u", "c" junk', b"{}"), Entry(b'["u", "c", "head", [0]]', HEAD.value),
    ],
    ids=lambda entry: repr(entry.key + (entry.value or b""))[:60],
)  # fmt: skip
def test_what_this_version_did_not_write_is_refused_by_its_offset(entry: Entry) -> None:
    with pytest.raises(PositionsError, match="offset 41 of the offsets topic was written by another version"):
        read([entry._replace(offset=41)], "u", "c")


def test_junk_of_others_is_passed_over() -> None:
    assert read([Entry(b"junk", b"junk"), Entry(b"", None), Entry(b"\xff\x00", b"")], "u", "c") == FoundEntries({}, [])


def test_a_position_says_no_more_than_there_is_to_say() -> None:
    """Thousands of files are in the topic: what is as it always is is left out."""
    assert len(at("f").value or b"") < 110


@given(NAMES, NAMES, st.integers(1, 1000))
def test_a_connector_has_one_place_among_those_there_are(agent: str, connector: str, count: int) -> None:
    assert 0 <= partition_of(agent, connector, count) < count
    assert partition_of(agent, connector, count) == partition_of(agent, connector, count)


def test_steps_alternate_between_two_ids() -> None:
    lane = LaneId("u", "c", 3)
    assert [transactional_id(lane, seq) for seq in (0, 1, 2)] == ["copycat.u.c.3.0", "copycat.u.c.3.1", "copycat.u.c.3.0"]
