"""What a query made of the records of a batch, and messages with that in their middle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import pyarrow as pa

from copycat_agent.batch.progress import Progress
from copycat_agent.batch.sql_ask import NOT_ASKED, Asked, Asking
from copycat_agent.batch.sql_rows import Results
from copycat_agent.converters import Converter
from copycat_agent.encoding.bulk import AllAtOnce, BulkEncoder, ChunkEncoding, Encoded
from copycat_agent.encoding.encoder import Encoder, SplitEncoder, StageError
from copycat_agent.encoding.layout import Headers
from copycat_agent.encoding.parts import Begun, PartOfRecord
from copycat_agent.errors import CopycatError, DataError
from copycat_agent.formats import Chunk, Draft, Frame, LongLine, Parsed, Part
from copycat_agent.model import SourcePartition
from copycat_agent.producer import Message
from copycat_agent.transforms import StepError
from copycat_agent.transforms.sql import SqlStep

UNNAMED = "one of its functions"
"""Where a query fails when nobody knows more."""

MOST_ROWS = 100_000
"""A record of which a query makes more is a bad one."""


_BY_ITSELF = "a record to look at by itself"


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


class AnsweredEncoder(SplitEncoder):
    """The encoder for the records of one split, with the query in the middle.

    `inner` does what needs no query; `asking` is what comes before it.
    """

    def __init__(self, encoder: Encoder, inner: SplitEncoder, progress: Progress, answers: Answers, asking: Asking) -> None:
        self._inner = inner
        self._progress = progress
        self._answers = answers
        self._asked = answers.asked(progress)
        self.layout = inner.layout
        self.asking = asking
        self.bulk = None
        if progress.window is None and answers.results is not None:
            self.bulk = AnsweredBulk(encoder, inner, self._asked, answers)

    def encode(self, draft: Draft, extra: Headers = ()) -> tuple[Message, ...]:
        """See `SplitEncoder.encode`."""
        if self._progress.window is not None:
            self._progress.window.see(draft)
        record = self._record(draft)
        if record < 0:
            return ()
        rows = self._rows(draft, record, lambda: self._before(draft))
        made = (self._encoded(fields, draft, extra) for fields in rows)
        return tuple(message for message in made if message is not None)

    def encode_part(self, part: PartOfRecord, extra: Headers) -> tuple[Message, ...]:
        """See `SplitEncoder.encode_part`: what the query made of the record's first part decides."""
        draft = part.draft
        if self._progress.window is not None:
            self._progress.window.see(draft if part.number == 1 else part.read_first())
        record = self._record(draft)
        if record < 0:
            return ()
        firsts = self._rows(draft, self._asked.firsts[part.first[0]], lambda: dict(self._begun_of(part).draft.fields()))
        rows = self._rows(draft, record, lambda: self._before_part(part)) if part.number > 1 and firsts else firsts
        made = (self._encoded_part(firsts[min(index, len(firsts) - 1)], fields, part, extra) for index, fields in enumerate(rows))
        return tuple(message for message in made if message is not None)

    def _encoded_part(self, first: dict[str, Any], fields: dict[str, Any], part: PartOfRecord, extra: Headers) -> Message | None:
        inner, window, whole = self._inner, self._progress.window, part.draft
        begun = Begun(Draft(dict(first), *part.first, whole.number - part.number + 1))
        begun.draft.timestamp_ms = self._asked.times.get(whole.number)
        inner.go_on(begun, 1)
        draft = begun.draft
        if begun.goes_on and part.number > 1:
            draft = inner.ready(whole.anew())
            draft.value = fields
            if not inner.apply_to_part(begun, draft, 1):
                return None
        whole.trouble = whole.trouble or (begun if not begun.goes_on else draft).trouble
        if not begun.goes_on or (window is not None and not window.takes(begun.draft)):
            return None
        return inner.finish_part(begun, draft, part, extra)

    def _record(self, draft: Draft) -> int:
        """Its number in the query, negative where it was not asked about. Raises what stands in the way of asking."""
        special = self._asked.special.get(draft.number, "")
        if isinstance(special, StageError):
            raise StageError(special.stage, special.error)
        if isinstance(special, CopycatError):
            raise special
        draft.trouble = special or self._asked.troubles.get(draft.number, "")
        return self._asked.record(draft.number)

    def _before(self, draft: Draft) -> dict[str, Any]:
        """The record as it was before the query."""
        before = self._inner.ready(draft.anew())
        self._inner.apply(before, 0)
        return before.fields()

    def _begun_of(self, part: PartOfRecord) -> Begun:
        return self._inner.begun(part._replace(draft=part.draft.anew()))

    def _before_part(self, part: PartOfRecord) -> dict[str, Any]:
        """The same for a part."""
        before = self._inner.ready(part.draft.anew())
        self._inner.apply_to_part(self._begun_of(part), before, 0)
        return before.fields()

    def _rows(self, draft: Draft, record: int, before: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """The fields of each row; `before` gives the record as it was before the query. Raises StageError."""
        error, step = self._answers.error(record), self._answers.step
        if error is None:
            assert self._answers.results is not None
            return self._answers.results.rows(record)
        policy = step.options.on_error
        if policy is None or policy == "dlq" or policy == "stop":  # noqa: PLR1714 - mypy reads this
            raise StageError("transform", StepError(step.name, error, policy or ""))
        draft.trouble = draft.trouble or f"{step.name}: {error.message}"
        return [] if policy == "drop" else [before()]

    def _encoded(self, fields: dict[str, Any], record: Draft, extra: Headers) -> Message | None:
        inner, window = self._inner, self._progress.window
        draft = inner.ready(record.anew())
        draft.value, draft.timestamp_ms, draft.schema = fields, self._asked.times.get(record.number), None
        goes = inner.apply(draft, 1)
        record.trouble = record.trouble or draft.trouble
        if not goes or (window is not None and not window.takes(draft)):
            return None
        return inner.finish(draft, extra)


class AnsweredBulk(BulkEncoder):
    """See `BulkEncoder`: the first step gives a record what the query made of it."""

    def __init__(self, encoder: Encoder, inner: SplitEncoder, asked: Asked, answers: Answers) -> None:
        layout, steps = encoder.layout, inner.steps(1)
        super().__init__(layout, inner.layout, (self._answer, *steps), changes_fields=False)
        alone = not (steps or layout.wants_record or layout.value is not None) and inner.layout.is_steady
        self._convert: Converter | None = (layout.convert_fields or layout.convert_value) if alone else None
        self._asked = asked
        self._all = answers
        self._first = 0
        self._answers: list[dict[str, Any] | bool | None] = []

    def begin(self, chunk: Chunk | Parsed, number: int) -> ChunkEncoding | None:
        """See `BulkEncoder.begin`."""
        encoding = super().begin(chunk, number)
        if encoding is None or not chunk.total:
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
                return AllAtOnce(chunk, number, _encoded(answers, self._convert))
        self._first, self._answers = number, answers
        return encoding

    def _takes_raw(self, chunk: Parsed) -> bool:
        del chunk
        return False

    def _answer(self, draft: Draft) -> bool:
        answer = self._answers[draft.number - self._first]
        if answer is None:
            return False
        if answer is True:
            raise DataError(_BY_ITSELF)
        draft.value = answer  # type: ignore[assignment]
        draft.timestamp_ms, draft.schema = self._asked.times.get(draft.number), None
        return True


def _encoded(answers: list[dict[str, Any] | bool | None], convert: Converter) -> Encoded:
    """Raises what `convert` does, DataError where a record has to be looked at."""
    encoded = Encoded()
    messages, drops = encoded.messages, encoded.drops
    for answer in answers:
        if answer is None:
            drops.append(len(messages))
        elif answer is True:
            raise DataError(_BY_ITSELF)
        else:
            messages.append(convert(answer))
    return encoded


def failure(where: str, why: str) -> str:
    """What is said of a record that a query fails for: `where` as in the column `FAILED`, `why` as in `Query`."""
    place = where if where in ("WHERE", UNNAMED) or where.endswith("(...)") else f"column {where!r}"
    return f"the query fails for this record at {place}: {why}"
