"""Turns records into messages: a definition is compiled once per process, and bound to each split that a batch reads.

A record goes from `Chunk` (framed bytes) through `Draft` (one record with its steps) to `Message` (the arguments of `produce`): in bulk
(`bulk`), or one by one (`SplitEncoder.encode`) for bad and refused records, an unfinished last line, backfills by time, `tap`, `try` and
`test`. Tests compare the two ways (`tests/unit/batch/test_fast.py`), and all ways for random definitions and files (`test_ways.py`): they
give the same messages in the same order, the same counts and offsets.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import cache, cached_property, lru_cache, partial
from itertools import pairwise
from typing import Any

from copycat_agent.converters import CONVERTERS
from copycat_agent.encoding.bulk import ChunkEncoding, EncodedRecords, UniformEncoding, places
from copycat_agent.encoding.files_layout import FilesLayout, changes_fields
from copycat_agent.encoding.layout import Headers, MessageLayout, SplitLayout, host_name
from copycat_agent.encoding.record_parts import FirstPartResult, PartOfRecord, PartSteps
from copycat_agent.encoding.window import BoundWindow, window_of
from copycat_agent.errors import CopycatError, DataError, FatalError
from copycat_agent.formats import Chunk, Draft, Parsed, Unparsed
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.model import Split
from copycat_agent.options import Definition, KafkaOptions, TransformOptions
from copycat_agent.producer import Message
from copycat_agent.registry import described
from copycat_agent.sources import SOURCES
from copycat_agent.templates import SplitMeta
from copycat_agent.templates.metadata import UNKNOWN, RecordOrigin
from copycat_agent.transforms import Step, Transform, build_transform, kind_of

Steps = tuple[Step, ...]


class StageError(Exception):
    """A bad record, with the stage that found it: frame, parse, transform, record, convert or send."""

    def __init__(self, stage: str, error: DataError) -> None:
        super().__init__(stage, error)
        self.stage = stage
        self.error = error


@lru_cache(maxsize=256)
def compiled(pickled: bytes) -> Encoder:
    """Returns the encoder of a pickled definition, cached by its bytes. Called by `run_batch` in every process."""
    try:
        definition = pickle.loads(pickled)  # noqa: S301 - from the driver, over an authenticated socket
    except (ImportError, AttributeError) as error:  # a part of an installed package, which the driver has
        words = f"a task cannot read the definition: {described(error)}"
        raise FatalError(words, "install the package that the definition uses for the Python that runs the agent's tasks") from None
    return Encoder(definition)


class Encoder:
    """A compiled definition: the framing of its files, the steps on its records, and the layout of its messages.

    Stateless after construction; shared by threads. `changes_fields`: a step may change a record, so its fields have to be a copy.
    `kafka` is the cluster.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.clock: Callable[[], float] = time.time
        self.source = SOURCES[definition.source.type]
        self.frames = self.source.framing(definition.source, raw=_is_raw(definition))
        self.transforms = tuple(self.step(step, number) for number, step in enumerate(definition.transforms))
        queries = [number for number, step in enumerate(definition.transforms) if kind_of(step).is_query]
        self._stages = [slice(before + 1, cut) for before, cut in pairwise([-1, *queries, len(definition.transforms)])]
        self.changes_fields = changes_fields(definition)
        self.window = window_of(definition, raw=_is_raw(definition))
        self.kafka = _kafka(definition)
        has_fields = bool(definition.transforms) or getattr(self.frames, "makes_fields", False)
        make = FilesLayout if self.writes_files else MessageLayout
        self.layout = make(definition, has_fields=has_fields, has_envelopes=getattr(self.frames, "makes_envelopes", False))

    @property
    def writes_files(self) -> bool:
        """Returns whether messages are records of files, which cannot be null."""
        return not self.definition.sink.has_topics

    @property
    def null_steps(self) -> Steps:
        """Returns the steps of nulls, instead of the definition's."""
        return (lambda _: False,) if self.writes_files else ()

    def step(self, options: TransformOptions, number: int) -> Transform:
        """Returns the compiled `number`-th step, from 0."""
        return build_transform(options, number)

    def bind(
        self,
        split: Split,
        partitions: Callable[[str], int],
        run: int,
        host: str | None = None,
        window: BoundWindow | None = None,
        origin: RecordOrigin = UNKNOWN,
    ) -> SplitEncoder:
        """Returns the encoder for the records of one split. `partitions` returns a topic's partition count; `run` rotates sticky ones.

        `host` is the one with the file, None for this one; `origin` see `SplitMeta`.
        Raises DataError when a template cannot be rendered for any record of this file.
        """
        return SplitEncoder(self, split, partitions, run, host_name() if host is None else host, window, origin)

    @property
    def stages(self) -> tuple[tuple[Transform, ...], ...]:
        """Returns the steps, cut at every query: those before the first one, those between it and the next, and so on."""
        return tuple(self.transforms[stage] for stage in self._stages) if len(self._stages) > 1 else (self.transforms,)

    @property
    def literal_topics(self) -> tuple[str, ...]:
        """Returns the topics that are known before any record is read."""
        return (self.layout.literal_topic,) if self.layout.literal_topic else ()

    def options_of(self, stage: int) -> tuple[TransformOptions, ...]:
        """Returns the options of the steps of one stage."""
        return self.definition.transforms[self._stages[stage]]


