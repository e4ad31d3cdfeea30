"""CSV: what the options mean, and what becomes of rows that are none."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from copycat_agent.errors import DamageError
from copycat_agent.formats import Gap, LongLine, Parsed, Unparsed
from copycat_agent.formats.records import FORMATS, build_format
from copycat_agent.formats.records.csv_options import CsvOptions, RowLineOptions
from copycat_agent.model import Column, Schema
from copycat_agent.sources.files.fingerprint import HEAD_BYTES
from tests.unit.formats.records.rig import Bytes, Reading, ranges, read_all, resumes

REAL_FILES = [path for path in (Path("/usr/share/distro-info/debian.csv"), Path("/usr/share/distro-info/ubuntu.csv")) if path.exists()]


def read(data: str | bytes, **options: Any) -> Reading:
    return resumes(build_format(CsvOptions(**options)), data.encode() if isinstance(data, str) else data, block_bytes=(1, 9, 100))


def whys(reading: Reading) -> list[str]:
    return [bad.why for bad in reading.bad]


def test_the_header_names_the_fields_and_the_types_say_what_they_are() -> None:
    reading = read(
        "order_id;qty;price\nA1;2;3.50\n;;\n", delimiter=";", types={"qty": "int", "price": "decimal(10,2)", "elsewhere": "date"}
    )
    assert reading.values == [{"order_id": "A1", "qty": 2, "price": Decimal("3.50")}, {"order_id": None, "qty": None, "price": None}]
    assert reading.schema == Schema((Column("order_id"), Column("qty", "bigint"), Column("price", "decimal(10,2)")))
    assert reading.frames[0] == Gap(0, 19, b"order_id;qty;price\n", "header")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_empty_lines_are_passed_over_and_not_counted(end: str) -> None:
    reading = read(end.join(["", "a,b", "", "1,2", "", "", "3,4", "", ""]))
    assert reading.values == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


def test_two_lines_are_skipped_then_comes_the_header() -> None:
    reading = read('exported by "x\n\n# made up\nid,text\n# none,"of this\n1,#1\n"#2",x\n', skip_lines=2, comment="#")
    assert reading.values == [{"id": "1", "text": "#1"}, {"id": "#2", "text": "x"}]


@pytest.mark.parametrize("columns", [(), ("x", "y")])
def test_without_a_header_columns_have_numbers_or_given_names(columns: tuple[str, ...]) -> None:
    first, second = columns or ("c1", "c2")
    assert read("1,2\n3\n", header=False, columns=columns).values == [{first: "1", second: "2"}, {first: "3", second: None}]


def test_names_that_are_missing_or_there_twice_get_a_number() -> None:
    assert read(" a ,,a\n1,2,3\n").values == [{"a": "1", "c2": "2", "a_2": "3"}]


def test_missing_columns_are_null_or_an_error() -> None:
    assert read("a,b,c\n1\n", types={"c": "int"}).values == [{"a": "1", "b": None, "c": None}]
    assert whys(read("a,b,c\n1\n", too_few="error")) == ["1 columns, 3 are named: 'b' and what follows is missing"]


def test_further_columns_are_an_error_dropped_or_kept() -> None:
    data = "a,c3\n1,2,3,,5\n1,2\n"
    assert whys(read(data)) == ["5 columns, 2 are named"]
    assert read(data, too_many="drop").values[0] == {"a": "1", "c3": "2"}
    assert read(data, too_many="keep").values == [{"a": "1", "c3": "2", "c3_2": "3", "c4": None, "c5": "5"}, {"a": "1", "c3": "2"}]


def test_a_null_is_what_stands_without_quotes_in_columns_of_texts() -> None:
    data = 'a,b\n"",""\n,\n"N",N\n"x""",""\n'
    assert read(data, types={"b": "int"}, null=("", "N")).values == [
        {"a": "", "b": None}, {"a": None, "b": None}, {"a": "N", "b": None}, {"a": 'x"', "b": None},
    ]  # fmt: skip
    assert read(data).values[0] == {"a": "", "b": ""}
    assert read(data, null_quoted=True).values == [
        {"a": None, "b": None},
        {"a": None, "b": None},
        {"a": "N", "b": "N"},
        {"a": 'x"', "b": None},
    ]
    assert read(data, null=()).values[:2] == [{"a": "", "b": ""}] * 2


