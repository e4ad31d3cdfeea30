"""Rows that are written column by column are the bytes that each row gives by itself."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.converters.plain import dump
from copycat_agent.encoding.json_columns import rows_as_json
from copycat_agent.sources.contract_frames import fields_of_rows
from tests.rig.examples import examples

_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(
        ["", "plain", 'a "quote"', "back\\slash", "line\nend", "\x00", "\x1f", "\x7f", "\x80", "ünicode", "\u2028", "😀", "a,b", "</x>"]
    ),
)
_MICROS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    st.integers(-10, 10).map((1_000_000).__mul__),
)
_FLOATS = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, 1e15, 1e16, 1e17, 1e-5, 1e-6, 1e-7, 1.0, 5e-324, math.nan, math.inf, -math.inf, 1 / 3])
)


def _times(unit: str, zone: str | None) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    return pa.timestamp(unit, zone), _MICROS


def _decimals(digits: int, scale: int) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    most = 10**digits - 1
    return pa.decimal128(digits, scale), st.integers(-most, most).map(lambda one: Decimal(f"{one}e-{scale}"))


_WHOLE = [
    (kind(), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    for kind, bits in ((pa.int8, 8), (pa.int16, 16), (pa.int32, 32), (pa.int64, 64))
]
_COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *_WHOLE,
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.string(), _TEXTS),
    (pa.large_string(), _TEXTS),
    (pa.float64(), _FLOATS),
    (pa.float32(), st.floats(width=32)),
    *[_times(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "+02:00")],
    (
        pa.date32(),
        st.one_of(
            st.integers(-(2**31), 2**31 - 1), st.integers(-719_162, 2_932_896), st.sampled_from([-719_163, -719_162, 2_932_896, 2_932_897])
        ),
    ),
    (pa.time64("us"), st.integers(0, 86_399_999_999)),
    *[_decimals(*one) for one in ((1, 0), (12, 2), (18, 18), (38, 0), (38, 10), (9, 7))],
    (pa.binary(), st.binary(max_size=6)),
    (pa.null(), st.none()),
    (pa.list_(pa.string()), st.lists(st.one_of(st.none(), _TEXTS), max_size=3)),
    (pa.list_(pa.float64()), st.lists(_FLOATS, max_size=3)),
    (pa.struct([("a", pa.int32()), ("b", pa.string())]), st.fixed_dictionaries({"a": st.integers(0, 9), "b": _TEXTS})),
    (pa.map_(pa.string(), pa.int64()), st.dictionaries(_TEXTS, st.integers(0, 9), max_size=3).map(lambda one: list(one.items()))),
    (pa.dictionary(pa.int8(), pa.string()), _TEXTS),
]


@st.composite
def _batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(1, 20))
    names = draw(st.lists(_TEXTS, min_size=1, max_size=4, unique=True))
    arrays = []
    for _ in names:
        type_, some = draw(st.sampled_from(_COLUMNS))
        is_whole = draw(st.booleans())
        found = draw(st.lists(some if is_whole else st.one_of(st.none(), some), min_size=rows, max_size=rows))
        arrays.append(_array(type_, found))
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    begin = draw(st.integers(0, rows - 1))
    return batch.slice(begin, draw(st.integers(1, rows)))


def _array(type_: pa.DataType, found: list[Any]) -> pa.Array:
    """Numbers stand for times: Python's own cannot say them all."""
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        return pa.array(found, pa.int64()).view(type_)
    return pa.array(found, pa.int32()).view(type_) if pa.types.is_date32(type_) else pa.array(found, type_)


@given(_batches())
@settings(max_examples=examples(300), deadline=None)
def test_columns_give_the_same_bytes_as_rows(batch: pa.RecordBatch) -> None:
    assert rows_as_json(batch) == [dump(row) for row in fields_of_rows(batch)]


def test_texts_with_escapes_among_many_without_are_written_as_each_would_be() -> None:
    texts = [*map(str, range(100)), "tab\t", None, 'say "so"', *map(str, range(100))]
    batch = pa.RecordBatch.from_pydict({"text": texts, "again": texts[::-1]})
    assert rows_as_json(batch) == [dump(row) for row in fields_of_rows(batch)]


def test_ordinary_types_are_written_without_a_look_at_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copycat_agent.encoding.json_columns.values", None)
    moment = datetime(2024, 2, 29, 12, 30, 15, 250_000, UTC)
    row = {"id": 7, "at": moment, "naive": moment.replace(tzinfo=None), "day": date(2024, 2, 29), "total": Decimal("1.50"), "half": 0.5}
    batch = pa.RecordBatch.from_pylist([{**row, "paid": True, "text": "ünicode"}] * 3)
    assert rows_as_json(batch) == [dump({**row, "paid": True, "text": "ünicode"})] * 3


@pytest.mark.parametrize(
    "batch",
    [
        pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["same", "same"]),
        pa.RecordBatch.from_arrays([pa.array([b"\xff"], pa.binary()).view(pa.string())], names=["text"]),
        pa.RecordBatch.from_pydict({"a": [1]}).select([]),
        pa.RecordBatch.from_pydict({"a": [1]}).slice(1),
    ],
    ids=["names twice", "no UTF-8", "no columns", "no rows"],
)
def test_what_is_not_sure_is_left_to_each_row(batch: pa.RecordBatch) -> None:
    assert rows_as_json(batch) is None
