"""Parquet files: every row with its exact values, from every row on, whoever wrote it; damage where a file is damaged."""

from __future__ import annotations

import io
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.errors import FileError
from copycat_agent.formats.draft import Parsed
from copycat_agent.formats.records import ParquetOptions, build_format
from copycat_agent.formats.records.parquet_format import PACKED_BYTES, ROW_BYTES, RUN_ROWS, VALUES_MAX
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, ranges, read_all, resumes

FORM = build_format(ParquetOptions())
SHIPPED = sorted((Path(pa.__file__).parent / "tests/data/parquet").glob("*.parquet"))


def written(table: pa.Table, **how: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **how)
    return file.getvalue()


def simple(count: int) -> pa.Table:
    return pa.table({"id": list(range(count)), "name": [None if index % 7 == 0 else "é" * (index % 5) for index in range(count)]})


@pytest.mark.parametrize(("packed", "version"), [(False, "2.0"), (True, "1.0")])
def test_a_file_is_read_from_every_row_on(packed: bool, version: str) -> None:
    table = simple(900)
    whole = resumes(FORM, written(table, row_group_size=200, data_page_version=version, data_page_size=500), packed=packed)
    assert (whole.values, whole.damage) == (table.to_pylist(), "")


def test_ranges_are_row_groups_and_hold_all_rows_once() -> None:
    assert ranges(FORM, written(simple(1000), row_group_size=100), 4) == 4
    assert ranges(FORM, written(simple(1000), row_group_size=600), 4) == 2
    assert ranges(FORM, written(simple(1000)), 4) == 1


def test_behind_the_last_row_there_is_nothing_and_no_error() -> None:
    data = written(simple(10))
    assert (read_all(FORM, data, start=5000).seen, read_all(FORM, data, start=10).damage) == ([], "")
    assert (read_all(FORM, b"").seen, read_all(FORM, b"").damage) == ([], "")
    assert (read_all(FORM, b"", packed=True).seen, read_all(FORM, written(simple(0))).seen) == ([], [])


def test_row_groups_before_the_first_row_are_not_read_and_reading_goes_on_where_it_was() -> None:
    table = pa.table({"id": range(20_000), "text": [random.Random(index).randbytes(50).hex() for index in range(20_000)]})
    data = written(table, row_group_size=2000, compression="none", use_dictionary=False)
    rest = read_all(FORM, data, start=19_000)
    assert len(rest.seen) == 1000
    assert rest.file.read_bytes < len(data) / 4
    file, seen = Bytes(data), 0
    while seen < 20_000:
        for frame in FORM.frames(file, seen, 2**62):
            seen += frame.total // 2 or 1  # type: ignore[union-attr]
            break  # a batch that is over in the middle of what was read
    assert file.read_bytes < 2 * len(data)


