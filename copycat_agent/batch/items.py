"""From frames to items: what to send for each row, and what becomes of a bad one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from copycat_agent.batch.bound import Bound
from copycat_agent.batch.fast import Trouble
from copycat_agent.batch.letters import NO_BYTES, OMITTED, PART_OF, RENDERED, dead_letter, part_headers, record_of, rendered, with_raw
from copycat_agent.batch.part_steps import PartOfRecord
from copycat_agent.batch.progress import Progress
from copycat_agent.batch.shaping import Headers, StageError
from copycat_agent.errors import CopycatError, DataError, FatalError, FileError
from copycat_agent.formats import LongLine, OnTooLong, Part, Row
from copycat_agent.model import Rejection, StepFailure
from copycat_agent.options import Definition
from copycat_agent.producer import Outgoing
from copycat_agent.transforms import StepError, StepFaultError

Outcome = Literal["acknowledged", "dead_lettered", "dropped", "rejected"]

_TOO_LONG = "the line is longer than line.max_bytes"
_TOO_LONG_RECORD = "the record is longer than format.max_bytes"
_TOO_LONG_GROUP = "the record is longer than multiline.max_lines, multiline.max_bytes or line.max_bytes"
RAW_BYTES_CUT = 2**19
"""Raw bytes that a dead letter keeps once Kafka refused more of them: half of what a topic takes by default."""

_TRUNCATED = (("copycat.truncated", b"true"),)


class Item(NamedTuple):
    """One row, what to send for it (None: nothing), and what it counts as once that is acknowledged.

    `number` is the record's within its file, `partial` that nobody will finish it, `head_bytes` that the row's value is only the
    first so many bytes of its line, which is over the limit. `stage` and `why` are a bad record's. `by_record`: its place in the
    file is a record number. `kept`: it goes on though a step failed. `more` are further messages of the same record, which counts once.
    `part` are the headers of one part of a record.
    """

    row: Row
    message: Outgoing | None
    outcome: Outcome
    number: int
    partial: bool = False
    head_bytes: int | None = None
    stage: str = ""
    why: str = ""
    by_record: bool = False
    kept: bool = False
    more: tuple[Outgoing, ...] = ()
    part: Headers = ()


def kept_bytes(item: Item) -> int | None:
    """How many of a bad record's bytes its dead letter carries, from the first on; None when it carries all there were."""
    raw = item.message[1] if item.message is not None else None
    if raw is None:
        return 0
    return len(raw) if len(raw) < len(item.row.bytes) else None


class StopAt(Exception):  # noqa: N818 - an order, not an error; `error` is one
    """The end for now: everything before `row` may settle, `row` may not. FatalError for a bad record, or what comes from outside."""

    def __init__(self, row: Row, error: CopycatError) -> None:
        super().__init__(row.start, error)
        self.row = row
        self.error = error


