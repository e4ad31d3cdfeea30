"""What a batch sent of a format's run, wherever it ended: the fingerprint is of the bytes before it, so that the next batch goes on."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from copycat_agent.batch.progress import SplitProgress
from copycat_agent.formats import TAIL_BYTES, Parsed
from copycat_agent.sources.files import fingerprint
from copycat_agent.sources.files.reading.stream import Stream
from tests.unit.batch.rig import after, split_of

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = [b'{"n": %d, "pad": "%s"}\n' % (number, b"x" * (number * 7 % 90)) for number in range(40)]
PLACES = [0, *accumulate(map(len, RECORDS))]
DATA = b"".join(RECORDS)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of these records."""
    path = tmp_path_factory.mktemp("tails") / "file"
    path.write_bytes(DATA)
    return path


def pieces(ends: list[int]) -> list[Parsed]:
    """The whole file as one run, of which the tail is known at its end only, cut at these records."""
    rest = Parsed([{"n": number} for number in range(len(RECORDS))], PLACES, len(DATA), tail=DATA[-TAIL_BYTES:])
    found = []
    for before, end in pairwise([0, *ends]):
        piece, rest = rest.cut(end - before)
        found.append(piece)
    return [*found, rest]


@given(st.lists(st.integers(1, len(RECORDS) - 1), unique=True, max_size=6).map(sorted), st.sets(st.integers(0, 6)))
def test_a_part_of_a_run_leaves_a_fingerprint_that_holds(path: Path, ends: list[int], settled: set[int]) -> None:
    split = split_of(path)
    stream, progress = Stream(split), SplitProgress(split)
    progress.begin(stream)
    for number, piece in enumerate(pieces(ends)):
        progress.pass_chunk(piece)
        if number in settled or piece.end == len(DATA):
            progress.settle()
            assert progress.settled.position == piece.end
            assert fingerprint.holds(stream.read, progress.settled.fingerprint, piece.end)
            stream.close()
            split = after(split, progress.settled)  # the next batch
            stream, progress = Stream(split), SplitProgress(split)
            progress.begin(stream)
    stream.close()


def test_a_tail_that_reaches_back_before_its_run_is_not_counted_twice(path: Path) -> None:
    split = split_of(path)
    stream, progress = Stream(split), SplitProgress(split)
    progress.begin(stream)
    for end in (1, 2, 3):  # each with all that stands before its end, as a format has it that cuts its lines into runs
        progress.pass_chunk(Parsed([{}], PLACES[end - 1 : end + 1], PLACES[end] - PLACES[end - 1], tail=DATA[: PLACES[end]]))
    assert PLACES[3] < TAIL_BYTES
    progress.settle()
    assert fingerprint.holds(stream.read, progress.settled.fingerprint, PLACES[3])
    stream.close()
