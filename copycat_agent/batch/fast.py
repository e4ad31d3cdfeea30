"""The quick way through the steps: a chunk's records one after the other in one draft, without an object for each.

It goes as far as the first bad record of a chunk, which is then looked at by itself, and goes on behind it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, islice, pairwise
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.batch.progress import REJECTIONS_NAMED
from copycat_agent.errors import CopycatError
from copycat_agent.formats import Chunk, Parsed, Row, Unparsed
from copycat_agent.model import Counts
from copycat_agent.producer import Outgoing
from copycat_agent.transforms import Draft, Step

if TYPE_CHECKING:
    from copycat_agent.batch.shaping import Shape

Rows = Iterator[tuple[Any, tuple[int, int], int]]
"""Value, place (start and end) and number of records."""


class Trouble(NamedTuple):
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
class Shaped:
    """What became of some of a chunk's records.

    `messages` are to be sent: whole ones, or values alone where the shape is steady. `drops` says of each dropped record how many
    messages there were before it, `kept` which messages are of records that went on though a step failed, `troubles` the first
    of those and of the ones that were dropped for it. `error` is what the next record ended with, see `Walk.row`.
    """

    messages: list[Any] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    error: CopycatError | None = None

    @property
    def total(self) -> int:
        """How many records that is."""
        return len(self.messages) + len(self.drops)

    def counts(self) -> Counts:
        """What they count as once they are settled."""
        return Counts(acknowledged=len(self.messages), dropped=len(self.drops), kept=len(self.kept))

    def up_to(self, sent: int) -> Shaped:
        """The same for the records before the one whose message is the `sent`-th from 0."""
        drops, kept = self.drops[: bisect_right(self.drops, sent)], self.kept[: bisect_left(self.kept, sent)]
        return Shaped(self.messages[:sent], drops, kept, [one for one in self.troubles if one.messages <= sent])


class Fast:
    """The steps and the shape of one split, for chunks."""

    def __init__(self, shape: Shape, steps: tuple[Step, ...], takes_raw: Callable[..., bool], *, changes_fields: bool) -> None:
        """`takes_raw` and `changes_fields` are the pipeline's."""
        self._shape = shape
        self._steps = steps
        self._takes_raw = takes_raw
        self._changes_fields = changes_fields

    def walk(self, chunk: Chunk | Parsed, number: int) -> Walk | None:
        """A walk through a chunk whose first record is the `number`-th of its file. None for one that needs a look at each row."""
        if chunk.partial:
            return None
        if isinstance(chunk, Chunk):
            return Walk(self._shape, self._steps, chunk, number, _chunk_rows(chunk, number), None)
        kinds: set[type] = set(map(type, chunk.values))
        raw = chunk.raw if chunk.raw is not None and self._takes_raw(as_is=chunk.as_is) else None
        if Unparsed in kinds or (raw is not None and self._changes_fields and kinds != {dict}):
            return None
        values: Any = chunk.values
        if self._changes_fields:  # the fields are the steps' own, and no record goes as its raw bytes any more
            values, raw = (dict(value) if isinstance(value, dict) else value for value in values), None
        rows = zip(values, pairwise(chunk.places), count(number), strict=False)
        return Walk(self._shape, self._steps, chunk, number, rows, raw)


class Walk:
    """One walk through a chunk."""

    def __init__(
        self, shape: Shape, steps: tuple[Step, ...], chunk: Chunk | Parsed, number: int, rows: Rows, raw: Sequence[bytes] | None
    ) -> None:
        """`rows` are the chunk's, the first of them the `number`-th of its file. `raw`: what is sent of each."""
        self.shape = shape
        self._steps, self._chunk, self._rows, self._first = steps, chunk, rows, number
        self._make = _maker(shape, raw, number)
        self._draft = Draft(b"")
        self._draft.schema = chunk.schema if isinstance(chunk, Parsed) else None

    def take(self, most: int, until: float) -> Shaped:
        """The records up to the next bad one, or to the chunk's end; no more than so many, and none once it is later than `until`."""
        shaped = Shaped()
        draft, steps, make, append = self._draft, self._steps, self._make, shaped.messages.append
        try:
            for draft.value, (draft.start, draft.end), draft.number in islice(self._rows, most):
                draft.timestamp_ms = None
                for step in steps:
                    if not step(draft):
                        if draft.trouble:
                            self._note(shaped, kept=False)
                        shaped.drops.append(len(shaped.messages))
                        break
                else:
                    append(make(draft))
                    if draft.trouble:
                        self._note(shaped, kept=True)
                if monotonic() > until:
                    break
        except CopycatError as error:
            draft.kept, draft.trouble = 0, ""
            shaped.error = error
        return shaped

    def _note(self, shaped: Shaped, *, kept: bool) -> None:
        draft = self._draft
        if kept:
            shaped.kept.append(len(shaped.messages) - 1)
        if len(shaped.troubles) < REJECTIONS_NAMED:
            shaped.troubles.append(Trouble(draft.start, draft.end, draft.number, draft.trouble, kept, len(shaped.messages)))
        draft.kept, draft.trouble = 0, ""

    def row(self) -> Row:
        """The record that was looked at last, as it stands in the chunk."""
        draft, chunk = self._draft, self._chunk
        ordinal = draft.number - self._first
        if isinstance(chunk, Chunk):
            return Row(chunk.text.value(chunk.raw[ordinal]), draft.start, draft.end, ordinal)
        raw = None if chunk.raw is None else chunk.raw[ordinal]
        return Row(chunk.values[ordinal], draft.start, draft.end, ordinal, raw, chunk.schema, chunk.as_is)


def _chunk_rows(chunk: Chunk, number: int) -> Rows:
    """Value, place and number of each record. As `Chunk.rows` says, but without an object for each."""
    if len(chunk.values) != len(chunk.raw):  # empty lines are left out
        return ((row.value, (row.start, row.end), number + row.ordinal) for row in chunk.rows())
    sizes = map(len(chunk.delimiter).__add__, map(len, chunk.raw))
    return zip(chunk.values, pairwise(accumulate(sizes, initial=chunk.start)), count(number), strict=False)


def _maker(shape: Shape, raw: Sequence[bytes] | None, first: int) -> Callable[[Draft], Any]:
    """What makes a message of a draft, or its value alone where all else is the same for every record."""
    outline, value, topic = shape.outline, shape.value, shape.literal_topic

    def whole(draft: Draft) -> Outgoing:
        topic, key, partition, timestamp, headers = outline(draft)
        if raw is not None:
            draft.value = raw[draft.number - first]
        return topic, value(draft, topic), key, partition, None, None, timestamp, headers

    def value_of_raw(draft: Draft) -> Any:  # noqa: ANN401 - what `produce` takes
        assert raw is not None
        draft.value = raw[draft.number - first]
        return value(draft, topic)

    if not shape.is_steady:
        return whole
    return (lambda draft: value(draft, topic)) if raw is None else value_of_raw
