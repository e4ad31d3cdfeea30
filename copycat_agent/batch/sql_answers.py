"""What a query made of the records of a batch, and messages with that in their middle."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pyarrow as pa

from copycat_agent.batch.bound import Bound
from copycat_agent.batch.fast import Fast, Shaped, Walk
from copycat_agent.batch.part_steps import Begun, PartOfRecord
from copycat_agent.batch.progress import Progress
from copycat_agent.batch.shaping import Headers, Shape, StageError
from copycat_agent.batch.sql_ask import NOT_ASKED, Asked, Asking
from copycat_agent.batch.sql_rows import Results
from copycat_agent.converters import Converter
from copycat_agent.errors import CopycatError, DataError
from copycat_agent.formats import Chunk, Frame, LongLine, Parsed, Part, Row
from copycat_agent.model import SourcePartition
from copycat_agent.producer import Outgoing
from copycat_agent.transforms import Draft, Step, StepError
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


class Answers:
    """What the query made of each record of a batch, and what to do where it could not.

    `least`: of so many of its first rows each is answered, be it as a bad record, so that every batch gets ahead.
    """

    def __init__(self, step: SqlStep, query: Query) -> None:
        self.step = step
        self.bad: dict[int, DataError] = {}
        self.results: Results | None = None
        self.total = 0
        self.least = 1
        self._query = query
        self._by_split: dict[SourcePartition, Asked] = {}

    def asked(self, progress: Progress) -> Asked:
        """What is known of a split's records, by their numbers."""
        return self._by_split.setdefault(progress.split.partition, Asked())

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

    def among(self, records: list[int]) -> list[dict[str, Any] | bool | None] | None:
        """Of neighbours, given by their numbers in the query: the fields that it made; None where it dropped one, or never saw it.

        True for one that has to be looked at by itself. None when all have to be.
        """
        assert self.results is not None
        if self._query.condemned or self.results.end is not None:
            return None
        asked = [record for record in records if record >= 0]
        if not asked:
            return [None] * len(records)
        made, several = self.results.between(asked[0], asked[-1] + 1)
        made |= dict.fromkeys(several, True)
        if self.bad or self.results.failures:
            made |= {record: True for record in asked if record in self.bad or self.results.failed(record)}
        return list(map(made.get, records))

    def answered(self, progress: Progress, frame: Frame, number: int) -> tuple[Frame | None, bool]:
        """The part of the frame whose answers were kept, and whether that is all of it. A record that alone is too much is a bad one.

        `number` is that of the frame's first record.
        """
        assert self.results is not None
        limit = None if self.results.end is None else max(self.least, self.results.end)
        if limit is None or limit >= self.total:
            return frame, True
        if isinstance(frame, Part):
            asked = self.asked(progress)
            is_answered = max(asked.record(number), asked.firsts.get(frame.first[0], NOT_ASKED)) < limit
            return (frame if is_answered else None), is_answered
        if not isinstance(frame, Chunk | Parsed | LongLine):
            return frame, True
        at = self.asked(progress).number(limit)
        if at is None or not number <= at < number + (1 if isinstance(frame, LongLine) else frame.total):
            return frame, True
        return (frame.cut(at - number)[0] if at > number and not isinstance(frame, LongLine) else None), False


