"""The steps before a query, for the records of one split: what is asked, and what stands in the way of asking."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Any

from copycat_agent.batch.budget import Watch
from copycat_agent.encoding.bulk import places
from copycat_agent.encoding.encoder import SplitEncoder, StageError
from copycat_agent.encoding.parts import PartOfRecord
from copycat_agent.errors import CopycatError, DataError, FileError
from copycat_agent.formats import Chunk, Draft, Parsed, Unparsed
from copycat_agent.formats.records.trees.json_values import parse_all
from copycat_agent.options import TransformOptions
from copycat_agent.transforms.json_ import JsonStepOptions

NOT_ASKED = -1

_JSON_ALONE = JsonStepOptions.model_validate({"json": {}})


class Asked:
    """Of a split's records, by their numbers: their numbers in the query, and what is to be known of them beside.

    `special`: why a record is a bad one, or what a step that came from outside raised, or, of one that a step dropped though it failed,
    the words for that. `times` are event times, `troubles` what `on_error: keep` let pass. `firsts`: of records in parts, by where they
    begin, the number in the query of their first part.
    """

    def __init__(self) -> None:
        self.special: dict[int, StageError | CopycatError | str] = {}
        self.times: dict[int, int] = {}
        self.troubles: dict[int, str] = {}
        self.firsts: dict[int, int] = {}
        self._first = 0
        self._records: list[int] = []

    def record(self, number: int) -> int:
        """The record's number in the query, NOT_ASKED when it does not come to it."""
        index = number - self._first
        return self._records[index] if 0 <= index < len(self._records) else NOT_ASKED

    def records(self, number: int, total: int) -> list[int]:
        """The same for `total` records from this one on."""
        index = number - self._first
        return self._records[index : index + total]

    def number(self, record: int) -> int | None:
        """The other way round; None for a record of another split."""
        try:
            return self._first + self._records.index(record)
        except ValueError:
            return None

    def enter(self, number: int, records: Iterable[int]) -> None:
        """The numbers in the query of the records from `number` on."""
        self._first = self._first or number
        self._records += [NOT_ASKED] * (number - self._first - len(self._records))
        self._records += records


class Asking:
    """Makes rows of the table of a split's records, as far as those are good ones."""

    def __init__(self, inner: SplitEncoder, asked: Asked, before: tuple[TransformOptions, ...], watch: Watch) -> None:
        """`before` are the options of the steps before the query."""
        self._inner = inner
        self._asked = asked
        self._steps = inner.steps(0)
        self._is_json = before == (_JSON_ALONE,)
        self._watch = watch

    def record(self, draft: Draft, first: int) -> list[dict[str, Any]]:
        """The fields of a record by itself, none where it is not asked about; `first` is its number in the query."""
        record, number = NOT_ASKED, draft.number
        found: list[dict[str, Any]] = []
        try:
            if self._inner.apply(self._inner.ready(draft), 0):
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
        """The same for a part of a record. The record's first one decides for all: where this batch has not asked about it, it does so."""
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
        """The fields of each record that is asked about, the first of which has the number `first` in the query.

        Returns with them how many of the chunk's stretches were looked at: all, where the batch does not have to end before.
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
        """One record after the other in one draft, without an object for each."""
        draft, steps, watch = Draft(b""), self._steps, self._watch
        draft.schema = chunk.schema if isinstance(chunk, Parsed) else None
        if isinstance(chunk, Parsed) and Unparsed in set(map(type, chunk.values)):
            steps = (_readable, *steps)
        found: list[dict[str, Any]] = []
        records = [NOT_ASKED] * chunk.total
        records_of_chunk = places(chunk, number, owns_fields=True)
        while True:
            try:
                for draft.value, (draft.start, draft.end), draft.number in records_of_chunk:
                    draft.timestamp_ms = None
                    for step in steps:
                        if not step(draft):
                            if draft.trouble:
                                self._dropped(draft)
                            break
                    else:
                        records[draft.number - number] = first + len(found)
                        found.append(draft.fields())
                        self._note(draft)
                    if monotonic() > watch.until and watch.ends():
                        del records[draft.number - number + 1 :]
                        break
                break
            except CopycatError as error:
                self._failed(draft, error)
        self._asked.enter(number, records)
        return found, len(records)

    def _dropped(self, draft: Draft) -> None:
        self._asked.special[draft.number] = draft.trouble
        draft.kept, draft.trouble = 0, ""

    def _failed(self, draft: Draft, error: CopycatError) -> None:
        value: Any = draft.value
        stage = "parse" if type(value) is Unparsed else "transform"
        self._asked.special[draft.number] = StageError(stage, error) if isinstance(error, DataError) else error
        draft.kept, draft.trouble = 0, ""

    def _note(self, draft: Draft) -> None:
        if draft.timestamp_ms is not None:
            self._asked.times[draft.number] = draft.timestamp_ms
        if draft.trouble:
            self._asked.troubles[draft.number] = draft.trouble
            draft.kept, draft.trouble = 0, ""


def _readable(draft: Draft) -> bool:
    """The first step where records may be some that could not be read."""
    value: Any = draft.value
    if type(value) is Unparsed:
        raise DataError(value.why, value.hint)
    return True
