"""CSV by chance: what a writer wrote is what is read, in any blocks, from any row on; and no bytes break it."""

from __future__ import annotations

import csv
import io
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import TAIL_BYTES, Gap, LongLine, Parsed, SkippedRest, Unparsed
from copycat_agent.formats.records import build_format
from copycat_agent.formats.records.csv_options import CsvOptions, RowLineOptions
from copycat_agent.formats.records.csv_rows import CsvRows, RowReader
from tests.rig.examples import examples
from tests.unit.formats.records.rig import ranges, read_all, resumes

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0") | st.sampled_from(',;"\n\t #é世🙂'), max_size=12)
FIELD = TEXT | st.sampled_from(["", " ", '"', '""', "\n", "a\r\nb", ",", "#", "NULL"])


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    """Rows of one width, in which no line is empty by itself."""
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(FIELD, min_size=width, max_size=width), min_size=1, max_size=8))


def written(rows: list[list[str]], **how: Any) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, **how).writerows(rows)
    return buffer.getvalue()


@settings(max_examples=examples(40))
@given(
    tables(),
    st.sampled_from([",", ";", "\t", "|", "é"]),
    st.sampled_from(["\r\n", "\n"]),
    st.sampled_from(["utf-8", "utf-16", "utf-16-be", "utf-8-sig"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.booleans(),
)
def test_what_a_writer_wrote_is_read_from_every_row_on(
    rows: list[list[str]], delimiter: str, end: str, encoding: str, quoting: int, ends_whole: bool
) -> None:
    text = written(rows, delimiter=delimiter, lineterminator=end, quoting=quoting)
    data = (text if ends_whole else text.removesuffix(end)).encode(encoding)
    names = tuple(f"n{index}" for index in range(len(rows[0])))
    options = CsvOptions(header=False, columns=names, delimiter=delimiter, encoding=encoding.removesuffix("-sig"), null=())
    # the writer writes rows of one empty value as "", which is no empty line
    for packed in (False, True):
        reading = resumes(build_format(options), data, packed=packed, block_bytes=(1, 100))
        assert reading.values == [dict(zip(names, row, strict=True)) for row in rows]


@settings(max_examples=examples(30))
@given(tables(), st.sampled_from(["||", "::", ", ", "<->"]), st.booleans())
def test_delimiters_of_several_characters(rows: list[list[str]], delimiter: str, quoted: bool) -> None:
    lines = []
    for row in rows:
        cells = [f'"{cell.replace(chr(34), 2 * chr(34))}"' if quoted or set(cell) & set('"\r\n' + delimiter) else cell for cell in row]
        lines.append(delimiter.join(cells or ['""']) or '""')
    names = tuple(f"n{index}" for index in range(len(rows[0])))
    options = CsvOptions(header=False, columns=names, delimiter=delimiter, null=())
    reading = resumes(build_format(options), "\n".join(lines).encode(), block_bytes=(3,))
    assert reading.values == [dict(zip(names, row, strict=True)) for row in rows]


@settings(max_examples=examples(30))
@given(tables(), st.booleans())
def test_an_escape_character_takes_every_meaning(rows: list[list[str]], doublequote: bool) -> None:
    how: dict[str, Any] = {"escapechar": "\\", "doublequote": doublequote}
    data = written([[cell.replace("\\", "/") for cell in row] for row in rows], **how, lineterminator="\n", quoting=csv.QUOTE_ALL).encode()
    names = tuple(f"n{index}" for index in range(len(rows[0])))
    form = build_format(CsvOptions(header=False, columns=names, null=(), escape="\\", doublequote=doublequote))
    expected = [dict(zip(names, [cell.replace("\\", "/") for cell in row], strict=True)) for row in rows]
    assert resumes(form, data, block_bytes=(5,)).values == expected


OPTIONS = [
    CsvOptions(),
    CsvOptions(header=False, comment="#", trim=True, types={"c1": "int"}),
    CsvOptions(escape="\\", line=RowLineOptions(max_bytes=30)),
    CsvOptions(quote="none", delimiter=";", skip_lines=1, line=RowLineOptions(max_bytes=20, on_too_long="drop")),
    CsvOptions(encoding="utf-16", multiline=False, line=RowLineOptions(max_bytes=40)),
    CsvOptions(header=False, delimiter="ab", too_few="error", too_many="keep", line=RowLineOptions(delimiter="\r", max_bytes=25)),
    CsvOptions(header=False, encoding="shift_jis", null=("NULL", "")),
]
BYTES = st.binary(max_size=200) | st.lists(
    st.sampled_from(
        [
            b"a",
            b'"',
            b'""',
            b",",
            b";",
            b"\n",
            b"\r\n",
            b"\r",
            b"#",
            b"\\",
            b" ",
            b"\0",
            b"\xff",
            b"\x81",
            b"NULL",
            b"ab",
            b"12",
            b"\xe4\xb8\x96",
        ]
    ),
    max_size=80,
).map(b"".join)


@settings(max_examples=examples(60))
@given(st.sampled_from(OPTIONS), BYTES)
def test_no_bytes_break_it_and_none_are_passed_unseen(options: CsvOptions, data: bytes) -> None:
    """What a reading covers is all of the file, unless its header is damaged; the same in any blocks, from any row on."""
    reading = resumes(build_format(options), data, block_bytes=(1, 13))
    assert reading.damage or reading.end == len(data)
    for frame in reading.frames:
        if isinstance(frame, Parsed):
            assert frame.raw is not None
            assert frame.tail == data[max(frame.start, frame.end - TAIL_BYTES) : frame.end]
            for raw, (start, end) in zip(frame.raw, itertools.pairwise(frame.places), strict=True):
                assert raw
                assert data[start:].startswith(raw)
                assert start + len(raw) <= end
        else:
            assert isinstance(frame, Gap | LongLine | SkippedRest)


@settings(max_examples=examples(50))
@given(st.sampled_from([one for one in OPTIONS if one.quote == "none" or not one.multiline]), BYTES)
def test_ranges_hold_the_rows_of_the_whole(options: CsvOptions, data: bytes) -> None:
    form = build_format(options)
    if not read_all(form, data).damage:
        ranges(form, data, 3)


@given(
    st.lists(st.sampled_from(["a", '"', '""', ",", ";", "\r", "#", " ", "\t", "NULL", "\n"]), max_size=60).map("".join),
    st.sampled_from(
        [
            CsvOptions(),
            CsvOptions(trim=True),
            CsvOptions(quote="none"),
            CsvOptions(comment="#", null="NULL"),
            CsvOptions(multiline=False),
            CsvOptions(doublequote=False),
        ]
    ),
    st.booleans(),
)
def test_the_fast_ways_find_what_the_definition_of_a_row_says(text: str, options: CsvOptions, final: bool) -> None:
    lines = text.split("\n")
    places = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    fast, slow = RowReader(options).rows(list(lines), places, final=final), Exact(options).rows(list(lines), places, final=final)
    assert as_seen(fast, options) == as_seen(slow, options)
    assert fast.open_line == slow.open_line


class Exact(RowReader):
    """Takes the slow way always."""

    def _is_plain(self, text: object) -> bool:
        del text
        return False


def as_seen(rows: CsvRows, options: CsvOptions) -> list[Any]:
    """Rows with their lines, nulls told apart, texts as records have them."""
    spans = rows.spans or [(index, index + 1) for index in range(len(rows.values))]
    found: list[Any] = []
    for index, (values, span) in enumerate(zip(rows.values, spans, strict=True)):
        if index in rows.bad:
            found.append((span, rows.bad[index]))
            continue
        texts = [text if text is None or not options.trim else text.strip(" \t") for text in values]
        if index not in rows.exact and rows.may_hold_null:
            texts = [None if text in options.nulls else text for text in texts]
        found.append((span, texts))
    return found


@pytest.mark.parametrize("quote", ['"', "none"])
def test_a_quote_that_never_closes_does_not_eat_the_file(quote: str) -> None:
    data = b"a,b\n" + b'1,"x\n' + b"2,y\n" * 600
    form = build_format(CsvOptions(quote=quote, line=RowLineOptions(max_bytes=200)))
    reading = resumes(form, data, block_bytes=(100,))
    assert len(reading.seen) == 601
    assert isinstance(reading.values[0], Unparsed) == (quote == '"')
    assert reading.values[1:] == [{"a": "2", "b": "y"}] * 600
