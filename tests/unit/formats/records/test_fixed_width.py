"""Fixed width: columns are cut where the definition says, whatever the lines or bytes between them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import Gap, LongLine, Unparsed
from copycat_agent.formats.records import FORMATS, build_format
from copycat_agent.formats.records.csv_options import RowLineOptions
from copycat_agent.formats.records.fixed_width import ColumnOptions, FixedWidthOptions
from copycat_agent.model import Column, Schema
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Reading, ranges, read_all, resumes

COLUMNS = (
    ColumnOptions(name="id", width=4, type="int"),
    ColumnOptions(name="name", width=6),
    ColumnOptions(name="p", start=12, width=5, type="decimal(4,2)"),
)


def options(columns: tuple[ColumnOptions, ...] = COLUMNS, **more: Any) -> FixedWidthOptions:
    return FixedWidthOptions(columns=columns, **more)


def read(data: str | bytes, **more: Any) -> Reading:
    return resumes(build_format(options(**more)), data.encode() if isinstance(data, str) else data, block_bytes=(1, 30))


def test_columns_stand_at_their_places() -> None:
    reading = read("0001anna   01.50\r\n0002bö世   |22.25\n")
    assert reading.values == [{"id": 1, "name": "anna", "p": Decimal("1.50")}, {"id": 2, "name": "bö世", "p": Decimal("22.25")}]
    assert reading.schema == Schema((Column("id", "bigint"), Column("name"), Column("p", "decimal(4,2)")))


def test_widths_may_count_bytes() -> None:
    assert read("0002bö世|22.25\n".encode(), unit="bytes").values == [{"id": 2, "name": "bö世", "p": Decimal("22.25")}]
    (bad,) = read("0002abcd世22.25\n".encode(), unit="bytes").bad
    assert bad.why == "column 'name': bytes that are not utf-8"


def test_lines_that_are_short_or_long() -> None:
    data = "0001an\n0002anna   01.50  \n0003anna   01.50 x\n"
    assert read(data).values[:2] == [{"id": 1, "name": "an", "p": None}, {"id": 2, "name": "anna", "p": Decimal("1.50")}]
    assert [bad.why for bad in read(data, too_short="error").bad] == [
        "6 characters, its columns need 16",
        "18 characters, its columns end at 16",
    ]
    assert read(data, too_long="drop").bad == []
    assert read("0001an", null=()).values == [{"id": 1, "name": "an", "p": None}]


def test_a_bad_value_costs_its_line() -> None:
    reading = read(b"0001anna   01.50\nx   anna   01.50\n0003\xffnna   01.50\n0004anna   01.50")
    assert [bad.why for bad in reading.bad] == ["column 'id': not a whole number", "column 'name': bytes that are not utf-8"]
    assert [one["id"] for one in reading.fields] == [1, 4]


def test_lines_at_the_beginning_and_empty_ones_are_passed_over() -> None:
    reading = read("id  name\n----\n\n0001anna   01.50\n\n0002bert   02.50\n", skip_lines=2)
    assert [one["id"] for one in reading.fields] == [1, 2]
    assert reading.frames[0] == Gap(0, 14, b"id  name\n----\n", "header")


def test_a_line_over_the_limit_is_passed() -> None:
    reading = read("0001" + "x" * 50 + "\n0002bert   02.50\n", line=RowLineOptions(max_bytes=20))
    assert isinstance(reading.frames[0], LongLine)
    assert reading.values[1:] == [{"id": 2, "name": "bert", "p": Decimal("2.50")}]


HOST = (ColumnOptions(name="day", width=8, type="date:%Y%m%d"), ColumnOptions(name="text", width=4))


@pytest.mark.parametrize("encoding", ["utf-8", "cp037", "utf-16-le"])
def test_records_of_a_length_without_ends_of_line(encoding: str) -> None:
    size = len("x".encode(encoding)) * 12
    data = "20261121ab  20261122\n   20261123".encode(encoding)
    reading = read(data, columns=HOST, record_bytes=size, encoding=encoding, null=())
    assert reading.values[:2] == [
        {"day": date(2026, 11, 21), "text": "ab"},
        {"day": date(2026, 11, 22), "text": "\n"},
    ]
    (bad,) = reading.bad
    assert bad.why == f"the file ends after {size * 8 // 12} of {size} bytes of a record"
    assert reading.places[-1] == (len(data), False)


def test_records_at_the_beginning_are_passed_over_and_an_end_of_line_at_the_end() -> None:
    reading = read("HEADER......20261121ab  \r\n", columns=HOST, record_bytes=12, skip_lines=1)
    assert reading.values == [{"day": date(2026, 11, 21), "text": "ab"}]
    assert [type(frame) for frame in reading.frames][::2] == [Gap, Gap]


def test_a_byte_order_mark_is_no_text() -> None:
    assert read("0001anna   01.50\n".encode("utf-16"), encoding="utf-16").values == [{"id": 1, "name": "anna", "p": Decimal("1.50")}]


CELL = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=5)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(0, 9999), CELL), min_size=1, max_size=12), st.sampled_from(["utf-8", "utf-16"]))
def test_what_was_written_is_read_from_every_record_on(rows: list[tuple[int, str]], encoding: str) -> None:
    columns = (ColumnOptions(name="n", width=4, type="int"), ColumnOptions(name="t", width=5))
    data = "".join(f"{number:4d}{text:<5}\n" for number, text in rows).encode(encoding)
    form = build_format(options(columns, trim=False, null=(), encoding=encoding))
    assert resumes(form, data, block_bytes=(11,)).values == [{"n": number, "t": f"{text:<5}"} for number, text in rows]
    ranges(form, data, 3)


@settings(max_examples=examples(50))
@given(st.binary(max_size=100), st.sampled_from([None, 7]), st.integers(0, 2))
def test_no_bytes_break_it(data: bytes, record_bytes: int | None, skip: int) -> None:
    form = build_format(options(record_bytes=record_bytes, skip_lines=skip))
    reading = resumes(form, data, block_bytes=(1, 10))
    assert (reading.end, reading.damage) == (len(data), "")
    ranges(form, data, 3)


def test_options_that_contradict_each_other_are_named() -> None:
    kind = FORMATS["fixed_width"]
    twice = (ColumnOptions(name="a", width=1), ColumnOptions(name="a", width=1))
    assert [found.place for found in kind.problems(options(twice))] == [("columns", 1, "name")]
    assert [found.place for found in kind.problems(options(HOST, unit="bytes", record_bytes=11))] == [("record_bytes",)]
    assert [found.place for found in kind.problems(options(encoding="none-such"))] == [("encoding",)]
    assert list(kind.problems(options())) == []


def test_of_a_range_the_records_that_begin_in_it() -> None:
    data = b"0001anna   01.50\n" * 20
    assert ranges(build_format(options()), data, 4) == 4
    of_bytes = build_format(options(HOST, record_bytes=12, skip_lines=10))
    assert ranges(of_bytes, b"HEADER......" * 10 + b"20261121ab  " * 10, 4) == 2
    assert not any(isinstance(value, Unparsed) for value in read_all(build_format(options()), data).values)


@pytest.mark.parametrize("record_bytes", [None, 16])
def test_a_dead_letters_bytes_are_read_alone(record_bytes: int | None) -> None:
    form: Any = build_format(options(record_bytes=record_bytes))
    assert form.alone(b"0001anna   01.50", ()) == {"id": 1, "name": "anna", "p": Decimal("1.50")}
    assert isinstance(form.alone(b"000xanna   01.50", ()), Unparsed)
