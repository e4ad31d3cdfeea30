"""The bulk way through a chunk: its records one after the other in one draft, or all at once where no step works on them.

Where no step works and messages differ in their values only, the list of values goes to the client as it is.
It goes as far as the first bad record, which is then looked at by itself, and goes on behind it. Throughput pays for it: an object, two
calls and a `try` for each record would cost more than all the rest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, islice, pairwise
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.errors import CopycatError, DataError
from copycat_agent.formats import Chunk, Draft, Parsed, Unparsed
from copycat_agent.model import Counts
from copycat_agent.producer import Message
from copycat_agent.transforms import Step

if TYPE_CHECKING:
    from copycat_agent.encoding.layout import MessageLayout, SplitLayout

Places = Iterator[tuple[Any, tuple[int, int], int]]
"""Value, place (start and end) and number of records."""

NAMED_MAX = 10
"""Records of one split that are named one by one for what is wrong with them; all are counted."""


class StepTrouble(NamedTuple):
    """A record of which a step failed, and which went on (`kept`) or was dropped, as the step's `on_error` says.

    `messages` is how many there were, its own included.
    """

    start: int
    end: int
    number: int
    why: str
    kept: bool
    messages: int


@dataclass(slots=True)
class Encoded:
    """Says what became of some of a chunk's records.

    `messages` are to be sent: whole ones, or values alone where the layout is steady. `drops` says of each dropped record how many
    messages there were before it, `kept` which messages are of records that went on though a step failed, `troubles` the first
    of those and of the ones that were dropped for it. `error` is what the next record ended with, see `ChunkEncoding.draft`.
    """

    messages: list[Any] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    troubles: list[StepTrouble] = field(default_factory=list)
    error: CopycatError | None = None

    @property
    def total(self) -> int:
        """The number of records."""
        return len(self.messages) + len(self.drops)

    def counts(self) -> Counts:
        """Returns what the records count as once they are settled."""
        return Counts(acknowledged=len(self.messages), dropped=len(self.drops), kept=len(self.kept))

    def up_to(self, sent: int) -> Encoded:
        """Returns the part of it before the record whose message is the `sent`-th from 0."""
        drops, kept = self.drops[: bisect_right(self.drops, sent)], self.kept[: bisect_left(self.kept, sent)]
        return Encoded(self.messages[:sent], drops, kept, [one for one in self.troubles if one.messages <= sent])


class BulkEncoder:
    """The steps and the layout of one split, for chunks."""

    def __init__(self, layout: MessageLayout, split_layout: SplitLayout, steps: tuple[Step, ...], *, changes_fields: bool) -> None:
        """`changes_fields`: see `Encoder`. Raises DataError when no message of this split can be made."""
        self.layout = split_layout
        self._tail: Message | None = None
        self._of_definition = layout
        self._steps = steps
        self._changes_fields = changes_fields
        self._is_plain = split_layout.is_steady and not steps and not layout.wants_record and layout.value is None
        if self._is_plain:
            self._tail = split_layout.tail()

    @property
    def tail(self) -> Message:
        """The result of `SplitLayout.tail`, made once."""
        if self._tail is None:
            self._tail = self.layout.tail()
        return self._tail

    def begin(self, chunk: Chunk | Parsed, number: int) -> ChunkEncoding | None:
        """Begin with a chunk whose first record is the `number`-th of its file. None for one that needs a look at each record."""
        if chunk.partial:
            return None
        if self._is_plain:
            values = self._values(chunk)
            return None if values is None else AllAtOnce(chunk, number, Encoded(values))
        if isinstance(chunk, Chunk):
            return ChunkEncoding(self.layout, self._steps, chunk, number)
        kinds: set[type] = set(map(type, chunk.values))
        raw = chunk.raw if self._takes_raw(chunk) else None
        if Unparsed in kinds or (raw is not None and self._changes_fields and kinds != {dict}):
            return None
        # where a step changes fields, they are its own, and no record goes as its raw bytes any more
        owns = self._changes_fields
        return ChunkEncoding(self.layout, self._steps, chunk, number, None if owns else raw, owns_fields=owns)

    def _takes_raw(self, chunk: Parsed) -> bool:
        """Whether records go as their raw bytes where no step makes other fields of them."""
        return chunk.raw is not None and self._of_definition.takes_raw(as_is=chunk.as_is)

    def _values(self, chunk: Chunk | Parsed) -> list[bytes] | None:
        """The chunk's records as Kafka gets them, where no step works on them. None when one of them is a bad one."""
        layout, values = self._of_definition, chunk.values
        convert = layout.convert_value
        if convert is None and isinstance(chunk, Chunk):
            return chunk.values
        kinds: set[type[Any]] = set(map(type, values))
        if Unparsed in kinds:
            return None
        fields = layout.convert_fields
        if isinstance(chunk, Parsed) and chunk.raw is not None and self._takes_raw(chunk):
            values, convert = chunk.raw, None if fields is not None else convert
        elif fields is not None and kinds == {dict}:
            convert = fields
        try:
            return list(values) if convert is None else [convert(value) for value in values]  # type: ignore[arg-type]
        except DataError:
            return None


