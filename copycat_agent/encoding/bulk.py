"""Encodes a chunk in bulk: its records pass through the steps one after the other, in one draft.

It stops before each bad record, which is then handled by itself, and continues after it: an object, two calls and a `try` for each record
would cost more than all the rest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, islice, pairwise, repeat
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.errors import CopycatError
from copycat_agent.formats import Chunk, Draft, Envelope, Parsed
from copycat_agent.model import Counts
from copycat_agent.producer import Message
from copycat_agent.transforms import Step

if TYPE_CHECKING:
    from copycat_agent.encoding.layout import SplitLayout

Places = Iterator[tuple[Any, tuple[int, int], int, Envelope | None]]
"""Yields value, place (start and end), number and envelope of records."""

NAMED_MAX = 10
"""Most records of a split whose errors are reported one by one; all are counted."""


class StepTrouble(NamedTuple):
    """A record for which a step failed, and which was kept (`kept`) or dropped by the step's `on_error`.

    `messages` is the number of messages so far, its own included.
    """

    start: int
    end: int
    number: int
    why: str
    kept: bool
    messages: int


@dataclass(slots=True)
class EncodedRecords:
    """The result of encoding some of a chunk's records.

    `messages` are to be sent: whole ones, or values alone if the layout is steady. `drops` has for each dropped record the number of
    messages before it, `kept` the messages of records that were kept though a step failed, `troubles` the first of those and of the
    ones that were dropped for it. `error` is the error of the next record, see `ChunkEncoding.draft`.
    """

    messages: list[Any] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    troubles: list[StepTrouble] = field(default_factory=list)
    error: CopycatError | None = None

    @property
    def total(self) -> int:
        """Returns the number of records."""
        return len(self.messages) + len(self.drops)

    def counts(self) -> Counts:
        """Returns the counts of the records, for when they are settled."""
        return Counts(acknowledged=len(self.messages), dropped=len(self.drops), kept=len(self.kept))

    def up_to(self, sent: int) -> EncodedRecords:
        """Returns the part of it before the record whose message is the `sent`-th from 0."""
        drops, kept = self.drops[: bisect_right(self.drops, sent)], self.kept[: bisect_left(self.kept, sent)]
        return EncodedRecords(self.messages[:sent], drops, kept, [one for one in self.troubles if one.messages <= sent])


class ChunkEncoding:
    """A chunk that is being encoded."""

    def __init__(
        self,
        layout: SplitLayout,
        steps: tuple[Step, ...],
        chunk: Chunk | Parsed,
        number: int,
        raw: Sequence[bytes] | None = None,
        *,
        owns_fields: bool = False,
    ) -> None:
        """The chunk's first record is the `number`-th of its file. `raw`: the bytes to send of each, None for the steps' results."""
        self._steps, self._chunk, self._first = steps, chunk, number
        self._records = places(chunk, number, owns_fields=owns_fields)
        self._make = _maker(layout, raw, number)
        self._draft = Draft(b"")
        self._draft.schema = chunk.schema if isinstance(chunk, Parsed) else None

    def skip(self, records: int) -> None:
        """Skips records that were handled otherwise."""
        next(islice(self._records, records, records), None)

    def take(self, most: int, until: float) -> EncodedRecords:
        """Returns the records up to the next bad one, or to the chunk's end; at most `most`, and none once it is later than `until`."""
        encoded = EncodedRecords()
        draft, steps, make, append = self._draft, self._steps, self._make, encoded.messages.append
        try:
            for draft.value, (draft.start, draft.end), draft.number, envelope in islice(self._records, most):
                draft.envelope, draft.timestamp_ms = envelope, None if envelope is None else envelope.timestamp_ms
                for step in steps:
                    if not step(draft):
                        if draft.trouble:
                            self._note(encoded, kept=False)
                        encoded.drops.append(len(encoded.messages))
                        break
                else:
                    append(make(draft))
                    if draft.trouble:
                        self._note(encoded, kept=True)
                if monotonic() > until:
                    break
        except CopycatError as error:
            draft.kept, draft.trouble = 0, ""
            encoded.error = error
        return encoded

    def _note(self, encoded: EncodedRecords, *, kept: bool) -> None:
        draft = self._draft
        if kept:
            encoded.kept.append(len(encoded.messages) - 1)
        if len(encoded.troubles) < NAMED_MAX:
            encoded.troubles.append(StepTrouble(draft.start, draft.end, draft.number, draft.trouble, kept, len(encoded.messages)))
        draft.kept, draft.trouble = 0, ""

    def draft(self) -> Draft:
        """Returns the last record that was taken, as framing left it."""
        draft, chunk = self._draft, self._chunk
        index, place = draft.number - self._first, (draft.start, draft.end, draft.number)
        if isinstance(chunk, Chunk):
            return Draft(chunk.text.value(chunk.raw[index]), *place)
        raw = None if chunk.raw is None else chunk.raw[index]
        envelope = None if chunk.envelopes is None else chunk.envelopes[index]
        return Draft(chunk.values[index], *place, raw, chunk.schema, chunk.as_is).within(envelope)


