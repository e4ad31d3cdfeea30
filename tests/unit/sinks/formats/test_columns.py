"""Which columns a file has, what fits them, and in which words the rest is refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from copycat_agent.errors import DataError
from copycat_agent.model import Schema
from copycat_agent.sinks.formats import RangeFiles, WrittenFile
from copycat_agent.sinks.formats.range_files import RangeLimits
from tests.unit.sinks.formats.rig import options, plain, read, read_all, schema_of

AT_ONCE = RangeLimits(held_bytes=1, left_bytes=0)
"""Whatever comes is written, so that what changes columns begins another file."""


def write(tmp_path: Path, records: Sequence[Any], schema: Schema | None = None, format_: str = "parquet", **how: Any) -> list[WrittenFile]:
    files = RangeFiles(options(format_, **how), tmp_path)
    for record in records:
        files.add("d", record, schema)
    return files.close()


def types_of(file: WrittenFile) -> dict[str, str]:
    return {field.name: str(field.type) for field in pq.read_schema(file.path)}


def test_columns_are_in_the_order_in_which_they_come_and_of_the_types_that_values_have(tmp_path: Path) -> None:
    record = {
        "z": 1, "a": 1.5, "t": "x", "b": True, "d": Decimal("1.10"), "at": datetime(2026, 1, 1, tzinfo=UTC), "local": datetime(2026, 1, 1),  # noqa: DTZ001
        "x": b"\0", "l": [{"n": 1}], "s": {"deep": {"n": 1}},
    }  # fmt: skip
    (file,) = write(tmp_path, [record, {"later": 1}])
    assert types_of(file) == {
        "z": "int64", "a": "double", "t": "string", "b": "bool", "d": "decimal128(38, 2)", "at": "timestamp[us, tz=UTC]",
        "local": "timestamp[us]", "x": "binary", "l": "list<element: struct<n: int64>>", "s": "struct<deep: struct<n: int64>>",
        "later": "int64",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "then", "type_"),
    [(1, 1.5, "double"), (1, Decimal("1.25"), "decimal128(38, 2)"), (Decimal(1), Decimal("1.125"), "decimal128(38, 3)"),
     ({}, {"n": 1}, "struct<n: int64>"), ({"a": 1}, {"n": 1}, "struct<a: int64, n: int64>"), ([], ["x"], "list<element: string>"),
     (None, "x", "string"), ([1], [1, None, 2.5], "list<element: double>"), (1.5, 2, "double")],
)  # fmt: skip
def test_a_column_grows_in_the_file_and_where_that_is_written_in_the_next_one(tmp_path: Path, first: Any, then: Any, type_: str) -> None:
    records = [{"id": 1, "v": first}, {"id": 2, "v": then}]
    (file,) = write(tmp_path / "1", records)
    assert types_of(file) == {"id": "int64", "v": type_}
    files = RangeFiles(options("parquet"), tmp_path / "2", AT_ONCE)
    assert files.add_all("d", records[:1]) == files.add_all("d", records[1:]) == 1
    *before, last = files.close()
    assert types_of(last) == {"id": "int64", "v": type_}
    assert [row["id"] for file in (*before, last) for row in read(file)] == [1, 2]


def test_numbers_that_a_double_does_not_hold_stay_in_a_file_of_their_own(tmp_path: Path) -> None:
    files = write(tmp_path, [{"n": 2**60 + 1}, {"n": 0.5}, {"n": 3}])
    assert read_all(files) == [{"n": 2**60 + 1}, {"n": 0.5}, {"n": 3.0}]
    assert [types_of(file)["n"] for file in files] == ["int64", "double"]


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [({"n": 1}, {"n": "x"}, "field 'n': a whole number is needed, not text"), ({"n": 1}, {"n": 2**63}, "beyond the 64 bits of bigint"),
     ({"n": 1}, {"n": True}, "not a boolean"), ({"n": 1.5}, {"n": 2**53 + 1}, "more digits than double holds"),
     ({"a": {"b": ["x"]}}, {"a": {"b": [b"x"]}}, r"field 'a\.b\[\]': text is needed, not bytes"),
     ({"t": "x"}, {"t": "\ud800"}, "half of a character"),
     ({"n": Decimal("1.5")}, {"n": Decimal("NaN")}, "not finite"), ({"n": Decimal("1.5")}, {"n": 1.5}, "a decimal number is needed"),
     ({"n": 1}, {}, "the record has no fields"), ({"n": 1}, {"m": {1, 2}}, "field 'm': a value that JSON or a schema can have"),
     ({"n": 1}, {"m": {2: 1}}, "a text for a field's name")],
)  # fmt: skip
@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_what_does_not_fit_is_told_without_its_data_and_changes_nothing(
    tmp_path: Path, first: Any, then: Any, words: str, format_: str
) -> None:
    files = RangeFiles(options(format_), tmp_path)
    files.add("d", first)
    with pytest.raises(DataError, match=words):
        files.add("d", then)
    assert files.add_all("d", [first, then, first]) == 1
    assert read_all(files.close()) == [first, first]


@pytest.mark.parametrize("spilled", [False, True])
def test_names_that_differ_only_in_case_are_in_files_of_their_own(tmp_path: Path, spilled: bool) -> None:
    records: list[dict[str, Any]] = [{"id": 1}, {"ID": 2}, {"id": 3, "o": {"a": 1}}, {"n": 4}, {"id": 5, "o": {"A": 1}}, {"ID": 6}]
    records += [{"o": {"a": 7}}, {"o": {"A": 8}}, {"Id": 9}] * 3
    for name, at_once in (("one", False), ("all", True)):
        files = RangeFiles(options("parquet"), tmp_path / name, AT_ONCE if spilled else RangeLimits())
        if at_once:
            assert files.add_all("d", records) == len(records)
        else:
            for record in records:
                files.add("d", record)
        written = files.close()
        assert sorted(map(repr, map(plain, read_all(written)))) == sorted(map(repr, map(plain, records)))
        assert all(len({one.lower() for one in types_of(file)}) == len(types_of(file)) for file in written)
        assert spilled or len(written) == 4, "not one for every change of spelling"


@pytest.mark.parametrize("record", [{"A": 1, "a": 2}, {"o": {"A": 1, "a": 2}}, {"o": [{"A": 1, "a": 2}]}])
def test_a_record_whose_own_names_differ_only_in_case_does_not_fit(tmp_path: Path, record: dict[str, Any]) -> None:
    files = RangeFiles(options("parquet"), tmp_path)
    assert files.add_all("d", [{"a": 0}, record, record]) == 1
    with pytest.raises(DataError, match=r"field '(o\.|o\.\[\]\.|)a': another field's name differs only in case"):
        files.add("d", record)
    files.add("d", {"A": "x"})
    with pytest.raises(DataError, match="field 'A': text is needed"):
        files.add("d", {"A": 1})
    with pytest.raises(DataError, match="field 'a': a whole number is needed"):
        files.add("d", {"a": "x"})
    assert [read(file) for file in files.close()] == [[{"a": 0}], [{"A": "x"}]]


def test_a_schema_whose_names_differ_only_in_case_makes_no_file(tmp_path: Path) -> None:
    files = RangeFiles(options("parquet"), tmp_path)
    for _ in range(2):
        with pytest.raises(DataError, match="field 'a': another field's name differs only in case"):
            files.add("d", {"A": 1, "a": 2}, schema_of(A="bigint", a="bigint"))
    assert files.close() == []


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_records_that_would_make_no_sound_columns_do_not_fit(tmp_path: Path, format_: str) -> None:
    files = RangeFiles(options(format_), tmp_path)
    files.add("d", nested(30))
    for depth in (60, 5000):
        with pytest.raises(DataError, match="nested"):
            files.add("d", {"b": nested(depth)})
    taken = files.add_all("d", [{f"user{number}": number} for number in range(2500)])
    assert 1900 < taken < 2000
    with pytest.raises(DataError, match="more than 2000 columns"):
        files.add("d", {f"user{taken}": 1})
    assert sum(file.records for file in files.close()) == taken + 1


def test_lists_without_items_are_kept_where_the_column_has_a_type(tmp_path: Path) -> None:
    files = write(tmp_path, [{"l": [], "o": {}, "n": None, "id": 1}, {"l": ["x"], "id": 2}, {"l": None, "id": 3}])
    assert read_all(files) == [{"l": [], "id": 1}, {"l": ["x"], "id": 2}, {"l": None, "id": 3}], "o and n never had a value"


def test_rows_without_any_value_are_rows(tmp_path: Path) -> None:
    (file,) = write(tmp_path / "1", [{"a": None, "b": {}}] * 3)
    assert read(file) == [{"a": None}] * 3
    (file,) = write(tmp_path / "2", [{"a": None, "b": []}] * 3, format_="avro")
    assert read(file) == [{"a": None}] * 3


def test_bytes_and_texts_are_a_column(tmp_path: Path) -> None:
    assert read_all(write(tmp_path / "1", [b"\xff", b""])) == [{"value": b"\xff"}, {"value": b""}]
    assert read_all(write(tmp_path / "2", ["x", "é"], format_="avro")) == [{"value": "x"}, {"value": "é"}]


def test_a_schema_decides_and_fields_beyond_it_follow(tmp_path: Path) -> None:
    schema = schema_of(n="int", at="timestamp", day="date", price="decimal(5,2)", any="variant", what="interval day", gone="string")
    record = {"n": 1, "at": "2026-11-29T07:00:00.5+01:00", "day": "2026-11-29", "price": 1.1, "any": {"a": [1]}, "what": "x", "more": [1]}
    (file,) = write(tmp_path, [record], schema)
    assert types_of(file) == {
        "n": "int32", "at": "timestamp[us, tz=UTC]", "day": "date32[day]", "price": "decimal128(5, 2)", "any": "string", "what": "string",
        "gone": "string", "more": "list<element: int64>",
    }  # fmt: skip
    (row,) = read(file)
    assert row["at"] == datetime(2026, 11, 29, 6, 0, 0, 500_000, tzinfo=UTC)
    assert (row["price"], row["any"], row["what"], row["gone"]) == (Decimal("1.10"), '{"a":[1]}', '"x"', None)


@pytest.mark.parametrize(
    ("type_", "value", "words"),
    [("int", 2**31, "beyond the 32 bits of int"), ("int", 1.5, "a whole number is needed"), ("string", 1, "text is needed"),
     ("timestamp", "2026-11-29T07:00:00.0000001Z", "behind the microsecond"), ("timestamp", "+12026-01-01T00:00:00Z", "the text is none"),
     ("timestamp", datetime(2026, 1, 1), "a time with a zone is needed"), ("date", "x", "a date such as"),  # noqa: DTZ001
     ("time(3)", "07:00:00.000001", "behind the millisecond"), ("decimal(4,2)", Decimal(100), "more than 2 digits before"),
     ("decimal(4,2)", Decimal("1.001"), "more than 2 digits behind"), ("float", 1e39, "beyond what float holds"),
     ("struct<a: int>", {"b": 1}, "field 'v.b': the schema has no such field"),
     ("map<string, int>", {"k": "x"}, "a whole number is needed"),
     ("map<int, int>", [{"key": None, "value": 1}], "a key is needed"), ("map<int, int>", [{"k": 1}], "a key and a value is needed")],
)  # fmt: skip
def test_a_declared_column_takes_its_type_only(tmp_path: Path, type_: str, value: Any, words: str) -> None:
    files = RangeFiles(options("parquet"), tmp_path)
    with pytest.raises(DataError, match=words):
        files.add("d", {"v": value}, schema_of(v=type_))
    assert files.close() == []


def test_zeros_behind_the_digits_of_a_decimal_are_none_too_many(tmp_path: Path) -> None:
    digits = "0.123456789012345678901234567891"
    (file,) = write(tmp_path, [{"d": Decimal(digits + "0" * 10)}])
    assert (types_of(file), read(file)) == ({"d": "decimal128(38, 30)"}, [{"d": Decimal(digits)}])


def test_maps_of_any_keys_come_back(tmp_path: Path) -> None:
    rows: list[Any] = [{"m": [{"key": 1, "value": {"t": {"k": "x"}}}], "s": {"deep": [{"k": 1}]}}, {"m": [], "s": None}, {"m": None}]
    schema = schema_of(m="map<int, struct<t: map<string, string>>>", s="struct<deep: array<map<string, int>>>")
    assert read_all(write(tmp_path, rows, schema)) == [*rows[:2], {"m": None, "s": None}]


def test_row_groups_are_bounded_and_have_statistics_and_checksums(tmp_path: Path) -> None:
    files = RangeFiles(options("parquet", "zstd"), tmp_path)
    for first in range(0, 60_000, 2000):
        assert files.add_all("d", [{"n": n, "t": f"{n:01000d}"} for n in range(first, first + 2000)]) == 2000
    (file,) = files.close()
    found = pq.ParquetFile(file.path, page_checksum_verification=True)
    assert found.num_row_groups == 2
    column = found.metadata.row_group(1).column(0)
    assert (column.statistics.min, column.statistics.max, column.compression) == (found.metadata.row_group(0).num_rows, 59_999, "ZSTD")
    assert found.read().column("n").to_pylist() == list(range(60_000))


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "snappy", "lz4"])
def test_parquet_has_every_compression(tmp_path: Path, compression: str) -> None:
    (file,) = write(tmp_path, [{"n": n} for n in range(100)], compression=compression)
    assert pq.read_metadata(file.path).row_group(0).column(0).compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())
    assert pa.parquet.read_table(file.path).column("n").to_pylist() == list(range(100))


def test_csv_tells_null_from_an_empty_text_and_begins_a_file_for_new_columns(tmp_path: Path) -> None:
    files = RangeFiles(options("csv"), tmp_path, AT_ONCE)
    for record in ({"a": 1, "b": ""}, {"b": None}, {"a": 'x"y', "b": ["é", 1.50]}, {"c": True, "a": "p\nq"}, b"raw"):
        files.add("d", record)
    assert [file.path.read_text() for file in files.close()] == [
        'a,b\n1,""\n,\n"x""y","[""é"",1.5]"\n', 'a,b,c\n"p\nq",,true\n', "a,b,c,value\n,,,cmF3\n",
    ]  # fmt: skip


def test_row_groups_are_bounded_however_much_comes_at_once(tmp_path: Path) -> None:
    files = RangeFiles(options("parquet", "zstd"), tmp_path)
    assert files.add_all("d", [{"n": n, "t": f"{n}" + "x" * 2**16} for n in range(2000)]) == 2000
    (file,) = files.close()
    assert pq.ParquetFile(file.path).num_row_groups == 4
    assert pq.read_table(file.path).column("n").to_pylist() == list(range(2000))
