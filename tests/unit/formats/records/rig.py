"""A record format over bytes: all it finds, and whether it resumes exactly at every record, read in any way."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from hypothesis import strategies as st

from copycat_agent.errors import DamageError
from copycat_agent.formats import Chunk, Frame, Gap, LongLine, Parsed, SkippedRest, Unparsed
from copycat_agent.model import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from copycat_agent.formats.model import RecordFormat

ENDLESS = 2**62
"""End of a split of a packed file whose format finds the end itself, and of one that counts records."""
_ALL_PLACES = 60
"""Files with no more records than this are resumed at each of them, others at so many, chosen by a fixed seed."""


class Bytes:
    """A `RecordFile`. `packed`: its size is not known until its end was read. Counts what it is asked for."""

    def __init__(self, data: bytes, *, packed: bool = False, name: str = "file") -> None:
        self.data = data
        self.name = name
        self.memo: dict[str, Any] = {}
        self.reads = self.largest = self.read_bytes = 0
        self.furthest = 0
        self._is_known = not packed

    @property
    def size(self) -> int:
        """-1 while unknown."""
        return len(self.data) if self._is_known else -1

    def __call__(self, position: int, size: int, /) -> bytes:
        """Up to `size` bytes from `position`."""
        assert position >= 0, "nothing stands before byte 0"
        assert size >= 0, "less than nothing is asked for"
        found = self.data[position : position + size]
        self.reads += 1
        self.largest, self.read_bytes = max(self.largest, size), self.read_bytes + len(found)
        self.furthest = max(self.furthest, position + len(found))
        self._is_known |= len(found) < size
        return found


class Seen(NamedTuple):
    """One record: fields, bytes, or an `Unparsed` (its `why`); of one that is too long the head, as `LongLine`."""

    value: object
    start: int
    end: int


@dataclass
class Reading:
    """What came out of a file: its records, the frames they came in, and what ended it early."""

    file: Bytes
    frames: list[Frame] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    damage: str = ""
    end: int = 0
    schema: Schema | None = None

    @property
    def values(self) -> list[Any]:
        """Its records' values."""
        return [one.value for one in self.seen]

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The values of its good records; AssertionError when one is no dict."""
        good = [value for value in self.values if not isinstance(value, Unparsed)]
        assert all(isinstance(value, dict) for value in good), good
        return good

    @property
    def bad(self) -> list[Unparsed]:
        """Its bad records."""
        return [value for value in self.values if isinstance(value, Unparsed)]

    @property
    def places(self) -> list[tuple[int, bool]]:
        """Where a batch may begin, in order, and whether that is inside an over-long record: 0, each frame's end, each record's end."""
        skipping = {frame.end for frame in self.frames if isinstance(frame, LongLine | SkippedRest) and not frame.complete}
        whole = {0} | {one.end for one in self.seen} | {frame.end for frame in self.frames}
        return [(place, place in skipping) for place in sorted(whole)]


def read_all(
    form: RecordFormat,
    data: bytes,
    *,
    block_bytes: int | None = None,
    packed: bool = False,
    start: int = 0,
    skipping: bool = False,
    end: int | None = None,
    memo: dict[str, Any] | None = None,
) -> Reading:
    """The file from `start` (up to `end`: a range), read as a task reads it, with every frame held against what frames promise.

    `memo`: what earlier batches of this process have kept; absent: nothing, as after a kill.
    """
    file = Bytes(data, packed=packed)
    file.memo = {} if memo is None else memo
    reading = Reading(file, end=start)
    try:
        for limit, final in _bounds(form, file, end):
            for frame in form.frames(file, reading.end, limit, skipping=skipping, final=final, block_bytes=block_bytes):
                _take(reading, frame, limit, counts_records=form.counts_records)
                skipping = isinstance(frame, LongLine | SkippedRest) and not frame.complete
    except DamageError as error:
        reading.damage = error.message
    return reading


def _bounds(form: RecordFormat, file: Bytes, end: int | None) -> Iterable[tuple[int, bool]]:
    """The limits that a task asks up to, one after the other, as `PackedSpoolStream.bounds` and the driver give them."""
    if end is not None:
        yield end, True
    elif form.finds_end or form.counts_records:
        yield ENDLESS, True
    else:
        if file.size < 0:
            yield ENDLESS, False
        yield len(file.data), True


def _take(reading: Reading, frame: Frame, limit: int, *, counts_records: bool) -> None:
    assert frame.start == reading.end, f"frames follow each other: {frame.start} after {reading.end}"
    assert reading.end < frame.end <= limit, f"a frame goes forward, to {limit} at most: {frame.start} to {frame.end}"
    reading.frames.append(frame)
    reading.end = frame.end
    if isinstance(frame, Parsed):
        reading.schema = frame.schema or reading.schema
        _check_run(reading.file, frame, counts_records=counts_records)
    if isinstance(frame, Chunk | Parsed):
        reading.seen += [Seen(row.value, row.start, row.end) for row in frame.rows()]
    elif isinstance(frame, LongLine):
        reading.seen.append(Seen(frame.head if frame.value is None else frame.value, frame.start, frame.end))
    elif isinstance(frame, SkippedRest):
        if reading.seen:
            reading.seen[-1] = reading.seen[-1]._replace(end=frame.end)
    else:
        assert isinstance(frame, Gap), frame


def _check_run(file: Bytes, run: Parsed, *, counts_records: bool) -> None:
    """What `Parsed` promises about itself, and that it can be cut anywhere."""
    places = list(run.places)
    assert run.values, "an empty run is none"
    assert len(places) == len(run.values) + 1
    assert places == sorted(set(places)), f"each record begins behind the one before it: {places}"
    assert run.size_bytes >= 0
    if counts_records:
        assert places == list(range(places[0], places[0] + len(places))), "record numbers have no holes"
        assert run.tail == b"", "nothing stands before a record's number"
    else:
        assert file.data[: run.end].endswith(run.tail), "the tail is what stands before the end"
    if run.raw is not None:
        assert len(run.raw) == len(run.values)
        if not counts_records:
            for raw, (start, end) in zip(run.raw, itertools.pairwise(places), strict=True):
                assert file.data[start:end].find(raw) >= 0, f"raw is the record's bytes as they stand in the file, at {start}"
    for index in {1, len(run.values) // 2, len(run.values) - 1} - {0, len(run.values)}:
        first, rest = run.cut(index)
        assert [*first.values, *rest.values] == list(run.values)
        assert (first.start, first.end, rest.start, rest.end) == (run.start, places[index], places[index], run.end)
        assert file.data[: first.end].endswith(first.tail) or counts_records


def resumes(form: RecordFormat, data: bytes, *, packed: bool = False, block_bytes: Sequence[int | None] = (None, 1, 100)) -> Reading:
    """The whole file; asserts that reading in small blocks finds the same, and that from every place exactly the rest is found.

    Each with an empty memo, as after a kill, and with the memo that the whole reading left. Files with many records are resumed at
    a fixed choice of places.
    """
    whole = read_all(form, data)
    for size in block_bytes:
        again = read_all(form, data, packed=packed, block_bytes=size)
        assert again.seen == whole.seen, f"blocks of {size} bytes find other records"
        assert again.damage == whole.damage, f"blocks of {size} bytes end otherwise: {again.damage!r}, not {whole.damage!r}"
    places = whole.places
    if len(places) > _ALL_PLACES:
        places = [places[0], *sorted(random.Random(len(data)).sample(places[1:-1], _ALL_PLACES)), places[-1]]
    for place, skipping in places:
        for memo in ({}, dict(whole.file.memo)):
            rest = read_all(form, data, packed=packed, start=place, skipping=skipping, memo=memo)
            expected = [one for one in whole.seen if one.start >= place]
            assert rest.seen == expected, f"from {place} ({'an empty memo' if not memo else 'its memo'}) not the rest is found"
            assert rest.damage == whole.damage, f"from {place} it ends otherwise: {rest.damage!r}, not {whole.damage!r}"
    return whole


def ranges(form: RecordFormat, data: bytes, parts: int) -> int:
    """Asserts that the ranges that `cuts` makes hold, together, exactly the records of the whole. Returns how many there are."""
    file = Bytes(data)
    cuts = form.cuts(file, parts)
    edges = [0, *cuts, ENDLESS if form.counts_records else len(data)]
    assert len(edges) <= parts + 1, f"more than {parts} parts: {edges}"
    assert not cuts or edges == sorted(set(edges)), f"cuts are in order and leave nothing empty: {edges}"
    found: list[Seen] = []
    for begin, end in itertools.pairwise(edges):
        found += read_all(form, data, start=begin, end=end).seen
    assert found == read_all(form, data).seen, f"the ranges {edges} hold other records than the whole"
    return len(edges) - 1


def prefixes(form: RecordFormat, data: bytes, sizes: Iterable[int]) -> None:
    """Asserts that of a file cut off at each of `sizes` every record found is the whole one's, but for the last, and none beyond."""
    whole = read_all(form, data).values
    for size in sizes:
        found = read_all(form, data[:size])
        good = [value for value in found.values if not isinstance(value, Unparsed)]
        assert good[:-1] == whole[: len(good) - 1] if good else True, f"cut off at {size}: other records"
        assert len(good) <= len(whole), f"cut off at {size}: more records than the whole has"


NAMES = st.lists(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), min_size=1, max_size=6, unique=True)
"""Column names that every format can carry."""

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20) | st.sampled_from(
    ["", " ", "a,b", 'say "x"', "two\nlines", "crlf\r\nhere", "\ttab", "é世🙂", "null", "0123", "-", "#no comment", "1e5", "\\", "'"]
)
"""Text without control characters, and what is hard for formats made of text."""


@st.composite
def tables(draw: st.DrawFn, values: st.SearchStrategy[Any] = TEXTS, max_rows: int = 12) -> tuple[list[str], list[list[Any]]]:
    """Column names, and rows with a value of `values` for each of them."""
    names = draw(NAMES)
    row = st.lists(values, min_size=len(names), max_size=len(names))
    return names, draw(st.lists(row, max_size=max_rows))