def test_blanks_around_values_and_quotes_go_where_that_is_asked_for() -> None:
    data = 'a,b\n x ,\t"y, z" \n   \n , " q "\n'
    assert read(data, trim=True).values == [{"a": "x", "b": "y, z"}, {"a": None, "b": "q"}]
    assert whys(read(data)) == ["3 columns, 2 are named"], "a quote behind a blank is text"


MALFORMED = [
    ('5,"x"y,z', {}, "column 'b': something other than a delimiter follows the closing quote"),
    ("5,x,y,z", {}, "4 columns, 3 are named"),
    ("five,x,y", {"types": {"a": "int"}}, "column 'a': not a whole number"),
    ("5,x,12.345", {"types": {"c": "decimal(3,2)"}}, "column 'c': a number with more than 1 digits before the point"),
    ("5,x\ry,z", {}, "column 'b': a carriage return stands in it, not in quotes"),
    (b"5,\xff,z", {}, "column 'b': bytes that are not utf-8"),
    ('5,x,"y', {"multiline": False}, "column 'c': a quote that is opened is not closed"),
    ('"5",x,z\r', {}, "column 'c': a carriage return stands in it, not in quotes"),
    ('"5""","x""y",z', {"doublequote": False}, "column 'a': something other than a delimiter follows the closing quote"),
    ("5,x,y\\", {"escape": "\\", "multiline": False}, "column 'c': the escape character stands at the end of the row"),
]


@pytest.mark.parametrize(("row", "options", "why"), MALFORMED)
def test_a_malformed_row_is_one_bad_record_with_its_bytes(row: str | bytes, options: dict[str, Any], why: str) -> None:
    """Row 5 of 10: nine rows are good, and what says why holds a column's name, never a value."""
    raw = row.encode() if isinstance(row, str) else row
    rows = [b"%d,x,1" % number for number in range(10)]
    rows[4] = raw
    reading = read(b"a,b,c\n" + b"\r\n".join(rows) + b"\r\n", **options)
    assert len(reading.seen) == 10
    assert [index for index, value in enumerate(reading.values) if isinstance(value, Unparsed)] == [4]
    assert whys(reading) == [why]
    (bad,) = [row.raw for frame in reading.frames if isinstance(frame, Parsed) for row in frame.rows() if isinstance(row.framed, Unparsed)]
    assert bad is not None
    assert bad == raw + b"\r"


def test_a_value_that_would_lose_digits_is_a_bad_record() -> None:
    reading = read("p,n\n1.234,1\n1.20,9223372036854775808\n1.2,2\n", types={"p": "decimal(3,1)", "n": "bigint"})
    assert whys(reading) == [
        "column 'p': a number with more than 1 digits behind the point",
        "column 'n': a whole number that 64 bits do not hold",
    ]
    assert reading.fields == [{"p": Decimal("1.2"), "n": 2}]


def test_a_quote_that_the_file_leaves_open_costs_its_line_only() -> None:
    reading = read('a,b\n1,"x\n2,y\n3,z')
    assert reading.values[1:] == [{"a": "2", "b": "y"}, {"a": "3", "b": "z"}]
    assert whys(reading) == ["column 'b': a quote that is opened is not closed"]


def test_a_record_of_many_lines_may_be_as_long_as_the_limit() -> None:
    text = "x\n" * 40
    for spare, is_good in ((0, True), (-1, False)):
        line = RowLineOptions(max_bytes=len(f'1,"{text}"') + spare)
        reading = read(f'a,b\n1,"{text}"\n2,y\n', line=line, too_few="error")
        assert reading.values[0] == {"a": "1", "b": text} if is_good else "line.max_bytes" in reading.values[0].why
        assert reading.values[-1] == {"a": "2", "b": "y"}


