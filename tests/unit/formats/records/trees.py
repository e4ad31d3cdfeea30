"""JSON values and XML documents, and what becomes of files that somebody has damaged."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st

from copycat_agent.formats.records import FORMATS, build_format, byte_records, json_format, xml_format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.formats import RecordFormat

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", '"', "\\", "},{", "]", '":[', "é世🙂", "\u2028", "a,b"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
BLANKS = st.text(" \t\r\n", max_size=3)


def form(type_: str, **options: Any) -> RecordFormat:
    """The format that a definition with these options describes."""
    return build_format(FORMATS[type_].options(type=type_, **options))


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """`value` as JSON, written in one of the usual ways."""
    indent, ascii_only = draw(st.sampled_from([None, 0, 2])), draw(st.booleans())
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]))
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only, separators=separators)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """A file of which some bytes are others, missing or too many."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 3))
        data[place : place + cut] = draw(
            st.sampled_from([b"", b"}", b"]", b"{", b"[", b'"', b"\\", b",", b"\0", b"\xff", b"<", b">", b"&", b"</a>", b" ", b"7"])
        )
    return bytes(data)


@contextmanager
def small_reads(size: int) -> Iterator[None]:
    """Formats read so few bytes at a time, where production reads no less than some thousand: records lie across reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_format, "_LEAST_BLOCK_BYTES", size)
        patch.setattr(xml_format, "_LEAST_BLOCK_BYTES", size)
        patch.setattr(byte_records, "_LOOK_BYTES", size + 8)
        yield
