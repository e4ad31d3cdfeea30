"""`binary`: whole files and chunks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import LongLine, Parsed
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, ranges, read_all, resumes
from tests.unit.formats.records.trees import form


def test_6000_bytes_in_chunks_of_4096_are_4096_and_1904() -> None:
    data = bytes(range(250)) * 24
    reading = resumes(form("binary", chunk=4096), data)
    assert [len(value) for value in reading.values] == [4096, 1904]
    assert b"".join(reading.values) == data


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=60), st.integers(1, 70), st.booleans(), st.integers(1, 4))
def test_chunks_are_the_file_resume_at_each_and_can_be_cut(data: bytes, chunk: int, packed: bool, parts: int) -> None:
    reading = resumes(form("binary", chunk=chunk), data, packed=packed)
    assert reading.values == [data[place : place + chunk] for place in range(0, len(data), chunk)]
    ranges(form("binary", chunk=chunk), data, parts)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("data", [b"\0" * 3000, b"x", b""])
def test_a_whole_file_is_one_record_and_an_empty_one_none(data: bytes, packed: bool) -> None:
    assert resumes(form("binary"), data, packed=packed).values == [data] * bool(data)
    assert ranges(form("binary"), data, 3) == 1


def test_a_file_over_the_limit_comes_as_its_head_and_is_never_kept_whole() -> None:
    file = Bytes(b"0123456789" * 500_000)
    (frame,) = form("binary", max_bytes=8).frames(file, 0, 2**62)
    assert isinstance(frame, LongLine)
    assert (frame.head, frame.end, frame.complete) == (b"01234567", 5_000_000, True)
    assert file.largest <= 2**20


def test_what_is_not_final_waits_for_whole_chunks() -> None:
    frames = list(form("binary", chunk=4).frames(Bytes(b"0123456789"), 0, 10, final=False))
    assert [frame.values for frame in frames if isinstance(frame, Parsed)] == [[b"0123", b"4567"]]
    assert list(form("binary").frames(Bytes(b"0123456789"), 0, 10, final=False)) == []
    assert read_all(form("binary", chunk=4), b"0123456789", start=8).values == [b"89"]