@pytest.mark.parametrize("policy", ["dlq", "drop"])
def test_a_line_over_the_limit_is_passed(policy: Any) -> None:
    form = build_format(CsvOptions(line=RowLineOptions(max_bytes=10, on_too_long=policy)))
    reading = resumes(form, b"a,b\n1," + b"x" * 100 + b"\n2,y\n", block_bytes=(1, 7))
    assert form.on_too_long == policy
    assert [type(frame) for frame in reading.frames][1] is LongLine
    assert reading.values == [b"1,xxxxxxxx", {"a": "2", "b": "y"}]


@pytest.mark.parametrize("encoding", ["utf-8", "auto", "utf-16", "utf-16-be", "utf-32", "latin-1", "shift_jis", "cp037"])
def test_files_in_any_encoding(encoding: str) -> None:
    text = 'n,"tëxt"\n1,"a\nb"\n2,x\n' if encoding != "shift_jis" else 'n,"表"\n1,"a\nb"\n2,x\n'
    data = text.encode("utf-8-sig" if encoding in {"utf-8", "auto"} else encoding)
    name = "表" if encoding == "shift_jis" else "tëxt"
    assert read(data, encoding=encoding).values == [{"n": "1", name: "a\nb"}, {"n": "2", name: "x"}]


def test_old_line_ends_and_single_quotes() -> None:
    assert read("a|b\r1|'x\r|'\r2|\n\r", delimiter="|", quote="'", line=RowLineOptions(delimiter="\r")).values == [
        {"a": "1", "b": "x\r|"}, {"a": "2", "b": "\n"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        (b'a,"b\n1,2\n', {}, "its header cannot be read, column 2: a quote that is opened is not closed, at byte 0"),
        (b"skipped\na,\xff\n1,2\n", {"skip_lines": 1}, "its header is not utf-8, at byte 8"),
        (b"a," + b"b" * 100 + b"\n1,2\n", {"line": RowLineOptions(max_bytes=50)}, "its header is longer than line.max_bytes, at byte 0"),
        (b"a,c,d\n1,2,3\n", {"columns": ("a", "b")}, "its header is not that of `columns`: it lacks 'b' and has 2 others, at byte 0"),
    ],
)  # fmt: skip
def test_a_file_with_a_header_that_is_none_is_damaged(data: bytes, options: dict[str, Any], said: str) -> None:
    reading = read(data, **options)
    assert (reading.damage, reading.seen) == (said, [])


def test_many_lines_may_be_skipped() -> None:
    long = "x" * 40_000 + "\n"
    assert read_all(build_format(CsvOptions(skip_lines=5)), (long * 5 + "a\n1\n").encode()).values == [{"a": "1"}]


def test_a_tab_may_be_written_in_single_quotes() -> None:
    assert read("a\tb\n1\t2\n", delimiter="\\t").values == [{"a": "1", "b": "2"}]


def test_given_columns_may_come_in_any_order() -> None:
    assert read("b,a\n1,2\n", columns=("a", "b")).values == [{"b": "1", "a": "2"}]


@pytest.mark.parametrize("data", [b"", b"a,b", b"a,b\n", b"\n\n", b"# x\n", b"skipped"])
def test_files_without_rows_have_no_records_and_are_read_to_their_end(data: bytes) -> None:
    reading = read(data, comment="#", skip_lines=int(data == b"skipped"))
    assert (reading.seen, reading.end, reading.damage) == ([], len(data), "")


def test_with_the_memo_a_packed_file_is_not_read_from_its_beginning_again() -> None:
    form, data = build_format(CsvOptions()), b"a,b\n" + b"1,2\n" * 1000
    first = read_all(form, data, packed=True)
    places: list[int] = []

    class Watched(Bytes):
        def __call__(self, position: int, size: int, /) -> bytes:
            places.append(position)
            return super().__call__(position, size)

    watched = Watched(data, packed=True)
    watched.memo = first.file.memo
    assert list(form.frames(watched, 2000, 2**62, final=False))
    assert min(places) >= 2000


