"""Promises of the step `csv`: a row means what it means to the format csv, whichever way is taken to read it."""

from __future__ import annotations

import gc
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from copycat_agent.errors import DataError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.columns import Columns
from copycat_agent.formats.records.csv_format import CsvFormat
from copycat_agent.formats.records.csv_options import CsvOptions
from copycat_agent.options import ValidationError
from copycat_agent.transforms import StepError
from tests.unit.transforms.steps import after, columns, draft, options, step

ABC = ("a", "b", "c")


@pytest.mark.parametrize(
    ("line", "parse", "fields"),
    [
        ("1,x,", {}, {"a": "1", "b": "x", "c": None}),
        ('1,"x, ""y""",3', {}, {"a": "1", "b": 'x, "y"', "c": "3"}),
        ('1,"",', {}, {"a": "1", "b": "", "c": None}),
        ('"1","","3"', {}, {"a": "1", "b": "", "c": "3"}),
        ('1,"",', {"null_quoted": True}, {"a": "1", "b": None, "c": None}),
        ("1,NULL,-", {"null": ("NULL", "-")}, {"a": "1", "b": None, "c": None}),
        ('1,"NULL",', {"null": "NULL"}, {"a": "1", "b": "NULL", "c": ""}),
        ("1,,", {"null": ()}, {"a": "1", "b": "", "c": ""}),
        ("1;x;3", {"delimiter": ";"}, {"a": "1", "b": "x", "c": "3"}),
        ("1\tx\t3", {"delimiter": "\\t"}, {"a": "1", "b": "x", "c": "3"}),
        ('1||"x||y"||3', {"delimiter": "||"}, {"a": "1", "b": "x||y", "c": "3"}),
        ('1,"x",3', {"quote": "none"}, {"a": "1", "b": '"x"', "c": "3"}),
        ("1,'x,y',3", {"quote": "'"}, {"a": "1", "b": "x,y", "c": "3"}),
        ("1,x\\,y,3", {"escape": "\\"}, {"a": "1", "b": "x,y", "c": "3"}),
        (' 1 , "x" , 3 ', {"trim": True}, {"a": "1", "b": "x", "c": "3"}),
        ("1,x,3\r", {}, {"a": "1", "b": "x", "c": "3"}),
        ('1,"x\ny",3\n', {}, {"a": "1", "b": "x\ny", "c": "3"}),
        ("1,x", {}, {"a": "1", "b": "x", "c": None}),
        ("1,x,3,4,5", {"too_many": "drop"}, {"a": "1", "b": "x", "c": "3"}),
        ("1,x,3,4,", {"too_many": "keep"}, {"a": "1", "b": "x", "c": "3", "c4": "4", "c5": None}),
        ("1,2.50,yes", {"types": {"a": "int", "b": "decimal", "c": "bool"}}, {"a": 1, "b": Decimal("2.50"), "c": True}),
        (',"",', {"types": {"a": "int", "b": "int"}}, {"a": None, "b": None, "c": None}),
        ('"1","","x,y"', {"types": {"a": "int", "b": "int"}}, {"a": 1, "b": None, "c": "x,y"}),
        ("1;2,5;x", {"types": {"b": "double"}, "decimal_point": ",", "delimiter": ";"}, {"a": "1", "b": 2.5, "c": "x"}),
        ("1,x,3", {"columns": ()}, {"c1": "1", "c2": "x", "c3": "3"}),
        (",,", {}, {"a": None, "b": None, "c": None}),
    ],
)
def test_a_row_becomes_fields(line: str, parse: dict[str, Any], fields: dict[str, Any]) -> None:
    assert repr(after({"csv": {"columns": ABC, **parse}}, line.encode())) == repr(fields)


@pytest.mark.parametrize(
    ("line", "parse", "why"),
    [
        ("", {}, "nothing in it"),
        (" \r", {}, "nothing in it"),
        ("secret,2,3,4", {}, "4 columns, 3 are named"),
        ("secret", {"too_few": "error"}, "1 columns, 3 are named"),
        ('1,"secret', {}, "column 2: a quote that is opened is not closed"),
        ('1,"secret" x,3', {}, "column 2: something other than a delimiter"),
        ("1,2,3\n4,5,secret", {}, "a second row follows"),
        ("1,secret,3", {"types": {"b": "int"}}, "column 'b': not a whole number"),
        ("1,secret,3\\", {"escape": "\\"}, "column 3: the escape character"),
        ("1,sec\rret,3", {}, "column 2: a carriage return"),
    ],
)
def test_what_is_no_row(line: str, parse: dict[str, Any], why: str) -> None:
    record = draft(line.encode())
    with pytest.raises(StepError, match=why) as caught:
        step({"csv": {"columns": ABC, **parse}})(record)
    assert "secret" not in str(caught.value)
    assert record.value == line.encode()


PARSES: list[dict[str, Any]] = [
    {}, {"types": {"a": "int"}}, {"null": ("NULL", "")}, {"null": ()}, {"null_quoted": True}, {"trim": True}, {"escape": "\\"},
    {"doublequote": False}, {"too_few": "error"}, {"too_many": "keep"}, {"too_many": "drop"}, {"quote": "none"},
]  # fmt: skip
ROWS = st.lists(st.sampled_from(["", "a", '""', '"a"', '"a,b"', "1", " ", "NULL"]), max_size=5).map(",".join)


@given(st.text('ab1, "\t\\;', max_size=24) | ROWS, st.sampled_from(PARSES))
@example('"","a",', {})
@example('"",",,"', {})
@example('"NULL",NULL,a', {"null": ("NULL", "")})
@example('"","a,b","c"', {"types": {"a": "binary"}})
def test_a_row_means_what_it_means_in_a_file(line: str, parse: dict[str, Any]) -> None:
    if not line.strip():
        return
    in_file = CsvFormat(CsvOptions(header=False, columns=ABC, **parse)).alone(line.encode(), ())
    try:
        found: Any = after({"csv": {"columns": ABC, **parse}}, line.encode())
    except DataError:
        found = None
    assert repr(found) == repr(None if isinstance(in_file, Unparsed) else in_file)


def test_declared_fields() -> None:
    item = {"csv": {"columns": ABC, "types": {"a": "int"}}}
    assert columns(item, message="string", host="string") == {"host": "string", "a": "bigint", "b": "string", "c": "string"}
    assert columns({"csv": {"columns": ABC, "into": "row"}}, message="string") == {"row": "struct<a: string, b: string, c: string>"}
    assert columns({"csv": {}}, message="string") is None


@pytest.mark.parametrize(
    "parse",
    [{"columns": ("a", "a")}, {"columns": ("a", "")}, {"types": {"z": "int"}}, {"delimiter": ""}, {"quote": "''"}, {"escape": '"'},
     {"delimiter": '"'}, {"types": {"a": "integer"}}, {"header": True}],
)  # fmt: skip
def test_what_cannot_work_is_refused_when_it_is_loaded(parse: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        options({"csv": {"columns": ABC, **parse}})


def test_names_of_columns_that_only_a_line_has_are_remembered_for_rows_of_usual_width() -> None:
    """A line of a million delimiters would leave 200 MB behind."""
    parse = step({"csv": {}})
    for count in (3, 5000, 4, 5001):
        record = draft(b"," * (count - 1) + b"x")
        assert parse(record) is True
        assert record.value == {**{f"c{number}": None for number in range(1, count)}, f"c{count}": "x"}
    kept = {len(each.names) for each in gc.get_objects() if isinstance(each, Columns)}
    assert kept & {3, 4, 5000, 5001} == {3, 4}
