"""The real encoder with a trace of each step: the record before and after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from copycat_agent.converters import CONVERTERS
from copycat_agent.encoding.encoder import Encoder, SplitEncoder, StageError
from copycat_agent.encoding.layout import Headers, host_name
from copycat_agent.encoding.record_parts import FirstPartResult, PartOfRecord
from copycat_agent.encoding.window import BoundWindow
from copycat_agent.errors import CopycatError, DataError, RetriableError
from copycat_agent.formats import Draft
from copycat_agent.model import Split
from copycat_agent.options import Definition, TransformOptions
from copycat_agent.producer import Message
from copycat_agent.templates import Access, SplitMeta
from copycat_agent.templates.metadata import UNKNOWN, RecordOrigin
from copycat_agent.transforms import GuardedTransform, Step, StepError, StepOptions, Transform, action_of, build_transform, kind_of
from copycat_agent.workbench.trying.results import Fields, SampleContext, StepOutcome, StepTrace


class TracedMessage(NamedTuple):
    """A message, its converter's input, and the record's fields, None without any."""

    message: Message
    value: object
    fields: dict[str, Any] | None


_NOTHING: Final = object()
"""The converter was not called, as for a null."""
_BUG = "an unexpected error, told below"


@dataclass(slots=True)
class RowTrace:
    """The trace of one record. It was dropped if `made` is empty and there is no `error`. `halts`: it ends the batch."""

    draft: Draft
    steps: list[StepTrace] = field(default_factory=list)
    made: list[TracedMessage] = field(default_factory=list)
    error: StageError | None = None
    halts: bool = False


@dataclass(slots=True)
class Trace:
    """All traces. `now` is that of the current record, `ran` and `trouble` belong to the current step; `value` is the converter's input."""

    entries: list[RowTrace] = field(default_factory=list)
    now: RowTrace = field(default_factory=lambda: RowTrace(Draft(b"", number=0)))
    ran: bool = False
    trouble: DataError | None = None
    value: object = None

    def begin_step(self) -> None:
        """Resets what belongs to the current step."""
        self.ran, self.trouble = False, None


class QueryStep(Protocol):
    """A `sql` step, such as `spark.sql_local.SqlQuery`."""

    def rows(self, records: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]] | DataError]:
        """Returns for each record, in order, what it becomes: none, one or many records; or why it is bad."""


class _WithAccess(RecordOrigin):
    """The origin of records, with another `access`."""

    def __init__(self, inner: RecordOrigin, access: Access) -> None:
        self._access = access
        self.member, self.place = inner.member, inner.place  # type: ignore[method-assign]
        self.offset_of = inner.offset_of  # type: ignore[method-assign]

    def access(self) -> Access:
        return self._access


class TracedEncoder(Encoder):
    """An encoder that writes a trace. Used for one batch, by one thread."""

    def __init__(self, definition: Definition, where: SampleContext) -> None:
        self.trace = Trace()
        self._where = where
        self.bound: TracedSplit | None = None
        super().__init__(definition)
        if (read_ms := where.read_ms) is not None:
            self.clock = lambda: read_ms / 1000
        self.has_schema = _has_schema(definition, "value")
        self.unchecked = False
        layout = self.layout
        layout.convert_value = self._noted(self._offline(layout.convert_value) if self.has_schema else layout.convert_value)
        if _has_schema(definition, "key"):
            layout.convert_key = self._offline(layout.convert_key)

    def step(self, options: TransformOptions, number: int) -> Transform:
        if kind_of(options).is_query:
            return super().step(options, number)
        return _Traced(build_transform(options, number), number, action_of(options), self.trace)

    def bind(
        self,
        split: Split,
        partitions: Callable[[str], int],
        run: int,
        host: str | None = None,
        window: BoundWindow | None = None,
        origin: RecordOrigin = UNKNOWN,
    ) -> SplitEncoder:
        where = self._where
        origin = origin if where.access is None else _WithAccess(origin, where.access)
        split = split if where.inode is None else replace(split, inode=where.inode)
        self.bound = TracedSplit(self, split, partitions, run, host or where.host or host_name(), window, origin)
        return self.bound

    def _noted(self, convert: Callable[..., bytes] | None) -> Callable[..., bytes]:
        """Returns the converter of values, which also records its input."""

        def noted(value: Any, *more: object) -> bytes:  # noqa: ANN401 - what converters take
            self.trace.value = value
            return convert(value, *more) if convert else value

        return noted

    def _offline(self, convert: Callable[..., bytes] | None) -> Callable[..., bytes]:
        """Returns a replacement for a converter with a registry. It checks what it can offline, else it passes everything, `unchecked`."""
        make = getattr(convert, "offline", None)
        inner: Callable[..., bytes] | None = make() if make else None

        def offline(value: Any, *more: object) -> bytes:  # noqa: ANN401 - what converters take
            try:
                if inner is not None:
                    return inner(value, *more)
            except RetriableError:
                pass
            self.unchecked = True
            return str(value).encode() if isinstance(value, str) else b""

        return offline


