"""Which lines are one record: `MultilineFrames` against a simple model, and the presets on what runtimes really print."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.formats import Chunk, Frame, LineOptions, LongLine, SkippedRest
from copycat_agent.formats.grouping import start
from copycat_agent.formats.multiline import MultilineFrames
from copycat_agent.formats.multiline_options import MultilineOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

PATTERNS = {"start": "^S", "continues": "^[ c]", "ends": r";$|^END"}
LINES = st.lists(
    st.sampled_from(
        [b"S", b"S one\r", b" c", b"c two", b"end;", b"END", b"", b"\r", b"x", b"S" * 30, b" long" * 9, b"y" * 29 + b";", "Sä ü;".encode()]
    ),
    max_size=40,
)


class Seen(NamedTuple):
    """One record, or of one that is too long the head; and the bytes of the file it covers."""

    kind: Literal["record", "long", "partial"]
    value: bytes
    start: int
    end: int


class Reading:
    """A task that reads a file step by step, each from where the one before it settled. Checks that frames tile the file."""

    def __init__(self, data: bytes, frames: MultilineFrames) -> None:
        self.data = data
        self.frames = frames
        self.position = 0
        self.skipping = False
        self.seen: list[Seen] = []
        self.largest = 0

    def step(self, end: int, *, final: bool = False, flush: bool = False, most: int | None = None, little: int | None = None) -> None:
        """Read what is there up to byte `end`, no more than `most` frames."""

        def read(position: int, size: int) -> bytes:
            self.largest = max(self.largest, size)
            return self.data[:end][position : position + size]

        found = self.frames.frames(read, self.position, end, skipping=self.skipping, final=final, flush=flush, block_bytes=little)
        for number, frame in enumerate(found, 1):
            self._take(frame)
            if number == most:
                return

    def _take(self, frame: Frame) -> None:
        assert frame.start == self.position, "frames tile the file"
        covered = self.data[frame.start : frame.end]
        assert covered[-256:] == frame.tail[-256:], "a fingerprint is taken of the tail"
        self.position = frame.end
        if isinstance(frame, Chunk):
            assert not self.skipping
            rows = list(frame.rows())
            assert [row.value for row in rows] == frame.values
            kind: Literal["record", "partial"] = "partial" if frame.partial else "record"
            self.seen += [Seen(kind, row.bytes, row.start, row.end) for row in rows]
        elif isinstance(frame, LongLine):
            assert not self.skipping
            self.seen.append(Seen("long", frame.head, frame.start, frame.end))
            self.skipping = not frame.complete
        elif isinstance(frame, SkippedRest):
            assert self.skipping
            self.seen[-1] = self.seen[-1]._replace(end=frame.end)
            self.skipping = not frame.complete


class Model:
    """The records of a whole file. `ended` are positions where a group was ended by time."""

    def __init__(self, mode: str, max_lines: int, max_bytes: int, line_max: int, ended: Sequence[int] = ()) -> None:
        self.mode = mode
        self.limits = max_lines, max_bytes, line_max
        self.ended = set(ended)

    def is_begin(self, before: bytes | None, line: bytes) -> bool:
        """Whether `line` begins a group; `before` is the line above it."""
        found = re.search(PATTERNS[self.mode].encode(), line.removesuffix(b"\r"))
        if self.mode == "ends":
            assert before is not None
            above = before.removesuffix(b"\r")
            tested = above if len(above) <= self.limits[2] else (before + b"\n")[-256:-1].removesuffix(b"\r")
            return re.search(PATTERNS["ends"].encode(), tested) is not None
        if len(line.removesuffix(b"\r")) > self.limits[2]:
            found = re.search(PATTERNS[self.mode].encode(), line[: self.limits[2]])
        return (found is not None) is (self.mode == "start")

    def records(self, data: bytes) -> list[Seen]:
        """All of them, the last one too."""
        seen: list[Seen] = []
        group: list[bytes] = []
        before: bytes | None = None
        skipping = False
        start = position = 0
        for line in data.split(b"\n")[:-1]:
            after = position + len(line) + 1
            is_forced = position in self.ended and not skipping
            if before is not None and (is_forced or self.is_begin(before, line)):
                if not skipping:
                    seen.append(self._record(group, start, position))
                group, start, skipping = [], position, False
            group.append(line)
            if not skipping and self._is_over(group):
                seen.append(Seen("long", self._head(group), start, after))
                skipping = True
            elif skipping:
                seen[-1] = seen[-1]._replace(end=after)
            before, position = line, after
        if group and not skipping:
            seen.append(self._record(group, start, position))
        return seen

    def _record(self, group: list[bytes], start: int, end: int) -> Seen:
        return Seen("record", b"\n".join(group).removesuffix(b"\r"), start, end)

    def _is_over(self, group: list[bytes]) -> bool:
        most_lines, most_bytes, line_max = self.limits
        value = b"\n".join(group).removesuffix(b"\r")
        return len(group) > most_lines or len(value) > most_bytes or len(group[-1].removesuffix(b"\r")) > line_max

    def _head(self, group: list[bytes]) -> bytes:
        most_lines, most_bytes, line_max = self.limits
        is_long = len(group[-1].removesuffix(b"\r")) > line_max
        lines = [*group[:-1], whole_characters(group[-1][:line_max])] if is_long else group
        return whole_characters(b"\n".join(lines[:most_lines])[:most_bytes])


def whole_characters(text: bytes) -> bytes:
    """Without one that is cut at its end."""
    return text.decode("utf-8", "ignore").encode()


def frames(
    block_bytes: int = 2**20, *, line: dict[str, Any] | None = None, encoding: str = "utf-8", raw: bool = False, **multiline: Any
) -> MultilineFrames:
    options = MultilineOptions(**{"on_too_long": "dlq", **multiline})
    return MultilineFrames(LineOptions(**(line or {})), options, block_bytes, encoding=encoding, raw=raw)


def records(data: bytes, how: MultilineFrames) -> list[bytes]:
    reading = Reading(data, how)
    reading.step(len(data), final=True)
    assert reading.position == len(data)
    return [one.value for one in reading.seen]


@given(
    LINES,
    st.sampled_from(sorted(PATTERNS)),
    st.sampled_from([1, 7, 64, 2**20]),
    st.sampled_from([(500, 10_000, 10_000), (3, 10_000, 10_000), (500, 40, 10_000), (4, 60, 20)]),
    st.lists(st.tuples(st.integers(0, 900), st.booleans(), st.sampled_from([None, 1, 2])), max_size=8),
    st.sampled_from([None, 1, 50]),
)
def test_groups_are_the_model_s_wherever_reading_stops_begins_anew_and_times_out(
    lines: list[bytes],
    mode: str,
    block_bytes: int,
    limits: tuple[int, int, int],
    steps: list[tuple[int, bool, int | None]],
    little: int | None,
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    line_max, rule = {"max_bytes": limits[2]}, dict[str, Any]({mode: PATTERNS[mode]})
    reading = Reading(data, frames(block_bytes, line=line_max, max_lines=limits[0], max_bytes=limits[1], **rule))
    ended: list[int] = []
    for stop, flush, most in sorted(steps, key=lambda step: step[0]):
        end = min(stop, len(data))
        if end > reading.position:
            reading.step(end, flush=flush, most=None if flush else most, little=little)
            if flush and not reading.skipping:
                ended.append(reading.position)
    reading.step(len(data), little=little)
    reading.step(len(data), flush=True)
    assert reading.position == len(data)
    assert reading.seen == Model(mode, *limits, ended).records(data)


STAMP = b"2026-01-01T00:00:00Z "
CHAIN = b"During handling of the above exception, another exception occurred:"
TEXT = st.lists(
    st.sampled_from(
        [
            *(b"2026 INFO x", b"java.lang.FooException: x", b"\tat a.b.C(D.java:1)", b"Caused by: x"),
            *(b"Traceback (most recent call last):", b"  File x", b"ValueError: x", b"", CHAIN, b"z" * 50, b"{"),
            *(STAMP + b"stdout F S one", STAMP + b"stderr F two", STAMP + b"stdout P \tat th", STAMP + b"stdout F ree;"),
            b'{"log":"S four\\n","stream":"stdout","time":"x"}',
        ]
    ),
    max_size=40,
)
RULES = st.sampled_from(
    [{"preset": "java"}, {"preset": "python"}, {"preset": "indented"}, {"start": "^S"}, {"continues": "^[^2]"}, {"ends": ";$"}]
)


@given(
    TEXT,
    RULES,
    st.sampled_from([1, 7, 64]),
    st.sampled_from([(500, 10_000), (2, 10_000), (500, 90)]),
    st.lists(st.integers(0, 1500), max_size=8),
)
def test_what_is_one_record_does_not_depend_on_how_it_is_read(
    lines: list[bytes], rule: dict[str, Any], block_bytes: int, limits: tuple[int, int], ends: list[int]
) -> None:
    data = b"".join(line + b"\n" for line in lines) + b"rest"
    at_once, by_steps = (Reading(data, frames(size, max_lines=limits[0], max_bytes=limits[1], **rule)) for size in (2**20, block_bytes))
    for end in sorted(ends):
        if by_steps.position < end:
            by_steps.step(min(end, len(data)), most=2)
    for reading in (at_once, by_steps):
        reading.step(len(data), final=True)
        assert reading.position == len(data)
    assert by_steps.seen == at_once.seen


JAVA = b"""2026-11-21 05:00:00 ERROR [main] c.e.Shop - order failed
java.lang.IllegalStateException: no stock
\tat c.e.Shop.order(Shop.java:42) ~[shop.jar:?]
\tat c.e.Shop$Inner.lambda$run$0(Shop.java:7)
\tSuppressed: java.io.IOException: closed
\t\tat c.e.Pool.close(Pool.java:3)
\t\t... 2 more
Caused by: java.sql.SQLException: deadlock
\tat c.e.Db.query(Db.java:9)
\t... 12 common frames omitted
2026-11-21 05:00:01 INFO  [main] c.e.Shop - next
Exception in thread "worker-1" java.lang.NullPointerException
\tat c.e.Worker.run(Worker.java:5)
java.lang.OutOfMemoryError: Java heap space
java.lang.StackOverflowError
\tat c.e.Deep.dive(Deep.java:1)
"""
PYTHON = b"""ERROR:shop:order failed
Traceback (most recent call last):
  File "shop.py", line 4, in order
    db.query()
    ~~~~~~~~^^