class Items:
    """Makes the items of one connector's frames, by its `errors` section."""

    def __init__(self, definition: Definition, on_too_long: OnTooLong, *, by_record: bool = False) -> None:
        """`by_record`: places in the files are record numbers."""
        self._by_record = by_record
        self._definition = definition
        self._errors = definition.errors
        self._on_too_long = on_too_long
        self.drops_long_lines = on_too_long == "drop"
        self._too_long = _too_long(definition)
        self.too_long = self._too_long.partition(" is ")[2]

    def of_rows(
        self, progress: Progress, bound: Bound, rows: Iterable[Row], until: float, *, partial: bool
    ) -> tuple[list[Item], StopAt | None]:
        """Items of a chunk's rows, up to the one that stops the connector, if one does, or with which it gets later than `until`."""
        first = progress.sent_records + 1
        items: list[Item] = []
        for row in rows:
            try:
                items.append(self._of_row(progress, bound, Item(row, None, "dropped", first + row.ordinal, partial)))
            except StopAt as stop:
                return items, stop
            if time.monotonic() > until:
                break
        return items, None

    def _of_row(self, progress: Progress, bound: Bound, item: Item, extra: Headers = ()) -> Item:
        """What becomes of a row, given as an item that is dropped. Raises StopAt."""
        return self._of(progress, bound, item, lambda: bound.message(item.row, item.number, partial=item.partial, extra=extra))

    def of_part(self, progress: Progress, bound: Bound, part: Part) -> Item:
        """The item of a part of a record over the limit. Raises StopAt."""
        piece, number = self.piece(progress, part), progress.sent_records + 1
        item = Item(piece.row, None, "dropped", number, part.partial, part=part_headers(part.number, piece.record, is_last=part.is_last))
        return self._of(progress, bound, item, lambda: bound.part(piece, number, item.part))

    def piece(self, progress: Progress, part: Part) -> PartOfRecord:
        """A part as the pipeline takes it."""
        row, record = Row(part.value, part.start, part.end, 0), record_of(progress.split, part.first[0])
        return PartOfRecord(row, part.number, part.first, lambda: progress.first_part(part), record, part.partial)

    def _of(self, progress: Progress, bound: Bound, item: Item, make: Callable[[], Outgoing | None]) -> Item:
        """An item that is dropped, as what `make` gives, which asks `bound`. Raises StopAt."""
        try:
            message = make()
        except StageError as bad:
            return self.bad(progress, item, bad.stage, bad.error)
        except FileError:
            raise
        except CopycatError as error:  # not its fault, and it will come again: what stands before it is not to wait for that
            raise self.stop_at(progress, item.row, error) from None
        if bound.trouble:
            row = item.row
            self.step_failed(progress, Trouble(row.start, row.end, item.number, bound.trouble, message is not None, 1))
        return (
            item if message is None else item._replace(message=message, outcome="acknowledged", kept=bool(bound.trouble), more=bound.more)
        )

    def stop_at(self, progress: Progress, row: Row, error: CopycatError) -> StopAt:
        """The end before a row for what came from outside, or for a step that is at fault: that one is told with the row's place."""
        if isinstance(error, StepFaultError):
            place = f"record {row.start + 1}" if self._by_record else f"bytes {row.start} to {row.end}"
            error = FatalError(f"{progress.split.path!r}, {place}, stage transform: {error.message}", error.hint)
        return StopAt(row, error)

    def step_failed(self, progress: Progress, trouble: Trouble) -> None:
        """Name a record that goes on, or is dropped, as the `on_error` of a step that failed says."""
        start, end, number, why, kept, _ = trouble
        progress.step_failed(StepFailure(progress.split.path, start, end, why, number, kept, self._by_record))

    def of_long_line(self, progress: Progress, bound: Bound, frame: LongLine) -> Item:
        """The item of an over-long line. Raises StopAt."""
        value = frame.head if frame.value is None else frame.value
        row, number = Row(value, frame.start, frame.end, 0), progress.sent_records + 1
        item = Item(row, None, "dropped", number, head_bytes=len(frame.head))
        if self.drops_long_lines:
            return item
        if self._on_too_long == "truncate":
            return self._of_row(progress, bound, item, _TRUNCATED)
        error = DataError(self._too_long, "raise the limit, or set on_too_long")
        return self.bad(progress, item, "frame", error)

    def bad(self, progress: Progress, item: Item, stage: str, error: DataError) -> Item:
        """What becomes of a bad record. Raises StopAt when the connector, or the step that failed, tolerates none."""
        path, row, definition = progress.split.path, item.row, self._definition
        policy = error.policy if isinstance(error, StepError) else ""
        if policy == "stop" or (self._errors.tolerance == "none" and policy != "dlq"):
            words = f"{self._where(progress, item)}, stage {stage}: {error.message}"
            other = "another on_error for that step" if policy else "errors.tolerance: all"
            hint = f"{error.hint or 'correct the definition'}, or set {other}; then: copycat ctl restart {definition.name}"
            raise StopAt(row, FatalError(words, hint))
        progress.reject(Rejection(path, row.start, row.end, stage, error.message, item.number, self._by_record))
        full = rendered(row)
        item = item._replace(row=full, message=None, outcome="rejected", stage=stage, why=error.message, by_record=self._by_record, more=())
        if self._errors.dlq is None:
            return item
        raw, said = self._raw(row, full, item.head_bytes)
        letter = dead_letter(definition, progress.split, full, item.number, stage, error, partial=item.partial, by_record=self._by_record)
        if item.part:  # a key, so that the parts of a record stand one behind the other
            letter = (*letter[:2], dict(item.part)[PART_OF], *letter[3:-1], [*letter[-1], *item.part])
        return item._replace(message=with_raw(letter, raw, said), outcome="dead_lettered")

    def _raw(self, row: Row, full: Row, head_bytes: int | None) -> tuple[bytes | None, bytes | None]:
        """What of the record's bytes goes into its letter, and what the letter says about that. `full` is the row, `rendered`."""
        assert self._errors.dlq is not None
        if not self._errors.dlq.include_raw:
            return None, b"omitted: errors.dlq.include_raw is false"
        if full.raw is None and not isinstance(full.value, bytes):
            return None, NO_BYTES
        if head_bytes is not None:
            return full.bytes, f"cut: the first {len(full.bytes)} bytes, {self._too_long}".encode()
        return full.bytes, None if full is row else RENDERED

    def _where(self, progress: Progress, item: Item) -> str:
        place = f"record {item.number}" if self._by_record else f"bytes {item.row.start} to {item.row.end}"
        return f"{progress.split.path!r}, {place}"

    def smaller(self, progress: Progress, item: Item, reason: DataError) -> Item:
        """A dead letter that was refused itself, with its raw bytes cut, then without any. Raises StopAt when none were refused."""
        assert item.message is not None
        topic, value = item.message[:2]
        if value is None:
            where = self._where(progress, item)
            hint = f"correct the dead-letter topic's settings; then: copycat ctl restart {self._definition.name}"
            raise StopAt(item.row, FatalError(f"{where}: the dead-letter topic {topic} refuses the letter: {reason.message}", hint))
        said, kept = OMITTED, None
        if len(value) > RAW_BYTES_CUT:
            said, kept = b"cut: the first %d bytes, more are refused by the topic" % RAW_BYTES_CUT, value[:RAW_BYTES_CUT]
        return item._replace(message=with_raw(item.message, kept, said))


def _too_long(definition: Definition) -> str:
    """Why an over-long record is bad, in the words of the definition."""
    if getattr(definition.source, "multiline", None) is not None:
        return _TOO_LONG_GROUP
    return _TOO_LONG_RECORD if hasattr(getattr(definition.source, "format", None), "max_bytes") else _TOO_LONG
