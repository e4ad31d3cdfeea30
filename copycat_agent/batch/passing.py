"""How far a split is after a frame, or a part of it, has been handed over; and when that counts."""

from __future__ import annotations

from collections import Counter

from copycat_agent.batch.items import TOO_LONG, Item, kept_bytes
from copycat_agent.batch.progress import Progress
from copycat_agent.errors import FileError
from copycat_agent.formats import Chunk, LongLine, Row, SkippedRest
from copycat_agent.model import Counts


def count(progress: Progress, items: list[Item]) -> None:
    """`items` are on their way: what they count as once they are settled, and what is lost with them."""
    outcomes = Counter(item.outcome for item in items)
    for outcome, number in outcomes.items():
        progress.count(Counts(**{str(outcome): number}))
    if outcomes["rejected"] or outcomes["dead_lettered"]:
        for item in items:
            _lose_what_is_not_sent(progress, item)


def _lose_what_is_not_sent(progress: Progress, item: Item) -> None:
    """Of a bad record, the bytes that no dead letter carries. What lies beyond the limit of a long line is not its affair."""
    if item.outcome not in {"rejected", "dead_lettered"} or (kept := kept_bytes(item)) is None:
        return
    row = item.row
    end = row.start + len(row.value) if item.is_long else row.end
    if item.stage == "frame":
        progress.lose(row.start + kept, end, "too_long", 0, TOO_LONG)
    else:
        progress.lose(row.start + kept, end, "rejected", 1, f"stage {item.stage}: {item.why}")


def passed(progress: Progress, chunk: Chunk) -> None:
    """All of the chunk is on its way; what it has fewer values than lines are empty lines that were left out."""
    progress.count(Counts(dropped=len(chunk.raw) - len(chunk.values)))
    progress.advance(chunk.end, len(chunk.raw), chunk.tail)


def passed_up_to(progress: Progress, chunk: Chunk, row: Row, sent: int) -> None:
    """Only what stands before `row` is on its way, `sent` records of it."""
    progress.count(Counts(dropped=row.ordinal - sent))
    progress.advance(row.start, row.ordinal, chunk.tail_before(row.ordinal))


def passed_long_line(progress: Progress, line: LongLine, sent: list[Item], *, is_dropped: bool) -> None:
    """An over-long line is passed, `sent` in its place. `is_dropped`: as a whole, because of its length."""
    count(progress, sent)
    progress.lose(line.start if is_dropped else line.start + len(line.head), line.end, "too_long", 1, TOO_LONG)
    progress.count(Counts(too_long=1))
    progress.advance(line.end, 1, line.tail, skipping=not line.complete)


def passed_rest(progress: Progress, rest: SkippedRest) -> None:
    """More of an over-long line is passed, which was counted when its beginning was."""
    progress.lose(rest.start, rest.end, "too_long", 0, TOO_LONG)
    progress.advance(rest.end, 0, rest.tail, skipping=not rest.complete)


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