KeyError: 'id'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "shop.py", line 6, in order
    raise shop.errors.OrderError(1) from None
shop.errors.OrderError: 1
INFO:shop:next
  indented, of no traceback
Traceback (most recent call last):
  File "shop.py", line 9, in <module>
KeyboardInterrupt
ERROR: boom
  + Exception Group Traceback (most recent call last):
  |   File "x.py", line 1, in <module>
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: 1
    +------------------------------------
INFO: next
"""


def firsts(data: bytes, preset: str) -> list[tuple[bytes, int]]:
    """First line and number of lines of each record."""
    return [(value.split(b"\n")[0], value.count(b"\n") + 1) for value in records(data, frames(preset=preset))]


def test_a_java_stack_trace_belongs_to_the_line_that_logs_it() -> None:
    assert firsts(JAVA, "java") == [
        (b"2026-11-21 05:00:00 ERROR [main] c.e.Shop - order failed", 10),
        (b"2026-11-21 05:00:01 INFO  [main] c.e.Shop - next", 3),  # what is printed without a log line goes to the one above
        (b"java.lang.OutOfMemoryError: Java heap space", 1),
        (b"java.lang.StackOverflowError", 2),
    ]


def test_a_python_traceback_is_one_record_with_its_chain_and_its_exception() -> None:
    assert firsts(PYTHON, "python") == [
        (b"ERROR:shop:order failed", 13),
        (b"INFO:shop:next", 1),
        (b"  indented, of no traceback", 1),
        (b"Traceback (most recent call last):", 3),
        (b"ERROR: boom", 7),
        (b"INFO: next", 1),
    ]


def test_indented_lines_belong_to_the_line_above_them() -> None:
    data = b"a\n b\n\tc\n\nd\n"
    assert records(data, frames(preset="indented")) == [b"a\n b\n\tc", b"", b"d"]
    assert records(data, frames(preset="indented", line={"skip_empty": True})) == [b"a\n b\n\tc", b"d"]


def test_empty_lines_within_a_group_stay() -> None:
    assert records(b"S\n\n\nx\nS\n", frames(start="^S", line={"skip_empty": True})) == [b"S\n\n\nx", b"S"]


def cri(stream: str, tag: str, message: str) -> bytes:
    return f"2026-11-21T05:00:00.123456789Z {stream} {tag} {message}\n".encode()


def test_patterns_look_at_the_message_inside_a_cri_line_and_its_parts_stay_together() -> None:
    first = cri("stdout", "P", "S on") + cri("stdout", "F", "Se") + cri("stdout", "F", " more")
    other = cri("stderr", "F", " of another stream")
    second = cri("stdout", "F", "S two") + b"not wrapped\n"
    third = b"S not wrapped\n"
    assert records(first + other + second + third, frames(start="^S")) == [
        part.removesuffix(b"\n") for part in (first, other, second, third)
    ]


def test_a_part_of_a_cri_line_ends_no_group() -> None:
    data = cri("stdout", "F", "a") + cri("stdout", "P", "b;") + cri("stdout", "F", "c;") + cri("stdout", "F", "d")
    assert [value.count(b"\n") for value in records(data, frames(ends=";$"))] == [2, 0]


def test_patterns_look_at_the_message_inside_docker_s_json() -> None:
    lines = [
        b'{"log":"S \\u0041 \\"one\\"\\n","stream":"stdout","time":"x"}',
        b'{"log":"\\tat x(Y)","stream":"stdout","attrs":{"a":"b"},"time":"x"}',
        b'{"log":"S goes on\\n","stream":"stdout","time":"x"}',
        b'{"log":"S two\\n","stream":"stdout","time":"x"}',
        b'{"log":"\\q","stream":"stdout","time":"x"}',
    ]
    assert [value.split(b"\n") for value in records(b"\n".join(lines), frames(start="^S ."))] == [lines[:3], lines[3:]]


def test_the_stream_is_known_after_a_restart_within_a_group_that_was_cut() -> None:
    lines = [cri("stdout", "F", text) for text in ("S", "a", "b", "c")] + [cri("stderr", "F", "x"), cri("stdout", "F", "S")]
    data = b"".join(lines)
    reading = Reading(data, frames(1, start="^S", max_lines=2))
    reading.step(len(b"".join(lines[:4])))
    assert reading.skipping
    reading.step(len(data), flush=True)
    assert [one.value.split()[-1] for one in reading.seen] == [b"a", b"x", b"S"]


def test_patterns_see_text_whatever_the_encoding_and_may_hold_any_letters() -> None:
    text = "Ä eins\nzwei\nÄ drei\n"
    assert records(text.encode(), frames(start="^[ÄÖ] ")) == ["Ä eins\nzwei".encode(), "Ä drei".encode()]
    for name in ("utf-16-le", "latin-1"):
        encoded = text.encode(name)
        assert records(encoded, frames(start=r"^\w ", encoding=name)) == ["Ä eins\nzwei".encode(), "Ä drei".encode()]
        assert records(encoded, frames(start=r"^\w ", encoding=name, raw=True)) == ["Ä eins\nzwei".encode(name), "Ä drei".encode(name)]


def test_a_last_line_without_end_belongs_to_its_group_when_nobody_will_finish_it() -> None:
    reading = Reading(b"S\n a\nb", frames(start="^S"))
    reading.step(6)
    assert not reading.seen
    reading.step(6, flush=True)
    assert reading.seen == [Seen("record", b"S\n a", 0, 5)]
    again = Reading(b"S\n a\nb", frames(start="^S"))
    again.step(6, final=True)
    assert again.seen == [Seen("partial", b"S\n a\nb", 0, 6)]


def test_lines_of_an_earlier_block_count_for_the_limit() -> None:
    assert records(b"S\na\nb\nS\n", frames(4, start="^S", max_lines=2)) == [b"S\na", b"S"]
    assert records(b"S\na\nb\nS\n", frames(4, start="^S", max_lines=3)) == [b"S\na\nb", b"S"]


def test_a_hole_ends_a_group() -> None:
    data = b"S\n a\n" + bytes(4096) + b" b\nS\n"
    reading = Reading(data, frames(start="^S"))
    reading.step(len(data), final=True)
    assert [one.value for one in reading.seen] == [b"S\n a", b" b", b"S"]


def test_a_group_that_never_ends_is_read_in_bounded_memory() -> None:
    data = b"x" * 99 + b"\n"
    data *= 50_000
    reading = Reading(data, frames(4096, start="^S", line={"max_bytes": 1000}))
    reading.step(len(data))
    assert reading.largest <= 2**15
    assert [(one.kind, len(one.value), one.end) for one in reading.seen] == [("long", 500 * 100 - 1, len(data))]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({}, "exactly one of"), ({"start": "a", "ends": "b"}, "exactly one of"), ({"start": "("}, "not a regular expression"),
     ({"preset": "go"}, "java")],
)  # fmt: skip
def test_options_say_one_thing(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MultilineOptions(**wrong)


@pytest.mark.parametrize("letter", [b"a", "ä".encode()])
def test_patterns_see_a_bounded_part_of_a_very_long_line(letter: bytes) -> None:
    blank = letter + b" " * 2**19 + letter
    assert MultilineOptions(start=r";").rule().marks([blank + b";", b";" + blank]).kinds == [0, 1]
    (slow,) = MultilineOptions(ends=r"\s+;$").rule().marks([blank]).kinds  # all of it would take hours
    assert slow == 0
    assert MultilineOptions(ends=r";$").rule().marks([blank + b";", b";" + blank]).kinds == [1, 0]
    assert MultilineOptions(ends=r"^ ").rule().marks([blank]).kinds == [0], "the middle is no beginning"
    assert MultilineOptions(start=r"^" + letter.decode()).rule().marks([blank]).kinds == [1]


@pytest.mark.timeout(60)
def test_a_pattern_that_takes_too_long_on_line_after_line_holds_up_no_block() -> None:
    lines = [b"a" * 60 + b"b"] * 400 + [b"aaa"]
    begin = time.thread_time()
    assert start("^(?:a|aa)+$").marks(lines).kinds == [0] * 400 + [1]
    assert time.thread_time() - begin < 20  # 400 times the time-out of one match would be 40 s