class UniformEncoding(ChunkEncoding):
    """A chunk whose messages are all made: no steps are left, and no record is bad."""

    def __init__(self, chunk: Chunk | Parsed, number: int, encoded: EncodedRecords) -> None:
        self._chunk, self._first = chunk, number
        self._encoded = encoded

    def skip(self, records: int) -> None:
        """Skips records that were handled otherwise."""
        messages, drops = self._encoded.messages, self._encoded.drops
        dropped = sum(before + index < records for index, before in enumerate(drops))
        sent = records - dropped
        self._encoded = EncodedRecords(messages[sent:], [before - sent for before in drops[dropped:]])

    def take(self, most: int, until: float) -> EncodedRecords:
        """Returns all records, whatever the arguments: they are already in memory."""
        del most, until
        return self._encoded

    def draft(self) -> Draft:
        """Returns the last record."""
        *_, last = self._chunk.rows(self._first)
        return last


def places(chunk: Chunk | Parsed, number: int, *, owns_fields: bool) -> Places:
    """Yields value, place, number and envelope of each record, as `rows` does but without an object for each.

    `owns_fields`: fields are copies.
    """
    if isinstance(chunk, Parsed):
        values: Any = chunk.values
        if owns_fields:
            values = (dict(value) if isinstance(value, dict) else value for value in values)
        return zip(values, pairwise(chunk.places), count(number), chunk.envelopes or repeat(None), strict=False)
    if len(chunk.values) != len(chunk.raw):  # empty lines are left out
        return ((one.value, (one.start, one.end), one.number, None) for one in chunk.rows(number))
    sizes = map(len(chunk.delimiter).__add__, map(len, chunk.raw))
    return zip(chunk.values, pairwise(accumulate(sizes, initial=chunk.start)), count(number), repeat(None), strict=False)


def _maker(layout: SplitLayout, raw: Sequence[bytes] | None, first: int) -> Callable[[Draft], Any]:
    """Returns a function that makes a message of a draft, or its value alone if all else is the same for every record."""
    outline, value, topic = layout.outline, layout.value, layout.literal_topic

    def whole(draft: Draft) -> Message:
        topic, key, partition, timestamp, headers = outline(draft)
        if raw is not None:
            draft.value = raw[draft.number - first]
        return topic, value(draft, topic), key, partition, None, None, timestamp, headers

    def value_of_raw(draft: Draft) -> Any:  # noqa: ANN401 - what `produce` takes
        assert raw is not None
        draft.value = raw[draft.number - first]
        return value(draft, topic)

    if not layout.is_steady:
        return whole
    return (lambda draft: value(draft, topic)) if raw is None else value_of_raw
