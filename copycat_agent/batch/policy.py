"""Applies the `errors` section to single records: each is sent, dead-lettered, dropped or passed over, or ends the batch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from copycat_agent.batch.progress import SplitProgress
from copycat_agent.encoding.bulk import StepTrouble
from copycat_agent.encoding.encoder import Encoder, SplitEncoder, StageError
from copycat_agent.encoding.layout import Headers
from copycat_agent.encoding.letters import (
    NO_BYTES,
    NULL,
    OMITTED,
    PART_OF,
    RENDERED,
    dead_letter,
    part_headers,
    record_of,
    rendered,
    with_raw,
)
from copycat_agent.encoding.record_parts import PartOfRecord
from copycat_agent.errors import CopycatError, DataError, FatalError, FileError
from copycat_agent.formats import Draft, Gap, LongLine, OnTooLong, RecordPart, SkippedRest, Text
from copycat_agent.formats.model import RecordCut
from copycat_agent.model import Counts, Rejection, StepFailure
from copycat_agent.options import Definition
from copycat_agent.producer import Message
from copycat_agent.transforms import StepError, StepFaultError

CountsAs = Literal["acknowledged", "dead_lettered", "dropped", "rejected"]

_HOLE_WORDS = "NUL bytes that nobody wrote: the file was cut under its writer, or its host crashed"
_TOO_LONG = "the line is longer than line.max_bytes"
_TOO_LONG_RECORD = "the record is longer than format.max_bytes"
_TOO_LONG_GROUP = "the record is longer than multiline.max_lines, multiline.max_bytes or line.max_bytes"
RAW_BYTES_CUT = 2**19
"""Raw bytes that a dead letter keeps once Kafka has refused more: half of a topic's default limit."""

_TRUNCATED = (("copycat.truncated", b"true"),)


class RecordOutcome(NamedTuple):
    """One record, the messages that are sent for it, and how it is counted once those are acknowledged.

    `messages`: several only if a query made several rows of the record, which counts once. `stage` and `why` are a bad record's.
    `head_bytes`: the record is only this number of first bytes of its line, which is over the limit. `part` are the headers of one part of
    a record.
    """

    draft: Draft
    counts_as: CountsAs = "dropped"
    messages: tuple[Message, ...] = ()
    stage: str = ""
    why: str = ""
    head_bytes: int | None = None
    part: Headers = ()

    @property
    def kept_bytes(self) -> int | None:
        """Returns how many of a bad record's first bytes its dead letter carries; None when it carries all of them."""
        raw = self.messages[0][1] if self.messages else None
        if raw is None:
            return None if self.draft.framed is None else 0
        return len(raw) if len(raw) < len(self.draft.bytes) else None


class StopAt(Exception):  # noqa: N818 - an order, not an error; `error` is one
    """Ends the batch: everything before `draft` may settle, `draft` may not. `error`: FatalError for a bad record, or an outside error."""

    def __init__(self, draft: Draft, error: CopycatError) -> None:
        super().__init__(draft.start, error)
        self.draft = draft
        self.error = error