class AnsweredBound(Bound):
    """The pipeline for the records of one split, with the query in the middle.

    `inner` does what needs no query; `asking` is what comes before it.
    """

    def __init__(self, inner: Bound, progress: Progress, answers: Answers, asking: Asking, convert: Converter | None) -> None:
        """`convert`: see `AnsweredFast`."""
        self._inner = inner
        self._progress = progress
        self._answers = answers
        self._asked = answers.asked(progress)
        self.asking = asking
        self.trouble, self.more, self.bulk = "", (), None
        self.fast = None
        if progress.window is None and answers.results is not None:
            self.fast = AnsweredFast(inner.shape, inner.steps(1), self._asked, answers, convert)

    def message(self, row: Row, number: int, *, partial: bool = False, extra: Headers = ()) -> Outgoing | None:
        """See `Bound.message`. `more` are those after the first."""
        self.trouble, self.more = "", ()
        if self._progress.window is not None:
            self._progress.window.see(row)
        record = self._record(number)
        if record < 0:
            return None
        rows = self._rows(record, lambda: self._before(row, number))
        made = (self._shaped(fields, row, number, partial, extra) for fields in rows)
        return self._several(message for message in made if message is not None)

    def part(self, part: PartOfRecord, number: int, extra: Headers) -> Outgoing | None:
        """See `Bound.part`: what the query made of the record's first part decides."""
        self.trouble, self.more = "", ()
        if self._progress.window is not None:
            self._progress.window.see(part.row if part.number == 1 else part.read_first())
        record = self._record(number)
        if record < 0:
            return None
        firsts = self._rows(self._asked.firsts[part.first[0]], lambda: self._before_part(part, number, 1))
        rows = self._rows(record, lambda: self._before_part(part, number, part.number)) if part.number > 1 and firsts else firsts
        made = (self._shaped_part(firsts[min(index, len(firsts) - 1)], fields, part, number, extra) for index, fields in enumerate(rows))
        return self._several(message for message in made if message is not None)

    def _shaped_part(
        self, first: dict[str, Any], fields: dict[str, Any], part: PartOfRecord, number: int, extra: Headers
    ) -> Outgoing | None:
        inner, window = self._inner, self._progress.window
        begun = Begun(part.row, Draft(dict(first), *part.first, number - part.number + 1))
        begun.draft.timestamp_ms = self._asked.times.get(number)
        inner.begin(begun, 1)
        if begun.error is not None:
            raise begun.error
        draft = begun.draft
        if begun.goes_on and part.number > 1:
            draft = inner.draft(part.row, number, partial=part.partial)
            draft.value = fields
            if not inner.apply_to_part(begun, draft, 1):
                return None
        self.trouble = self.trouble or (begun if not begun.goes_on else draft).trouble
        if not begun.goes_on or (window is not None and not window.takes(begun.draft)):
            return None
        return inner.finish_part(begun, draft, part, extra)

    def _record(self, number: int) -> int:
        """Its number in the query, negative where it was not asked about. Raises what stands in the way of asking."""
        special = self._asked.special.get(number, "")
        if isinstance(special, StageError):
            raise StageError(special.stage, special.error)
        if isinstance(special, CopycatError):
            raise special
        self.trouble = special or self._asked.troubles.get(number, "")
        return self._asked.record(number)

    def _several(self, messages: Iterable[Outgoing]) -> Outgoing | None:
        made = tuple(messages)
        self.more = made[1:]
        return made[0] if made else None

    def _before(self, row: Row, number: int) -> dict[str, Any]:
        """The record as it was before the query."""
        draft = self._inner.draft(row, number)
        self._inner.apply(draft, 0)
        return draft.fields()

    def _before_part(self, part: PartOfRecord, number: int, which: int) -> dict[str, Any]:
        """The same for the first part of a record (`which` is 1), or for the one at hand."""
        begun = self._inner.begun(part, number)
        if which == 1:
            return dict(begun.draft.fields())
        draft = self._inner.draft(part.row, number)
        self._inner.apply_to_part(begun, draft, 0)
        return draft.fields()

    def _rows(self, record: int, before: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """The fields of each row; `before` gives the record as it was before the query. Raises StageError."""
        error, step = self._answers.error(record), self._answers.step
        if error is None:
            assert self._answers.results is not None
            return self._answers.results.rows(record)
        policy = step.options.on_error
        if policy is None or policy == "dlq" or policy == "stop":  # noqa: PLR1714 - mypy reads this
            raise StageError("transform", StepError(step.name, error, policy or ""))
        self.trouble = self.trouble or f"{step.name}: {error.message}"
        if policy == "drop":
            return []
        return [before()]

    def _shaped(self, fields: dict[str, Any], row: Row, number: int, partial: bool, extra: Headers) -> Outgoing | None:  # noqa: FBT001 - see `message`
        inner, window = self._inner, self._progress.window
        draft = inner.draft(row, number, partial=partial)
        draft.value, draft.timestamp_ms, draft.schema = fields, self._asked.times.get(number), None
        goes = inner.apply(draft, 1)
        self.trouble = self.trouble or draft.trouble
        if not goes or (window is not None and not window.takes(draft)):
            return None
        return inner.finish(draft, row, extra)


class AnsweredFast(Fast):
    """See `Fast`: the first step gives a record what the query made of it."""

    def __init__(self, shape: Shape, steps: tuple[Step, ...], asked: Asked, answers: Answers, convert: Converter | None) -> None:
        """`convert` makes the value of fields, None where more than those go into it."""
        self._convert = convert if shape.is_steady and not steps else None
        super().__init__(shape, (self._answer, *steps), _takes_no_raw, changes_fields=False)
        self._asked = asked
        self._all = answers
        self._first = 0
        self._answers: list[dict[str, Any] | bool | None] = []

    def walk(self, chunk: Chunk | Parsed, number: int) -> Walk | None:
        """See `Fast.walk`."""
        walk = super().walk(chunk, number)
        if walk is None or not chunk.total:
            return None
        answers = self._all.among(self._asked.records(number, chunk.total))
        if answers is None:
            return None
        for special in (self._asked.special, self._asked.troubles):
            for one in range(number, number + chunk.total) if special else ():
                if one in special:
                    answers[one - number] = True
        if self._convert is not None and len(chunk.values) == chunk.total:
            with contextlib.suppress(CopycatError):  # which of the records it is shows one by one
                return _Made(self._shape, chunk, self._convert, answers)
        self._first, self._answers = number, answers
        return walk

    def _answer(self, draft: Draft) -> bool:
        answer = self._answers[draft.number - self._first]
        if answer is None:
            return False
        if answer is True:
            msg = "a record to look at by itself"
            raise DataError(msg)
        draft.value = answer  # type: ignore[assignment]
        draft.timestamp_ms, draft.schema = self._asked.times.get(draft.number), None
        return True


class _Made(Walk):
    """A walk through a chunk whose messages are all made, since no record of it has to be looked at."""

    def __init__(self, shape: Shape, chunk: Chunk | Parsed, convert: Converter, answers: list[dict[str, Any] | bool | None]) -> None:
        """Raises what `convert` does, DataError where a record has to be looked at."""
        self.shape = shape
        self._chunk = chunk
        self._shaped = Shaped()
        messages, drops = self._shaped.messages, self._shaped.drops
        for answer in answers:
            if answer is None:
                drops.append(len(messages))
            elif answer is True:
                msg = "a record to look at by itself"
                raise DataError(msg)
            else:
                messages.append(convert(answer))

    def take(self, most: int, until: float) -> Shaped:
        """See `Walk.take`. All at once: it is made, and in memory."""
        del most, until
        return self._shaped

    def row(self) -> Row:
        """The last one."""
        return deque(self._chunk.rows(), 1)[0]


def _takes_no_raw(*, as_is: bool) -> bool:
    del as_is
    return False


def failure(where: str, why: str) -> str:
    """What is said of a record that a query fails for: `where` as in the column `FAILED`, `why` as in `Query`."""
    place = where if where in ("WHERE", UNNAMED) or where.endswith("(...)") else f"column {where!r}"
    return f"the query fails for this record at {place}: {why}"
