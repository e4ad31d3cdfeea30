"""Rows that come as one text each have the values, and the types, that their columns have by themselves."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.extending import RetriableError, fields_of_rows
from copycat_agent.sources.jdbc.database import ColumnInfo, TableInfo
from copycat_agent.sources.jdbc.packed_rows import unpacked
from copycat_agent.sources.jdbc.statements import PACKED, Dialect, packed, packed_columns
from tests.rig.examples import examples
from tests.rig.postgres import Postgres

_QUOTED = set('(),"\\ \t\n\r\v\f')

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6), st.text('a"\\,()\n\r \t', max_size=6)
)
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "int2": st.integers(-(2**15), 2**15 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "float8": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "text": TEXTS,
    "numeric12,2": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda one: Decimal(one).scaleb(-2)),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamptz": st.datetimes(timezones=st.just(UTC)),
}


def rows_of(columns: list[tuple[str, str]], texts: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=[PACKED + json.dumps(columns)])


def written(value: Any) -> str:
    """As PostgreSQL writes a value within a row: `record_out`."""
    if value is None:
        return ""
    text = {True: "t", False: "f"}[value] if isinstance(value, bool) else str(value)
    if isinstance(value, datetime):
        text = value.isoformat(" ").replace("+00:00", "+00")
    if isinstance(value, float):
        text = repr(value).replace("inf", "Infinity")
    if text and not set(text) & _QUOTED:
        return text
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '""'))


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_row_in_one_text_has_the_values_of_its_columns(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    names = [f"{number} {kind}" for number, kind in enumerate(kinds)]
    some = st.tuples(*(st.one_of(st.none(), COLUMNS[kind]) for kind in kinds))
    rows = data.draw(st.lists(some, min_size=1, max_size=5))
    texts = [f"(,{','.join(map(written, row))},)" for row in rows]
    found = unpacked(rows_of(list(zip(names, kinds, strict=True)), texts))
    assert fields_of_rows(found) == [dict(zip(names, row, strict=True)) for row in rows]


def test_times_that_python_does_not_have_are_those_of_the_calendar_before_and_behind_it() -> None:
    columns = [("day", "date"), ("at", "timestamptz"), ("n", "int4"), ("ok", "bool"), ("x", "float8"), ("d", "numeric9,3"), ("t", "text")]
    texts = [
        '(,"0001-12-31 BC","0002-02-28 23:59:59.5+00 BC",1,t,NaN,1.250,"a, b",)',
        '(,infinity,"12345-06-07 08:09:10+00",2,f,-Infinity,-0.001,"",)',
        '(,-infinity,"1970-01-01 00:00:00-05:30",,,,,,)',
    ]
    days, times, *others = unpacked(rows_of(columns, texts)).columns
    assert days.view(pa.int32()).to_pylist() == [-719_163, date(9999, 12, 31).toordinal() - 719_163, date(1, 1, 1).toordinal() - 719_163]
    years = (date(12345 - 400 * 20, 6, 7).toordinal() + 146_097 * 20 - 719_163) * 86_400
    assert times.view(pa.int64()).to_pylist() == [
        (date(399, 2, 28).toordinal() - 146_097 - 719_163) * 86_400_000_000 + 86_399_500_000,
        (years + 29_350) * 1_000_000,
        19_800_000_000,
    ]
    numbers, flags, doubles, decimals, words = (one.to_pylist() for one in others)
    assert (numbers, flags, words) == ([1, 2, None], [True, False, None], ["a, b", "", None])
    assert math.isnan(doubles[0])
    assert (doubles[1:], decimals) == ([-math.inf, None], [Decimal("1.250"), Decimal("-0.001"), None])


def test_rows_that_are_not_those_the_statement_was_made_for_are_to_be_asked_for_again() -> None:
    with pytest.raises(RetriableError, match="other columns"):
        unpacked(rows_of([("n", "int4")], ["(,12,)", "(,word,)"]))
    with pytest.raises(RetriableError, match="other columns"):
        unpacked(rows_of([("day", "date")], ["(,word,)"]))


def test_rows_of_several_columns_are_left_as_they_are() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1], "b": ["x"]})
    assert unpacked(batch) is batch


def test_which_tables_come_as_texts_of_rows() -> None:
    def of(*kinds: str) -> TableInfo:
        columns = tuple(ColumnInfo(f"c{number}", kind, 12, 2, nullable=True) for number, kind in enumerate(kinds))
        return TableInfo(("public", "t"), columns, ("c0",))

    known = Dialect("postgresql")
    assert packed_columns(known, of("int8", "uuid", "numeric", "serial"), "_key", 1) == [
        ("c0", "int8"),
        ("c1", "text"),
        ("c2", "numeric12,2"),
        ("c3", "int4"),
        ("_key", "int8"),
        ("copycat_hidden_0", "text"),
    ]
    assert packed_columns(known, of("int8", "bytea"), None, 0) is None
    assert packed_columns(known, of("int8", "_text"), None, 0) is None
    assert packed_columns(Dialect("h2"), of("int8"), None, 0) is None


VALUES = """SELECT 1::int2 AS a, -2::int4 AS b, 9223372036854775807::int8 AS c, 0.1::float4 AS d, 1e-7::float8 AS e, true AS f,
    'a "b" \\ (c), ' || chr(10) || chr(13) || chr(9) || 'd' AS g, ''::text AS h, NULL::text AS i, 'x  '::char(4) AS j,
    -1.50::numeric(12, 2) AS k,
    '2024-02-29'::date AS l, '2024-02-29 01:02:03.5'::timestamp AS m, '2024-02-29 01:02:03.000001+02'::timestamptz AS n,
    'infinity'::float8 AS o, chr(8239) || chr(65279) || 'é' AS p"""
KINDS = "int2 int4 int8 float4 float8 bool text text text text numeric12,2 date timestamp timestamptz float8 text"


def test_a_server_writes_rows_as_they_are_read_here(postgres: Postgres) -> None:
    columns = [(chr(ord("a") + number), kind) for number, kind in enumerate(KINDS.split())]
    with postgres.connect() as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        ((text,),) = connection.execute(packed(Dialect("postgresql"), VALUES, columns).encode()).fetchall()
    (row,) = fields_of_rows(unpacked(rows_of(columns, [text])))
    near = row.pop("d")
    assert near == pytest.approx(0.1)
    assert row == {
        "a": 1, "b": -2, "c": 2**63 - 1, "e": 1e-7, "f": True, "g": 'a "b" \\ (c), \n\r\td', "h": "", "i": None, "j": "x   ",
        "k": Decimal("-1.50"), "l": date(2024, 2, 29), "m": datetime(2024, 2, 29, 1, 2, 3, 500_000),  # noqa: DTZ001
        "n": datetime(2024, 2, 28, 23, 2, 3, 1, UTC), "o": math.inf, "p": "\u202f\ufeffé",
    }  # fmt: skip
