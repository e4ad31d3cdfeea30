"""Avro files: every record with its exact values, from every record on; damage where a file is damaged, never without bounds."""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.errors import DamageError
from copycat_agent.formats import Parsed, Unparsed
from copycat_agent.formats.records import FORMATS, AvroOptions, build_format
from copycat_agent.formats.records.avro_blocks import HEADER_BYTES, BlockMarks
from copycat_agent.formats.records.avro_format import FREE_MAX, VALUES_MAX
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, ranges, read_all, resumes

FORM = build_format(AvroOptions())
SMALL = build_format(AvroOptions(max_block_bytes=2**16))
CODECS = ["null", "deflate", "bzip2", "snappy", "zstandard", "xz"]
SIMPLE = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]}


def written(schema: Any, records: list[Any], codec: str = "null", sync_interval: int = 400) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, records, codec=codec, sync_interval=sync_interval)
    return file.getvalue()


def number(value: int) -> bytes:
    """As Avro writes one."""
    value, out = value << 1 if value >= 0 else (-value << 1) - 1, b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def with_block(schema: Any, count: int, data: bytes, size: int | None = None) -> bytes:
    """A file with one block that nobody would write."""
    empty = written(schema, [])
    return empty + number(count) + number(len(data) if size is None else size) + data + empty[-16:]