TYPES: list[tuple[pa.DataType, Any, Any, str]] = [
    (pa.int8(), -1, -1, "tinyint"),
    (pa.uint64(), 2**64 - 1, 2**64 - 1, "decimal(20,0)"),
    (pa.float32(), 1.5, 1.5, "float"),
    (pa.bool_(), True, True, "boolean"),
    (pa.binary(), b"\x00\xff", b"\x00\xff", "binary"),
    (pa.binary(2), b"ab", b"ab", "binary"),
    (pa.large_string(), "é", "é", "string"),
    (pa.decimal128(38, 3), Decimal("-1.250"), Decimal("-1.250"), "decimal(38,3)"),
    (pa.decimal256(50, 1), Decimal("1.0"), Decimal("1.0"), "variant"),
    (pa.date32(), date(2026, 1, 2), date(2026, 1, 2), "date"),
    (pa.date32(), 4_000_000, "+12921-08-18", "date"),
    (pa.time32("ms"), time(1, 2, 3, 4000), time(1, 2, 3, 4000), "time(3)"),
    (pa.time64("ns"), 1, "00:00:00.000000001", "time(6)"),
    (pa.timestamp("us", "UTC"), 0, datetime(1970, 1, 1, tzinfo=UTC), "timestamp"),
    (pa.timestamp("us", "Europe/Berlin"), 0, datetime(1970, 1, 1, tzinfo=UTC), "timestamp"),
    (pa.timestamp("ns"), 1000, datetime.fromisoformat("1970-01-01T00:00:00.000001"), "timestamp_ntz"),
    (pa.timestamp("ns", "UTC"), 1, "1970-01-01T00:00:00.000000001+00:00", "timestamp"),
    (pa.timestamp("us"), 2**62, "+148108-07-06T14:00:27.387904", "timestamp_ntz"),
    (pa.duration("ns"), 5, 5, "bigint"),
    (pa.list_(pa.timestamp("ns", "UTC")), [1, None], ["1970-01-01T00:00:00.000000001+00:00", None], "array<timestamp>"),
    (pa.list_(pa.int32(), 2), [1, 2], [1, 2], "array<int>"),
    (pa.struct([("a b", pa.int32())]), {"a b": 1}, {"a b": 1}, "struct<`a b`: int>"),
    (pa.list_(pa.struct([("c", pa.list_(pa.string()))])), [{"c": ["x"]}], [{"c": ["x"]}], "array<struct<c: array<string>>>"),
    (pa.map_(pa.string(), pa.date32()), [("a", 0), ("a", 1)], {"a": date(1970, 1, 2)}, "map<string, date>"),
    (pa.map_(pa.int32(), pa.string()), [(1, "a")], [{"key": 1, "value": "a"}], "map<int, string>"),
    (pa.dictionary(pa.int32(), pa.string()), "x", "x", "string"),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value", "expected", "spark"), TYPES, ids=[str(one[0]) for one in TYPES])
def test_types(type_: pa.DataType, value: Any, expected: Any, spark: str) -> None:
    column = pa.array([value, None, value], type_) if not pa.types.is_dictionary(type_) else pa.array([value, None, value]).cast(type_)
    found = read_all(FORM, written(pa.table({"v": column})))
    assert (found.values, found.damage) == ([{"v": expected}, {"v": None}, {"v": expected}], "")
    assert found.schema is not None
    assert [(one.name, one.type) for one in found.schema.columns] == [("v", spark)]


def test_an_instant_of_the_old_kind_that_nanoseconds_cannot_hold_is_not_wrapped() -> None:
    table = pa.table({"t": pa.array([datetime(9999, 12, 31, tzinfo=UTC)], pa.timestamp("us"))})
    found = resumes(FORM, written(table, use_deprecated_int96_timestamps=True))
    assert found.values == [{"t": datetime.fromisoformat("9999-12-31T00:00:00")}]
    nanos = pa.table({"t": pa.array([1_000, None, 1, -1], pa.timestamp("ns")), "id": [1, 2, 3, 4]})
    found = resumes(FORM, written(nanos, use_deprecated_int96_timestamps=True, row_group_size=3))
    texts = ["1970-01-01T00:00:00.000000001", "1969-12-31T23:59:59.999999999"]
    assert [row["t"] for row in found.values] == [datetime.fromisoformat("1970-01-01T00:00:00.000001"), None, *texts]
    assert [row["id"] for row in found.values] == [1, 2, 3, 4]


def test_columns_are_chosen_in_their_order() -> None:
    table = simple(5).append_column("c", [[{"d": 1}]] * 5)
    form = build_format(ParquetOptions(columns=("c", "id")))
    assert [list(row) for row in read_all(form, written(table)).values] == [["c", "id"]] * 5
    missing = read_all(build_format(ParquetOptions(columns=("id", "gone"))), written(table))
    assert (missing.seen, missing.damage) == ([], "parquet: it has no column 'gone' (record 1)")
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert read_all(FORM, written(twice)).damage == "parquet: it has more than one column 'a' (record 1)"


def test_what_is_no_parquet_file_is_damage_at_its_beginning() -> None:
    data = written(simple(100))
    for broken, why in (
        (b"a,b\n1,2\n", "it does not begin as a Parquet file does (record 1)"),
        (data[: len(data) // 2], f"it ends in the middle, at byte {len(data) // 2} (record 1)"),
        (data[:8], "it ends in the middle, at byte 8 (record 1)"),
        (data + b"x", f"it ends in the middle, at byte {len(data) + 1} (record 1)"),
        (b"PARE" + data[4:-4] + b"PARE", "it is encrypted (record 1)"),
        (data[:-8] + b"\xff\xff\xff\x7fPAR1", "its description of itself cannot be read"),
    ):
        for packed in (False, True):
            found = read_all(FORM, broken, packed=packed)
            assert (found.seen, found.damage[: len(why) + 9]) == ([], f"parquet: {why}")


def test_a_damaged_page_is_damage_and_the_rows_before_it_are_read() -> None:
    data = bytearray(
        written(simple(6000), row_group_size=2000, write_page_checksum=True, use_dictionary=False, data_page_size=1000, compression="none")
    )
    place = pq.ParquetFile(io.BytesIO(bytes(data))).metadata.row_group(1).column(0).data_page_offset
    data[place + 8000] ^= 0xFF
    found = read_all(FORM, bytes(data))
    assert read_all(FORM, bytes(data), start=len(found.seen) - 1).damage == found.damage
    assert found.values == simple(6000).to_pylist()[: len(found.values)]
    assert 2000 <= len(found.values) < 4000
    assert found.damage.startswith("parquet: its rows cannot be read from there on")
    assert found.damage.endswith(f"(record {len(found.values) + 1})")


def test_a_packed_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.formats.records.parquet_format.PACKED_BYTES", 1000)
    found = read_all(FORM, written(simple(1000)), packed=True)
    assert (found.seen, found.damage.startswith("parquet: packed, it holds more than")) == ([], True)
    assert found.file.largest == 1001
    assert PACKED_BYTES == 64 * 2**20


def test_what_reading_the_file_raises_comes_back_as_it_is() -> None:
    data = written(simple(5000), row_group_size=1000)

    class Unplugged(Bytes):
        is_there = True

        def __call__(self, position: int, size: int, /) -> bytes:
            if not self.is_there:
                raise FileError("gone", "wait")
            return super().__call__(position, size)

    file = Unplugged(data)
    frames = FORM.frames(file, 0, 2**62)
    first = next(frames)
    file.is_there = False
    with pytest.raises(FileError, match="gone"):
        list(frames)
    file.is_there = True
    assert [frame.end for frame in FORM.frames(file, first.end, 2**62)][-1] == 5000


def test_rows_that_weigh_nothing_in_the_file_are_read_a_few_at_a_time() -> None:
    table = pa.table({"text": pa.array(["x" * 1000] * 5000).dictionary_encode()})
    found = read_all(FORM, written(table))
    assert len(found.seen) == 5000
    assert max(frame.total for frame in found.frames) <= RUN_ROWS  # type: ignore[union-attr]


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_files_that_older_releases_wrote(path: Path) -> None:
    found = resumes(FORM, path.read_bytes())
    assert (len(found.fields), found.damage) == (pq.ParquetFile(path).metadata.num_rows, "")
    assert found.seen


def list_of_pairs(one: dict[str, Any]) -> list[tuple[str, Any]]:
    """As Arrow takes a map."""
    return list(one.items())


COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=10)),
    "bytes": (pa.binary(), st.binary(max_size=10)),
    "list": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 9), max_size=3)),
    "deep": (pa.list_(pa.struct([("a", pa.string())])), st.lists(st.none() | st.just({"a": None}) | st.just({"a": "x"}), max_size=3)),
    "map": (pa.map_(pa.string(), pa.int8()), st.dictionaries(st.sampled_from("abc"), st.none() | st.just(1)).map(list_of_pairs)),
    "time": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
}  # fmt: skip