class ChunkEncoding:
    """One chunk under way."""

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
        """The chunk's first record is the `number`-th of its file. `raw`: what is sent of each, None for what the steps leave."""
        self._steps, self._chunk, self._first = steps, chunk, number
        self._records = places(chunk, number, owns_fields=owns_fields)
        self._make = _maker(layout, raw, number)
        self._draft = Draft(b"")
        self._draft.schema = chunk.schema if isinstance(chunk, Parsed) else None

    def skip(self, records: int) -> None:
        """Pass over so many: they are done with otherwise."""
        next(islice(self._records, records, records), None)

    def take(self, most: int, until: float) -> Encoded:
        """The records up to the next bad one, or to the chunk's end; no more than so many, and none once it is later than `until`."""
        encoded = Encoded()
        draft, steps, make, append = self._draft, self._steps, self._make, encoded.messages.append
        try:
            for draft.value, (draft.start, draft.end), draft.number in islice(self._records, most):
                draft.timestamp_ms = None
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

    def _note(self, encoded: Encoded, *, kept: bool) -> None:
        draft = self._draft
        if kept:
            encoded.kept.append(len(encoded.messages) - 1)
        if len(encoded.troubles) < NAMED_MAX:
            encoded.troubles.append(StepTrouble(draft.start, draft.end, draft.number, draft.trouble, kept, len(encoded.messages)))
        draft.kept, draft.trouble = 0, ""

    def draft(self) -> Draft:
        """The record that was looked at last, as framing left it."""
        draft, chunk = self._draft, self._chunk
        index, place = draft.number - self._first, (draft.start, draft.end, draft.number)
        if isinstance(chunk, Chunk):
            return Draft(chunk.text.value(chunk.raw[index]), *place)
        return Draft(chunk.values[index], *place, None if chunk.raw is None else chunk.raw[index], chunk.schema, chunk.as_is)


class AllAtOnce(ChunkEncoding):
    """A chunk whose messages are all made: no step is left to work on its records, and none of them is a bad one."""

    def __init__(self, chunk: Chunk | Parsed, number: int, encoded: Encoded) -> None:
        self._chunk, self._first = chunk, number
        self._encoded = encoded

    def skip(self, records: int) -> None:
        """See `ChunkEncoding.skip`."""
        messages, drops = self._encoded.messages, self._encoded.drops
        dropped = sum(before + index < records for index, before in enumerate(drops))
        sent = records - dropped
        self._encoded = Encoded(messages[sent:], [before - sent for before in drops[dropped:]])

    def take(self, most: int, until: float) -> Encoded:
        """See `ChunkEncoding.take`. All of them: they are made, and in memory."""
        del most, until
        return self._encoded

    def draft(self) -> Draft:
        """The last one."""
        *_, last = self._chunk.rows(self._first)
        return last


def places(chunk: Chunk | Parsed, number: int, *, owns_fields: bool) -> Places:
    """Value, place and number of each record, as `rows` has them but without an object for each; `owns_fields`: fields are copies."""
    if isinstance(chunk, Parsed):
        values: Any = chunk.values
        if owns_fields:
            values = (dict(value) if isinstance(value, dict) else value for value in values)
        return zip(values, pairwise(chunk.places), count(number), strict=False)
    if len(chunk.values) != len(chunk.raw):  # empty lines are left out
        return ((one.value, (one.start, one.end), one.number) for one in chunk.rows(number))
    sizes = map(len(chunk.delimiter).__add__, map(len, chunk.raw))
    return zip(chunk.values, pairwise(accumulate(sizes, initial=chunk.start)), count(number), strict=False)


def _maker(layout: SplitLayout, raw: Sequence[bytes] | None, first: int) -> Callable[[Draft], Any]:
    """Returns a function that makes a message of a draft, or its value alone where all else is the same for every record."""
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