def _has_schema(definition: Definition, part: str) -> bool:
    options = getattr(definition.converters, part)
    return options is not None and CONVERTERS[options.type].wants_record


class _WaitingRecord(NamedTuple):
    """A record that waits for a query."""

    entry: RowTrace
    draft: Draft
    extra: Headers


class TracedSplit(SplitEncoder):
    """Encodes records one by one, and records what becomes of each."""

    def __init__(self, encoder: TracedEncoder, *where: Any) -> None:  # noqa: ANN401 - what `SplitEncoder` takes
        super().__init__(encoder, *where)
        self._trace = encoder.trace
        self._has_query = len(encoder.stages) > 1
        self._waiting: list[_WaitingRecord] = []
        self.bulk = None  # each record must be encoded by itself

    def encode(self, draft: Draft, extra: Headers = ()) -> tuple[Message, ...]:
        return self._noted(draft, lambda entry: self._encode(entry, draft, extra))

    def encode_part(self, part: PartOfRecord, extra: Headers) -> tuple[Message, ...]:
        """Encodes a part. Steps that run again on the record's first part are not traced."""
        return self._noted(part.draft, lambda entry: self._encode_part(entry, part, extra))

    def begin(self, begun: FirstPartResult, stage: int) -> FirstPartResult:
        entry = self._trace.now
        if begun.draft.start != entry.draft.start:
            self._trace.now = RowTrace(begun.draft.anew())
        try:
            return super().begin(begun, stage)
        finally:
            self._trace.now = entry

    def _encode(self, entry: RowTrace, draft: Draft, extra: Headers) -> tuple[Message, ...]:
        if not self._has_query:
            return super().encode(draft, extra)
        if self.apply(self.ready(draft), 0):
            if draft.framed is None:
                return (self.finish(draft, extra),)
            self._waiting.append(_WaitingRecord(entry, draft, extra))
        return ()

    def _encode_part(self, entry: RowTrace, part: PartOfRecord, extra: Headers) -> tuple[Message, ...]:
        if not self._has_query:
            return super().encode_part(part, extra)
        begun = self.begun(part)
        draft = begun.draft if part.number == 1 else self.ready(part.draft)
        if begun.goes_on and (part.number == 1 or self.apply_to_part(begun, draft, 0)):
            self._waiting.append(_WaitingRecord(entry, draft, extra))
        return ()

    def _noted(self, draft: Draft, encode: Callable[[RowTrace], tuple[Message, ...]]) -> tuple[Message, ...]:
        """Runs `encode` with a trace. A step that would stop the connector fails like any other, so that all records are tried."""
        self._trace.now = entry = RowTrace(draft)
        self._trace.entries.append(entry)
        try:
            return encode(entry)
        except StageError as bad:
            entry.error = bad
            if isinstance(bad.error, StepError) and bad.error.policy == "stop":
                raise StageError(bad.stage, DataError(bad.error.message, bad.error.hint)) from None
            raise
        except CopycatError as error:
            entry.error, entry.halts = StageError("transform", DataError(error.message, error.hint)), True
            raise
        except Exception:
            entry.error, entry.halts = StageError("transform", DataError(_BUG)), True
            raise

    def finish(self, draft: Draft, extra: Headers = ()) -> Message:
        return self._made(draft, lambda: super(TracedSplit, self).finish(draft, extra))

    def finish_part(self, begun: FirstPartResult, draft: Draft, part: PartOfRecord, extra: Headers) -> Message:
        return self._made(draft, lambda: super(TracedSplit, self).finish_part(begun, draft, part, extra))

    def _made(self, draft: Draft, finish: Callable[[], Message]) -> Message:
        """Runs `finish`, and adds its message to the trace."""
        fields, self._trace.value = draft.value if isinstance(draft.value, dict) else None, _NOTHING
        message = finish()
        value = message[1] if self._trace.value is _NOTHING else self._trace.value
        self._trace.now.made.append(TracedMessage(message, value, fields))
        return message

    def ask(self, query: QueryStep) -> None:
        """Sends the waiting records through the query and the steps after it."""
        number, options = next((one, step) for one, step in enumerate(self._encoder.definition.transforms) if kind_of(step).is_query)
        assert isinstance(options, StepOptions)
        befores = [dict(one.draft.fields()) for one in self._waiting]
        for one, before, found in zip(self._waiting, befores, query.rows(befores) if befores else [], strict=True):
            self._trace.now = one.entry
            if isinstance(found, DataError):
                self._refused(one, StepTrace(number, "sql", "failed", before, before, found), options.on_error)
                continue
            for after in found:
                one.entry.steps.append(StepTrace(number, "sql", "done", before, dict(after)))
                self._go_on(one, dict(after))
            if not found:
                one.entry.steps.append(StepTrace(number, "sql", "dropped", before, before))

    def _refused(self, one: _WaitingRecord, step: StepTrace, on_error: str | None) -> None:
        """Handles a record that the query cannot take, by the step's `on_error`."""
        assert step.error is not None
        outcomes: dict[str | None, StepOutcome] = {"keep": "kept", "drop": "dropped"}
        one.entry.steps.append(step._replace(outcome=outcomes.get(on_error, "failed")))
        if on_error == "keep":
            self._go_on(one, dict(step.before) if isinstance(step.before, dict) else {})
        elif on_error != "drop":
            one.entry.error = StageError("transform", StepError(step.name, step.error, "stop" if on_error == "stop" else ""))

    def _go_on(self, one: _WaitingRecord, fields: dict[str, Any]) -> None:
        """Sends a record of the query's result through the steps after it."""
        try:
            draft = self.ready(one.entry.draft.anew())
            draft.value, draft.timestamp_ms = fields, one.draft.timestamp_ms
            if self.apply(draft, 1):
                self.finish(draft, one.extra)
        except StageError as bad:
            one.entry.error = bad