class ErrorPolicy:
    """Applies the `errors` section of one connector to records that are handled one by one."""

    def __init__(self, definition: Definition, on_too_long: OnTooLong, *, by_record: bool = False) -> None:
        """`by_record`: positions in the files are record numbers."""
        self._by_record = by_record
        self._definition = definition
        self._errors = definition.errors
        self._on_too_long = on_too_long
        self._drops_long_lines = on_too_long == "drop"
        self._too_long = _too_long(definition)
        self._limit = self._too_long.partition(" is ")[2]

    def outcomes(
        self, progress: SplitProgress, encoder: SplitEncoder, drafts: Iterable[Draft], until: float
    ) -> tuple[list[RecordOutcome], StopAt | None]:
        """Returns the outcomes of a chunk's records, up to one that stops the connector (with its StopAt), or until after `until`."""
        outcomes: list[RecordOutcome] = []
        for draft in drafts:
            try:
                outcomes.append(self._outcome(progress, RecordOutcome(draft), partial(encoder.encode, draft)))
            except StopAt as stop:
                return outcomes, stop
            if time.monotonic() > until:
                break
        return outcomes, None

    def of_frame(self, progress: SplitProgress, encoder: SplitEncoder, frame: RecordPart | LongLine) -> RecordOutcome:
        """Returns the outcome of a frame that is one record, or a part of one. Raises StopAt."""
        if isinstance(frame, LongLine):
            return self._of_long_line(progress, encoder, frame)
        part = self.part_of_record(progress, frame)
        headers = part_headers(frame.number, part.record, is_last=frame.is_last)
        return self._outcome(progress, RecordOutcome(part.draft, part=headers), partial(encoder.encode_part, part, headers))

    def part_of_record(self, progress: SplitProgress, part: RecordPart) -> PartOfRecord:
        """Returns a part as an encoder takes it."""
        draft = Draft(part.value, part.start, part.end, progress.sent_records + 1)
        draft.partial = part.partial
        record = record_of(_first_file(progress, part), part.first[0])
        return PartOfRecord(draft, part.number, part.first, lambda: _first_part(progress, part), record)

    def pass_frame(self, progress: SplitProgress, frame: LongLine | RecordPart | SkippedRest | Gap) -> None:
        """Advances past a frame that is no chunk. Called when its messages, if any, are in flight."""
        size_bytes = frame.end - frame.start
        if isinstance(frame, LongLine):
            begin = frame.start if self._drops_long_lines else frame.start + len(frame.head)
            progress.lose(begin, frame.end, "too_long", 1, self._limit)
            progress.count(Counts(too_long=1))
            progress.advance(frame.end, 1, frame.tail, size_bytes, skipping=not frame.complete)
        elif isinstance(frame, RecordPart):
            progress.count(Counts(too_long=frame.number == 1))
            cut = frame.cut._replace(file=_first_file(progress, frame)).text() if frame.cut else ""
            progress.advance(frame.end, 1, frame.tail, size_bytes, skipping=bool(cut), cut=cut)
        elif isinstance(frame, SkippedRest):  # its line was counted when its beginning was
            progress.lose(frame.start, frame.end, "too_long", 0, self._limit)
            progress.advance(frame.end, 0, frame.tail, size_bytes, skipping=not frame.complete)
        else:
            if frame.reason == "hole":  # a byte order mark is no loss
                progress.lose(frame.start, frame.end, "hole", 0, _HOLE_WORDS)
            progress.advance(frame.end, 0, frame.tail, size_bytes)

    def _of_long_line(self, progress: SplitProgress, encoder: SplitEncoder, frame: LongLine) -> RecordOutcome:
        outcome = RecordOutcome(long_line(progress, frame), head_bytes=len(frame.head))
        if self._drops_long_lines:
            return outcome
        if self._on_too_long == "truncate":
            return self._outcome(progress, outcome, partial(encoder.encode, outcome.draft, _TRUNCATED))
        return self.bad(progress, outcome, "frame", DataError(self._too_long, "raise the limit, or set on_too_long"))

    def _outcome(self, progress: SplitProgress, outcome: RecordOutcome, encode: Callable[[], tuple[Message, ...]]) -> RecordOutcome:
        """Returns the outcome with the messages that `encode` returns for its record. Raises StopAt, FileError."""
        draft = outcome.draft
        try:
            messages = encode()
        except StageError as bad:
            return self.bad(progress, outcome, bad.stage, bad.error)
        except FileError:
            raise
        except CopycatError as error:  # not the record's fault: it is read again, and those before it may settle
            raise self.stop_at(progress, draft, error) from None
        if draft.trouble:
            self.step_failed(progress, StepTrouble(draft.start, draft.end, draft.number, draft.trouble, bool(messages), 1))
        return outcome._replace(counts_as="acknowledged", messages=messages) if messages else outcome

    def stop_at(self, progress: SplitProgress, draft: Draft, error: CopycatError) -> StopAt:
        """Returns the StopAt before a record for an outside error, or a step's own fault, which gets the record's place in its message."""
        if isinstance(error, StepFaultError):
            place = f"record {draft.start + 1}" if self._by_record else f"bytes {draft.start} to {draft.end}"
            where = _in_kafka(progress, draft)[0] or f"{progress.split.path!r}, {place}"
            error = FatalError(f"{where}, stage transform: {error.message}", error.hint)
        return StopAt(draft, error)

    def step_failed(self, progress: SplitProgress, trouble: StepTrouble) -> None:
        """Notes a record that is kept or dropped by the `on_error` of a step that failed."""
        start, end, number, why, kept, _ = trouble
        progress.step_failed(StepFailure(progress.split.path, start, end, why, number, kept, self._by_record))

    def bad(self, progress: SplitProgress, outcome: RecordOutcome, stage: str, error: DataError) -> RecordOutcome:
        """Returns the outcome of a bad record. Raises StopAt when the connector, or the step that failed, tolerates none."""
        draft, definition = outcome.draft, self._definition
        policy = error.policy if isinstance(error, StepError) else ""
        if policy == "stop" or (self._errors.tolerance == "none" and policy != "dlq"):
            words = f"{self._where(progress, draft)}, stage {stage}: {error.message}"
            other = "another on_error for that step" if policy else "errors.tolerance: all"
            hint = f"{error.hint or 'correct the definition'}, or set {other}; then: copycat ctl restart {definition.name}"
            raise StopAt(draft, FatalError(words, hint))
        progress.reject(_rejection(progress, draft, stage, error.message, by_record=self._by_record))
        full = rendered(draft)
        outcome = outcome._replace(draft=full, messages=(), counts_as="rejected", stage=stage, why=error.message)
        if self._errors.dlq is None:
            return outcome
        raw, said = self._raw(full, outcome.head_bytes, is_rendered=full.raw is not draft.raw)
        letter = dead_letter(definition, progress.split, full, stage, error, by_record=self._by_record)
        if outcome.part:  # a key, so that the parts of a record stay in order in one partition
            letter = (*letter[:2], dict(outcome.part)[PART_OF], *letter[3:-1], [*letter[-1], *outcome.part])
        return outcome._replace(messages=(with_raw(letter, raw, said),), counts_as="dead_lettered")

    def _raw(self, record: Draft, head_bytes: int | None, *, is_rendered: bool) -> tuple[bytes | None, bytes | None]:
        """Returns the bytes that go into the record's letter, and what the letter says about them."""
        assert self._errors.dlq is not None
        if not self._errors.dlq.include_raw:
            return None, b"omitted: errors.dlq.include_raw is false"
        if record.raw is None and not isinstance(record.framed, bytes):
            return None, NULL if record.framed is None else NO_BYTES
        if head_bytes is not None:
            return record.bytes, f"cut: the first {len(record.bytes)} bytes, {self._too_long}".encode()
        return record.bytes, RENDERED if is_rendered else None

    def _where(self, progress: SplitProgress, draft: Draft) -> str:
        if named := _in_kafka(progress, draft)[0]:
            return named
        place = f"record {draft.number}" if self._by_record else f"bytes {draft.start} to {draft.end}"
        return f"{progress.split.path!r}, {place}"

    def smaller(self, progress: SplitProgress, outcome: RecordOutcome, reason: DataError) -> RecordOutcome:
        """Returns the outcome of a refused dead letter with its raw bytes cut, then without any. Raises StopAt if it had none."""
        (letter,) = outcome.messages
        topic, value = letter[:2]
        if value is None:
            where = self._where(progress, outcome.draft)
            hint = f"correct the dead-letter topic's settings; then: copycat ctl restart {self._definition.name}"
            raise StopAt(outcome.draft, FatalError(f"{where}: the dead-letter topic {topic} refuses the letter: {reason.message}", hint))
        said, kept = OMITTED, None
        if len(value) > RAW_BYTES_CUT:
            said, kept = b"cut: the first %d bytes, more are refused by the topic" % RAW_BYTES_CUT, value[:RAW_BYTES_CUT]
        return outcome._replace(messages=(with_raw(letter, kept, said),))

    def count(self, progress: SplitProgress, outcomes: list[RecordOutcome]) -> None:
        """Counts records in flight, for when they are settled, and what is lost with them."""
        numbers = Counter(outcome.counts_as for outcome in outcomes)
        kept = sum(bool(outcome.draft.trouble) for outcome in outcomes if outcome.counts_as == "acknowledged")
        progress.count(Counts(**{str(one): number for one, number in numbers.items()}, kept=kept))
        if numbers["rejected"] or numbers["dead_lettered"]:
            for outcome in outcomes:
                self._lose_what_is_not_sent(progress, outcome)

    def _lose_what_is_not_sent(self, progress: SplitProgress, outcome: RecordOutcome) -> None:
        """Counts the bytes of a bad record that no dead letter carries as lost, without those beyond the limit of a long line."""
        if outcome.counts_as not in {"rejected", "dead_lettered"} or (kept := outcome.kept_bytes) is None:
            return
        draft, why = outcome.draft, f"stage {outcome.stage}: {outcome.why}"
        if self._by_record:
            progress.lose(draft.start, draft.end, "rejected", 1, why, size_bytes=len(draft.bytes) - kept)
            return
        end = draft.end if outcome.head_bytes is None else draft.start + outcome.head_bytes
        if outcome.stage == "frame":
            progress.lose(draft.start + kept, end, "too_long", 0, outcome.why.partition(" is ")[2])
        else:
            progress.lose(draft.start + kept, end, "rejected", 1, why)