class SplitEncoder:
    """Makes messages of the records of one split. Used from one thread.

    `bulk` does so for whole chunks, many times as fast; None if the definition needs each record handled by itself. `window` selects
    records by their times, None for all.
    """

    def __init__(
        self,
        encoder: Encoder,
        split: Split,
        partitions: Callable[[str], int],
        run: int,
        host: str,
        window: BoundWindow | None,
        origin: RecordOrigin,
    ) -> None:
        """Called by `Encoder.bind`, with arguments as there."""
        self._encoder = encoder
        self.window = window
        self._begun: FirstPartResult | None = None
        meta = SplitMeta(split.path, split.inode, host, encoder.definition.name, split.mtime_ms, encoder.clock, origin)
        self._stages = tuple([tuple([transform.bind(meta) for transform in stage]) for stage in encoder.stages])
        self._make_layout = cache(partial(encoder.layout.bind, split, meta, partitions, run))
        if encoder.layout.same_tail is None:
            self._make_layout()  # otherwise needed only by records that are handled one by one
        self.bulk: BulkEncoder | None = None
        if window is None and len(self._stages) == 1:
            steps = self._stages[0], encoder.null_steps
            self.bulk = BulkEncoder(encoder.layout, self._make_layout, steps, changes_fields=encoder.changes_fields)

    @cached_property
    def layout(self) -> SplitLayout:
        """Returns the layout of the split's messages."""
        return self._make_layout()

    def steps(self, stage: int) -> tuple[Step, ...]:
        """Returns the steps of one stage, see `Encoder.stages`."""
        return self._stages[stage]

    def encode(self, draft: Draft, extra: Headers = ()) -> tuple[Message, ...]:
        """Returns the messages of one record, none when a transform dropped it; only a query makes several. Changes `draft`.

        Raises `StageError` for a bad record. RetriableError, BlockedError and FatalError come from outside, such as a schema registry.
        """
        assert len(self._stages) == 1, "records of a definition with a query take another way: batch.sql_run"
        self.ready(draft)
        window = self.window
        if window is not None:
            window.see(draft)
        if not self.apply(draft) or (window is not None and not window.takes(draft)):
            return ()
        return (self.finish(draft, extra),)

    def encode_part(self, part: PartOfRecord, extra: Headers) -> tuple[Message, ...]:
        """Does what `encode` does for a part of a record. The steps' results for the record's first part apply to all parts."""
        assert len(self._stages) == 1, "as for `encode`"
        begun, draft = self.begun(part), part.draft
        draft.trouble = begun.trouble if part.number == 1 or not begun.goes_on else ""
        if not begun.goes_on or not self._is_wanted(begun):
            return ()
        if part.number > 1 and not self.apply_to_part(begun, self.ready(draft), 0):
            return ()
        return (self.finish_part(begun, draft, part, extra),)

    def begun(self, part: PartOfRecord) -> FirstPartResult:
        """Returns the first stage's results for the record's first part, kept for later parts. Raises StageError for a bad one."""
        if self._begun is None or self._begun.draft.start != part.first[0]:
            self._begun = self.begin(FirstPartResult(self.ready(self._first(part))), 0)
        return _good(self._begun)

    def _first(self, part: PartOfRecord) -> Draft:
        if part.number == 1:
            return part.draft
        first = part.draft.anew() if self._asks_no_first else part.read_first()
        first.number = part.draft.number - part.number + 1
        return first

    def begin(self, begun: FirstPartResult, stage: int) -> FirstPartResult:
        """Applies the steps of one stage to a first part."""
        self._part_steps(stage).begin(begun)
        return begun

    def go_on(self, begun: FirstPartResult, stage: int) -> FirstPartResult:
        """Applies the steps of a later stage to a first part. Raises StageError for a bad one."""
        return _good(self.begin(begun, stage))

    def apply_to_part(self, begun: FirstPartResult, draft: Draft, stage: int) -> bool:
        """Applies the steps of one stage to a later part. Returns False when one of them dropped it. Raises StageError."""
        try:
            return self._part_steps(stage).go_on(begun, draft)
        except DataError as error:
            raise StageError("transform", error) from None

    def _part_steps(self, stage: int) -> PartSteps:
        return PartSteps(self._stages[stage], self._encoder.options_of(stage))

    @property
    def _asks_no_first(self) -> bool:
        """Returns whether parts need nothing of a record's first part: reading back in a compressed file is expensive."""
        return self.window is None and not self._encoder.transforms and self.layout.is_steady

    def _is_wanted(self, begun: FirstPartResult) -> bool:
        if self.window is None:
            return True
        self.window.see(begun.draft)
        return self.window.takes(begun.draft)

    def ready(self, draft: Draft) -> Draft:
        """Makes the fields of the draft its own, and returns it for the steps. Raises StageError for a record that could not be read."""
        framed = draft.framed
        if isinstance(framed, Unparsed):
            raise StageError("parse", DataError(framed.why, framed.hint))
        if self._encoder.changes_fields and isinstance(framed, dict):
            draft.value = dict(framed)
        return draft

    def apply(self, draft: Draft, stage: int = 0) -> bool:
        """Applies the steps of one stage (see `Encoder.stages`). Returns False when one of them dropped it. Raises StageError.

        A null passes unchanged, where it can.
        """
        if draft.framed is None:
            return not self._encoder.writes_files
        try:
            for step in self._stages[stage]:
                if not step(draft):
                    return False
        except DataError as error:
            raise StageError("transform", error) from None
        return True

    def finish(self, draft: Draft, extra: Headers = ()) -> Message:
        """Returns the message of a record after the steps. Raises StageError."""
        try:
            topic, key, partition, timestamp, headers = self.layout.outline(draft, extra)
        except DataError as error:
            raise StageError("record", error) from None
        if draft.raw is not None and draft.value is draft.framed and self._encoder.layout.takes_raw(draft.schema, as_is=draft.as_is):
            draft.value = draft.raw
        return topic, self._value(draft, topic), key, partition, None, None, timestamp, headers

    def finish_part(self, begun: FirstPartResult, draft: Draft, part: PartOfRecord, extra: Headers) -> Message:
        """Returns the message of a part of a record; `begun` and `draft` are the steps' results for the first part and this one."""
        try:
            topic, key, partition, timestamp, headers = self.layout.outline_of_part(begun.draft, draft, extra, part.record)
        except DataError as error:
            raise StageError("record", error) from None
        return topic, self._value(draft, topic), key, partition, None, None, timestamp, headers

    def _value(self, draft: Draft, topic: str) -> bytes:
        try:
            return self.layout.value(draft, topic)  # type: ignore[no-any-return]
        except DataError as error:
            raise StageError("convert", error) from None