@dataclass(frozen=True, slots=True)
class _Traced:
    """A `Transform` that traces a step."""

    inner: Transform
    number: int
    action: str
    trace: Trace

    def bind(self, meta: SplitMeta) -> Step:
        inner = self.inner
        if isinstance(inner, GuardedTransform):  # it hides errors that are kept, and whether its condition was true
            inner = replace(inner, inner=_RecordedTransform(inner.inner, self.trace))
        step, trace = inner.bind(meta), self.trace

        def traced(draft: Draft) -> bool:
            before, earlier = _copy(draft.value), draft.timestamp_ms
            trace.begin_step()
            outcome: StepOutcome = "failed"
            try:
                goes_on = step(draft)
                outcome = "dropped" if not goes_on else "kept" if trace.trouble else "done" if trace.ran else "skipped"
            finally:
                set_ms = draft.timestamp_ms if draft.timestamp_ms != earlier else None
                note = StepTrace(self.number, self.action, outcome, before, _copy(draft.value), trace.trouble, set_ms)
                trace.now.steps.append(note)
            return goes_on

        return traced


@dataclass(frozen=True, slots=True)
class _RecordedTransform:
    """The guarded transform, whose errors are recorded."""

    inner: Transform
    trace: Trace

    def bind(self, meta: SplitMeta) -> Step:
        step, trace = self.inner.bind(meta), self.trace

        def spied(draft: Draft) -> bool:
            trace.ran = True
            try:
                return step(draft)
            except DataError as error:
                trace.trouble = error
                raise

        return spied


def _copy(value: Fields) -> Fields:
    """Returns a shallow copy: steps change the dict of fields, and nothing within a field."""
    return dict(value) if isinstance(value, dict) else value