def simple(count: int) -> list[dict[str, Any]]:
    return [{"id": index, "name": None if index % 7 == 0 else "é" * (index % 5)} for index in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_from_every_record_on(codec: str, packed: bool) -> None:
    whole = resumes(FORM, written(SIMPLE, simple(300), codec), packed=packed, block_bytes=(None, 50))
    assert (whole.values, whole.damage) == (simple(300), "")


def test_ranges_hold_all_records_once() -> None:
    assert ranges(FORM, written(SIMPLE, simple(1000)), 4) == 4
    assert ranges(FORM, written(SIMPLE, simple(3)), 4) == 1
    assert FORMATS["avro"].options is AvroOptions


def test_behind_the_last_record_there_is_nothing_and_no_error() -> None:
    rest = read_all(FORM, written(SIMPLE, simple(10)), start=5000)
    assert (rest.seen, rest.damage) == ([], "")
    assert (read_all(FORM, b"").seen, read_all(FORM, b"").damage) == ([], "")
    assert read_all(FORM, written(SIMPLE, [])).seen == []


def test_blocks_before_the_first_record_are_not_read() -> None:
    data = written(SIMPLE, [{"id": index, "name": "x" * 10_000} for index in range(300)], sync_interval=100_000)
    rest = read_all(FORM, data, start=299)
    assert [one.start for one in rest.seen] == [299]
    assert rest.file.read_bytes < len(data) / 5
    again = read_all(FORM, data, start=299, memo=rest.file.memo)
    assert again.file.reads < rest.file.reads, "where blocks begin is known by then"


LOGICAL = [
    ("boolean", True, True, "boolean"),
    ("float", 1.5, 1.5, "float"),
    ("double", 0.1, 0.1, "double"),
    ("bytes", b"\x00\xff", b"\x00\xff", "binary"),
    ({"type": "fixed", "name": "f", "size": 2}, b"ab", b"ab", "binary"),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "B", "string"),
    ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None], "array<int>"),
    ({"type": "map", "values": {"type": "array", "items": "long"}}, {"a": [1]}, {"a": [1]}, "map<string, array<bigint>>"),
    (["null", "int", "long"], 2**40, 2**40, "bigint"),
    (["string", "long"], 5, 5, "variant"),
    ({"type": "record", "name": "in", "fields": [{"name": "a b", "type": "int"}]}, {"a b": 1}, {"a b": 1}, "struct<`a b`: int>"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}, Decimal("-1.250"), Decimal("-1.250"), "decimal(38,3)"),
    ({"type": "int", "logicalType": "date"}, date(2026, 1, 2), date(2026, 1, 2), "date"),
    ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4000), time(1, 2, 3, 4000), "time(3)"),
    ({"type": "long", "logicalType": "time-micros"}, time(1, 2, 3, 4), time(1, 2, 3, 4), "time(6)"),
    ({"type": "long", "logicalType": "timestamp-millis"}, 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "timestamp"),
    ({"type": "long", "logicalType": "timestamp-micros"}, -1, datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "timestamp"),
    ({"type": "long", "logicalType": "timestamp-micros"}, 2**62, "+148108-07-06T14:00:27.387904+00:00", "timestamp"),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 1, "1970-01-01T00:00:00.000000001+00:00", "timestamp"),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, 1, datetime.fromisoformat("1970-01-01T00:00:00.000001"), "timestamp_ntz"),
    ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=1), str(uuid.UUID(int=1)), "string"),
    ({"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, bytes(15) + b"\x01", str(uuid.UUID(int=1)), "string"),
    ({"type": "string", "logicalType": "timestamp-micros"}, "no time", "no time", "string"),
    ({"type": "int", "logicalType": "unheard-of"}, 3, 3, "int"),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value", "expected", "spark"), LOGICAL)
def test_types(type_: Any, value: Any, expected: Any, spark: str) -> None:
    schema = {"type": "record", "name": "row", "namespace": "a.b", "fields": [{"name": "v", "type": type_}]}
    found = read_all(FORM, written(schema, [{"v": value}]))
    assert (found.values, found.damage) == ([{"v": expected}], "")
    assert found.schema is not None
    assert [(column.name, column.type) for column in found.schema.columns] == [("v", spark)]
    assert json.loads(found.schema.avro)["fields"] == schema["fields"]


def test_a_decimal_keeps_digits_beyond_its_precision() -> None:
    schema = {
        "type": "record",
        "name": "row",
        "fields": [{"name": "v", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3}}],
    }
    value = int("123456789" * 5)
    data = with_block(schema, 1, number(19) + value.to_bytes(19, "big"))
    assert read_all(FORM, data).values == [{"v": Decimal(value)}]
    schema["fields"][0]["type"]["scale"] = 2  # type: ignore[index]
    assert read_all(FORM, with_block(schema, 1, number(19) + value.to_bytes(19, "big"))).values == [{"v": Decimal(f"{value // 100}.89")}]


@given(st.binary(min_size=4000, max_size=4200).flatmap(lambda data: st.sampled_from([data, data * 3, b"\xff" + data * 5])))
@settings(max_examples=examples(20), deadline=None)
def test_a_long_decimal_has_all_its_digits(data: bytes) -> None:
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 100_000, "scale": 2}
    expected = Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-2, Context(prec=100_000))
    assert read_all(FORM, with_block(schema, 1, number(len(data)) + data)).values == [{"value": expected}]


def test_a_decimal_of_millions_of_digits_is_damage_at_once() -> None:
    data = b"\x7f" * 2**24
    found = read_all(FORM, with_block({"type": "bytes", "logicalType": "decimal", "precision": 9}, 1, number(len(data)) + data))
    assert (found.values, "cannot be decoded" in found.damage) == ([], True)


def test_records_that_are_none_have_one_field() -> None:
    assert read_all(FORM, written("long", [1, 2])).values == [{"value": 1}, {"value": 2}]
    assert read_all(FORM, written(["null", "string"], ["a", None])).values == [{"value": "a"}, {"value": None}]


def test_a_text_that_is_not_utf_8_is_a_bad_record_and_the_others_are_read() -> None:
    schema = {"type": "record", "name": "row", "fields": [{"name": "v", "type": "string"}]}
    found = read_all(FORM, with_block(schema, 3, b"\x02a" + b"\x02\xff" + b"\x02b"))
    assert (found.values[0], found.values[2], found.damage) == ({"v": "a"}, {"v": "b"}, "")
    assert found.bad == [Unparsed("a string is not UTF-8", "write it as bytes, or correct what writes these files")]


