"""How far a split is after a frame, or a part of it, has been handed over; and when that counts."""

from __future__ import annotations

from collections import Counter

from copycat_agent.batch.items import Item, kept_bytes
from copycat_agent.batch.progress import Progress
from copycat_agent.errors import FileError
from copycat_agent.formats import Chunk, Gap, LongLine, Parsed, Part, Row, SkippedRest
from copycat_agent.model import Counts

_HOLE_WORDS = "NUL bytes that nobody wrote: the file was cut under its writer, or its host crashed"


def count(progress: Progress, items: list[Item]) -> None:
    """`items` are on their way: what they count as once they are settled, and what is lost with them."""
    outcomes = Counter(item.outcome for item in items)
    for outcome, number in outcomes.items():
        progress.count(Counts(**{str(outcome): number}))
    if kept := sum(item.kept for item in items if item.outcome == "acknowledged"):
        progress.count(Counts(kept=kept))
    if outcomes["rejected"] or outcomes["dead_lettered"]:
        for item in items:
            _lose_what_is_not_sent(progress, item)


def messages_of(items: list[Item]) -> int:
    """How many of them are sent."""
    return sum(item.message is not None and 1 + len(item.more) for item in items)


def _lose_what_is_not_sent(progress: Progress, item: Item) -> None:
    """Of a bad record, the bytes that no dead letter carries. What lies beyond the limit of a long line is not its affair."""
    if item.outcome not in {"rejected", "dead_lettered"} or (kept := kept_bytes(item)) is None:
        return
    row = item.row
    if item.by_record:
        size_bytes = len(row.bytes) - kept
        progress.lose(row.start, row.end, "rejected", 1, f"stage {item.stage}: {item.why}", size_bytes=size_bytes)
        return
    end = row.end if item.head_bytes is None else row.start + item.head_bytes
    if item.stage == "frame":
        progress.lose(row.start + kept, end, "too_long", 0, item.why.partition(" is ")[2])
    else:
        progress.lose(row.start + kept, end, "rejected", 1, f"stage {item.stage}: {item.why}")


def passed(progress: Progress, chunk: Chunk | Parsed) -> None:
    """All of the chunk is on its way; what it has fewer values than lines are empty lines that were left out."""
    progress.count(Counts(dropped=chunk.total - len(chunk.values)))
    progress.advance(chunk.end, chunk.total, chunk.tail, chunk.size_bytes)


def passed_up_to(progress: Progress, chunk: Chunk | Parsed, row: Row, sent: int) -> None:
    """Only what stands before `row` is on its way, `sent` records of it."""
    _passed_some(progress, chunk, row.start, row.ordinal, sent)


def passed_with(progress: Progress, chunk: Chunk | Parsed, row: Row, sent: int) -> None:
    """Only what stands before the end of `row` is on its way, `sent` records of it."""
    _passed_some(progress, chunk, row.end, row.ordinal + 1, sent)


def _passed_some(progress: Progress, chunk: Chunk | Parsed, end: int, total: int, sent: int) -> None:
    progress.count(Counts(dropped=total - sent))
    progress.advance(end, total, chunk.tail_before(total), chunk.weight(total))


def passed_long_line(progress: Progress, line: LongLine, sent: list[Item], why: str, *, is_dropped: bool) -> None:
    """An over-long line is passed, `sent` in its place; `why` says what it is longer than. `is_dropped`: as a whole, for its length."""
    count(progress, sent)
    progress.lose(line.start if is_dropped else line.start + len(line.head), line.end, "too_long", 1, why)
    progress.count(Counts(too_long=1))
    progress.advance(line.end, 1, line.tail, line.end - line.start, skipping=not line.complete)


def passed_part(progress: Progress, part: Part, sent: list[Item]) -> None:
    """A part of a record over the limit is passed, `sent` in its place."""
    count(progress, sent)
    progress.count(Counts(too_long=part.number == 1))
    cut = part.cut.text() if part.cut else ""
    progress.advance(part.end, 1, part.tail, part.end - part.start, skipping=bool(cut), cut=cut)


def passed_rest(progress: Progress, rest: SkippedRest, why: str) -> None:
    """More of an over-long line is passed, which was counted when its beginning was."""
    progress.lose(rest.start, rest.end, "too_long", 0, why)
    progress.advance(rest.end, 0, rest.tail, rest.end - rest.start, skipping=not rest.complete)


def passed_gap(progress: Progress, gap: Gap) -> None:
    """Bytes of no record are passed: of a hole people hear, the mark at the beginning of a text is no loss."""
    if gap.reason == "hole":
        progress.lose(gap.start, gap.end, "hole", 0, _HOLE_WORDS)
    progress.advance(gap.end, 0, gap.tail, gap.end - gap.start)


def move(progress: Progress) -> None:
    """Settle what was sent, if the file is still the one it was read from, or was while it was read; else nothing of this run counts."""
    if progress.stream is None or progress.changed:
        return
    try:
        progress.changed = not progress.stream.is_still(progress.sent_position)
        if progress.changed and not progress.stream.was_still(progress.sent_position):
            progress.rewind()
        else:
            progress.settle()
    except FileError as error:
        progress.rewind()
        progress.error = error
