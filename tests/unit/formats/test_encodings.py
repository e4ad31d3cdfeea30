"""Lines of text in any encoding: found in bytes, sent as UTF-8, at the same places wherever reading begins."""

from __future__ import annotations

import codecs
import pickle

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from copycat_agent.formats import Chunk, LineFrames, encoding_problem
from copycat_agent.formats.text import Encoding
from tests.rig.examples import examples
from tests.unit.formats.reading import File, Reading, Seen, model, options, read_all, values

LETTERS = {
    "utf-8": "ab\r\néਊĊ\U0001f600\ufeff",
    "utf-16-le": "ab\r\nਊĊਁ\U0001f600\ufeff",
    "utf-16-be": "ab\r\nਊĊਁ\U0001f600\ufeff",
    "utf-32-le": "ab\r\nਊĊਁ\U0001f600",
    "utf-32-be": "ab\r\nਊĊਁ\U0001f600",
    "latin-1": "ab\r\né\x85ÿ",
    "shift_jis": "ab\r\nアソ表予ﾊ",  # the second byte of some is a backslash or a |
    "gb18030": "ab\r\n文字é\U0001f600",
    "cp037": "ab\r\né\x85",
    "iso2022_jp": "ab\r\n文字",
}
CODECS = st.sampled_from(sorted(LETTERS))
DELIMITERS = st.sampled_from(["\n", "\r\n", "a", "aa", "aba", "ਊ", "\n\n", "\x85"])
MARKS = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}


@settings(max_examples=examples(400), deadline=None)
@given(st.data(), CODECS, DELIMITERS, st.booleans(), st.integers(1, 40), st.lists(st.integers(0, 170), max_size=6))
def test_the_records_are_the_lines_of_the_text(
    data: st.DataObject, codec: str, delimiter: str, grows: bool, block_bytes: int, cuts: list[int]
) -> None:
    assume(encoding_problem(codec, delimiter) is None)
    text = data.draw(st.text(LETTERS[codec], max_size=40)).lstrip("\ufeff")
    *lines, rest = (text + delimiter).split(delimiter)
    encoded = b"".join(line.encode(codec) + delimiter.encode(codec) for line in lines)
    file = encoded + rest.encode(codec)
    reading = read_all(file, options(delimiter, 1000), cuts, encoding=codec, block_bytes=block_bytes, grows=grows)
    if delimiter == "\n":
        lines = [line.removesuffix("\r") for line in lines]
    assert values(reading) == [line.encode() for line in lines]
    assert reading.position == len(encoded)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.data(),
    CODECS,
    DELIMITERS,
    st.integers(1, 20),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(0, 170), max_size=6),
)
def test_any_bytes_in_any_splits_are_framed_alike(
    data: st.DataObject, codec: str, delimiter: str, max_bytes: int, skip_empty: bool, raw: bool, final: bool, cuts: list[int]
) -> None:
    assume(encoding_problem(codec, delimiter) is None)
    pieces = [letter.encode(codec) for letter in LETTERS[codec]] + [b"\0", b"\n", b"\xff", MARKS.get(codec, b""), delimiter.encode(codec)]
    content = b"".join(data.draw(st.lists(st.sampled_from(pieces), max_size=50)))
    line_options = options(delimiter, max_bytes, skip_empty=skip_empty)
    block_bytes = data.draw(st.integers(1, 40))
    little = data.draw(st.none() | st.integers(1, 40))
    reading = read_all(content, line_options, cuts, encoding=codec, raw=raw, block_bytes=block_bytes, little=little, final=final)
    assert reading.seen == model(content, line_options, codec, raw=raw, final=final)


@pytest.mark.parametrize("encoding", ["utf-16", "auto", "utf-16-le"])
def test_reading_goes_on_in_the_middle_of_utf_16_at_any_place(encoding: str) -> None:
    content = codecs.BOM_UTF16_LE + "one\r\nzwei ਊĊ\n\U0001f600\n".encode("utf-16-le")
    whole = read_all(content, options(max_bytes=100), encoding=encoding)
    assert values(whole) == [b"one", "zwei ਊĊ".encode(), "\U0001f600".encode()]
    for cut in range(len(content)):
        assert read_all(content, options(max_bytes=100), [cut], encoding=encoding, grows=True).seen == whole.seen


