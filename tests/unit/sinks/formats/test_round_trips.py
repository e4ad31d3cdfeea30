"""Records by chance: what was taken is what others read, whichever way it came; what does not fit leaves no trace."""

from __future__ import annotations

import math
import string
from datetime import UTC, timedelta, timezone
from decimal import Decimal
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.converters.plain import dump
from copycat_agent.errors import DataError
from copycat_agent.sinks.formats import RangeFiles
from copycat_agent.sinks.formats.range_files import RangeLimits
from tests.rig.examples import examples
from tests.unit.sinks.formats.rig import add_each, add_in_bulk, options, plain, read, read_all, schema_of, scratch

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=11))])
TEXT = st.text(max_size=8) | st.sampled_from(["", "\0", "\ud800", "a\r\nb", '"', ",", " x ", "é世🙂", "1"])
WHOLE = st.integers(-9, 9) | st.sampled_from([2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 10**30])
NUMBER = WHOLE | st.floats()
TIME = st.datetimes(timezones=ZONES | st.none())
DECIMAL = st.decimals(allow_nan=True, allow_infinity=True, places=2) | st.decimals(-9, 9, places=5) | st.sampled_from([Decimal("1E+20")])
ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT | TIME | DECIMAL | st.dates() | st.times() | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(), "whole": WHOLE, "number": NUMBER, "text": TEXT, "data": st.binary(max_size=4), "at": TIME, "day": st.dates(),
    "clock": st.times(), "price": DECIMAL | WHOLE, "list": st.lists(NUMBER | st.none(), max_size=3),
    "deep": st.lists(st.fixed_dictionaries({}, optional={"a": st.lists(TEXT, max_size=2), "b": ANY}), max_size=2),
    "inner": st.dictionaries(st.sampled_from("abc"), NUMBER | st.none(), max_size=3), "any": ANY,
}  # fmt: skip
ROWS = st.lists(st.fixed_dictionaries({}, optional={name: one | st.none() for name, one in FIELDS.items()}), max_size=12)
ODD = ["", "a.b", "a b", "a", "A", "`", "\n", '"', ",", "é", "\0", "\ud800"]


@settings(max_examples=examples(80))
@given(ROWS, st.sampled_from(["parquet", "avro"]), st.booleans())
def test_rows_of_any_fields_come_back_and_both_ways_take_the_same(rows: list[dict[str, Any]], kind: str, spills: bool) -> None:
    """`spills`: rows are written as they come, so that wider types and new columns begin another file."""
    limits = RangeLimits(held_bytes=1, left_bytes=0) if spills else RangeLimits()
    with scratch() as place:
        one, many = RangeFiles(options(kind), place / "1", limits), RangeFiles(options(kind), place / "2")
        fit = add_each(one, rows)
        assert add_in_bulk(many, rows) == fit
        for files in (one, many):
            assert [plain(row) for row in read_all(files.close())] == [plain(rows[index]) for index in fit]


@settings(max_examples=examples(60))
@given(
    st.lists(st.dictionaries(st.sampled_from(ODD), WHOLE | TEXT | st.none(), max_size=4), max_size=8), st.sampled_from(["parquet", "csv"])
)
def test_names_of_columns_may_be_odd(rows: list[dict[str, Any]], kind: str) -> None:
    with scratch() as place:
        files = RangeFiles(options(kind), place)
        fit = add_in_bulk(files, rows)
        found = read_all(files.close())
        expected = [rows[index] for index in fit]
        if kind == "csv":
            assert [{k: v for k, v in row.items() if v} for row in found] == [
                {k: str(v) for k, v in row.items() if v is not None and v != ""} for row in expected
            ]
        else:
            assert sorted(repr(plain(row)) for row in found) == sorted(repr(plain(row)) for row in expected), "a and A are in two files"
            assert not any({"a", "A"} <= row.keys() and None not in (row["a"], row["A"]) for row in expected)


@settings(max_examples=examples(50))
@given(
    st.lists(st.fixed_dictionaries({}, optional={"t": TEXT, "any": ANY | st.none()}), max_size=8), st.sampled_from(["none", "gzip", "zstd"])
)
def test_csv_has_texts_as_they_are_and_all_else_as_json_has_it(rows: list[dict[str, Any]], compression: str) -> None:
    with scratch() as place:
        files = RangeFiles(options("csv", compression), place)
        fit = add_in_bulk(files, rows)
        found = read_all(files.close())
        for index, row in zip(fit, found, strict=True):
            for name, text in row.items():
                value = rows[index].get(name)
                if isinstance(value, float) and not math.isfinite(value):
                    assert text == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
                elif value is None or isinstance(value, str):
                    assert text == (value or "")
                else:
                    assert dump(value).decode() in (text, f'"{text}"')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(50))