def test_cuts_need_rows_of_one_line() -> None:
    data = Bytes(b"a,b\n" + b"1,2\n" * 100)
    assert build_format(CsvOptions()).cuts(data, 4) == ()
    assert len(build_format(CsvOptions(quote="none")).cuts(data, 4)) == 3
    assert len(build_format(CsvOptions(multiline=False)).cuts(data, 4)) == 3
    assert ranges(build_format(CsvOptions(quote="none", comment="#")), b"a,b\n" + b"1,2\n\n#\n\n\n" * 50, 5) == 5


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"quote": "ab"}, ("quote",)),
        ({"escape": "ab"}, ("escape",)),
        ({"escape": '"'}, ("escape",)),
        ({"delimiter": '"'}, ("delimiter",)),
        ({"delimiter": "\n"}, ("delimiter",)),
        ({"quote": "\n"}, ("quote",)),
        ({"encoding": "utf-9"}, ("encoding",)),
        ({"comment": '"x'}, ("comment",)),
        ({"columns": ("a", "a")}, ("columns",)),
        ({"columns": ("a",), "types": {"b": "int"}}, ("types", "b")),
    ],
)  # fmt: skip
def test_options_that_contradict_each_other_are_named(options: dict[str, Any], place: tuple[str, ...]) -> None:
    found = list(FORMATS["csv"].problems(CsvOptions(**options)))
    assert place in [problem.place for problem in found]
    assert all(problem.why and problem.hint for problem in found)
    assert list(FORMATS["csv"].problems(CsvOptions(delimiter="\\t"))) == []


@pytest.mark.parametrize("path", REAL_FILES, ids=lambda path: path.name)
def test_files_that_nobody_here_wrote(path: Path) -> None:
    data = path.read_bytes()
    expected = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    reading = read(data, types={"created": "date"})
    assert len(reading.seen) == len(expected) > 20
    for found, row in zip(reading.fields, expected, strict=True):
        assert {**found, "created": str(found["created"])} == {name: value or None for name, value in row.items() if name}


def test_a_damage_error_names_its_byte() -> None:
    with pytest.raises(DamageError, match="at byte 0"):
        list(build_format(CsvOptions()).frames(Bytes(b'"a\n'), 0, 3))


def test_a_dead_letters_bytes_are_read_alone() -> None:
    form: Any = build_format(CsvOptions(types={"b": "int"}))
    assert form.alone(b'"x\r\ny",2\r', ("a", "b")) == {"a": "x\r\ny", "b": 2}
    assert "not a whole number" in form.alone(b"1,x", ("a", "b")).why
    assert "names no columns" in form.alone(b"1,2", ()).why
    assert "not one row" in form.alone(b"1,2\n3,4", ("a", "b")).why
    assert cast("Any", build_format(CsvOptions(header=False, columns=("x",)))).alone(b"1", ()) == {"x": "1"}


def test_without_a_header_the_first_row_that_can_be_read_says_how_many_columns_there_are() -> None:
    reading = read_all(build_format(CsvOptions(header=False)), b'"a"b\n' * 400 + b"1,2\n")
    assert (len(reading.bad), reading.fields) == (400, [{"c1": "1", "c2": "2"}])


def test_a_short_header_of_a_packed_file_is_in_the_bytes_that_are_kept_of_it() -> None:
    """A task that begins in the middle has unpacked the file up to there, and would have to do so again."""
    data = b"a,b\n" + b"1,2\n" * 50_000
    places: list[tuple[int, int]] = []

    class Watched(Bytes):
        def __call__(self, position: int, size: int, /) -> bytes:
            places.append((position, size))
            return super().__call__(position, size)

    assert list(build_format(CsvOptions()).frames(Watched(data, packed=True), 100_000, 2**62, final=False))
    assert all(position >= 100_000 or position + size <= HEAD_BYTES for position, size in places)
