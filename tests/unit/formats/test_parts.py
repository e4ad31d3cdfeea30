"""Promises of `on_too_long: split`: the parts of a record are the record, numbered, and the same wherever reading begins anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copycat_agent.formats import Chunk, Frames, Gap, LineFrames, LineOptions, MultilineFrames, MultilineOptions, RecordPart
from copycat_agent.formats.model import RecordCut
from tests.unit.formats.test_multiline import LINES, PATTERNS, RULES, TEXT, Model, cri

if TYPE_CHECKING:
    from collections.abc import Iterable

CHARACTERS = st.text(st.sampled_from("aé表\U0001f600"), max_size=40)


class Seen(NamedTuple):
    """A record (number 0), or a part of one."""

    number: int
    value: bytes
    start: int
    end: int
    is_last: bool = True


class Reading:
    """A task that reads step by step, each from what an offset says after the one before it."""

    def __init__(self, data: bytes, frames: Frames) -> None:
        self.data, self.frames = data, frames
        self.position, self.cut = 0, ""
        self.seen: list[Seen] = []
        self.largest = 0

    def step(self, end: int, *, final: bool = False, flush: bool = False, most: int | None = None, little: int | None = None) -> None:
        def read(position: int, size: int) -> bytes:
            self.largest = max(self.largest, size)
            return self.data[:end][position : position + size]

        how: dict[str, Any] = {"skipping": bool(self.cut), "cut": self.cut, "final": final, "flush": flush, "block_bytes": little}
        for number, frame in enumerate(self.frames.frames(read, self.position, end, **how), 1):
            assert frame.start == self.position, "frames tile the file"
            assert frame.end > frame.start, "each gets ahead"
            assert self.data[: frame.end].endswith(frame.tail), "a fingerprint is taken of the tail"
            assert len(frame.tail) >= min(256, frame.end - frame.start)
            self.position, self.cut = frame.end, ""
            if isinstance(frame, RecordPart):
                self._take(frame)
            elif isinstance(frame, Chunk):
                self.seen += [Seen(0, row.bytes, row.start, row.end) for row in frame.rows()]
            else:
                assert isinstance(frame, Gap), "nothing is passed over"
            if number == most:
                return

    def _take(self, part: RecordPart) -> None:
        self.cut = part.cut.text() if part.cut else ""
        self.seen.append(Seen(part.number, part.value, part.start, part.end, part.is_last))
        before = [one for one in self.seen if one.number == 1][-1]
        assert part.first == (before.start, before.end), "each part says where the first one is"

    def records(self) -> list[tuple[bytes, int, int]]:
        """With their parts put together; each begins with number 1 and has no gap."""
        found: list[tuple[bytes, int, int]] = []
        expected = 1
        for one in self.seen:
            assert one.number in (0, expected), "numbered without a gap"
            if one.number > 1:
                value, start, end = found.pop()
                assert end == one.start
                found.append((value + one.value, start, one.end))
            else:
                found.append((one.value, one.start, one.end))
            expected = 1 if one.is_last else one.number + 1
        return found


def lines_in_parts(max_bytes: int = 10, block_bytes: int = 2**20, *, encoding: str = "utf-8", raw: bool = False) -> LineFrames:
    return LineFrames(LineOptions(max_bytes=max_bytes, on_too_long="split"), block_bytes, encoding=encoding, raw=raw)


def groups(block_bytes: int = 2**20, line_max: int = 10_000, encoding: str = "utf-8", **multiline: Any) -> MultilineFrames:
    return MultilineFrames(LineOptions(max_bytes=line_max), MultilineOptions(**multiline), block_bytes, encoding=encoding)


def read(data: bytes, frames: Frames, stops: Iterable[tuple[int, int | None]] = (), little: int | None = None) -> Reading:
    reading = Reading(data, frames)
    for stop, most in sorted(stops, key=lambda one: one[0]):
        if reading.position < min(stop, len(data)):
            reading.step(min(stop, len(data)), most=most, little=little)
    reading.step(len(data), final=True, little=little)
    assert reading.position == len(data)
    assert not reading.cut
    return reading


STOPS = st.lists(st.tuples(st.integers(0, 900), st.sampled_from([None, 1, 2])), max_size=8)
BLOCKS, LITTLE = st.sampled_from([1, 7, 64, 2**20]), st.sampled_from([None, 1, 50])


def test_a_long_line_goes_in_numbered_parts_cut_at_characters() -> None:
    reading = read("ab\nééééé+\r\ncd\n".encode(), lines_in_parts(5))
    assert [(one.number, one.value.decode(), one.is_last) for one in reading.seen] == [
        (0, "ab", True), (1, "éé", False), (2, "éé", False), (3, "é+", True), (0, "cd", True),
    ]  # fmt: skip


@given(
    st.lists(st.binary(max_size=60).map(lambda line: line.translate(None, b"\n\0") + b"|"), max_size=8),
    st.integers(1, 30),
    STOPS,
    BLOCKS,
    LITTLE,
)
def test_parts_of_lines_are_the_lines_whatever_bytes_they_hold(
    lines: list[bytes], max_bytes: int, stops: list[tuple[int, int | None]], block_bytes: int, little: int | None
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    reading = read(data, lines_in_parts(max_bytes, block_bytes), stops, little)
    assert [value for value, _, _ in reading.records()] == [line.removesuffix(b"\r") for line in lines]
    assert all(len(one.value) <= max(max_bytes, 4) for one in reading.seen)
    assert reading.seen == read(data, lines_in_parts(max_bytes)).seen, "wherever reading begins anew"


@given(
    st.lists(CHARACTERS, max_size=6),
    st.integers(1, 20),
    st.sampled_from(["utf-8", "utf-16-le", "utf-16", "utf-32-be", "gb18030", "shift_jis"]),
    st.booleans(),
    STOPS,
    BLOCKS,
)
def test_each_part_is_text_by_itself(
    texts: list[str],
    max_bytes: int,
    encoding: str,
    raw: bool,
    stops: list[tuple[int, int | None]],
    block_bytes: int,
) -> None:
    texts = [text.encode(encoding, "ignore").decode(encoding) for text in texts]
    data = "".join(text + "\n" for text in texts).encode(encoding)
    reading = read(data, lines_in_parts(max_bytes, block_bytes, encoding=encoding, raw=raw), stops)
    codec = ("utf-16-le" if encoding == "utf-16" else encoding) if raw else "utf-8"
    found = [value.decode(codec) for value, _, _ in reading.records()]
    assert "\n".join(found).removeprefix("\ufeff") == "\n".join(texts)
    for one in reading.seen:
        one.value.decode(codec)


@given(
    LINES,
    st.sampled_from(sorted(PATTERNS)),
    BLOCKS,
    st.sampled_from(
        [(500, 10_000, 10_000), (3, 10_000, 10_000), (1, 10_000, 10_000), (500, 40, 10_000), (4, 60, 20), (3, 7, 40), (500, 90, 13)]
    ),
    STOPS,
    LITTLE,
)
def test_parts_of_a_group_are_the_group_wherever_reading_begins_anew(
    lines: list[bytes], mode: str, block_bytes: int, limits: tuple[int, int, int], stops: list[tuple[int, int | None]], little: int | None
) -> None:
    data, (max_lines, max_bytes, line_max) = b"".join(line + b"\n" for line in lines), limits
    rule: dict[str, Any] = {mode: PATTERNS[mode], "max_lines": max_lines, "max_bytes": max_bytes}
    reading = read(data, groups(block_bytes, line_max, **rule), stops, little)
    whole = Model(mode, 500, 10_000, 10_000).records(data)
    assert reading.records() == [(one.value, one.start, one.end) for one in whole]
    for one in reading.seen:
        assert len(one.value) <= max_bytes + 2
        assert one.value.removesuffix(b"\n").count(b"\n") < max_lines
    fits = [one for one in whole if one.value.count(b"\n") < max_lines and len(one.value) <= max_bytes]
    fits = [one for one in fits if all(len(line.removesuffix(b"\r")) <= line_max for line in one.value.split(b"\n"))]
    assert [one.start for one in reading.seen if not one.number] == [one.start for one in fits], "only what is too long goes in parts"
    assert reading.seen == read(data, groups(2**20, line_max, **rule)).seen


@given(TEXT, RULES, STOPS, st.sampled_from([(3, 10_000), (1, 10_000), (500, 60), (2, 90)]), BLOCKS)
@example([b"Traceback (most recent call last):", b"  File x", b"ValueError: x", b"x"], {"preset": "python"}, [(30, 1)], (1, 10_000), 1)
def test_where_a_group_in_parts_ends_is_where_it_would_end_whole(
    lines: list[bytes], rule: dict[str, Any], stops: list[tuple[int, int | None]], limits: tuple[int, int], block_bytes: int
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    whole = read(data, groups(**rule))
    parts = read(data, groups(block_bytes, max_lines=limits[0], max_bytes=limits[1], **rule), stops)
    assert parts.records() == whole.records()
    assert parts.seen == read(data, groups(max_lines=limits[0], max_bytes=limits[1], **rule)).seen


def test_a_last_part_waits_until_its_group_is_known_to_end() -> None:
    data = b"S\n" + b" c\n" * 5
    reading = Reading(data + b"S\n", groups(start="^S", max_lines=2))
    reading.step(len(data))
    assert [(one.number, one.is_last) for one in reading.seen] == [(1, False), (2, False)], "the third may not be the last"
    reading.step(len(data), flush=True)
    assert [(one.number, one.is_last) for one in reading.seen] == [(1, False), (2, False), (3, True)]


def test_a_line_of_a_mebibyte_and_more_is_read_in_bounded_memory() -> None:
    data = b"x" * 10_000_000 + b"\nshort\n"
    reading = read(data, lines_in_parts(2**20))
    size = 2**20 - 2**14
    assert [len(one.value) for one in reading.seen] == [size] * 9 + [10_000_000 - 9 * size, 5]
    assert reading.largest <= 2**20 + 2**11


def test_a_group_that_never_ends_is_sent_in_bounded_memory() -> None:
    data = b"".join(b"%d never\n" % number for number in range(300_000))
    reading = read(data, groups(ends="END", max_bytes=2**16, max_lines=10_000))
    assert b"".join(one.value for one in reading.seen) + b"\n" == data
    assert max(len(one.value) for one in reading.seen) <= 2**16 + 1


def test_a_hole_ends_a_record_in_parts() -> None:
    data = b"S\n c\n c\n c\n" + bytes(600) + b"S\n"
    reading = read(data, groups(start="^S", max_lines=2))
    assert [(one.number, one.value, one.is_last) for one in reading.seen] == [(1, b"S\n c\n", False), (2, b" c\n c", True), (0, b"S", True)]
    data = b"x" * 25 + bytes(600) + b"y\n"
    assert [(one.number, one.is_last) for one in read(data, lines_in_parts()).seen] == [(1, False), (2, False), (3, True), (0, True)]


def test_lines_of_another_stream_end_a_record_in_parts_after_a_restart_too() -> None:
    out, err = cri("stdout", "P", "a"), cri("stderr", "F", "b")
    data = out * 5 + err + cri("stdout", "F", "c")
    for stops in ((), [(len(out) * 4, 1)], [(len(out) * 5, 2)]):
        reading = read(data, groups(preset="container", max_lines=2), stops)
        assert [(one.number, one.is_last) for one in reading.seen] == [(1, False), (2, False), (3, True), (0, True), (0, True)]


@pytest.mark.parametrize("text", ["", "x", "1 2", "1 5 5 0 0 - 0", "0 0 5 0 0 - 0", "1 0 50 0 0 - 0", "1 -4 5 0 0 - 0", "1 0 5 0 0 -"])
def test_a_cut_that_says_nothing_is_none(text: str) -> None:
    assert RecordCut.parse(text, 40) is None


def test_a_cut_survives_as_text() -> None:
    group = RecordCut(7, 10, 30, in_line=True, table=4, stream="stderr", unfinished=True)
    for cut in (RecordCut(1, 0, 5), group, group._replace(file="fe00:9ac85d:18ece46ab99ed510:0"), group._replace(file="s3://b/a file 1")):
        assert RecordCut.parse(cut.text(), 40) == cut
