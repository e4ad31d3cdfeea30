"""`skip_lines` and `skip_footer`: lines at the beginning and the end of a file are no records, wherever reading begins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import Gap, Parsed
from copycat_agent.formats.records import FORMATS
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, ranges, read_all, resumes
from tests.unit.formats.records.trees import form, small_reads

LINES = st.lists(st.sampled_from(["", "a", "bb", "é" * 3, "x,y", "\r"]), max_size=12)


@settings(max_examples=examples(120), deadline=None)
@given(LINES, st.booleans(), st.integers(0, 4), st.integers(0, 4), st.sampled_from(["utf-8", "utf-16", "auto"]), st.booleans())
def test_of_any_lines_those_between_header_and_footer_are_records(
    texts: list[str], closed: bool, header: int, footer: int, encoding: str, packed: bool
) -> None:
    data = ("\n".join(texts) + "\n" * (closed and bool(texts))).encode("utf-8-sig" if encoding == "auto" else encoding)
    lines = form("lines", skip_lines=header, skip_footer=footer, encoding=encoding)
    every = read_all(form("lines", encoding=encoding), data).values
    whole = resumes(lines, data, packed=packed)
    assert whole.values == every[header : max(header, len(every) - footer)]
    assert whole.end == len(data)
    with small_reads(1):
        ranges(lines, data, 4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("lines", range(4))
def test_a_file_no_longer_than_header_and_footer_is_read_to_its_end_and_has_no_record(lines: int, packed: bool) -> None:
    data = b"".join(b"line %d\n" % number for number in range(lines))
    whole = resumes(form("lines", skip_lines=2, skip_footer=1), data, packed=packed)
    assert (whole.values, whole.end) == ([], len(data))


def test_what_is_skipped_is_no_loss_and_no_record() -> None:
    whole = read_all(form("lines", skip_lines=1, skip_footer=2), b"h\n1\n2\nf\nf")
    assert [(frame.start, frame.end, frame.reason) for frame in whole.frames if isinstance(frame, Gap)] == [
        (0, 2, "header"),
        (6, 8, "header"),
        (8, 9, "header"),
    ]


@pytest.mark.parametrize("on_too_long", ["dlq", "truncate", "split", "drop"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_over_long_line_counts_as_one_of_the_header_and_is_none_of_the_footer(on_too_long: str, packed: bool) -> None:
    long = b"x" * 1000
    data = b"%s\nhead\none\n%s\ntwo\nfoot\nfoot\n" % (long, long)
    lines = form("lines", skip_lines=2, skip_footer=2, line={"max_bytes": 100, "on_too_long": on_too_long})
    if on_too_long != "split":
        assert [value[:5] for value in resumes(lines, data, packed=packed).values] == [b"one", b"xxxxx", b"two"]
    frames = list(lines.frames(Bytes(data), 0, len(data)))
    assert (frames[0].start, frames[0].end) == (0, 1006)
    assert (frames[-1].start, frames[-1].end) == (len(data) - 10, len(data))
    late = b"one\n%s\nfoot\n" % long
    last = list(form("lines", skip_footer=2, line={"max_bytes": 100, "on_too_long": on_too_long}).frames(Bytes(late), 0, len(late)))
    assert [frame.start for frame in last[:2]] == [0, 4]
    assert [isinstance(frame, Gap) for frame in last] == [False] * (len(last) - 1) + [True]


def test_nothing_waits_but_the_footer() -> None:
    data = b"".join(b"line %d\n" % number for number in range(200_000))
    unfinished = list(form("lines", skip_footer=3).frames(Bytes(data, packed=True), 0, 2**62, final=False))
    assert data[unfinished[-1].end :] == b"line 199997\nline 199998\nline 199999\n"
    assert max(frame.end - frame.start for frame in unfinished) <= 2**20


@pytest.mark.parametrize("footer", [0, 1, 100])
def test_no_range_is_of_the_footer_alone(footer: int) -> None:
    data = b"".join(b"%03d\n" % number for number in range(102))
    lines = form("lines", skip_lines=1, skip_footer=footer)
    assert 4 >= ranges(lines, data, 4) >= (4 if footer < 100 else 1)


TABLES: dict[str, tuple[dict[str, Any], bytes]] = {
    "csv": ({"header": True, "multiline": False}, b"made by hand\nn,t\n1,one\n\n2,two\n"),
    "fixed_width": ({"columns": ({"name": "n", "width": 1}, {"name": "t", "start": 3, "width": 3})}, b"made by hand\n1 one\n\n2 two\n"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("footer", [b"", b"T;2\n", b'T "2\n\n', b'T "2\nend'])
@pytest.mark.parametrize("kind", TABLES)
def test_a_trailer_of_a_table_is_no_row(kind: str, footer: bytes, packed: bool) -> None:
    options, data = TABLES[kind]
    table = form(kind, skip_lines=1, skip_footer=len(footer.splitlines()), **options)
    whole = resumes(table, data + footer, packed=packed)
    assert whole.values == [{"n": "1", "t": "one"}, {"n": "2", "t": "two"}]
    with small_reads(1):
        ranges(table, data + footer, 3)


def test_a_table_that_holds_a_trailer_alone_is_empty_and_not_bad() -> None:
    for packed in (False, True):
        whole = read_all(form("csv", columns=("n", "t"), skip_footer=1), b"T;0\n", packed=packed)
        assert (whole.values, whole.damage, whole.end) == ([], "", 4)


@pytest.mark.parametrize(
    ("kind", "options", "head"),
    [
        ("csv", {}, b"n,t\n"),
        ("csv", {"header": False, "columns": ("n", "t"), "multiline": False}, b""),
        ("fixed_width", {"columns": ({"name": "n", "width": 1}, {"name": "t", "start": 3, "width": 3})}, b""),
        ("w3c", {}, b"#Fields: n t\n"),
    ],
)
@pytest.mark.parametrize("rest", [b"", b"\n", b"3", b'3,"'])
def test_a_whole_row_is_a_record_whoever_may_write_behind_it(kind: str, options: dict[str, Any], head: bytes, rest: bytes) -> None:
    rows = head + (b"1 one\n\n2 two\n" if kind != "csv" else b"1,one\n\n2,two\n")
    table, file = form(kind, **options), Bytes(rows + rest)
    frames = list(table.frames(file, 0, len(file.data), final=False))
    assert [value["t"] for frame in frames if isinstance(frame, Parsed) for value in frame.values] == ["one", "two"]
    assert frames[-1].end == len(rows + rest.strip(b'3,"'))
    again = list(table.frames(file, frames[-1].end, len(file.data), final=True))
    assert sum(len(frame.values) for frame in again if isinstance(frame, Parsed)) == bool(rest.strip()), "the row that had begun"


def test_records_of_a_length_have_no_lines_to_skip_at_the_end() -> None:
    kind: Any = FORMATS["fixed_width"]
    options = kind.options(type="fixed_width", columns=({"name": "n", "width": 1},), record_bytes=2, skip_footer=1)
    assert [found.place for found in kind.problems(options)] == [("skip_footer",)]