NODE = {"type": "record", "name": "node", "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "node"]}]}


def test_a_type_that_contains_itself_is_read_and_its_depth_is_bounded() -> None:
    found = resumes(FORM, written(NODE, [{"id": 1, "next": {"id": 2, "next": None}}] * 3))
    assert found.values == [{"id": 1, "next": {"id": 2, "next": None}}] * 3
    assert found.schema is not None
    assert found.schema.columns[1].type == "struct<id: int, next: variant>"
    deep = read_all(FORM, with_block(NODE, 2, b"\x02\x00" + b"\x02\x02" * 10**6 + b"\x02\x00"))
    assert (deep.values, "a record nests too deep" in deep.damage) == ([{"id": 1, "next": None}], True)


def twice_named(depth: int, *fields: dict[str, Any], optional: bool = True) -> Any:
    """A record that holds the next one twice, and so on: written out, the last one is there 2 to the power of `depth` times."""
    schema: Any = {"type": "record", "name": f"r{depth}", "fields": list(fields)}
    for level in reversed(range(depth)):
        types = (schema, f"r{level + 1}")
        inner = [{"name": name, "type": ["null", type_] if optional else type_} for name, type_ in zip("ab", types, strict=True)]
        schema = {"type": "record", "name": f"r{level}", "fields": inner}
    return schema


def test_types_that_are_named_twice_at_each_level_are_read() -> None:
    few = read_all(FORM, with_block(twice_named(2, {"name": "x", "type": "long"}), 1, b"\0\2\0\0"))
    assert few.values == [{"a": None, "b": {"a": None, "b": None}}]
    assert few.schema is not None
    leaf = "struct<a: struct<x: bigint>, b: struct<x: bigint>>"
    assert [column.type for column in few.schema.columns] == [leaf, leaf]
    many = read_all(FORM, with_block(twice_named(60, {"name": "x", "type": "long"}), 1, b"\0\0"))
    assert many.values == [{"a": None, "b": None}]
    assert many.schema is not None
    assert [column.type for column in many.schema.columns] == ["variant", "variant"]


def test_records_of_no_bytes_within_records_of_no_bytes_are_bounded() -> None:
    few = twice_named(2, {"name": "x", "type": "null"}, optional=False)
    inner = {"a": {"x": None}, "b": {"x": None}}
    assert read_all(FORM, with_block(few, 1, b"")).values == [{"a": inner, "b": inner}]
    many = [twice_named(60, {"name": "x", "type": "null"}, optional=False), "null"]
    row = {"type": "record", "name": "row", "fields": [{"name": "v", "type": many}]}
    assert f"more than {FREE_MAX} nulls and records that take no bytes" in read_all(FORM, with_block(row, 1, b"\0")).damage


def damage_of(data: bytes, form: Any = FORM) -> str:
    return resumes(form, data, block_bytes=(None, 10)).damage


def test_damage_says_where_and_what_comes_before_is_read() -> None:
    data = written(SIMPLE, simple(100))
    whole = read_all(FORM, data)
    first = whole.frames[0].end
    sync = data[-16:]
    begin = data.index(sync) + 16
    behind = data.index(sync, begin)
    for broken, why in (
        (data[: behind + 5], f"avro: it ends inside a block (byte {begin}, record 1)"),
        (data[:-1], "avro: it ends inside a block"),
        (data[:behind] + b"x" + data[behind + 1 :], f"avro: the marker behind a block is not the file's (byte {begin}, record 1)"),
        (data[: len(data) // 2], "avro: a block of"),
        (data + b"trailing text, which is no block", "avro: a block"),
    ):
        found = resumes(FORM, broken, block_bytes=(None, 10))
        assert found.damage.startswith(why), found.damage
        assert found.values == whole.values[: len(found.values)]
        assert len(found.values) in (0, 100) or len(found.values) >= first
    assert 0 < len(read_all(FORM, data[:-1]).values) < 100


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a,b\n1,2\n", "avro: it does not begin as an Avro file does (byte 0, record 1)"),
        (b"Obj", "avro: it ends inside its header (byte 3, record 1)"),
        (b"Obj\x01" + b"\xff" * 20, "avro: its header is damaged (byte 4, record 1)"),
        (written(SIMPLE, [])[:60], "avro: it ends inside its header (byte 60, record 1)"),
        (written(SIMPLE, []).replace(b'"long"', b'"lung"'), "avro: its schema is no Avro schema (UnknownType) (byte 4, record 1)"),
        (written(SIMPLE, []).replace(b"\x08null", b"\x08none"), "avro: its codec is none of null, deflate"),
        (b"Obj\x01\x02\x02a" + number(HEADER_BYTES + 1), "avro: its header is damaged"),
    ],
)
def test_what_is_no_avro_file_is_damage_at_its_beginning(data: bytes, why: str) -> None:
    found = read_all(FORM, data)
    assert (found.seen, found.damage[: len(why)]) == ([], why)


def test_a_block_that_lies_about_itself_takes_no_memory() -> None:
    huge = read_all(FORM, with_block(SIMPLE, 1, b"", size=2**50))
    assert "a block of 1125899906842624 bytes is longer than what is left of the file" in huge.damage
    packed = read_all(FORM, with_block(SIMPLE, 1, b"", size=2**50), packed=True)
    assert "block of 1125899906842624 bytes is" in packed.damage
    assert packed.file.largest < 2**20, "nobody asked for it"
    assert "says that it holds 99999999 records" in damage_of(with_block(SIMPLE, 99_999_999, bytes(100)))
    assert "its size is no number" in damage_of(with_block(SIMPLE, -1, b""))
    assert "over format.max_block_bytes, 65536" in damage_of(written(SIMPLE, [{"id": 1, "name": "x" * 70_000}]), SMALL)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_packed_block_that_holds_more_than_the_limit_is_damage(codec: str) -> None:
    data = written(SIMPLE, [{"id": 1, "name": "x" * 10**6}], codec)
    assert read_all(FORM, data).damage == ""
    assert "holds more than format.max_block_bytes, 65536" in read_all(SMALL, data).damage


def test_records_that_do_not_fill_their_block_are_damage_but_those_before_are_read() -> None:
    found = resumes(FORM, with_block(SIMPLE, 2, b"\x02\x00" + b"\x04\x00" + b"left"), block_bytes=(None, 1))
    assert (found.values, found.damage.partition(" (")[0]) == ([{"id": 1, "name": None}], "avro: the records of a block do not fill it")


def test_values_that_take_no_bytes_are_bounded() -> None:
    nulls = {"type": "record", "name": "row", "fields": [{"name": "v", "type": {"type": "array", "items": "null"}}]}
    assert "nothing bounds their number" in read_all(FORM, with_block(nulls, 1, number(2**40) + b"\0")).damage
    empty = {"type": "record", "name": "row", "fields": []}
    assert read_all(FORM, with_block(empty, 5, b"")).values == [{}] * 5
    assert "says that it holds" in read_all(FORM, with_block(empty, 2**60, b"")).damage
    flags = {"type": "record", "name": "row", "fields": [{"name": "v", "type": {"type": "array", "items": "boolean"}}]}
    bomb = with_block(flags, 1, number(3 * 2**20) + bytes(3 * 2**20) + b"\0")
    assert f"a record holds more than {VALUES_MAX} values" in read_all(FORM, bomb).damage


def test_where_blocks_begin_is_kept_in_bounded_memory() -> None:
    marks = BlockMarks(100)
    for index in range(1, 100_000):
        marks.note(index * 10, 100 + index)
    assert len(marks._marks) <= 4097
    assert marks.before(10**7) == (999_990, 100 + 99_999)
    for record in (0, 5, 1234, 499_999, 999_985):
        before, byte = marks.before(record)
        assert before <= record
        assert byte == 100 + before // 10
        assert record - before < 100_000 * 10 / 1000


PLAIN: st.SearchStrategy[Any] = st.sampled_from(["boolean", "int", "long", "double", "bytes", "string", {"type": "map", "values": "long"}])
TYPES = PLAIN | PLAIN.map(lambda one: {"type": "array", "items": one}) | PLAIN.map(lambda one: ["null", one])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(st.characters(codec="utf-8"), max_size=20),
}


