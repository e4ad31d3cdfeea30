"""Records that a format has found: one on its way through the steps, and runs of them that a format has read itself."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from copycat_agent.model import Schema


class Unparsed(NamedTuple):
    """A record that a format found and could not read: a bad record. `why` never holds its data."""

    why: str
    hint: str = ""


class Draft:
    """One record while it is worked on. A chunk makes one for each record that is looked at by itself, and one for all others.

    Steps change it in place: a new record per step, or a frozen one, would cost more than the work of most steps (0.1 µs).

    `value` is the framed bytes, or the fields once the format or a step has made some. The dict of fields is the steps' own: they may
    change it. What lies within a field (a dict, a list) is not: it is replaced, never changed, since it may be the format's.
    `timestamp_ms` is the event time in epoch milliseconds, None while no step has set one.

    Steps only read the rest. The record is bytes `start` up to, not including, `end` of its file, delimiter included, or record
    numbers where the format counts those; it is the `number`-th of its file, from 1. `framed` is `value` as framing left it, `raw` the
    record's bytes as they stand in the file, None where the format has none or `framed` is those. `as_is` see `Parsed`. `partial`: no
    delimiter ends it, and nobody will finish it. `kept` counts the errors that `on_error: keep` passed over, `trouble` is the first
    one that it or `on_error: drop` passed over, in words; "" for none.
    """

    __slots__ = ("as_is", "end", "framed", "kept", "number", "partial", "raw", "schema", "start", "timestamp_ms", "trouble", "value")

    def __init__(
        self,
        value: bytes | dict[str, Any] | Unparsed,
        start: int = 0,
        end: int = 0,
        number: int = 1,
        raw: bytes | None = None,
        schema: Schema | None = None,
        as_is: bool = False,  # noqa: FBT001, FBT002 - as in `Parsed`
    ) -> None:
        self.framed = value
        self.value: bytes | dict[str, Any] = value  # type: ignore[assignment]  # no step sees an `Unparsed`
        self.start = start
        self.end = end
        self.number = number
        self.raw = raw
        self.schema = schema
        self.as_is = as_is
        self.partial = False
        self.timestamp_ms: int | None = None
        self.kept = 0
        self.trouble = ""

    def fields(self) -> dict[str, Any]:
        """The fields, to be changed in place. A raw line gets its one field, `message`: UTF-8, U+FFFD for what is not."""
        value = self.value
        if isinstance(value, bytes):
            value = self.value = {"message": value.decode("utf-8", "replace")}
        return value

    @property
    def bytes(self) -> bytes:
        """The record's bytes, for a dead letter; b"" where the format has none."""
        if self.raw is not None:
            return self.raw
        return self.framed if isinstance(self.framed, bytes) else b""

    def anew(self) -> Draft:
        """The same record as framing left it."""
        draft = Draft(self.framed, self.start, self.end, self.number, self.raw, self.schema, self.as_is)
        draft.partial = self.partial
        return draft


class Parsed(NamedTuple):
    """A run of records that a format has found and read, the counterpart of `Chunk`.

    Record i is `values[i]`, fields or an `Unparsed`, and covers `places[i]` up to, not including, `places[i + 1]`: bytes, or record
    numbers of formats that count those. What stands between two records belongs to the first. `raw[i]` are its bytes as they stand
    in the file; `raw` is None where a format has none. `size_bytes` is what the run weighs: the bytes that were read for it.
    `tail` are the last bytes before its end, b"" where places are record numbers. `as_is`: as long as nothing makes other fields of
    a record and no converter is asked for fields, `raw` is its value.
    """

    values: Sequence[bytes | dict[str, Any] | Unparsed]
    places: Sequence[int]
    size_bytes: int
    raw: Sequence[bytes] | None = None
    tail: bytes = b""
    schema: Schema | None = None
    as_is: bool = False

    @property
    def start(self) -> int:
        """The position where its first record begins."""
        return self.places[0]

    @property
    def end(self) -> int:
        """The position where its last record ends."""
        return self.places[-1]

    @property
    def total(self) -> int:
        """The number of records it is made of."""
        return len(self.values)

    @property
    def partial(self) -> bool:
        """A format knows where its records end."""
        return False

    def weight(self, index: int) -> int:
        """Returns the bytes that were read for its first `index` records; estimated where they do not cover what was read."""
        covered = self.places[-1] - self.places[0]
        if covered == self.size_bytes:
            return self.places[index] - self.places[0]
        return self.size_bytes * index // len(self.values)

    def rows(self, first: int = 1) -> Iterator[Draft]:
        """A draft of each record, of which the first one is the `first`-th of its file."""
        for index, value in enumerate(self.values):
            raw = None if self.raw is None else self.raw[index]
            yield Draft(value, self.places[index], self.places[index + 1], first + index, raw, self.schema, self.as_is)

    def fitting(self, records: int, size_bytes: int) -> int:
        """Returns how many records are no more than so many, and weigh about so much; at least one."""
        count = len(self.values)
        by_size = count if self.size_bytes <= size_bytes else count * size_bytes // self.size_bytes
        return max(1, min(count, records, by_size))

    def before(self, position: int) -> int:
        """Returns how many records begin before `position`."""
        return bisect.bisect_left(self.places, position, 0, len(self.values))

    def cut(self, index: int) -> tuple[Parsed, Parsed]:
        """The first `index` records and the others. Neither may be empty."""
        assert 0 < index < len(self.values), "half of a run is a run"
        return self._part(0, index), self._part(index, len(self.values))

    def sorted_out(self) -> list[Parsed]:
        """The run cut where records that could be read and bad ones meet; it alone when it has but one kind."""
        if Unparsed not in set(map(type, self.values)):
            return [self]
        kinds = groupby(type(value) is Unparsed for value in self.values)
        ends = list(accumulate(sum(1 for _ in alike) for _, alike in kinds))
        return [self._part(begin, end) for begin, end in pairwise([0, *ends])] if len(ends) > 1 else [self]

    def _part(self, begin: int, end: int) -> Parsed:
        raw = None if self.raw is None else self.raw[begin:end]
        weight, tail = self.weight(end) - self.weight(begin), self.tail_before(end)
        return self._replace(values=self.values[begin:end], places=self.places[begin : end + 1], size_bytes=weight, raw=raw, tail=tail)

    def tail_before(self, index: int) -> bytes:
        """Returns the part of `tail` that stands before the `index`-th record."""
        behind = self.places[-1] - self.places[index]
        return self.tail[:-behind] if behind else self.tail