@given(
    st.lists(
        JSON.map(orjson.dumps) | st.dictionaries(st.text(max_size=3), JSON, max_size=3) | st.binary(max_size=5) | st.none(), max_size=9
    ),
    st.sampled_from(["none", "gzip", "zstd"]),
)
def test_a_line_of_jsonl_is_one_record(records: list[Any], compression: str) -> None:
    with scratch() as place:
        one, many = RangeFiles(options("jsonl", compression), place / "1"), RangeFiles(options("jsonl", compression), place / "2")
        fit = add_each(one, records)
        assert add_in_bulk(many, records) == fit
        expected = [orjson.loads(value) if isinstance(value := records[index], bytes) else value for index in fit]
        assert read_all(one.close()) == read_all(many.close()) == expected
        assert [index for index, value in enumerate(records) if isinstance(value, dict)] == [i for i in fit if isinstance(records[i], dict)]


@settings(max_examples=examples(50))
@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\n", b"a\nb", b"", b"\r"]) | st.text(string.printable, max_size=5), max_size=9))
def test_a_line_is_one_value_and_binary_is_all_of_them(records: list[bytes | str]) -> None:
    data = [value.encode() if isinstance(value, str) else value for value in records]
    with scratch() as place:
        lines, binary = RangeFiles(options("lines"), place / "1"), RangeFiles(options("binary"), place / "2")
        assert add_in_bulk(lines, records) == [index for index, value in enumerate(data) if b"\n" not in value]
        assert read_all(lines.close()) == [value for value in data if b"\n" not in value]
        assert add_in_bulk(binary, records) == list(range(len(records)))
        assert b"".join(read_all(binary.close())) == b"".join(data)


SHORT = st.text(max_size=9)
DECLARED = {
    "b": ("boolean", st.booleans()), "i1": ("tinyint", st.integers(-128, 127)), "i2": ("smallint", st.integers(-(2**15), 2**15 - 1)),
    "i4": ("int", st.integers(-(2**31), 2**31 - 1)), "i8": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "f": ("float", st.floats(width=32)), "d": ("double", st.floats()), "s": ("string", SHORT), "x": ("binary", st.binary(max_size=9)),
    "day": ("date", st.dates()), "t": ("timestamp", st.datetimes(timezones=st.just(UTC))), "n": ("timestamp_ntz", st.datetimes()),
    "clock": ("time(6)", st.times()), "p": ("decimal(12,3)", st.decimals(-(10**8), 10**8, places=3)),
    "l": (
        "array<struct<a: int, `b c`: array<string>>>",
        st.lists(st.fixed_dictionaries({"a": st.integers(0, 9), "b c": st.lists(SHORT, max_size=3)}), max_size=3),
    ),
    "m": ("map<string, struct<a: bigint>>", st.dictionaries(SHORT, st.fixed_dictionaries({"a": st.integers(0, 9) | st.none()}))),
}  # fmt: skip


@settings(max_examples=examples(50))
@given(st.lists(st.fixed_dictionaries({}, optional={name: one | st.none() for name, (_, one) in DECLARED.items()}), max_size=6))
def test_every_type_that_a_schema_declares_comes_back(rows: list[dict[str, Any]]) -> None:
    rows = [row for row in rows if row]
    schema = schema_of(**{name: type_ for name, (type_, _) in DECLARED.items()})
    with scratch() as place:
        files = RangeFiles(options("parquet", "zstd"), place)
        assert files.add_all("d", rows, schema) == len(rows)
        written = files.close()
        assert len(written) == bool(rows)
        for file in written:
            found = [{name: _nan(value) for name, value in row.items()} for row in read(file)]
            assert found == [{name: _nan(row.get(name)) for name in DECLARED} for row in rows]


def _nan(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.parametrize("kind", ["jsonl", "lines", "csv", "binary", "parquet", "avro"])
def test_large_values_come_back(kind: str) -> None:
    large = ["x" * 2**20, "é" * 2**19]
    records: list[Any] = [text.encode() for text in large] if kind in ("lines", "binary") else [{"t": text} for text in large]
    with scratch() as place:
        files = RangeFiles(options(kind), place)
        assert files.add_all("d", records * 10) == 20
        found = read_all(files.close())
        assert found == ([b"".join(records * 10)] if kind == "binary" else records * 10)


@pytest.mark.parametrize("kind", ["jsonl", "lines", "csv", "binary", "parquet", "avro"])
def test_a_null_value_fits_nowhere(kind: str) -> None:
    with scratch() as place:
        files = RangeFiles(options(kind), place)
        assert files.add_all("d", [None]) == 0
        with pytest.raises(DataError, match="null"):
            files.add("d", None)
        assert files.close() == []