def _in_kafka(progress: SplitProgress, draft: Draft) -> tuple[str, int]:
    """Returns TOPIC/PARTITION@OFFSET and the offset of a record that comes from Kafka; "" and its start for any other."""
    stream = progress.stream
    place = None if stream is None else stream.place()
    if stream is None or place is None:
        return "", draft.start
    return f"{place.topic}/{place.partition}@{draft.first}", draft.first


def _rejection(progress: SplitProgress, draft: Draft, stage: str, why: str, *, by_record: bool) -> Rejection:
    named, offset = _in_kafka(progress, draft)
    if named:
        return Rejection(named, offset, draft.end, stage, why, 0, by_record)
    return Rejection(progress.split.path, draft.start, draft.end, stage, why, draft.number, by_record)


@lru_cache(maxsize=256)
def policy_of(encoder: Encoder) -> ErrorPolicy:
    """Returns the policy of a connector, made once in each process."""
    frames = encoder.frames
    return ErrorPolicy(encoder.definition, frames.on_too_long, by_record=getattr(frames, "counts_records", False))


def _first_file(progress: SplitProgress, part: RecordPart) -> str:
    """Returns the key of the file that the first part of the record was read from."""
    before = RecordCut.parse(progress.reach.cut, part.start) if part.number > 1 else None
    return (before.file if before else "") or progress.split.partition.key


def _first_part(progress: SplitProgress, part: RecordPart) -> Draft:
    """Reads the first part of the record that `part` belongs to again. Raises FileError."""
    assert progress.stream is not None
    start, end = part.first
    raw = progress.stream.read(start, end - start)
    if len(raw) < end - start or not progress.stream.is_still(end):
        raise FileError(f"{progress.split.path!r} changed while it was read", "the agent reads it again")
    return Draft(Text(codec=part.codec).decoded(raw), start, end)


def long_line(progress: SplitProgress, frame: LongLine) -> Draft:
    """Returns the record of an over-long line whose beginning is sent."""
    return Draft(frame.head if frame.value is None else frame.value, frame.start, frame.end, progress.sent_records + 1)


def messages_of(outcomes: Iterable[RecordOutcome]) -> int:
    """Returns how many messages are sent for these records."""
    return sum(len(outcome.messages) for outcome in outcomes)


def _too_long(definition: Definition) -> str:
    """Returns why an over-long record is bad, in the words of the definition."""
    if getattr(definition.source, "multiline", None) is not None:
        return _TOO_LONG_GROUP
    return _TOO_LONG_RECORD if hasattr(getattr(definition.source, "format", None), "max_bytes") else _TOO_LONG
