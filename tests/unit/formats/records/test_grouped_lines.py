"""`multiline` of whole files: the groups that a log file has, from every place on, plain or packed, and none left open at the end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from copycat_agent.formats import Chunk, LineOptions, MultilineFrames, MultilineOptions, RecordPart
from copycat_agent.formats.records.byte_records import LinesOptions
from tests.rig.examples import examples
from tests.unit.formats.records.rig import Bytes, read_all, resumes
from tests.unit.formats.records.trees import form

LINES = st.lists(
    st.sampled_from([b"S", b"S one\r", b" c", b"c two", b"end;", b"", b"\r", b"S" * 30, b" long" * 9, "Sä ü;".encode()]), max_size=20
)


@settings(max_examples=examples(80), deadline=None)
@given(
    LINES, st.booleans(), st.sampled_from([{"start": "^S"}, {"continues": "^[ c]"}, {"ends": ";$"}, {"preset": "indented"}]), st.booleans()
)
def test_it_finds_what_a_log_file_finds(lines: list[bytes], closed: bool, rule: dict[str, str], packed: bool) -> None:
    data = b"\n".join(lines) + b"\n" * (closed and bool(lines))
    assert resumes(form("lines", multiline=rule), data, packed=packed).end == len(data)
    limits = {**rule, "on_too_long": "dlq", "max_bytes": 60}
    log = MultilineFrames(LineOptions(), MultilineOptions.model_validate(limits)).frames(Bytes(data), 0, len(data), final=True)
    assert list(form("lines", multiline=limits).frames(Bytes(data), 0, len(data))) == list(log)


@pytest.mark.parametrize("packed", [False, True])
def test_a_footer_belongs_to_no_group_and_a_header_begins_none(packed: bool) -> None:
    data = b" made by hand\none\n 1\ntwo\n 2\n total 2\n end"
    assert resumes(form("lines", multiline={"preset": "indented"}, skip_lines=1, skip_footer=2), data, packed=packed).values == [
        b"one\n 1",
        b"two\n 2",
    ]


def test_a_record_over_the_limit_goes_in_parts_unless_something_else_is_said() -> None:
    data = b"S\n" + b" more\n" * 100
    frames = list(form("lines", multiline={"start": "^S", "max_bytes": 200}).frames(Bytes(data), 0, len(data)))
    parts = [frame for frame in frames if isinstance(frame, RecordPart)]
    assert len(parts) == len(frames) == 4
    assert b"".join(part.raw for part in parts) + b"\n" == data
    for options in (
        {"multiline": {"start": "^S", "max_bytes": 200}, "line": {"on_too_long": "truncate"}},
        {"multiline": {"start": "^S", "max_bytes": 200, "on_too_long": "truncate"}},
    ):
        cut = form("lines", **options)
        assert cut.on_too_long == "truncate"
        assert [len(value) for value in read_all(cut, data).values] == [200]


@pytest.mark.parametrize("header", [0, 1])
def test_an_open_group_of_whole_lines_is_a_record_if_it_is_said_to_end(header: int) -> None:
    file = Bytes(b"header\n" * header + b"S\n c\nS\n d\n e", packed=True)
    lines = form("lines", multiline={"start": "^S"}, skip_lines=header)
    for flush, groups in ((True, [b"S\n c", b"S\n d"]), (False, [b"S\n c"])):
        frames = lines.frames(file, 0, len(file.data), final=False, flush=flush)
        assert [value for frame in frames if isinstance(frame, Chunk) for value in frame.values] == groups


def test_groups_are_not_cut_into_ranges() -> None:
    data = b"S\n c\n" * 100
    assert form("lines", multiline={"start": "^S"}).cuts(Bytes(data), 4) == ()


def test_what_cannot_go_in_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot go in parts"):
        LinesOptions.model_validate({"type": "lines", "encoding": "iso2022_jp", "multiline": {"start": "S"}})
    LinesOptions.model_validate({"type": "lines", "encoding": "iso2022_jp", "multiline": {"start": "S"}, "line": {"on_too_long": "dlq"}})
