"""`json`: arrays and values one behind the other, from any place, in any blocks, damaged or not."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import LongLine, Parsed, Unparsed
from copycat_agent.formats.records import build_format
from copycat_agent.formats.records.json_format import JsonFileOptions, JsonFormat
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, prefixes, read_all, resumes
from tests.unit.formats.records.trees import BLANKS, OBJECTS, VALUES, damaged, form, small_reads, written

if TYPE_CHECKING:
    from collections.abc import Sequence

JSON = form("json")


@st.composite
def files(draw: st.DrawFn, values: st.SearchStrategy[Any] = OBJECTS | VALUES) -> tuple[list[Any], bytes]:
    """Values, and a file that holds them as an array or one behind the other."""
    found = draw(st.lists(values, max_size=6))
    texts = [draw(written(value)) for value in found]
    blanks = [draw(BLANKS) for _ in range(2 * len(texts) + 4)]
    if draw(st.booleans()):
        inner = ",".join(blanks.pop() + text + blanks.pop() for text in texts)
        return found, f"{blanks[0]}[{inner}{blanks[1]}]{blanks[2]}".encode()
    return found, "".join(blanks.pop() + text + (blanks.pop() or "\n") for text in texts).encode()


def plain(values: Sequence[Any]) -> list[Any]:
    """Records as what they stand for."""
    return [json.loads(value) if isinstance(value, bytes) else value for value in values]


@settings(max_examples=examples(100), deadline=None)
@given(files(), st.booleans(), st.sampled_from([1, 2, 7, 4096]))
def test_any_file_holds_its_values_and_resumes_at_each(file: tuple[list[Any], bytes], packed: bool, size: int) -> None:
    values, data = file
    if len(values) == 1 and isinstance(values[0], list) and not data.lstrip().startswith(b"[["):
        values = values[0]  # an array alone is the file's
    with small_reads(size):
        reading = resumes(JSON, data, packed=packed)
    first = data.lstrip()[:1]
    if first == b"[" and not is_array_of(values, data):
        return  # arrays one behind the other: their elements are the records, see below
    assert plain(reading.values) == values
    assert not reading.damage


def is_array_of(values: list[Any], data: bytes) -> bool:
    try:
        return bool(json.loads(data) == values)
    except ValueError:
        return False


@settings(max_examples=examples(120), deadline=None)
@given(damaged(files().map(lambda file: file[1])), st.booleans(), st.sampled_from([1, 2, 7, 4096]), st.sampled_from([8, 2**20]))
def test_any_bytes_are_records_bad_records_or_damage_and_the_same_from_each_place(
    data: bytes, packed: bool, size: int, max_bytes: int
) -> None:
    with small_reads(size):
        resumes(form("json", max_bytes=max_bytes), data, packed=packed)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_an_escape_across_two_reads_ends_no_string(size: int) -> None:
    data = b'[{"a":"' + b'\\"x' * 20 + b'\\\\"},{"b":2}]'
    with small_reads(size):
        assert resumes(form("json", max_bytes=9), data).values == [data[1:10], {"b": 2}]


@settings(max_examples=examples(20), deadline=None)
@given(files(OBJECTS), st.data())
def test_a_file_cut_off_holds_no_other_records(file: tuple[list[Any], bytes], data: st.DataObject) -> None:
    prefixes(JSON, file[1], data.draw(st.lists(st.integers(0, len(file[1])), max_size=5)))


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b'{"a":1}{"a":2}\n\n  {"a":3}', [{"a": 1}, {"a": 2}, {"a": 3}]),
        (b'[{"a":1}]\n[{"a":2}][]', [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf[{"a":1}]', [{"a": 1}]),
        (b'\x1e{"a":1}\n\x1e{"a":2}\n', [{"a": 1}, {"a": 2}]),
        (b'[1,"x",null,[2],{}]', [b"1", b'"x"', b"null", b"[2]", {}]),
        (b"[]", []),
        (b"", []),
        (b" \n ", []),
        (b"7", [b"7"]),
    ],
)
def test_what_is_a_record(data: bytes, values: list[Any]) -> None:
    reading = resumes(JSON, data)
    assert (reading.values, reading.damage) == (values, "")


@pytest.mark.parametrize(
    ("data", "good", "words"),
    [
        (b'[{"a":1},{"b":2}', 2, "the file ends inside its array, at byte 16"),
        (b'[{"a":1},{"b":', 1, "the file ends inside the record that begins at byte 9"),
        (b'[{"a":1},', 1, "the file ends inside its array, at byte 9"),
        (b'[{"a":1} {"b":2}]', 1, "neither a comma nor the array's end stands at byte 9"),
        (b"[[1],[2]", 2, "the file ends inside its array, at byte 8"),
        (b'[{"a":1}] x', 1, "something else stands behind the array, at byte 10"),
        (b'[{"a":1},]', 1, "no JSON value begins at byte 9"),
        (b'{"a":1},{"b":2}', 1, "no JSON value begins at byte 7"),
        (b"\xff\xfe[\0", 0, "the file is UTF-16 or UTF-32"),
    ],
)
def test_a_broken_structure_is_damage_behind_the_records_before_it(data: bytes, good: int, words: str) -> None:
    reading = resumes(JSON, data)
    assert (len(reading.seen), reading.damage) == (good, words)


@pytest.mark.parametrize(
    "bad", [b'{"a":01}', b"{a:1}", b'{"a":1]', b"nul", b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":NaN}', b'"\x01"', b"\0"]
)
def test_a_bad_element_is_one_bad_record_with_its_bytes(bad: bytes) -> None:
    reading = resumes(JSON, b'[{"a":1},' + bad + b',{"b":2}]')
    assert [type(value) for value in reading.values] == [dict, Unparsed, dict]
    assert not reading.damage
    rows = [row for frame in reading.frames if isinstance(frame, Parsed) for row in frame.rows()]
    assert rows[1].bytes == bad


def test_what_a_bad_record_says_holds_none_of_its_data() -> None:
    (bad,) = read_all(JSON, b'[{"secret": hunter2}]').bad
    assert "secret" not in bad.why + bad.hint
    assert "hunter2" not in bad.why + bad.hint


def test_deep_nesting_is_no_crash() -> None:
    deep = b"[" * 10_000 + b"]" * 10_000
    reading = read_all(
        JSON, b"[" + deep + b',{"a":1},' + deep.replace(b"[", b'{"a":[').replace(b"]", b"]}") + b',{"b":1e400' + b",".join([b""]) + b"}]"
    )
    assert [type(value) for value in reading.values] == [Unparsed, dict, Unparsed, dict]
    assert not reading.damage


def test_numbers_lose_nothing() -> None:
    text = b'{"a":12345678901234567890123,"b":1e400,"c":0.12345678901234567890,"d":1.10,"e":-9223372036854775809,"f":0.1,"g":1e-400}'
    (fields,) = resumes(JSON, b"[" + text + b"]").values
    assert fields == {
        "a": 12345678901234567890123, "b": Decimal("1e400"), "c": Decimal("0.12345678901234567890"), "d": 1.1,
        "e": -9223372036854775809, "f": 0.1, "g": Decimal("1e-400"),
    }  # fmt: skip


@settings(max_examples=examples(100), deadline=None)
@given(st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_any_number_is_what_was_written(text: str) -> None:
    (fields,) = read_all(JSON, f'[{{"n":{text}}}]'.encode()).values
    number = fields["n"]
    assert Decimal(repr(number) if isinstance(number, float) else number) == Decimal(text)


@pytest.mark.parametrize("inner", [b'{"a":"x"}', b"[1,2,3,4,5,6,7]", b'"0123456789012345"', b"123456789012345678", b"x" * 5000])
@pytest.mark.parametrize("on_too_long", ["dlq", "drop"])
def test_a_record_over_the_limit_comes_as_its_head_and_the_others_go_on(inner: bytes, on_too_long: str) -> None:
    reading = resumes(form("json", max_bytes=8, on_too_long=on_too_long), b'[{"a":1},' + inner + b' , {"b":2}]')
    long = [frame for frame in reading.frames if isinstance(frame, LongLine)]
    assert [(frame.head, frame.start, frame.end, frame.complete) for frame in long] == [(inner[:8], 9, 12 + len(inner), True)]
    assert reading.values == [{"a": 1}, inner[:8], {"b": 2}]


def test_memory_is_bounded_by_block_and_record_not_by_file() -> None:
    data = b"[" + b",\n".join(b'{"n":%d,"text":"%s"}' % (n, b"x" * 100) for n in range(20_000)) + b"]"
    file = Bytes(data)
    runs = [frame for frame in JSON.frames(file, 0, len(data), block_bytes=2**16) if isinstance(frame, Parsed)]
    assert sum(run.total for run in runs) == 20_000
    assert max(run.size_bytes for run in runs) < 2**17
    assert file.largest <= 2**17
    assert file.read_bytes < len(data) + 2**18


def test_a_value_longer_than_the_limit_is_passed_without_being_kept() -> None:
    file = Bytes(b'[{"a":"' + b"x" * 3_000_000 + b'"},{"b":2}]')
    frames = list(form("json", max_bytes=1000).frames(file, 0, file.size, block_bytes=4096))
    assert [type(frame) for frame in frames] == [type(frames[0]), LongLine, Parsed]
    assert file.largest < 20_000


@pytest.mark.parametrize(
    ("data", "values", "damage"),
    [
        (b'{"x":[1,{}],"a":{"q":"}","b":[{"z":1},{"z":2}],"c":1},"d":[]}\n', [{"z": 1}, {"z": 2}], ""),
        (b'{"a":{"b":[]}}', [], ""),
        (b'{"a":{"b":[{"z":1}', [{"z": 1}], "the file ends inside its array, at byte 18"),
        (b'{"a":{"b":[{"z":1}]', [{"z": 1}], "the file ends behind its records, before its end, at byte 19"),
        (b'{"a":{"b":[1]}} x', [b"1"], "something else stands behind the object, at byte 16"),
        (b'{"a":{"c":[1]}}', [], "path 'a.b' is not there: the object ends, or is damaged, at byte 13"),
        (b'{"a":{"b":1}}', [], "no array stands at byte 10, behind path 'a.b'"),
        (b"[1]", [], "no object stands at byte 0, where path 'a' is looked for"),
        (b'{"\\u0061":{"b":[1]}}', [b"1"], ""),
    ],
)
def test_a_path_leads_to_the_records(data: bytes, values: list[Any], damage: str) -> None:
    reading = resumes(form("json", path="a.b"), data)
    assert (reading.values, reading.damage) == (values, damage)


def test_types_are_read_and_a_field_that_is_none_makes_a_bad_record() -> None:
    typed = form("json", types={"price": "decimal", "items.n": "int"})
    reading = read_all(typed, b'[{"price":1.10,"items":[{"n":"7"},{}]},{"price":null},{"price":"x"}]')
    assert reading.values[:2] == [{"price": Decimal("1.1"), "items": [{"n": 7}, {}]}, {"price": None}]
    assert reading.bad[0].why.startswith("field 'price': ")
    assert not any(frame.as_is for frame in reading.frames if isinstance(frame, Parsed))


@pytest.mark.parametrize("data", [b'[{"a":1}, {"b":[2]},3]', b'{"a":1} 234 "x"{"c":4}'])
def test_a_look_at_the_beginning_shows_whole_records_only(data: bytes) -> None:
    whole = read_all(JSON, data).values
    for end in range(len(data) + 1):
        frames = [frame for frame in JSON.frames(Bytes(data), 0, end, final=False) if isinstance(frame, Parsed)]
        found = [value for frame in frames for value in frame.values]
        assert found == whole[: len(found)]
        assert all(frame.end <= end for frame in frames)
    assert found[:2] == whole[:2]


@pytest.mark.parametrize("path", [None, "a.b"])
def test_a_record_is_read_by_itself_for_a_replay(path: str | None) -> None:
    one = build_format(JsonFileOptions(path=path))
    assert isinstance(one, JsonFormat)
    assert one.alone(b'{"a":1}', ()) == {"a": 1}
    assert one.alone(b"[1]", ()) == b"[1]"
    assert isinstance(one.alone(b"{", ()), Unparsed)
