"""Encodes records of a definition with a query: the steps before the query, and messages of its results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from time import monotonic
from typing import Any

from copycat_agent.batch.progress import SplitProgress
from copycat_agent.batch.sending import EndCheck
from copycat_agent.batch.sql_answers import NOT_ASKED, QueriedRecords, QuerySender
from copycat_agent.converters import Converter
from copycat_agent.encoding.bulk import ChunkEncoding, EncodedRecords, UniformEncoding, places
from copycat_agent.encoding.encoder import BulkEncoder, Encoder, SplitEncoder, StageError
from copycat_agent.encoding.layout import Headers
from copycat_agent.encoding.record_parts import FirstPartResult, PartOfRecord
from copycat_agent.errors import CopycatError, DataError, FileError
from copycat_agent.formats import Chunk, Draft, Parsed, Unparsed
from copycat_agent.formats.records.json_values import parse_all
from copycat_agent.options import TransformOptions
from copycat_agent.producer import Message
from copycat_agent.transforms import StepError
from copycat_agent.transforms.containers import JsonStepOptions

_JSON_ALONE = JsonStepOptions.model_validate({"json": {}})
_BY_ITSELF = "a record to look at by itself"


class QueryRowEncoder:
    """Makes rows of the query's table from a split's records, unless they are bad."""

    def __init__(self, inner: SplitEncoder, asked: QueriedRecords, before: tuple[TransformOptions, ...], watch: EndCheck) -> None:
        """`before` are the options of the steps before the query."""
        self._inner = inner
        self._asked = asked
        self._steps = inner.steps(0)
        self._is_json = before == (_JSON_ALONE,)
        self._watch = watch

    def record(self, draft: Draft, first: int) -> list[dict[str, Any]]:
        """Returns the fields of a single record, none if it is not sent to the query, as a null is not; `first` is its query number."""
        record, number = NOT_ASKED, draft.number
        found: list[dict[str, Any]] = []
        try:
            if draft.framed is not None and self._inner.apply(self._inner.ready(draft), 0):
                found.append(draft.fields())
                record = first
                self._note(draft)
            elif draft.trouble:
                self._asked.special[number] = draft.trouble
        except (StageError, CopycatError) as bad:
            self._asked.special[number] = bad
        self._asked.enter(number, [record])
        return found

    def part(self, part: PartOfRecord, first: int) -> list[dict[str, Any]]:
        """Does what `record` does, for a part of a record. The first part decides for all, so it is sent as well if necessary."""
        record, asked, number = NOT_ASKED, self._asked, part.draft.number
        found: list[dict[str, Any]] = []
        try:
            begun = self._inner.begun(part)
            draft, goes_on = begun.draft, begun.goes_on
            if part.first[0] not in asked.firsts:
                asked.firsts[part.first[0]] = record = first if goes_on else NOT_ASKED
                found += [dict(draft.fields())] if goes_on else []
            if goes_on and part.number > 1:
                draft, record = self._inner.ready(part.draft), NOT_ASKED
                if goes_on := self._inner.apply_to_part(begun, draft, 0):
                    record = first + len(found)
                    found.append(draft.fields())
            if goes_on:
                self._note(draft)
            elif draft.trouble:
                asked.special[number] = draft.trouble
        except FileError:
            raise
        except (StageError, CopycatError) as bad:
            asked.special[number] = bad
        asked.enter(number, [record])
        return found

    def chunk(self, chunk: Chunk | Parsed, number: int, first: int) -> tuple[list[dict[str, Any]], int]:
        """Returns the fields of each record that is sent to the query, the first of which has query number `first`.

        Also returns how many records of the chunk were handled: all, unless the batch has to end before.
        """
        if chunk.partial:
            found: list[dict[str, Any]] = []
            for draft in chunk.rows(number):
                found += self.record(draft, first + len(found))
            return found, chunk.total
        if self._is_json and isinstance(chunk, Chunk) and len(chunk.values) == chunk.total:
            values: list[Any] = parse_all(chunk.values)
            if set(map(type, values)) == {dict}:
                self._asked.enter(number, range(first, first + len(values)))
                return values, chunk.total
        return self._walk(chunk, number, first)

    def _walk(self, chunk: Chunk | Parsed, number: int, first: int) -> tuple[list[dict[str, Any]], int]:
        """Handles records one after the other in one draft, without an object for each."""
        draft, steps, watch = Draft(b""), self._steps, self._watch
        draft.schema = chunk.schema if isinstance(chunk, Parsed) else None
        if isinstance(chunk, Parsed) and not {Unparsed, type(None)}.isdisjoint(map(type, chunk.values)):
            steps = (_readable, *steps)
        found: list[dict[str, Any]] = []
        records = [NOT_ASKED] * chunk.total
        for draft.value, (draft.start, draft.end), draft.number, draft.envelope in places(chunk, number, owns_fields=True):
            draft.timestamp_ms = None if draft.envelope is None else draft.envelope.timestamp_ms
            try:
                for step in steps:
                    if not step(draft):
                        if draft.trouble:
                            self._dropped(draft)
                        break
                else:
                    records[draft.number - number] = first + len(found)
                    found.append(draft.fields())
                    self._note(draft)
            except CopycatError as error:
                self._failed(draft, error)
            if monotonic() > watch.until and watch.ends():
                del records[draft.number - number + 1 :]
                break
        self._asked.enter(number, records)
        return found, len(records)

    def _dropped(self, draft: Draft) -> None:
        self._asked.special[draft.number] = draft.trouble
        draft.kept, draft.trouble = 0, ""

    def _failed(self, draft: Draft, error: CopycatError) -> None:
        value: Any = draft.value
        stage = "parse" if type(value) is Unparsed else "transform"
        self._asked.bad(draft.number, stage, error)
        draft.kept, draft.trouble = 0, ""

    def _note(self, draft: Draft) -> None:
        if draft.timestamp_ms is not None:
            self._asked.times[draft.number] = draft.timestamp_ms
        if draft.trouble:
            self._asked.troubles[draft.number] = draft.trouble
            draft.kept, draft.trouble = 0, ""


def _readable(draft: Draft) -> bool:
    """The first step for records of which some may be unreadable, or nulls, which go round the query."""
    value: Any = draft.value
    if type(value) is Unparsed:
        raise DataError(value.why, value.hint)
    return value is not None


class AnsweredEncoder(SplitEncoder):
    """The encoder for the records of one split, with the query in the middle.

    `inner` does what needs no query; `asking` does the steps before it.
    """

    def __init__(
        self, encoder: Encoder, inner: SplitEncoder, progress: SplitProgress, answers: QuerySender, asking: QueryRowEncoder
    ) -> None:
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
        """Returns the messages of one record: one for each row that the query made of it, none if it was not sent to the query."""
        if self._progress.window is not None:
            self._progress.window.see(draft)
        if draft.framed is None:
            return self._of_null(draft, extra)
        record = self._record(draft)
        if record < 0:
            return ()
        rows = self._rows(draft, record, lambda: self._before(draft))
        made = (self._encoded(fields, draft, extra) for fields in rows)
        return tuple(message for message in made if message is not None)

    def _of_null(self, draft: Draft, extra: Headers) -> tuple[Message, ...]:
        """Returns the message of a null, which goes round the query; none where nulls are dropped."""
        window = self._progress.window
        goes = self._inner.apply(draft) and (window is None or window.takes(draft))
        return (self._inner.finish(draft, extra),) if goes else ()

    def encode_part(self, part: PartOfRecord, extra: Headers) -> tuple[Message, ...]:
        """Returns the messages of one part of a record. The query's result for the record's first part decides for all of them."""
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
        begun = FirstPartResult(Draft(dict(first), *part.first, whole.number - part.number + 1))
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
        """Returns the record's query number, negative if it was not sent. Raises the error that prevented that."""
        special = self._asked.special.get(draft.number, "")
        if isinstance(special, StageError):
            raise StageError(special.stage, special.error)
        if isinstance(special, CopycatError):
            raise special
        draft.trouble = special or self._asked.troubles.get(draft.number, "")
        return self._asked.record(draft.number)

    def _before(self, draft: Draft) -> dict[str, Any]:
        """Returns the fields of a record before the query."""
        before = self._inner.ready(draft.anew())
        self._inner.apply(before, 0)
        return before.fields()

    def _begun_of(self, part: PartOfRecord) -> FirstPartResult:
        return self._inner.begun(part._replace(draft=part.draft.anew()))

    def _before_part(self, part: PartOfRecord) -> dict[str, Any]:
        """Returns the fields of a part before the query."""
        before = self._inner.ready(part.draft.anew())
        self._inner.apply_to_part(self._begun_of(part), before, 0)
        return before.fields()

    def _rows(self, draft: Draft, record: int, before: Callable[[], dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the fields of each row; `before` returns the record's fields before the query. Raises StageError."""
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
    """A `BulkEncoder` whose first step gives a record the query's result."""

    def __init__(self, encoder: Encoder, inner: SplitEncoder, asked: QueriedRecords, answers: QuerySender) -> None:
        layout, steps = encoder.layout, inner.steps(1)
        super().__init__(layout, lambda: inner.layout, ((self._answer, *steps), encoder.null_steps), changes_fields=False)
        alone = not (steps or layout.wants_record or layout.value is not None) and layout.is_steady
        self._convert: Converter | None = (layout.convert_fields or layout.convert_value) if alone else None
        self._asked = asked
        self._all = answers
        self._first = 0
        self._answers: list[dict[str, Any] | bool | None] = []

    def begin(self, chunk: Chunk | Parsed, number: int) -> ChunkEncoding | None:
        """Begins a chunk. Returns None if a record of it has to be handled by itself, or if the query made several rows of one."""
        encoding = super().begin(chunk, number)
        if encoding is None or not chunk.total:
            return None
        if isinstance(chunk, Parsed) and chunk.values[0] is None:
            return encoding  # nulls, see `Parsed.sorted_out`
        answers = self._all.among(self._asked.records(number, chunk.total))
        if answers is None:
            return None
        for special in (self._asked.special, self._asked.troubles):
            for one in range(number, number + chunk.total) if special else ():
                if one in special:
                    answers[one - number] = True
        if self._convert is not None and len(chunk.values) == chunk.total:
            with contextlib.suppress(CopycatError):  # which record it is shows one by one
                return UniformEncoding(chunk, number, _encoded(answers, self._convert))
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


def _encoded(answers: list[dict[str, Any] | bool | None], convert: Converter) -> EncodedRecords:
    """Raises what `convert` does, and DataError if a record has to be handled by itself."""
    encoded = EncodedRecords()
    messages, drops = encoded.messages, encoded.drops
    for answer in answers:
        if answer is None:
            drops.append(len(messages))
        elif answer is True:
            raise DataError(_BY_ITSELF)
        else:
            messages.append(convert(answer))
    return encoded
