"""`jsonl`: each line is a value, and is sent as it stands."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import LongLine, Parsed, Unparsed
from copycat_agent.formats.records import json_values
from copycat_agent.formats.records.json_values import parse, parse_all
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, prefixes, ranges, read_all, resumes
from tests.unit.formats.records.trees import OBJECTS, VALUES, damaged, form

JSONL = form("jsonl")


@st.composite
def files(draw: st.DrawFn) -> tuple[list[Any], bytes]:
    """Values, and a file with a line for each, and perhaps blank ones."""
    values = draw(st.lists(OBJECTS | VALUES, max_size=8))
    data = b""
    for value in values:
        data += draw(st.sampled_from([b"", b"", b"\n", b" \r\n"])) + json.dumps(value, ensure_ascii=draw(st.booleans())).encode()
        data += draw(st.sampled_from([b"\n", b"\r\n", b" \n"]))
    return values, data.rstrip(b"\n") if draw(st.booleans()) else data


@settings(max_examples=examples(60), deadline=None)
@given(files(), st.booleans(), st.integers(1, 5))
def test_any_file_holds_its_values_resumes_at_each_and_can_be_cut(file: tuple[list[Any], bytes], packed: bool, parts: int) -> None:
    values, data = file
    reading = resumes(JSONL, data, packed=packed)
    assert [json.loads(value) if isinstance(value, bytes) else value for value in reading.values] == values
    ranges(JSONL, data, parts)


@settings(max_examples=examples(80), deadline=None)
@given(damaged(files().map(lambda file: file[1])), st.booleans())
def test_any_bytes_are_records_or_bad_records_and_the_same_from_each_place(data: bytes, packed: bool) -> None:
    assert not resumes(JSONL, data, packed=packed).damage


@settings(max_examples=examples(15), deadline=None)
@given(files(), st.data())
def test_a_file_cut_off_holds_no_other_records(file: tuple[list[Any], bytes], data: st.DataObject) -> None:
    good = [value for value in file[0] if isinstance(value, dict)]
    assert good == [value for value in read_all(JSONL, file[1]).values if isinstance(value, dict)]
    sizes = [size for size in data.draw(st.lists(st.integers(0, len(file[1])), max_size=5)) if file[1][size - 1 : size] == b"\n"]
    prefixes(JSONL, file[1], sizes)


def test_a_malformed_line_is_one_bad_record_with_its_bytes_and_blank_lines_are_none() -> None:
    reading = resumes(JSONL, b'\n{"a":1}\r\n  \n{bad\r\n\n{"b":2}')
    assert [type(value) for value in reading.values] == [dict, Unparsed, dict]
    rows = [row for frame in reading.frames if isinstance(frame, Parsed) for row in frame.rows()]
    assert [row.bytes for row in rows] == [b'{"a":1}', b"{bad\r", b'{"b":2}']
    assert [(row.start, row.end) for row in rows] == [(1, 10), (13, 19), (20, 27)]


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b'{"a":1',
        b"\xff\xfe{}",
        b"\0",
        b'"\\ud800"',
        b'{"a":"\xff"}',
        b"[" * 10_000,
        b"NaN",
        b"{'a':1}",
        b'{"a":1}x',
        b"1e",
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_no_json_is_a_bad_record_and_no_crash(line: bytes) -> None:
    reading = resumes(JSONL, b"{}\n" + line + b"\n{}\n")
    assert [type(value) for value in reading.values] == [dict, Unparsed, dict]


def test_a_byte_order_mark_is_no_part_of_the_first_record() -> None:
    assert resumes(JSONL, b'\xef\xbb\xbf{"a":1}\n').values == [{"a": 1}]


def test_another_encoding_is_sent_as_utf_8() -> None:
    (run,) = form("jsonl", encoding="latin-1").frames(Bytes(b'{"a":"\xe9"}\n'), 0, 10)
    assert isinstance(run, Parsed)
    assert (run.values, run.raw) == ([{"a": "é"}], ['{"a":"é"}'.encode()])


def test_raw_is_the_line_as_it_stands_whatever_its_numbers() -> None:
    lines = [b'{"n": 1.10}', b'{"n":1e400}', b'{"n":12345678901234567890123,"n":2}', b"[1, 2]", b'"x"']
    (run,) = read_all(JSONL, b"\n".join(lines) + b"\n").frames
    assert isinstance(run, Parsed)
    assert (run.raw, run.as_is) == (lines, True)


@pytest.mark.parametrize("on_too_long", ["dlq", "drop"])
def test_a_line_over_the_limit_comes_as_its_head(on_too_long: str) -> None:
    reading = resumes(form("jsonl", max_bytes=10, on_too_long=on_too_long), b'{"a":1}\n{"a":"0123456789"}\n{"b":2}\n')
    assert [type(frame) for frame in reading.frames if isinstance(frame, LongLine)] == [LongLine]
    assert reading.values == [{"a": 1}, b'{"a":"0123', {"b": 2}]


def test_cut_json_would_be_none_so_truncate_is_refused() -> None:
    with pytest.raises(ValueError, match="on_too_long"):
        form("jsonl", on_too_long="truncate")


def test_types_are_read_and_then_the_line_is_not_sent_as_it_stands() -> None:
    reading = read_all(form("jsonl", types={"price": "decimal"}), b'{"price":1.10}\n{"price":"2.50"}\n{"price":[]}\n{"price":{}}\n7\n')
    assert reading.values[:3] == [{"price": Decimal("1.1")}, {"price": Decimal("2.50")}, {"price": []}]
    assert [bad.why for bad in reading.bad] == ["field 'price': neither a text, a number nor a boolean"]
    assert reading.values[4] == b"7"
    assert not any(frame.as_is for frame in reading.frames if isinstance(frame, Parsed))


def test_a_field_with_a_type_in_lists_that_are_nested_too_deeply_makes_a_bad_record() -> None:
    deep = b'{"u":' + b"[" * 1000 + b'{"n":"7"}' + b"]" * 1000 + b"}\n"
    reading = read_all(form("jsonl", types={"u.n": "int"}), deep + b'{"u":[[{"n":"7"}]]}\n')
    assert [bad.why for bad in reading.bad] == ["field 'u.n': lists that are nested too deeply"]
    assert reading.values[1] == {"u": [[{"n": 7}]]}


@given(st.lists(VALUES.map(json.dumps).map(str.encode) | st.binary(max_size=20), max_size=5))
def test_many_texts_are_what_each_of_them_is(texts: list[bytes]) -> None:
    assert parse_all(texts) == [parse(text) for text in texts]


def test_only_texts_with_long_numbers_are_read_by_the_slow_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    exact = json_values._exact

    def slow(text: bytes) -> json_values.Value:
        seen.append(text)
        return exact(text)

    monkeypatch.setattr(json_values, "_exact", slow)
    lookalike = [b'{"id": "03e91234-0000", "at": "20260101000000000000.1", "esc": "\\"0e0000"}', b'{"a": 1}']
    numbers = [b'{"a": 1e1000}', b'{"a": 123456789.123456789}', b"[12345678901234567890123]"]
    parse_all([*lookalike, *numbers, *lookalike])
    assert seen == numbers
