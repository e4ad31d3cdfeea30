"""How far a split is after a frame, or a part of it, has been handed over; and when that counts."""

from __future__ import annotations

from collections import Counter

from copycat_agent.batch.items import Item
from copycat_agent.batch.progress import Progress
from copycat_agent.errors import FileError
from copycat_agent.formats import Chunk, LongLine, Row
from copycat_agent.model import Counts


def count(progress: Progress, items: list[Item]) -> None:
    """`items` are on their way: what they count as once they are settled."""
    for outcome, number in Counter(item.outcome for item in items).items():
        progress.count(Counts(**{str(outcome): number}))


def passed(progress: Progress, chunk: Chunk) -> None:
    """All of the chunk is on its way; what it has fewer values than lines are empty lines that were left out."""
    progress.count(Counts(dropped=len(chunk.raw) - len(chunk.values)))
    progress.advance(chunk.end, len(chunk.raw), chunk.tail)


def passed_up_to(progress: Progress, chunk: Chunk, row: Row, sent: int) -> None:
    """Only what stands before `row` is on its way, `sent` records of it."""
    progress.count(Counts(dropped=row.ordinal - sent))
    progress.advance(row.start, row.ordinal, chunk.tail_before(row.ordinal))


def passed_long_line(progress: Progress, line: LongLine, sent: list[Item]) -> None:
    """An over-long line is passed, `sent` in its place."""
    count(progress, sent)
    progress.count(Counts(too_long=1))
    progress.advance(line.end, 1, line.tail, skipping=not line.complete)


def move(progress: Progress) -> None:
    """Settle what was sent, if the file is still the one it was read from; else nothing of this run counts."""
    if progress.stream is None or progress.changed:
        return
    try:
        if progress.stream.is_still(progress.sent_position):
            progress.settle()
        else:
            progress.rewind()
            progress.changed = True
    except FileError as error:
        progress.rewind()
        progress.error = error
