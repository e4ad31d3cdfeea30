"""What a query made of the records of a batch, and messages with that in their middle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from copycat_agent.batch.bound import Bound
from copycat_agent.batch.progress import Progress
from copycat_agent.batch.shaping import Headers, StageError
from copycat_agent.batch.sql_rows import Results
from copycat_agent.errors import DataError
from copycat_agent.formats import Chunk, Frame, Parsed, Row
from copycat_agent.producer import Outgoing
from copycat_agent.transforms import StepError
from copycat_agent.transforms.sql import SqlStep

UNNAMED = "one of its functions"
"""Where a query fails when nobody knows more."""

MOST_ROWS = 100_000
"""A record of which a query makes more is a bad one."""


class Query(Protocol):
    """The way through Spark, for one batch. `condemned`: not asked; every record is bad for this reason. `why`: what a failure means."""

    condemned: str
    why: str

    def put(self, batch: pa.RecordBatch) -> None:
        """Rows of the table, in order. Raises RetriableError when Spark is gone."""

    def results(self) -> Iterable[pa.RecordBatch]:
        """No rows follow: what the query makes of them, see `sql_rows.Results`. Raises RetriableError."""


class _Place(NamedTuple):
    """A record that waits for the query: its number there, and what the steps before it have set."""

    record: int
    timestamp_ms: int | None
    trouble: str


class Answers:
    """What the query made of each record of a batch, and what to do where it could not."""

    def __init__(self, step: SqlStep, query: Query) -> None:
        self.step = step
        self.bad: dict[int, DataError] = {}
        self.results: Results | None = None
        self._query = query
        self._places: list[tuple[int, int]] = []
        self._by_split: dict[int, dict[int, _Place | StageError | str]] = {}

    def places(self, progress: Progress) -> dict[int, _Place | StageError | str]:
        """Of a split's records, by their numbers: where they are in the query, why they are bad ones, or that a step dropped them."""
        return self._by_split.setdefault(id(progress), {})

    def enter(self, progress: Progress, start: int) -> int:
        """A record that is asked about. Returns its number."""
        self._places.append((id(progress), start))
        return len(self._places) - 1

    def error(self, record: int) -> DataError | None:
        """Why it is a bad one, None when it is not."""
        assert self.results is not None
        if self._query.condemned:
            return DataError(self._query.condemned)
        if record in self.bad:
            return self.bad[record]
        if where := self.results.failed(record):
            return DataError(failure(where, self._query.why))
        if record == self.results.end or self.results.count(record) > MOST_ROWS:
            return DataError(f"the query makes more of this record than {MOST_ROWS} rows or 64 MiB")
        return None

    def answered(self, progress: Progress, frame: Frame) -> tuple[Frame | None, bool]:
        """The part of the frame whose answers were kept, and whether that is all of it. A record that alone is too much is a bad one."""
        assert self.results is not None
        limit = None if self.results.end is None else max(1, self.results.end)
        if limit is None or limit >= len(self._places):
            return frame, True
        owner, start = self._places[limit]
        if owner != id(progress) or not frame.start <= start < frame.end:
            return frame, True
        index = frame.before(start) if isinstance(frame, Chunk | Parsed) else 0
        return (frame.cut(index)[0] if index and isinstance(frame, Chunk | Parsed) else None), False


class AnsweredBound(Bound):
    """The pipeline for the records of one split, with the query in the middle. `inner` does what needs no query."""

    def __init__(self, inner: Bound, progress: Progress, answers: Answers) -> None:
        self._inner = inner
        self._progress = progress
        self._answers = answers
        self._places = answers.places(progress)
        self.trouble, self.more, self.bulk, self.fast = "", (), None, None

    def ask(self, row: Row, number: int, *, partial: bool) -> tuple[int, dict[str, Any]] | None:
        """The record's number and its row of the table; None when it does not come to the query."""
        try:
            draft = self._inner.draft(row, number, partial=partial)
            if not self._inner.apply(draft, 0):
                self._places[number] = draft.trouble
                return None
        except StageError as bad:
            self._places[number] = bad
            return None
        record = self._answers.enter(self._progress, row.start)
        self._places[number] = _Place(record, draft.timestamp_ms, draft.trouble)
        return record, draft.fields()

    def message(self, row: Row, number: int, *, partial: bool = False, extra: Headers = ()) -> Outgoing | None:
        """See `Bound.message`. `more` are those after the first."""
        self.trouble, self.more = "", ()
        if self._progress.window is not None:
            self._progress.window.see(row)
        place = self._places[number]
        if isinstance(place, StageError):
            raise StageError(place.stage, place.error)
        if isinstance(place, str):
            self.trouble = place
            return None
        self.trouble = place.trouble
        made = (self._shaped(fields, place, row, number, partial, extra) for fields in self._rows(place, row, number))
        messages = [message for message in made if message is not None]
        self.more = tuple(messages[1:])
        return messages[0] if messages else None

    def _rows(self, place: _Place, row: Row, number: int) -> list[dict[str, Any]]:
        """The fields of each row. Raises StageError."""
        error, step = self._answers.error(place.record), self._answers.step
        if error is None:
            assert self._answers.results is not None
            return self._answers.results.rows(place.record)
        policy = step.options.on_error
        if policy is None or policy == "dlq" or policy == "stop":  # noqa: PLR1714 - mypy reads this
            raise StageError("transform", StepError(step.name, error, policy or ""))
        self.trouble = self.trouble or f"{step.name}: {error.message}"
        if policy == "drop":
            return []
        draft = self._inner.draft(row, number)
        self._inner.apply(draft, 0)
        return [draft.fields()]

    def _shaped(
        self, fields: dict[str, Any], place: _Place, row: Row, number: int, partial: bool, extra: Headers  # noqa: FBT001 - see `message`
    ) -> Outgoing | None:  # fmt: skip
        inner, window = self._inner, self._progress.window
        draft = inner.draft(row, number, partial=partial)
        draft.value, draft.timestamp_ms, draft.schema = fields, place.timestamp_ms, None
        goes = inner.apply(draft, 1)
        self.trouble = self.trouble or draft.trouble
        if not goes or (window is not None and not window.takes(draft)):
            return None
        return inner.finish(draft, row, extra)


def failure(where: str, why: str) -> str:
    """What is said of a record that a query fails for: `where` as in the column `FAILED`, `why` as in `Query`."""
    place = where if where in ("WHERE", UNNAMED) or where.endswith("(...)") else f"column {where!r}"
    return f"the query fails for this record at {place}: {why}"
