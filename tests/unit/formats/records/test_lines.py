"""`lines` of whole files: they resume, and can be cut into ranges, whatever ends a line."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, ranges, read_all, resumes
from tests.unit.formats.records.trees import form, small_reads

BYTES = st.lists(
    st.sampled_from([b"a", b"b", b"\r", b"\n", b"\r\n", b"ab", b"aa", b"|", b"||", b"\xc3\xa9", b"\xef\xbb\xbf", b"\0" * 70]), max_size=60
).map(b"".join)


@settings(max_examples=examples(80), deadline=None)
@given(BYTES, st.sampled_from(["\n", "\r\n", "ab", "aa", "aba", "||", "|"]), st.integers(1, 6), st.booleans(), st.booleans())
def test_any_bytes_resume_at_each_line_and_ranges_hold_the_whole(
    data: bytes, delimiter: str, parts: int, skip_empty: bool, packed: bool
) -> None:
    lines = form("lines", line={"delimiter": delimiter, "max_bytes": 20, "skip_empty": skip_empty})
    resumes(lines, data, packed=packed)
    with small_reads(1):
        ranges(lines, data, parts)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.text("ab\n\r\u0a0a\u0d0a\u0a00", max_size=60),
    st.sampled_from(["utf-16", "utf-16-le", "utf-32", "auto", "latin-1"]),
    st.integers(1, 6),
)
def test_ranges_begin_at_lines_in_any_encoding(text: str, encoding: str, parts: int) -> None:
    data = text.encode("utf-16" if encoding == "auto" else encoding, "replace")
    lines = form("lines", encoding=encoding)
    resumes(lines, data)
    ranges(lines, data, parts)


def test_a_large_file_is_cut_into_equal_parts_with_little_reading() -> None:
    data = b"".join(b"line %d\n" % number for number in range(100_000))
    file = Bytes(data)
    edges = [0, *form("lines").cuts(file, 4), len(data)]
    assert [data[edge - 1 : edge] for edge in edges[1:]] == [b"\n"] * 4
    sizes = [after - before for before, after in itertools.pairwise(edges)]
    assert max(sizes) - min(sizes) < 100
    assert file.read_bytes < 2**20


def test_lines_longer_than_a_look_still_cut_the_file() -> None:
    data = (b"x" * 200_000 + b"\n") * 4
    assert form("lines").cuts(Bytes(data), 4) == (200_001, 400_002, 600_003)
    assert form("lines").cuts(Bytes(b"x" * 200_000), 4) == ()


def test_a_last_line_without_end_is_a_record_also_of_a_packed_file() -> None:
    for packed in (False, True):
        assert read_all(form("lines"), b"one\r\n\ntwo", packed=packed).values == [b"one", b"", b"two"]


@pytest.mark.parametrize(
    "options",
    [{"encoding": "no-such"}, {"encoding": "utf-7", "line": {"delimiter": "é"}}, {"encoding": "ascii", "line": {"delimiter": "é"}}],
)
def test_an_encoding_that_cannot_be_framed_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="encoding"):
        form("lines", **options)