@st.composite
def files(draw: st.DrawFn) -> tuple[bytes, list[dict[str, Any]]]:
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(0, 25))
    columns = {kind: draw(st.lists(st.none() | COLUMNS[kind][1], min_size=count, max_size=count)) for kind in kinds}
    table = pa.table({kind: pa.array(values, COLUMNS[kind][0]) for kind, values in columns.items()})
    data = written(
        table, row_group_size=draw(st.integers(1, 30)), compression=draw(st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4"]))
    )
    if "map" in columns:
        columns["map"] = [None if one is None else dict(one) for one in columns["map"]]
    return data, [dict(zip(kinds, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@settings(deadline=None, max_examples=examples(25))
@given(files())
def test_any_rows_of_any_columns_come_back_from_any_row_on(file: tuple[bytes, list[dict[str, Any]]]) -> None:
    whole = resumes(FORM, file[0], block_bytes=(1,))
    assert (whole.values, whole.damage) == (file[1], "")


@settings(deadline=None, max_examples=examples(60))
@given(files(), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4))
def test_whatever_bytes_are_in_a_file_nothing_but_damage_comes_of_it(file: tuple[bytes, Any], changes: list[tuple[float, int]]) -> None:
    data = bytearray(file[0])
    for place, byte in changes:
        data[int(place * len(data))] = byte
    found = read_all(FORM, bytes(data))
    assert len(found.seen) <= 10_000


def test_a_large_value_that_is_stored_once_and_repeated_takes_little_memory() -> None:
    text = "x" * 2**20
    out = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array([text] * 200), "b": pa.array(["y"] * 200)}), out, compression="zstd")
    assert len(out.getvalue()) < 10_000
    sizes = [len(frame.values) for frame in FORM.frames(Bytes(out.getvalue()), 0, 2**62) if isinstance(frame, Parsed)]
    assert sum(sizes) == 200
    assert max(sizes) <= 64


def test_rows_of_many_values_that_take_no_bytes_are_read_a_few_at_a_time() -> None:
    table = pa.table({"a": pa.array([[None] * 100_000] * 100, pa.list_(pa.int64())), "b.c": range(100)})
    frames = [frame for frame in FORM.frames(Bytes(written(table, compression="zstd")), 0, 2**62) if isinstance(frame, Parsed)]
    assert [row["b.c"] for frame in frames for row in frame.values] == list(range(100))
    assert max(len(frame.values) for frame in frames) <= VALUES_MAX // 100_000


@pytest.mark.parametrize("large", [pa.array([[None] * (VALUES_MAX + 1)], pa.list_(pa.int64())), pa.array([b"\0" * (ROW_BYTES + 1)])])
def test_a_row_of_more_values_or_bytes_than_memory_should_hold_is_damage_and_the_rows_before_it_come(large: pa.Array) -> None:
    file = io.BytesIO()
    table = pa.table({"n": [1], "a.b": large})
    with pq.ParquetWriter(file, table.schema, compression="zstd", use_dictionary=False, write_statistics=False) as writer:
        writer.write_table(pa.table({"n": [0], "a.b": pa.array([None], large.type)}))
        writer.write_table(table)
    found = read_all(FORM, file.getvalue())
    assert (found.values, "a row has more than 2097152 values or 67108864 bytes (record 2)" in found.damage) == (
        [{"n": 0, "a.b": None}],
        True,
    )
    assert read_all(build_format(ParquetOptions(columns=("n",))), file.getvalue()).values == [{"n": 0}, {"n": 1}]