def values_of(type_: Any) -> st.SearchStrategy[Any]:
    if isinstance(type_, list):
        return st.none() | values_of(type_[1])
    if isinstance(type_, dict):
        inner = values_of(type_.get("items", type_.get("values")))
        return st.lists(inner, max_size=4) if type_["type"] == "array" else st.dictionaries(st.text(max_size=3), inner, max_size=3)
    return VALUES[type_]


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, list[dict[str, Any]]]:
    types = draw(st.lists(TYPES, min_size=1, max_size=5))
    schema = {"type": "record", "name": "row", "fields": [{"name": f"f{index}", "type": one} for index, one in enumerate(types)]}
    rows = st.fixed_dictionaries({f"f{index}": values_of(one) for index, one in enumerate(types)})
    records = draw(st.lists(rows, max_size=15))
    return written(schema, records, draw(st.sampled_from(CODECS)), draw(st.integers(1, 200))), records


@settings(deadline=None, max_examples=examples(25))
@given(files(), st.booleans())
def test_any_records_of_any_schema_come_back_from_any_record_on(file: tuple[bytes, list[dict[str, Any]]], packed: bool) -> None:
    data, records = file
    whole = resumes(FORM, data, packed=packed, block_bytes=(None, 1))
    assert (whole.values, whole.damage) == (records, "")


