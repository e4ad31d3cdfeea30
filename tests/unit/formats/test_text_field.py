"""`multiline.field`: lines of JSON are grouped by the text of one field, and a group is the first line with the texts of all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.formats import Chunk, LineOptions, LongLine, MultilineFrames
from copycat_agent.formats.multiline_options import MultilineOptions
from copycat_agent.options import ValidationError
from tests.unit.formats.test_multiline import Reading

JAVA = ["boom", "java.lang.IllegalStateException: no", "\tat a.B.c(B.java:1)", "Caused by: java.io.IOException: x", "\tat d.E.f(E.java:2)"]


def frames(rule: dict[str, Any] | None = None, line: dict[str, Any] | None = None, *, raw: bool = False, **options: Any) -> MultilineFrames:
    chosen = {"field": "log", "on_too_long": "dlq", **(rule or {"preset": "java"}), **options}
    encoding = chosen.pop("encoding", "utf-8")
    return MultilineFrames(LineOptions(**(line or {})), MultilineOptions(**chosen), encoding=encoding, raw=raw)


def values(data: bytes, found: MultilineFrames) -> list[bytes]:
    """The records of a file that is complete; checks that frames tile it, read at once and in small steps."""
    whole = Reading(data, found)
    whole.step(len(data), final=True)
    small = Reading(data, found)
    for end in range(0, len(data), 7):
        small.step(end, most=1, little=11)
    for _ in range(len(data) + 1):
        small.step(len(data), final=True, most=1, little=11)
    assert small.seen == whole.seen
    assert whole.position == len(data)
    return [_values(data, one.start, one.end, found) for one in whole.seen]


def _values(data: bytes, start: int, end: int, found: MultilineFrames) -> bytes:
    """The value of the record that covers these bytes."""
    frame = next(found.frames(lambda position, size: data[position : position + size], start, end, final=True))
    if isinstance(frame, LongLine):
        return frame.value or b""
    assert isinstance(frame, Chunk)
    return frame.values[0]


def lines(*texts: str, **more: Any) -> bytes:
    return b"".join(json.dumps({"n": number, "log": text, **more}).encode() + b"\n" for number, text in enumerate(texts))


def test_a_trace_over_several_entries_is_one_with_the_fields_of_the_first() -> None:
    first, second = values(lines(*JAVA, "next"), frames())
    assert json.loads(first) == {"n": 0, "log": "\n".join(JAVA)}
    assert json.loads(second) == {"n": 5, "log": "next"}


def test_everything_but_the_text_stays_as_it_stands() -> None:
    data = b'{ "x":1.10, "n": 123456789012345678901234567890,"log" : "a","log":"b\\u00e9" , "e":[1,{"log":"no"}]}\n{"log":"  c \\"d\\""}\n'
    (value,) = values(data, frames({"continues": "^ "}))
    expected = b'{ "x":1.10, "n": 123456789012345678901234567890,"log" : "a","log":"b\xc3\xa9\\n  c \\"d\\"" , "e":[1,{"log":"no"}]}'
    assert value == expected


@pytest.mark.parametrize(
    ("first", "path"),
    [
        ('{"event": {"original": "S", "x": 1}}', "event.original"),
        ('{"event.original": "S"}', "event.original"),
        ('{"event": {"x": 1}, "event.original": "S"}', "event.original"),
    ],
)
def test_a_field_within_another_is_found_as_in_steps(first: str, path: str) -> None:
    (value,) = values(f'{first}\n{{"event": {{"original": " c"}}}}\n'.encode(), frames({"start": "^S"}, field=path))
    assert value.decode() == first.replace('"S"', '"S\\n c"')


def test_a_line_without_the_field_is_its_own_text() -> None:
    data = b'{"log":"S one"}\n plain\r\n{"log":7}\n{"log":"S two"}\nS plain\n{"log":"more"}\n'
    one, two, plain = values(data, frames({"start": "^S"}))
    assert json.loads(one) == {"log": 'S one\n plain\n{"log":7}'}
    assert (two, plain) == (b'{"log":"S two"}', b'S plain\n{"log":"more"}')


def test_lines_of_docker_go_together_as_the_runtime_has_cut_them() -> None:
    entries = [("stdout", "S a"), ("stdout", "b\n"), ("stdout", " c\n"), ("stderr", " d\n"), ("stdout", "S e\n")]
    data = b"".join(json.dumps({"log": text, "stream": stream, "time": "t"}).encode() + b"\n" for stream, text in entries)
    found = [json.loads(one) for one in values(data, frames({"start": "^S"}))]
    assert [(one["stream"], one["log"]) for one in found] == [("stdout", "S ab\n c\n"), ("stderr", " d\n"), ("stdout", "S e\n")]
    parts = [json.loads(one)["log"] for one in values(data, frames({"preset": "container"}))]
    assert parts == ["S ab\n", " c\n", " d\n", "S e\n"]


def test_json_that_stands_behind_what_cri_writes_is_joined_there() -> None:
    head = b"2026-11-21T05:00:00.1Z stdout F "
    data = b"".join(head + line + b"\n" for line in lines(*JAVA).splitlines())
    (value,) = values(data, frames())
    assert value.startswith(head)
    assert json.loads(value[len(head) :]) == {"n": 0, "log": "\n".join(JAVA)}
    parts = data.replace(b" F ", b" P ", 1)
    assert values(parts, frames()) == [parts.removesuffix(b"\n")], "what CRI has cut is put together by the step cri"


@pytest.mark.parametrize("encoding", ["utf-16-le", "latin-1"])
def test_other_encodings_are_joined_as_utf_8(encoding: str) -> None:
    data = '{"log":"S é"}\r\n{"log":" ü"}\r\n'.encode(encoding)
    (frame,) = frames({"start": "^S"}, encoding=encoding).frames(lambda position, size: data[position:][:size], 0, len(data), final=True)
    assert frame.values == ['{"log":"S é\\n ü"}'.encode()]  # type: ignore[union-attr]


def test_of_a_record_over_the_limit_whole_lines_are_joined() -> None:
    data = lines("S", *[f" {number:05}" for number in range(20)], "S next")
    cut, following = values(data, frames({"start": "^S"}, max_bytes=100, on_too_long="truncate"))
    assert json.loads(cut)["log"] == "S\n 00000\n 00001\n 00002"
    assert json.loads(following)["log"] == "S next"


@pytest.mark.parametrize(
    "line", [b'{"log":' + b"[" * 5000, b'{"log":"a","x":' + b"[" * 1500 + b"]" * 1500 + b"}", b'{"log"', b"{", b'{"log":"a"']
)
def test_lines_that_are_no_objects_stay_what_they_are(line: bytes) -> None:
    data = line + b"\n continued\n"
    (value,) = values(data, frames({"continues": "^ "}))
    assert value == data.removesuffix(b"\n")


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=6),
    others=st.dictionaries(st.sampled_from("abc"), st.integers() | st.text(st.characters(codec="utf-8")) | st.lists(st.booleans())),
    is_ascii=st.booleans(),
)
def test_all_texts_come_in_order_whatever_they_hold(texts: list[str], others: dict[str, Any], is_ascii: bool) -> None:
    data = b"".join(json.dumps({**others, "log": f"c{text}"}, ensure_ascii=is_ascii).encode() + b"\n" for text in texts)
    (value,) = values(data, frames({"continues": "^c"}))
    ends = ["" if text.endswith("\n") else "\n" for text in texts]
    expected = "".join(f"c{text}{end}" for text, end in zip(texts, [*ends[:-1], ""], strict=True))
    assert json.loads(value) == {**others, "log": expected}


def test_parts_and_names_that_are_none_are_refused() -> None:
    with pytest.raises(ValidationError, match="cannot go in parts: set on_too_long to dlq, truncate or drop"):
        MultilineOptions(start="^S", field="log")
    with pytest.raises(ValidationError, match="not a field name"):
        MultilineOptions(start="^S", field="a..b", on_too_long="dlq")
