"""W3C extended logs: what IIS and CloudFront write, from every place on, with the columns that hold there."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats.records import FORMATS
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, read_all, resumes
from tests.unit.formats.records.trees import form

IIS = b"""#Software: Microsoft Internet Information Services 10.0\r
#Version: 1.0\r
#Date: 2026-11-21 00:00:03\r
#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query cs(User-Agent) sc-status\r
2026-11-21 00:00:03 10.0.0.1 GET /a+b.html - Mozilla/5.0+(Windows+NT+10.0) 200\r
2026-11-21 00:00:04 10.0.0.1 POST /login x=1+1 - 302\r
#Software: Microsoft Internet Information Services 10.0\r
#Fields: date time sc-status time-taken\r
2026-11-21 00:10:00 500 17\r
"""
CLOUDFRONT = (
    b"#Version: 1.0\n#Fields: date time x-edge-location cs(User-Agent) cs-uri-query\n"
    b"2026-11-21\t12:00:01\tFRA56-C1\tMozilla/5.0%20(X11;%20Linux)\ta=%2520b\n2026-11-21\t12:00:02\tFRA56-C1\t-\t-\n"
)


@pytest.mark.parametrize("packed", [False, True])
def test_columns_are_those_of_the_last_fields_line(packed: bool) -> None:
    first, second, third = resumes(form("w3c", unescape="plus", types={"sc-status": "int", "date": "date"}), IIS, packed=packed).fields
    assert first == {
        "date": dt.date(2026, 11, 21), "time": "00:00:03", "s-ip": "10.0.0.1", "cs-method": "GET", "cs-uri-stem": "/a+b.html",
        "cs-uri-query": None, "cs(User-Agent)": "Mozilla/5.0 (Windows NT 10.0)", "sc-status": 200,
    }  # fmt: skip
    assert (second["cs(User-Agent)"], second["cs-uri-query"], second["sc-status"]) == (None, "x=1+1", 302)
    assert third == {"date": dt.date(2026, 11, 21), "time": "00:10:00", "sc-status": 500, "time-taken": "17"}


def test_what_cloudfront_escapes_is_made_plain_once() -> None:
    first, second = resumes(form("w3c", unescape="percent"), CLOUDFRONT).fields
    assert (first["cs(User-Agent)"], first["cs-uri-query"]) == ("Mozilla/5.0 (X11; Linux)", "a=%20b")
    assert (second["cs(User-Agent)"], second["cs-uri-query"]) == (None, None)
    assert read_all(form("w3c"), CLOUDFRONT).fields[0]["cs-uri-query"] == "a=%2520b"


@pytest.mark.parametrize(
    ("line", "values"),
    [
        (b"a b", ["a", "b"]),
        (b"a  b ", ["a", "b"]),
        (b'"a b" "say ""no"""', ["a b", 'say "no"']),
        (b'"-" -', ["-", None]),
        (b'"a b', ['"a', "b"]),
        (b'"a"b c', ['"a"b', "c"]),
        (b"a b\tc d", ["a b", "c d"]),
        (b"\tb", [None, "b"]),
    ],
)
def test_values_are_separated_by_tabs_or_by_blanks_and_may_stand_in_quotes(line: bytes, values: list[str | None]) -> None:
    assert [list(one.values()) for one in read_all(form("w3c"), b"#Fields: x y\n" + line).fields] == [values]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a b\n#Fields: x y\n", "no #Fields line"),
        (b"#Fields: x y\na\n", "1 columns, 2 are named"),
        (b"#Fields: x y\na b c\n", "3 columns, 2 are named"),
        (b"#Fields: x y\na \xff\n", "not utf-8"),
        (b"#Fields:\na b\n", "no #Fields line"),
    ],
)
def test_a_line_that_does_not_fit_is_a_bad_record_of_its_own(data: bytes, why: str) -> None:
    whole = resumes(form("w3c"), data + b"#Fields: z\ngood\n")
    assert [why in bad.why for bad in whole.bad] == [True]
    assert whole.values[-1] == {"z": "good"}


LINES = st.lists(
    st.sampled_from(["#Fields: a b", "#Fields: a", "#fields: b\ta", "#Date: x", "#", "", " ", "1 2", "1", "é - x", '"q q"']), max_size=15
)


@settings(max_examples=examples(100), deadline=None)
@given(LINES, st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_any_lines_are_read_the_same_from_every_record_on(lines: list[str], encoding: str, end: str, packed: bool) -> None:
    data = end.join(lines).encode(encoding)
    chosen = "auto" if encoding == "utf-8-sig" else encoding
    whole = resumes(form("w3c", encoding=chosen), data, packed=packed)
    assert (len(whole.values), whole.end) == (len([line for line in lines if line.strip() and line[0] != "#"]), len(data))


def test_the_names_are_looked_for_once_in_a_process() -> None:
    data = b"#Fields: n\n" + b"".join(b"%d\n" % number for number in range(100_000))
    again = form("w3c")
    whole = read_all(again, data)
    file = Bytes(data)
    file.memo = whole.file.memo
    list(again.frames(file, data.index(b"\n99990\n") + 1, len(data)))
    assert file.read_bytes < 1000


def test_a_dead_letter_is_read_alone_by_the_columns_of_its_file() -> None:
    log: Any = form("w3c")
    assert log.alone(b"1 -", ("a", "b")) == {"a": "1", "b": None}
    assert "no #Fields line" in log.alone(b"1 -", ()).why


def test_an_encoding_without_the_delimiter_is_named() -> None:
    kind: Any = FORMATS["w3c"]
    assert [found.place for found in kind.problems(kind.options(type="w3c", encoding="no-such"))] == [("encoding",)]


def test_columns_that_change_all_the_time_are_damage_and_take_bounded_memory() -> None:
    found = read_all(form("w3c"), b"#Fields: a\n1\n" + b"#Fields: b\n#Fields: a\n" * 6000)
    assert found.fields == [{"a": "1"}]
    assert "more than 10000 times" in str(found.damage)
