"""Rows that a source gives by the batch are frames, and settled row by row, as if each had come by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from copycat_agent.errors import FatalError
from copycat_agent.formats import Parsed
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult, Stretch
from copycat_agent.sources.contract import LostRecords
from copycat_agent.sources.contract_frames import FrameRows, FrameStream
from copycat_agent.sources.contract_stream import SourceFraming
from copycat_agent.sources.contract_threads import NAME_BYTES

if TYPE_CHECKING:
    from copycat_agent.sources.contract import Position, Record

SIZES = (3, 0, 4, 1)


class Table:
    """A `FrameSource`, as far as a task needs one. A position is how many rows there were."""

    def __init__(self, *, lost: bool) -> None:
        self._lost = lost

    def read(self, stretch: Stretch, rows: Iterable[pa.RecordBatch]) -> Iterator[tuple[Record, Position]]:
        """See `FrameSource`."""
        number = stretch.start
        for batch in rows:
            yield ArrowRows(batch), range(number + 1, number + 1 + batch.num_rows)
            number += batch.num_rows
            if self._lost and batch.num_rows and number == 3:
                yield LostRecords("gone"), 3
                yield {"n": -1}, 3

    def schema(self, rows: pa.RecordBatch) -> None:
        """See `FrameSource`."""

    def apply(self, stretch: Stretch, position: Position, *, finished: bool) -> Position:
        """See `FrameSource`."""
        return {"at": position, "finished": finished} if position is not None else {"end": stretch.end, "finished": finished}


def stream_of(*, whole: bool = False, lost: bool = False, most_bytes: int = 0) -> FrameStream:
    numbers = iter(range(100))
    batches = [pa.RecordBatch.from_pydict({"n": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in SIZES]
    stretch = Stretch("t", "public.t", 0, 8, whole=whole, most_bytes=most_bytes)
    split = Split(SourcePartition("app", "t"), "t", "public.t", SourceOffset(0), 10**9, final=False, stretch=stretch)
    stream = FrameStream(split, SourceFraming(cast("Any", Table(lost=lost)), "made up"), cast("Any", Table(lost=lost)))
    stream.rows = FrameRows(batches)
    return stream


def numbers_of(stream: FrameStream, start: int = 0) -> list[int]:
    found: list[int] = []
    for frame in stream.frames(cast("Any", None), start, 10**9):
        assert isinstance(frame, Parsed)
        assert (frame.start, frame.end) == (start + len(found), start + len(found) + frame.total)
        found += [cast("dict[str, int]", one)["n"] for one in frame.values]
    return found


def cursor(stream: FrameStream, settled: int) -> Any:
    offset = replace(stream.offset, position=settled, records=settled)
    result = stream.complete(SplitResult(cast("Any", None), offset, at_end=False))
    return json.loads(result.offset.cursor)


@pytest.mark.parametrize("whole", [False, True])
def test_rows_come_again_from_any_of_them(whole: bool) -> None:
    stream = stream_of(whole=whole)
    for start in (0, 2, 3, 5, 7, 1):
        assert numbers_of(stream, start) == list(range(start, 8))


def test_each_row_has_its_position() -> None:
    stream = stream_of()
    numbers_of(stream)
    numbers_of(stream, 4)
    assert [cursor(stream, settled) for settled in (1, 3, 4, 7)] == [{"at": one, "finished": False} for one in (1, 3, 4, 7)]
    assert cursor(stream, 8) == {"at": 8, "finished": True}


def test_rows_and_what_is_no_row_go_together() -> None:
    stream = stream_of(lost=True)
    assert numbers_of(stream) == [0, 1, 2, -1, 3, 4, 5, 6, 7]
    assert numbers_of(stream, 3) == [-1, 3, 4, 5, 6, 7]


def test_rows_of_a_whole_stretch_are_rows_of_one_batch() -> None:
    (frame,) = stream_of(whole=True).frames(cast("Any", None), 0, 10**9)
    assert isinstance(frame, Parsed)
    assert isinstance(frame.values, ArrowRows)
    assert frame.fitting(1, 1) == 8


def test_more_rows_than_can_fit_are_refused_whatever_becomes_of_them() -> None:
    assert numbers_of(stream_of(whole=True, most_bytes=1000)) == list(range(8))
    with pytest.raises(FatalError, match=r"what lies between two positions is more than delivery\.max_batch_bytes"):
        numbers_of(stream_of(whole=True, lost=True, most_bytes=7 * NAME_BYTES))