@pytest.mark.parametrize(
    ("encoding", "mark", "codec"),
    [
        ("auto", codecs.BOM_UTF8, "utf-8"),
        ("utf-8", codecs.BOM_UTF8, "utf-8"),
        ("utf-8-sig", codecs.BOM_UTF8, "utf-8"),
        ("auto", b"", "utf-8"),
        ("auto", codecs.BOM_UTF16_LE, "utf-16-le"),
        ("auto", codecs.BOM_UTF16_BE, "utf-16-be"),
        ("UTF_16", codecs.BOM_UTF16_BE, "utf-16-be"),
        ("utf-16", b"", "utf-16-le"),
        ("auto", codecs.BOM_UTF32_LE, "utf-32-le"),
        ("utf-32", codecs.BOM_UTF32_BE, "utf-32-be"),
        ("utf-16-be", codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
)
def test_a_byte_order_mark_says_what_the_file_is_and_is_in_no_record(encoding: str, mark: bytes, codec: str) -> None:
    content = mark + "é\ny\n".encode(codec)
    reading = read_all(content, options(), encoding=encoding)
    assert values(reading) == ["é".encode(), b"y"]
    first = next(one for one in reading.seen if one.kind == "line")
    assert first.start == len(mark)
    assert values(read_all(content, options(), encoding=encoding, raw=True)) == [mark + "é".encode(codec), "y".encode(codec)]


def test_a_mark_that_may_become_another_one_is_waited_for() -> None:
    content = codecs.BOM_UTF32_LE + "a\n".encode("utf-32-le")
    reading = read_all(content, options(), [2, 3, 4, 9], encoding="auto", grows=True)
    assert reading.seen == [Seen("bom", b"", 0, 4), Seen("line", b"a", 4, 12)]


def test_a_file_of_nothing_but_a_mark_is_passed_when_nobody_adds_to_it() -> None:
    assert read_all(codecs.BOM_UTF8, options(), final=False).seen == []
    assert read_all(codecs.BOM_UTF8, options(), final=True).seen == [Seen("bom", b"", 0, 3)]


def test_a_mark_that_is_not_the_encodings_own_is_text() -> None:
    assert values(read_all(codecs.BOM_UTF8 + b"x\n", options(), encoding="latin-1")) == ["ï»¿x".encode()]


@pytest.mark.parametrize("codec", ["utf-8", "utf-16-le", "utf-32-be", "cp037", "latin-1"])
def test_a_cr_belongs_to_the_default_delimiter_and_empty_lines_are_passed_in_every_encoding(codec: str) -> None:
    content = "l1\nl2\rl2\r\n\r\n\nl3\r\n".encode(codec)
    reading = read_all(content, options(max_bytes=100, skip_empty=True), encoding=codec, block_bytes=3)
    assert values(reading) == [b"l1", b"l2\rl2", b"l3"]
    kept = read_all(content, options(max_bytes=100), encoding=codec)
    assert values(kept) == [b"l1", b"l2\rl2", b"", b"", b"l3"]


def test_bytes_that_are_no_utf_8_stay_and_bytes_that_are_no_utf_16_are_replaced() -> None:
    assert values(read_all(b"a\xc5b\n", options())) == [b"a\xc5b"]
    assert values(read_all(b"a\0\x00\xd8\n\0", options(), encoding="utf-16-le")) == ["a\ufffd".encode()]


@pytest.mark.parametrize(
    ("codec", "max_bytes", "head", "value"),
    [
        ("utf-8", 4, "aé".encode() + b"b", "aéb"),
        ("utf-8", 2, b"a", "a"),
        ("utf-16-le", 5, "aé".encode("utf-16-le"), "aé"),
        ("utf-16-le", 8, "aéb".encode("utf-16-le"), "aéb"),
        ("shift_jis", 2, b"a", "a"),
        ("latin-1", 3, b"a\xe9b", "aéb"),
    ],
)
def test_a_line_that_is_cut_ends_with_a_whole_character(codec: str, max_bytes: int, head: bytes, value: str) -> None:
    line = ("a表" if codec == "shift_jis" else "aéb\U0001f600" if codec.startswith("utf") else "aébb") + "cccccc\n"
    (frame,) = LineFrames(options(max_bytes=max_bytes), encoding=codec).frames(File(line.encode(codec)).read, 0, len(line.encode(codec)))
    assert not isinstance(frame, Chunk)
    assert (frame.head, frame.value if frame.value is not None else frame.head) == (head, value.encode())  # type: ignore[union-attr]


def test_bytes_are_cut_at_a_character_of_the_encoding_also_where_nothing_is_decoded() -> None:
    assert values(read_all("aéb\n".encode(), options(max_bytes=2), raw=True)) == [b"a"]
    wide = "a\U0001f600b\n".encode("utf-16-le")
    assert values(read_all(wide, options(max_bytes=5), encoding="utf-16-le", raw=True)) == [wide[:2]]
    assert values(read_all(b"a\x80\x80\x80\x80\x80b\n", options(max_bytes=4))) == [b"a\x80\x80\x80"], "no character is cut here"


@settings(max_examples=examples(200), deadline=None)
@given(st.text(st.sampled_from("aé表\U0001f600"), min_size=1, max_size=20), st.integers(1, 20))
def test_cut_text_is_a_prefix_of_it(text: str, max_bytes: int) -> None:
    assume(len(text.encode()) > max_bytes)
    (value,) = values(read_all(text.encode() + b"\n", options(max_bytes=max_bytes)))
    assert text.startswith(value.decode())
    assert len(value) > max_bytes - 4


@pytest.mark.parametrize("codec", ["iso2022_jp", "iso2022_kr", "hz", "utf-7", "cp037", "utf-16-le", "cp500"])
def test_text_whose_ascii_bytes_mean_something_else_is_decoded(codec: str) -> None:
    text = "+表~{é" if codec == "utf-7" else "ab" if codec.startswith("cp") else "文字"
    assert values(read_all(f"{text}\n".encode(codec), options(max_bytes=100), encoding=codec)) == [text.encode()]


@pytest.mark.parametrize(
    ("name", "delimiter", "problem"),
    [
        ("utf-8", "\n", None),
        ("auto", "ਊ", None),
        ("UTF8", "\n", None),
        ("shift_jis", "\n", None),
        ("iso2022_jp", "\n", None),
        ("shift_jis", "|", "the delimiter can be a part of other characters in shift-jis"),
        ("gb18030", "0", "the delimiter can be a part of other characters in gb18030"),
        ("latin-1", "ਊ", "the delimiter does not exist in iso8859-1"),
        ("base64", "\n", "is no text encoding that Python knows"),
        ("rot13", "\n", "is no text encoding that Python knows"),
        ("punycode", "\n", "is no text encoding that Python knows"),
        ("undefined", "\n", "is no text encoding that Python knows"),
        ("utf-88", "\n", "is no text encoding that Python knows"),
        ("a\0b", "\n", "is no text encoding that Python knows"),
        ("\ud800", "\n", "is no text encoding that Python knows"),
        ("../../etc", "\n", "is no text encoding that Python knows"),
    ],
)
def test_what_files_cannot_be_read_in_is_said(name: str, delimiter: str, problem: str | None) -> None:
    found = encoding_problem(name, delimiter)
    assert (found and found[0]) == problem
    if found is None:
        Encoding(name, delimiter, is_raw=False)


@settings(max_examples=examples(200), deadline=None)
@given(CODECS, st.data())
def test_records_begin_at_line_starts_and_nowhere_else(codec: str, data: st.DataObject) -> None:
    letters = LETTERS[codec].replace("\ufeff", "")
    content = data.draw(st.text(letters, max_size=30)).encode(codec)
    frames = LineFrames(options(max_bytes=1000), encoding=codec)
    file = File(content)
    reading = Reading(file, frames)
    reading.split(len(content))
    starts = {one.start for one in reading.seen} | {reading.position}
    for position in range(len(content) + 1):
        assert frames.is_line_start(file.read, position) == (position in starts or position == 0)


def test_chunks_of_decoded_text_can_be_pickled() -> None:
    content = "é\n".encode("utf-16-le")
    (chunk,) = LineFrames(options(), encoding="utf-16-le").frames(File(content).read, 0, len(content))
    assert pickle.loads(pickle.dumps(chunk)) == chunk