class BulkEncoder:
    """Makes messages of whole chunks of one split: `values` if no record has to be handled by itself, `begin` for all others."""

    def __init__(self, layout: MessageLayout, make: Callable[[], SplitLayout], steps: tuple[Steps, Steps], *, changes_fields: bool) -> None:
        """`make` returns the split's layout; `steps` are those of values, and those of nulls; `changes_fields` as in `Encoder`.

        Raises DataError when no message of this split can be made.
        """
        self._make_layout = make
        self._of_definition = layout
        self._steps, self._null_steps = steps
        self._changes_fields = changes_fields
        self.tail: Message | None = None
        """What follows the value in every message; None if messages differ in more than their values, or there are steps."""
        if layout.is_steady and not self._steps and not layout.wants_record and layout.value is None:
            self.tail = make().tail if layout.same_tail is None else layout.same_tail

    @property
    def literal_topic(self) -> str:
        """Returns the topic of all records, "" where it is made from data."""
        return self._make_layout().literal_topic

    def values(self, chunk: Chunk | Parsed) -> list[bytes] | None:
        """Returns the chunk's records as sent values, each with `tail`. None without `tail`, or if a record has to be handled by itself."""
        layout, values = self._of_definition, chunk.values
        convert = layout.convert_value
        if self.tail is None or chunk.partial:
            return None
        if convert is None and isinstance(chunk, Chunk):
            return chunk.values
        if isinstance(values, ArrowRows) and (made := layout.rows(values.batch)) is not None:
            return made
        kinds: set[type[Any]] = set(map(type, values))
        if not kinds.isdisjoint((Unparsed, type(None))):
            return None
        fields = layout.convert_fields
        if isinstance(chunk, Parsed) and chunk.raw is not None and self._takes_raw(chunk):
            values, convert = chunk.raw, None if fields is not None else convert
        elif fields is not None and kinds == {dict}:
            convert = fields
        try:
            return list(values) if convert is None else [convert(value) for value in values]
        except DataError:
            return None

    def begin(self, chunk: Chunk | Parsed, number: int) -> ChunkEncoding | None:
        """Begins a chunk whose first record is the `number`-th of its file. Returns None if each record has to be handled by itself."""
        if chunk.partial:
            return None
        if isinstance(chunk, Chunk):
            return ChunkEncoding(self._make_layout(), self._steps, chunk, number)
        if (
            isinstance(chunk.values, ArrowRows)
            and not self._steps
            and (encoded := self._by_columns(chunk, chunk.values, number)) is not None
        ):
            return UniformEncoding(chunk, number, encoded)
        kinds: set[type] = set(map(type, chunk.values))
        raw = chunk.raw if self._takes_raw(chunk) else None
        if Unparsed in kinds or (raw is not None and self._changes_fields and kinds != {dict}):
            return None
        # if a step changes fields, they are copies, and no record is sent as its raw bytes any more
        owns = self._changes_fields
        steps = self._null_steps if kinds == {type(None)} else self._steps
        layout = self._make_layout()
        if not steps and (messages := layout.messages(chunk)) is not None:
            return UniformEncoding(chunk, number, EncodedRecords(messages))
        return ChunkEncoding(layout, steps, chunk, number, None if owns else raw, owns_fields=owns)

    def _by_columns(self, chunk: Parsed, rows: ArrowRows, number: int) -> EncodedRecords | None:
        """Returns the messages of rows whose values are made at once; all else is made one by one. None if that is not possible."""
        layout, encoded = self._of_definition, EncodedRecords()
        if layout.is_steady or (values := layout.rows(rows.batch)) is None:
            return None
        few = chunk._replace(values=ArrowRows(rows.batch.select(layout.asks_for(rows.batch.schema.names))))
        outline, append, draft = self._make_layout().outline, encoded.messages.append, Draft(b"", schema=chunk.schema)
        try:
            for value, (draft.value, (draft.start, draft.end), draft.number, _) in zip(
                values, places(few, number, owns_fields=False), strict=True
            ):
                topic, key, partition, timestamp, headers = outline(draft)
                append((topic, value, key, partition, None, None, timestamp, headers))
        except CopycatError:
            return None  # handling the records one by one finds the bad one
        return encoded

    def _takes_raw(self, chunk: Parsed) -> bool:
        """Returns whether records are sent as their raw bytes unless a step changes their fields."""
        return chunk.raw is not None and self._of_definition.takes_raw(chunk.schema, as_is=chunk.as_is)


def _good(begun: FirstPartResult) -> FirstPartResult:
    """Returns `begun`. Raises StageError when the first part is a bad record, as all others are then."""
    if begun.bad is not None:
        raise StageError("transform", begun.bad)
    return begun


def _kafka(definition: Definition) -> KafkaOptions:
    """Returns the cluster's options; created topics get the broker's time if records are to have it."""
    kafka = definition.kafka
    if definition.record.timestamp != "broker" or kafka.create_topics is None:
        return kafka
    config = {**kafka.create_topics.config, "message.timestamp.type": "LogAppendTime"}
    return kafka.model_copy(update={"create_topics": kafka.create_topics.model_copy(update={"config": config})})


def _is_raw(definition: Definition) -> bool:
    """Returns whether values are sent as the file's own bytes: with `converters: {value: bytes}` and no transforms."""
    value = definition.converters.value
    return not definition.transforms and definition.record.value is None and value is not None and CONVERTERS[value.type].is_identity
