"""A pipeline and a split: makes messages of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from copycat_agent.batch.fast import Fast
from copycat_agent.batch.part_steps import Begun, PartOfRecord, PartSteps
from copycat_agent.batch.shaping import Headers, Shape, StageError
from copycat_agent.errors import DataError
from copycat_agent.formats import Chunk, Parsed, Row, Unparsed
from copycat_agent.producer import Outgoing
from copycat_agent.templates import SplitMeta
from copycat_agent.transforms import Draft, Step

if TYPE_CHECKING:
    from copycat_agent.batch.recipe import Recipe
    from copycat_agent.batch.window import BoundWindow
    from copycat_agent.converters import Converter
    from copycat_agent.model import Split


class Bound:
    """The pipeline for the records of one split, used from one thread.

    `bulk` and `fast` are quicker ways for whole chunks, None where a definition needs to look at each row. `trouble` is what
    `on_error: keep` or `drop` passed over in the last row, in words; "" for nothing. `more` are messages of the last row beside the one
    that `message` gave: only queries make some.
    """

    def __init__(
        self, pipeline: Recipe, split: Split, partitions: Callable[[str], int], run: int, host: str, window: BoundWindow | None
    ) -> None:
        """See `Pipeline.bind`."""
        self._pipeline = pipeline
        self._window = window
        meta = SplitMeta(split.path, split.inode, host, pipeline.definition.name, split.mtime_ms, pipeline.clock)
        self._begun: Begun | None = None
        self._stages = tuple(tuple(transform.bind(meta) for transform in stage) for stage in pipeline.stages)
        self._shape = Shape(pipeline, split, meta, partitions, run)
        self.trouble = ""
        self.more: tuple[Outgoing, ...] = ()
        self.bulk: Bulk | None = None
        self.fast: Fast | None = None
        if self._window is None and len(self._stages) == 1:
            self._choose(self._shape)

    @property
    def shape(self) -> Shape:
        """How its records look."""
        return self._shape

    def steps(self, stage: int) -> tuple[Step, ...]:
        """The steps of one stage, see `Recipe.stages`."""
        return self._stages[stage]

    def _choose(self, shape: Shape) -> None:
        pipeline = self._pipeline
        if shape.is_steady and not pipeline.transforms and not pipeline.wants_record and pipeline.value is None:
            self.bulk = Bulk(
                pipeline.topic.literal_prefix, shape.tail(), pipeline.convert_value, pipeline.takes_raw, pipeline.convert_fields
            )
        else:
            self.fast = Fast(shape, self._stages[0], pipeline.takes_raw, changes_fields=pipeline.changes_fields)

    def message(self, row: Row, number: int, *, partial: bool = False, extra: Headers = ()) -> Outgoing | None:
        """What to send for one row, None when a transform dropped it. Raises `StageError` for a bad record.

        RetriableError, BlockedError and FatalError come from outside, such as a schema registry.
        """
        assert len(self._stages) == 1, "records of a definition with a query take another way: sql_run"
        self.trouble = ""
        draft = self.draft(row, number, partial=partial)
        if self._window is not None:
            self._window.see(row)
        if not self.apply(draft):
            return None
        if self._window is not None and not self._window.takes(draft):
            return None
        return self.finish(draft, row, extra)

    def part(self, part: PartOfRecord, number: int, extra: Headers) -> Outgoing | None:
        """What to send for a part of a record; see `message`. What the steps make of the record's first part holds for all of them."""
        assert len(self._stages) == 1, "as for `message`"
        self.trouble = ""
        begun = self.begun(part, number)
        self.trouble = begun.trouble if part.number == 1 or not begun.goes_on else ""
        if not begun.goes_on or not self._is_wanted(begun):
            return None
        draft = begun.draft
        if part.number > 1:
            draft = self.draft(part.row, number, partial=part.partial)
            if not self.apply_to_part(begun, draft, 0):
                return None
        return self.finish_part(begun, draft, part, extra)

    def begun(self, part: PartOfRecord, number: int) -> Begun:
        """What the steps of the first stage made of the record's first part, kept for those after it. Raises StageError for a bad one.

        `number` is the part's.
        """
        if self._begun is None or self._begun.row.start != part.first[0]:
            row = part.row if part.number == 1 or self._asks_no_first else part.read_first()
            self._begun = self.begin(Begun(row, self.draft(row, number - part.number + 1)), 0)
        if self._begun.error is not None:
            raise self._begun.error
        return self._begun

    def begin(self, begun: Begun, stage: int) -> Begun:
        """Let the steps of one stage work on a first part."""
        self._part_steps(stage).begin(begun)
        return begun

    def apply_to_part(self, begun: Begun, draft: Draft, stage: int) -> bool:
        """Let the steps of one stage work on a later part. False when one of them dropped it. Raises StageError."""
        try:
            return self._part_steps(stage).go_on(begun, draft)
        except DataError as error:
            raise StageError("transform", error) from None
        finally:
            self.trouble = draft.trouble

    def finish_part(self, begun: Begun, draft: Draft, part: PartOfRecord, extra: Headers) -> Outgoing:
        """See `finish`. `begun` and `draft` are what the steps made of the first part and of this one."""
        try:
            topic, key, partition, timestamp, headers = self._shape.outline_of_part(begun.draft, draft, extra, part.record)
        except DataError as error:
            raise StageError("record", error) from None
        try:
            return topic, self._shape.value(draft, topic), key, partition, None, None, timestamp, headers
        except DataError as error:
            raise StageError("convert", error) from None

    def _part_steps(self, stage: int) -> PartSteps:
        return PartSteps(self._stages[stage], self._pipeline.options_of(stage))

    @property
    def _asks_no_first(self) -> bool:
        """Whether nothing is taken from a record's first part: reading back in a packed file costs."""
        return self._window is None and not self._pipeline.transforms and self._shape.is_steady

    def _is_wanted(self, begun: Begun) -> bool:
        if self._window is None:
            return True
        self._window.see(begun.row)
        return self._window.takes(begun.draft)

    def draft(self, row: Row, number: int, *, partial: bool = False) -> Draft:
        """A row as the steps take it. Raises StageError for one that could not be read."""
        value = row.value
        if isinstance(value, Unparsed):
            raise StageError("parse", DataError(value.why, value.hint))
        own = dict(value) if self._pipeline.changes_fields and isinstance(value, dict) else value
        draft = Draft(own, row.start, row.end, number)
        draft.partial, draft.schema = partial, row.schema
        return draft

    def apply(self, draft: Draft, stage: int = 0) -> bool:
        """Let the steps of one stage (see `Recipe.stages`) work. False when one of them dropped it. Raises StageError."""
        try:
            for step in self._stages[stage]:
                if not step(draft):
                    return False
        except DataError as error:
            raise StageError("transform", error) from None
        finally:
            self.trouble = draft.trouble
        return True

    def finish(self, draft: Draft, row: Row, extra: Headers = ()) -> Outgoing:
        """What to send for a row that the steps have made this of. Raises StageError."""
        try:
            topic, key, partition, timestamp, headers = self._shape.outline(draft, extra)
        except DataError as error:
            raise StageError("record", error) from None
        if row.raw is not None and draft.value is row.value and self._pipeline.takes_raw(as_is=row.as_is):
            draft.value = row.raw
        try:
            return topic, self._shape.value(draft, topic), key, partition, None, None, timestamp, headers
        except DataError as error:
            raise StageError("convert", error) from None


@dataclass(frozen=True, slots=True)
class Bulk:
    """Everything but the values, for a split whose records differ in nothing else. `convert` None: values go as they are.

    `takes_raw` and `convert_fields` are the recipe's.
    """

    topic: str
    tail: Outgoing
    convert: Converter | None
    takes_raw: Callable[..., bool]
    convert_fields: Converter | None

    def values(self, chunk: Chunk | Parsed) -> list[bytes]:
        """The chunk's records as Kafka gets them. Raises DataError when one of them is a bad one."""
        if self.convert is None and isinstance(chunk, Chunk):
            return chunk.values
        convert, values = self.convert, chunk.values
        kinds: set[type[Any]] = set(map(type, values))
        if Unparsed in kinds:
            msg = "a record could not be read"
            raise DataError(msg)
        if isinstance(chunk, Parsed) and chunk.raw is not None and self.takes_raw(as_is=chunk.as_is):
            values, convert = chunk.raw, None if self.convert_fields is not None else convert
        elif self.convert_fields is not None and kinds == {dict}:
            convert = self.convert_fields
        return list(values) if convert is None else [convert(value) for value in values]  # type: ignore[arg-type]
