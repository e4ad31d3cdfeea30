"""The rig of record formats, on `lines`: it accepts what is right and refuses what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.errors import DamageError
from copycat_agent.formats import Frame, LineOptions, Parsed
from copycat_agent.formats.records import build_format
from copycat_agent.formats.records.byte_records import LinesOptions
from tests.unit.formats.records.rig import Seen, ranges, read_all, resumes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.formats import RecordFile, RecordFormat

LINES = build_format(LinesOptions(line=LineOptions(max_bytes=20)))
SEEN = [Seen(b"one", 0, 4), Seen(b"", 4, 5), Seen(b"three", 5, 10)]


class Numbers:
    """Records are numbers between commas; at "!" the file is damaged. `fault` breaks a promise."""

    counts_records = False
    finds_end = True
    makes_fields = True
    on_too_long = "dlq"

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def frames(self, file: RecordFile, start: int, end: int, **how: Any) -> Iterator[Frame]:
        if self.fault == "remembers" and start and not file.memo:
            return
        file.memo["seen"] = True
        step = min(how["block_bytes"] or 10, 10)
        place = start - (self.fault == "reads again" and start > 0)
        while place < end and (data := file(place, 100)):
            size = data.find(b",") + 1 or len(data)
            if b"!" in data[:size]:
                raise DamageError(f"damaged at byte {place}")
            value = {"n": int(data[:size].rstrip(b",") or b"0") + (self.fault == "blocks" and step < 10)}
            yield Parsed([value], [place, place + size], size, [data[:size]], b"x" if self.fault == "tail" else data[:size])
            place += size + (self.fault == "skips")

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Behind the first comma."""
        assert parts > 1
        cut = file(0, 100).find(b",") + 1
        return (cut + (self.fault == "cuts"),) if cut else ()


def numbers(fault: str = "") -> RecordFormat:
    return cast("RecordFormat", Numbers(fault))


@pytest.mark.parametrize("packed", [False, True])
def test_all_records_are_found_with_their_places(packed: bool) -> None:
    assert read_all(LINES, b"one\n\nthree", packed=packed).seen == SEEN


@given(st.text("ab\n", max_size=100), st.booleans())
def test_lines_resume_and_can_be_cut(text: str, packed: bool) -> None:
    resumes(LINES, text.encode(), packed=packed)
    ranges(LINES, text.encode(), 3)


def test_damage_ends_a_reading_behind_what_is_good() -> None:
    reading = resumes(numbers(), b"12,34,!")
    assert (reading.fields, reading.damage) == ([{"n": 12}, {"n": 34}], "damaged at byte 6")


@pytest.mark.parametrize("fault", ["remembers", "reads again", "skips", "blocks", "tail"])
def test_a_broken_promise_is_found(fault: str) -> None:
    resumes(numbers(), b"10,20,30,40")
    with pytest.raises(AssertionError):
        resumes(numbers(fault), b"10,20,30,40")


def test_a_cut_inside_a_record_is_found() -> None:
    assert ranges(numbers(), b"10,20,30", 2) == 2
    with pytest.raises(AssertionError):
        ranges(numbers("cuts"), b"10,20,30", 2)
