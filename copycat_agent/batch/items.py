"""From frames to items: what to send for each row, and what becomes of a bad one."""

from __future__ import annotations

from typing import Literal, NamedTuple

from copycat_agent.batch.pipeline import Bound, StageError, origin_headers
from copycat_agent.batch.progress import Progress
from copycat_agent.errors import CopycatError, DataError, FatalError
from copycat_agent.formats import Chunk, LongLine, Row
from copycat_agent.model import Rejection
from copycat_agent.options import Definition
from copycat_agent.producer import Outgoing

Outcome = Literal["acknowledged", "dead_lettered", "dropped", "rejected"]

_TRUNCATED = (("copycat.truncated", b"true"),)
_RAW = "copycat.raw"
"""The header that says what became of a dead letter's raw bytes; absent when they are whole."""
RAW_BYTES_CUT = 2**19
"""Raw bytes that a dead letter keeps once Kafka refused more of them: half of what a topic takes by default."""


class Item(NamedTuple):
    """One row, what to send for it (None: nothing), and what it counts as once that is acknowledged."""

    row: Row
    message: Outgoing | None
    outcome: Outcome


class StopAt(Exception):  # noqa: N818 - an order, not an error; `error` is one
    """Here is the end for now: everything before `row` may settle, `row` may not. FatalError for a bad record, or BlockedError."""

    def __init__(self, row: Row, error: CopycatError) -> None:
        super().__init__(row.start, error)
        self.row = row
        self.error = error


class Items:
    """Makes the items of one connector's frames, by its `errors` section."""

    def __init__(self, definition: Definition, on_too_long: Literal["dlq", "truncate", "drop"]) -> None:
        self._definition = definition
        self._errors = definition.errors
        self._on_too_long = on_too_long

    def of_rows(self, progress: Progress, bound: Bound, chunk: Chunk, begun: int) -> tuple[list[Item], StopAt | None]:
        """Items of the chunk's rows from the `begun`-th on, up to the one that stops the connector, if one does."""
        first = progress.sent_records + 1
        items: list[Item] = []
        for position, row in enumerate(chunk.rows()):
            if position < begun:
                continue
            try:
                message = bound.message(row, first + row.ordinal, partial=chunk.partial)
                items.append(Item(row, message, "dropped" if message is None else "acknowledged"))
            except StageError as bad:
                try:
                    items.append(self.bad(progress, row, bad.stage, bad.error))
                except StopAt as stop:
                    return items, stop
        return items, None

    def of_long_line(self, progress: Progress, bound: Bound, frame: LongLine) -> Item:
        """The item of an over-long line. Raises StopAt."""
        row = Row(frame.head, frame.start, frame.end, 0)
        if self._on_too_long == "drop":
            return Item(row, None, "dropped")
        try:
            if self._on_too_long == "truncate":
                return Item(row, bound.message(row, progress.sent_records + 1, extra=_TRUNCATED), "acknowledged")
        except StageError as bad:
            return self.bad(progress, row, bad.stage, bad.error)
        error = DataError("the line is longer than line.max_bytes", "raise line.max_bytes, or set line.on_too_long")
        return self.bad(progress, row, "frame", error)

    def bad(self, progress: Progress, row: Row, stage: str, error: DataError) -> Item:
        """What becomes of a bad record. Raises StopAt when the connector tolerates none."""
        path = progress.split.path
        if self._errors.tolerance == "none":
            words = f"{path!r}, bytes {row.start} to {row.end}, stage {stage}: {error.message}"
            hint = error.hint or "correct the definition, or set errors.tolerance: all"
            raise StopAt(row, FatalError(words, hint))
        progress.reject(Rejection(path, row.start, row.end, stage, error.message))
        if self._errors.dlq is None:
            return Item(row, None, "rejected")
        return Item(row, self._dead_letter(path, row, stage, error), "dead_lettered")

    def smaller(self, item: Item, reason: DataError) -> Item:
        """A dead letter that was refused itself, with its raw bytes cut, then without any. Raises StopAt when none were refused."""
        assert item.message is not None
        topic, value, *rest, headers = item.message
        if value is None:
            hint = "correct the dead-letter topic's settings"
            raise StopAt(item.row, FatalError(f"the dead-letter topic {topic} refuses a record: {reason.message}", hint))
        said, kept = b"omitted: refused by the topic", None
        if len(value) > RAW_BYTES_CUT:
            said, kept = b"cut: the first %d bytes, more are refused by the topic" % RAW_BYTES_CUT, value[:RAW_BYTES_CUT]
        return item._replace(message=(topic, kept, *rest, [*(pair for pair in headers if pair[0] != _RAW), (_RAW, said)]))

    def _dead_letter(self, path: str, row: Row, stage: str, error: DataError) -> Outgoing:
        dlq = self._errors.dlq
        assert dlq is not None
        headers = [
            ("copycat.connector", self._definition.name.encode()),
            *origin_headers(path, row.start, row.end),
            ("copycat.length", b"%d" % (row.end - row.start)),
            ("copycat.stage", stage.encode()),
            ("copycat.error", type(error).__name__.encode()),
            ("copycat.message", error.message.encode("utf-8", "backslashreplace")),
        ]
        return dlq.topic, row.value if dlq.include_raw else None, None, -1, None, None, 0, headers
