"""Runs of NUL bytes that nobody wrote are in no record; those that somebody wrote are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import Frame, Gap, LineFrames
from copycat_agent.formats.holes import OPEN_BYTES
from tests.rig.examples import examples
from tests.unit.formats.reading import File, Reading, Seen, model, options, read_all, values

PIECES = [b"a\n", b"a", b"\n", b"\r", b"\0", bytes(3), bytes(62), bytes(64), bytes(130), bytes(448), bytes(512), bytes(700), b"x" * 30]


@settings(max_examples=examples(500), deadline=None)
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=12),
    delimiter=st.sampled_from(["\n", "\r\n", "aa", "\0", "\0\n"]),
    encoding=st.sampled_from(["utf-8", "latin-1", "utf-16-le", "utf-16-be", "utf-32-be"]),
    max_bytes=st.sampled_from([1, 20, 200, 600, 5000]),
    raw=st.booleans(),
    block_bytes=st.sampled_from([1, 7, 64, 100, 513, 4096]),
    cuts=st.lists(st.integers(0, 4000), max_size=5),
    final=st.booleans(),
)
def test_holes_are_the_same_wherever_reading_begins_and_ends(
    pieces: list[bytes], delimiter: str, encoding: str, max_bytes: int, raw: bool, block_bytes: int, cuts: list[int], final: bool
) -> None:
    data = b"".join(pieces)
    if encoding != "utf-8":
        data = b"".join(piece if not any(piece) else piece.decode().encode(encoding) for piece in pieces)
    line_options = options(delimiter, max_bytes)
    reading = read_all(data, line_options, cuts, encoding=encoding, raw=raw, block_bytes=block_bytes, final=final)
    assert reading.seen == model(data, line_options, encoding, raw=raw, final=final)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (bytes(5) + b"next\n", [("hole", b""), ("line", b"next")]),
        (b"a\n" + bytes(63) + b"b\n", [("line", b"a"), ("line", bytes(63) + b"b")]),
        (b"a\n" + bytes(64) + b"b\n", [("line", b"a"), ("hole", b""), ("line", b"b")]),
        (b"a" + bytes(511) + b"b\n", [("line", b"a" + bytes(511) + b"b")]),
        (b"a" + bytes(512) + b"b\n", [("partial", b"a"), ("hole", b""), ("line", b"b")]),
        (b"a\0b\0\n", [("line", b"a\0b\0")]),
        (b"a\n\0\n\0\n", [("line", b"a"), ("line", b"\0"), ("line", b"\0")]),
        (b"a\n" + bytes(64) + b"\n", [("line", b"a"), ("hole", b""), ("line", b"")]),
    ],
)
def test_a_hole_is_told_by_its_place_and_its_length(data: bytes, expected: list[tuple[str, bytes]], raw: bool) -> None:
    reading = read_all(data, options(max_bytes=1000), raw=raw)
    assert [(one.kind, one.value) for one in reading.seen] == expected


def test_a_hole_that_grows_while_it_is_read_is_one_hole() -> None:
    data = bytes(3000) + b"next\n"
    reading = read_all(data, options(), range(0, 3000, 7), final=True)
    assert reading.seen == [Seen("hole", b"", 0, 3000), Seen("line", b"next", 3000, 3005)]


def test_nothing_is_taken_for_a_hole_as_long_as_it_may_be_filled_in() -> None:
    file = File(b"one\ntw" + bytes(5000))
    reading = Reading(file, LineFrames(options()))
    reading.split(5006)
    assert (values(reading), reading.position) == ([b"one"], 4)
    file.data = b"one\ntwo\nthree\nfour" + bytes(4988)
    reading.split(5006)
    assert values(reading) == [b"one", b"two", b"three"]
    reading.split(5006, final=True)
    assert [(one.kind, one.value) for one in reading.seen[3:]] == [("partial", b"four"), ("hole", b"")]


def test_a_long_hole_at_the_end_does_not_wait() -> None:
    file = File(bytes(OPEN_BYTES - 1))
    reading = Reading(file, LineFrames(options()))
    reading.split(file.size)
    assert reading.position == 0
    file.data += b"\0"
    file.size += 1
    reading.split(file.size)
    assert reading.position == file.size


@pytest.mark.parametrize("end", range(100, 180))
def test_a_hole_that_a_splits_end_cuts_goes_on_in_the_next_split(end: int) -> None:
    data = b"x" * 99 + b"\n" + bytes(70) + b"next\n"
    assert [one.kind for one in read_all(data, options(max_bytes=200), [end]).seen] == ["line", "hole", "line"]


def test_a_hole_ends_an_over_long_line_and_what_follows_is_another_one() -> None:
    data = b"x" * 5000 + bytes(600) + b"next\n"
    for cuts in ([], [3000], [5000], [5100], [5513], [5600], [5601]):
        reading = read_all(data, options(), cuts, block_bytes=64, grows=True)
        assert [(one.kind, one.start, one.end) for one in reading.seen] == [("long", 0, 5000), ("hole", 5000, 5600), ("line", 5600, 5605)]


def test_nul_bytes_within_an_over_long_line_are_part_of_it() -> None:
    data = b"x" * 5000 + bytes(511) + b"y\nnext\n"
    for cuts in ([], [3000], [5000], [5100], [5510], [5511], [5512]):
        reading = read_all(data, options(), cuts, block_bytes=64, grows=True)
        assert [(one.kind, one.start, one.end) for one in reading.seen] == [("long", 0, 5513), ("line", 5513, 5518)]


def test_reading_that_begins_behind_a_hole_is_not_inside_the_line_before_it() -> None:
    data = b"x" * 5000 + bytes(600) + b"next\n"
    frames = LineFrames(options())
    for place in (5512, 5600):
        reading = Reading(File(data), frames)
        reading.position, reading.skipping = place, True
        reading.split(len(data))
        assert values(reading) == [b"next"]
    assert frames.is_line_start(File(data).read, 5600)
    assert not frames.is_line_start(File(data).read, 5000)


class Sparse:
    """A file of `size` NUL bytes and a line, of which nothing is kept."""

    def __init__(self, size: int, line: bytes) -> None:
        self.size = size
        self.line = line
        self.largest = self.read_bytes = 0

    def read(self, position: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        self.read_bytes += size
        nuls = bytes(max(0, min(size, self.size - position)))
        begin = max(0, position - self.size)
        return nuls + self.line[begin : begin + size - len(nuls)]


def test_a_hole_of_any_size_passes_in_bounded_memory_and_time() -> None:
    size = 2 * 2**30
    file = Sparse(size, b"next\n")
    frames, position, found = LineFrames(options()), 0, list[Frame]()
    while position < size + 5:
        for frame in frames.frames(file.read, position, min(size + 5, position + 64 * 2**20)):
            found.append(frame)
            position = frame.end
    assert all(isinstance(frame, Gap) for frame in found[:-1])
    assert (found[-2].end, found[-1].start, found[-1].end) == (size, size, size + 5)
    assert file.largest <= 2**20
    assert file.read_bytes < size * 1.1, "nothing is looked at twice"


def test_many_small_holes_do_not_make_it_read_the_file_again_and_again() -> None:
    data = (bytes(64) + b"x\n") * 5000
    file = Sparse(0, data)
    frames = list(LineFrames(options()).frames(file.read, 0, len(data)))
    assert sum(isinstance(frame, Gap) for frame in frames) == 5000
    assert file.read_bytes < 5000 * 20_000