@settings(deadline=None, max_examples=examples(60))
@given(files(), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_bytes_are_in_a_file_nothing_but_damage_comes_of_it(file: tuple[bytes, Any], changes: list[tuple[float, int]]) -> None:
    data = bytearray(file[0])
    for place, byte in changes:
        data[int(place * len(data))] = byte
    found = read_all(FORM, bytes(data))
    assert found.file.largest <= max(2**26, len(data))
    assert read_all(FORM, bytes(data)).values == found.values or "nan" in str(found.values)


@pytest.mark.parametrize("count", [3, 2000])
def test_of_a_packed_file_all_is_read_that_can_be_unpacked(count: int) -> None:
    data = written(SIMPLE, simple(count))

    class Broken(Bytes):
        def __call__(self, position: int, size: int, /) -> bytes:
            if position + size > len(self.data):
                raise DamageError("gzip: trailing garbage")
            return super().__call__(position, size)

    for good, expected in ((len(data), count), (len(data) - 1, None)):
        found: list[Any] = []
        with pytest.raises(DamageError, match="garbage"):  # noqa: PT012 - what came before is the question
            for frame in FORM.frames(Broken(data[:good], packed=True), 0, 2**62):
                assert isinstance(frame, Parsed)
                found += frame.values
        assert found == simple(count)[: len(found)]
        assert expected is None or len(found) == expected


def test_within_a_block_reading_goes_on_where_it_was() -> None:
    data = written(SIMPLE, simple(500), sync_interval=100_000)
    memo: dict[str, Any] = {}
    whole = read_all(FORM, data, block_bytes=30, memo=memo)
    assert len(whole.frames) > 50
    for start in (499, 480, 250, 1):
        assert read_all(FORM, data, start=start, block_bytes=30, memo=memo).values == simple(500)[start:]


def test_a_block_of_snappy_with_another_sum_is_damage() -> None:
    data = bytearray(written(SIMPLE, [{"id": 1, "name": "never said twice"}], "snappy"))
    data[data.index(b"never said")] ^= 1
    found = read_all(FORM, bytes(data))
    assert (found.seen, found.damage.partition(" (")[0]) == ([], "avro: a block cannot be unpacked with snappy")
