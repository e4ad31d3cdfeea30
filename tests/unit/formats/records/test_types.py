"""Types of columns: the value is the text's, exactly, or it is refused in words without it."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.formats.records.columns import unique
from copycat_agent.formats.records.csv_options import CsvOptions
from copycat_agent.formats.records.field_types import TYPE_WORDS, TypeSettings, field_type, field_types
from copycat_agent.options import ValidationError

BERLIN = ZoneInfo("Europe/Berlin")

GOOD: list[tuple[str, str, Any]] = [
    ("string", " a ", " a "),
    ("int", " -12 ", -12),
    ("int", "+007", 7),
    ("int", "1" * 40, int("1" * 40)),
    ("bigint", "-9223372036854775808", -(2**63)),
    ("double", "1e-3", 0.001),
    ("float", ".5", 0.5),
    ("double", "-Infinity", -math.inf),
    (
        "decimal",
        "12345678901234567890123456789012345678901234567890.1230",
        Decimal("12345678901234567890123456789012345678901234567890.1230"),
    ),
    ("decimal", "1E-30", Decimal("1E-30")),
    ("decimal(5,2)", "-123.450", Decimal("-123.450")),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("bool", "TRUE", True),
    ("bool", "0", False),
    ("bool:ja,j/nein", "Nein", False),
    ("date", "2026-11-21", date(2026, 11, 21)),
    ("date:%d.%m.%Y", "21.11.2026", date(2026, 11, 21)),
    ("time", "13:45:00.000001", time(13, 45, 0, 1)),
    ("time:%H.%M", "13.45", time(13, 45)),
    ("timestamp", "2026-11-21T05:00:00.123456Z", datetime(2026, 11, 21, 5, 0, 0, 123456, UTC)),
    ("timestamp", "2026-11-21 05:00:00.1234560", datetime(2026, 11, 21, 5, 0, 0, 123456)),  # noqa: DTZ001 - it has no zone
    ("timestamp", "2026-11-21T05:00:00-03:30", datetime(2026, 11, 21, 5, tzinfo=timezone(-timedelta(hours=3, minutes=30)))),
    ("timestamp", "1890-01-01T00:00:00+00:53:28", datetime(1889, 12, 31, 23, 6, 32, tzinfo=UTC)),
    ("timestamp:%d/%b/%Y:%H:%M:%S %z", "21/Nov/2026:05:00:00 +0000", datetime(2026, 11, 21, 5, tzinfo=UTC)),
    ("timestamp:unix", "-1.5", datetime(1969, 12, 31, 23, 59, 58, 500000, UTC)),
    ("timestamp:unix_ms", "1795237200123", datetime(2026, 11, 21, 5, 0, 0, 123000, UTC)),
    ("timestamp:unix_us", "1795237200123456", datetime(2026, 11, 21, 5, 0, 0, 123456, UTC)),
    ("json", '{"a": [1.10, 123456789012345678901]}', {"a": [Decimal("1.10"), 123456789012345678901]}),
    ("binary", "AP8=", b"\x00\xff"),
    ("binary:hex", "00fF", b"\x00\xff"),
]

BAD: list[tuple[str, str]] = [
    *(("int", text) for text in ("", "1.0", "1_000", "٣", "0x10", "1 2", "--1", "s3cret", "1" * 5000)),
    *(("bigint", text) for text in ("9223372036854775808", "-9223372036854775809", "x")),
    *(("double", text) for text in ("", "1e999", "1_0", "1,5", "0x1p3", "s3cret", "infinit")),
    *(("decimal", text) for text in ("NaN", "Infinity", "1_0", "1,5", "", "1e99999999999999999999", "1e5000", "1e-8000000", "s3cret")),
    *(("decimal(5,2)", text) for text in ("1234.5", "1000", "1.234", "1e3", "1e-3", "-1000.00")),
    *(("bool", text) for text in ("", "2", "s3cret")),
    ("bool:ja/nein", "true"),
    *(("date", text) for text in ("2026-02-30", "21.11.2026", "", "s3cret")),
    ("date:%d.%m.%Y", "2026-11-21"),
    *(("time", text) for text in ("25:00:00", "10:00:00.1234567", "")),
    *(("timestamp", text) for text in ("", "s3cret", "2026-11-21T05:00:00.1234567", "2026-11-21T05:00:00,123456001", "2026-11-21T24:00:01",
                                  "0001-01-01T00:00:00+23:59:59")),
    ("timestamp:%Y", "s3cret"),
    *(("timestamp:unix", text) for text in ("1e9", "0.0000001", "999999999999999", "s3cret", "")),
    *(("json", text) for text in ("{", "NaN", '{"s3cret": 1, "s3cret": 2}', "[" * 100_000, "")),
    *(("binary", text) for text in ("A", "s3cret!", "AP8=\n=")),
    *(("binary:hex", text) for text in ("0", "s3cret")),
]  # fmt: skip


@pytest.mark.parametrize(("word", "text", "value"), GOOD)
def test_a_text_becomes_its_value(word: str, text: str, value: object) -> None:
    type_ = field_type(word)
    for found in (type_.read(text), *type_.read_each([text, text])):
        assert (found, type(found)) == (value, type(value))
        assert str(found) == str(value), "no digit is lost"
        assert getattr(found, "tzinfo", None) == getattr(value, "tzinfo", None)


@pytest.mark.parametrize(("word", "text"), BAD)
def test_what_is_no_such_value_is_refused_without_showing_it(word: str, text: str) -> None:
    type_ = field_type(word)
    with pytest.raises(ValueError, match=r"^(a|not|nothing)") as caught:
        type_.read(text)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    (found,) = type_.read_each([text])
    assert isinstance(found, ValueError)
    assert str(found) == str(caught.value)


PLAIN = st.text(st.sampled_from("0123456789+-.,eE_ :TZ٣infax"), max_size=12)


@given(st.sampled_from([*TYPE_WORDS, "decimal(4,2)", "bool:a/x", "timestamp:unix"]), st.lists(PLAIN, max_size=6))
def test_many_texts_are_read_as_each_is(word: str, texts: list[str]) -> None:
    type_ = field_type(word)
    each = [type_.read_each([text])[0] for text in texts]
    slow: list[Any] = []
    for text in texts:
        try:
            slow.append(type_.read(text))
        except ValueError as error:
            slow.append(error)
    for found in (type_.read_each(texts), each):
        assert [repr(one) for one in found] == [repr(one) for one in slow]


@given(st.datetimes(), st.sampled_from(["T", " "]))
def test_any_moment_reads_back(moment: datetime, between: str) -> None:
    assert field_type("timestamp").read_all([moment.isoformat(between)]) == [moment]


def test_a_zone_counts_for_what_does_not_say_its_own() -> None:
    type_ = field_type("timestamp", TypeSettings("Europe/Berlin"))
    texts = ["2026-07-01T12:00:00", "2026-07-01T12:00:00Z", "1890-01-01T00:00:00"]
    expected = ["2026-07-01T12:00:00+02:00", "2026-07-01T12:00:00+00:00", "1889-12-31T23:06:32+00:00"]
    assert [one.isoformat() for one in type_.read_each(texts)] == expected
    assert [type_.read(text).isoformat() for text in texts] == expected
    assert field_type("timestamp:%Y-%m-%d %H", TypeSettings("Europe/Berlin")).read("2026-12-01 12") == datetime(
        2026, 12, 1, 12, tzinfo=BERLIN
    )


def test_a_decimal_comma() -> None:
    types = field_types({"p": "decimal(6,2)", "d": "double", "s": "string"}, TypeSettings("", ","))
    assert set(types) == {"p", "d"}, "texts need no reading"
    assert types["p"].read_each(["1234,5", "1.5", "0,07"])[::2] == [Decimal("1234.5"), Decimal("0.07")]
    assert isinstance(types["p"].read_each(["1.5"])[0], ValueError)
    assert types["d"].read("-,5") == -0.5


@pytest.mark.parametrize(
    ("word", "sql"),
    [
        ("int", "bigint"), ("bigint", "bigint"), ("float", "double"), ("decimal", "decimal(38,18)"), ("decimal(10, 2)", "decimal(10,2)"),
        ("decimal(7)", "decimal(7,0)"), ("bool", "boolean"), ("date", "date"), ("time", "time(6)"), ("timestamp:unix", "timestamp"),
        ("json", "variant"), ("binary:hex", "binary"), ("string", "string"),
    ],
)  # fmt: skip
def test_each_has_the_name_that_spark_gives_it(word: str, sql: str) -> None:
    assert field_type(word).sql == sql


@pytest.mark.parametrize(
    "word", ["", "integer", "int:8", "decimal(39,0)", "decimal(2,3)", "decimal(0)", "decimal(x)", "bool:a", "bool:a/a", "bool:/b", "date:Y",
             "timestamp:yyyy-MM-dd",              "timestamp:%", "time:unix", "binary:utf8", "string(3)"],
)  # fmt: skip
def test_a_type_that_is_none_is_refused_when_the_definition_is_read(word: str) -> None:
    with pytest.raises(ValidationError):
        CsvOptions(types={"a": word})


def test_options_with_types_cross_processes() -> None:
    options = CsvOptions(types={"a": "timestamp:%d.%m.%Y %H:%M"}, timestamp_zone="Europe/Berlin")
    assert pickle.loads(pickle.dumps(options)) == options
    with pytest.raises(ValidationError, match="no time zone"):
        CsvOptions(timestamp_zone="Mars/Olympus")


def test_columns_get_names_of_their_own() -> None:
    assert unique(["a", "", "a", "c2", "", "a", "a_2"]) == ["a", "c2_2", "a_3", "c2", "c5", "a_4", "a_2"]


def test_a_line_of_numbers_taken_for_a_header_does_not_take_for_ever() -> None:
    names = unique(["0", "1"] * 100_000)
    assert len(set(names)) == 200_000
    assert names[-1] == "1_100000"
