"""Where lines begin and end: `LineFrames` against a model that has the whole file at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import LineFrames, LongLine, SkippedRest
from tests.rig.examples import examples
from tests.unit.formats.reading import File, Reading, Seen, model, options, read_all


@settings(max_examples=examples(600), deadline=None)
@given(
    data=st.lists(st.sampled_from([b"a", b"b", b"\r", b"\n", b"\x00", b"\xc3", b"aaaa", b"\r\n", b"ab"]), max_size=60).map(b"".join),
    delimiter=st.sampled_from(["\n", "\r\n", "a", "aa", "ab", "aba", "\n\n", "\x00"]),
    max_bytes=st.integers(1, 20),
    skip_empty=st.booleans(),
    block_bytes=st.integers(1, 40),
    cuts=st.lists(st.integers(0, 120), max_size=8),
    final=st.booleans(),
)
def test_any_bytes_in_any_splits_and_blocks_are_the_lines_of_the_whole_file(
    data: bytes, delimiter: str, max_bytes: int, skip_empty: bool, block_bytes: int, cuts: list[int], final: bool
) -> None:
    line_options = options(delimiter, max_bytes, skip_empty=skip_empty)
    reading = read_all(data, line_options, cuts, block_bytes=block_bytes, final=final)
    assert reading.seen == model(data, line_options, final=final)


@settings(max_examples=examples(200), deadline=None)
@given(
    lines=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20),
    rest=st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")),
    cuts=st.lists(st.integers(0, 600), max_size=8),
)
def test_a_file_that_is_done_is_covered_to_its_last_byte(lines: list[bytes], rest: bytes, cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines) + rest
    assert read_all(data, options(), cuts, block_bytes=16, final=True).position == len(data)


def test_a_line_in_pieces_is_one_line() -> None:
    reading = Reading(File(b"hello world\n"), LineFrames(options(max_bytes=100)))
    reading.split(9)
    assert (reading.position, reading.seen) == (0, [])
    reading.split(12)
    assert reading.seen == [Seen("line", b"hello world", 0, 12)]


@pytest.mark.parametrize(("skip_empty", "values"), [(False, [b"a", b"", b"b", b"", b""]), (True, [b"a", b"b"])])
def test_empty_lines_are_records_or_passed_over_and_never_hold_up(skip_empty: bool, values: list[bytes]) -> None:
    reading = read_all(b"a\n\nb\n\n\n", options(skip_empty=skip_empty))
    assert [one.value for one in reading.seen] == values
    assert reading.position == 7


def test_a_cr_is_part_of_the_default_delimiter_only_just_before_it() -> None:
    assert [one.value for one in read_all(b"l1\nl2\rl2\nl3\r\n\r\n", options()).seen] == [b"l1", b"l2\rl2", b"l3", b""]


def test_another_delimiter_leaves_cr_alone() -> None:
    assert [one.value for one in read_all(b"a\r;b\n;", options(";")).seen] == [b"a\r", b"b\n"]


@pytest.mark.parametrize("line", [b"x" * 10 + b"\n", b"x" * 10 + b"\r\n"])
def test_a_line_of_exactly_the_limit_passes_whole(line: bytes) -> None:
    assert read_all(line, options()).seen == [Seen("line", b"x" * 10, 0, len(line))]


def test_a_line_of_one_byte_more_is_too_long() -> None:
    assert read_all(b"x" * 11 + b"\nnext\n", options()).seen == [Seen("long", b"x" * 10, 0, 12), Seen("line", b"next", 12, 17)]


def test_the_rest_of_a_long_line_that_comes_later_belongs_to_it() -> None:
    data = b"x" * 50 + b"\nnext\n"
    reading = Reading(File(data), LineFrames(options()))
    for end in (20, 30, 45):
        reading.split(end)
        assert reading.skipping
        assert reading.position == end
    reading.split(len(data))
    assert reading.seen == [Seen("long", b"x" * 10, 0, 51), Seen("line", b"next", 51, 56)]


def test_a_half_delimiter_at_the_end_of_a_long_line_is_waited_for() -> None:
    data = b"x" * 30 + b"\r\nnext\r\n"
    reading = Reading(File(data), LineFrames(options("\r\n")))
    reading.split(31)
    reading.split(len(data))
    assert [one.value for one in reading.seen] == [b"x" * 10, b"next"]


def test_memory_is_bounded_by_the_limit_whatever_the_line() -> None:
    file = File(b"x" * 3 * 2**20)
    reading = Reading(file, LineFrames(options(max_bytes=4096), 2**16))
    reading.split(len(file.data))
    assert file.largest <= 2**16
    assert [(one.kind, len(one.value), one.end) for one in reading.seen] == [("long", 4096, len(file.data))]


def test_a_block_is_read_once_however_many_of_its_lines_are_too_long() -> None:
    calls: list[int] = []
    data = (b"x" * 20 + b"\nshort\n") * 500

    def read(position: int, size: int) -> bytes:
        calls.append(size)
        return data[position : position + size]

    frames = list(LineFrames(options()).frames(read, 0, len(data)))
    assert sum(isinstance(frame, LongLine) for frame in frames) == 500
    assert calls[1:] == [len(data)], "after a look for a byte order mark"


def test_nothing_is_yielded_beyond_a_file_that_shrank() -> None:
    file = File(b"one\ntwo\nthree\n")
    file.size = 6
    reading = Reading(file, LineFrames(options()))
    reading.split(14)
    assert [one.value for one in reading.seen] == [b"one"]


def test_a_skipped_rest_without_its_end_says_so() -> None:
    (frame,) = LineFrames(options()).frames(File(b"x" * 40).read, 10, 40, skipping=True)
    assert isinstance(frame, SkippedRest)
    assert not frame.complete
