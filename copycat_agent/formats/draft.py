"""Records that a format has found: `Draft`, a single one; `Parsed` and `Chunk`, runs of parsed records and of plain lines."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple, overload

from copycat_agent.formats.text import TAIL_BYTES, Text
from copycat_agent.model import Schema


class Unparsed(NamedTuple):
    """A record that a format found and could not parse: a bad record. `why` never contains its data."""

    why: str
    hint: str = ""


class Envelope(NamedTuple):
    """The parts of a record beside its value, as in Kafka: key, headers and time.

    `headers` are names and contents in their order, `timestamp_ms` is epoch milliseconds, None if the source has none.
    """

    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


class Envelopes(Sequence[Envelope]):
    """The envelopes of a run of records, in columns of the same length. An `Envelope` is made on access."""

    __slots__ = ("headers", "keys", "timestamps_ms")

    def __init__(
        self,
        keys: Sequence[bytes | None],
        headers: Sequence[tuple[tuple[str, bytes | None], ...]],
        timestamps_ms: Sequence[int | None],
    ) -> None:
        self.keys, self.headers, self.timestamps_ms = keys, headers, timestamps_ms

    def __len__(self) -> int:
        return len(self.keys)

    @overload
    def __getitem__(self, index: int) -> Envelope: ...
    @overload
    def __getitem__(self, index: slice) -> Envelopes: ...
    def __getitem__(self, index: int | slice) -> Envelope | Envelopes:
        kind = Envelopes if isinstance(index, slice) else Envelope
        return kind(self.keys[index], self.headers[index], self.timestamps_ms[index])  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Envelope]:
        return map(Envelope._make, zip(self.keys, self.headers, self.timestamps_ms, strict=True))


class Draft:
    """One record while steps work on it. A chunk makes one for each record that is handled by itself, and one for all others.

    Steps change it in place: a new record per step, or a frozen one, would cost more than the work of most steps (0.1 µs).

    `value` is the framed bytes, or the fields once the format or a step has made some. Steps may change the dict of fields, but not a dict
    or list inside a field: they replace it, since it may be the format's. `timestamp_ms` is the event time in epoch milliseconds, None
    while no step has set one.

    Steps only read the rest. The record is bytes `start` up to, not including, `end` of its file, delimiter included, or record numbers if
    the format counts those; it is the `number`-th of its file, from 1. `framed` is the original `value` from framing, `raw` the record's
    bytes in the file, None if the format has none or they are `framed`. `as_is` see `Parsed`. `partial`: no delimiter ends it, and it will
    not be completed. `envelope` is None for most sources. `kept` counts the errors that `on_error: keep` ignored, `trouble` is the first
    one that it or `on_error: drop` ignored, as a message; "" for none.
    """

    __slots__ = (
        "as_is", "end", "envelope", "framed", "kept", "number", "partial", "raw", "schema", "start", "timestamp_ms", "trouble", "value",
    )  # fmt: skip

    def __init__(
        self,
        value: bytes | dict[str, Any] | Unparsed | None,
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
        self.envelope: Envelope | None = None
        self.timestamp_ms: int | None = None
        self.kept = 0
        self.trouble = ""

    def fields(self) -> dict[str, Any]:
        """Returns the fields, to be changed in place. A raw line gets one field, `message`: UTF-8, with U+FFFD for invalid bytes."""
        value = self.value
        if isinstance(value, bytes):
            value = self.value = {"message": value.decode("utf-8", "replace")}
        return value

    @property
    def first(self) -> int:
        """The record's first byte or number; for one from Kafka its offset, as `start` is the end of the one before."""
        return self.start if self.envelope is None else self.end - 1

    @property
    def bytes(self) -> bytes:
        """The record's bytes, for a dead letter; b"" if the format has none."""
        if self.raw is not None:
            return self.raw
        return self.framed if isinstance(self.framed, bytes) else b""

    def anew(self) -> Draft:
        """Returns a new draft of the record as framing left it."""
        draft = Draft(self.framed, self.start, self.end, self.number, self.raw, self.schema, self.as_is)
        draft.partial = self.partial
        return draft.within(self.envelope)

    def within(self, envelope: Envelope | None) -> Draft:
        """Returns this draft, with its envelope and the time in it."""
        if envelope is not None:
            self.envelope, self.timestamp_ms = envelope, envelope.timestamp_ms
        return self


_APART = frozenset({Unparsed, type(None)})
"""Types of values that are handled separately: no step works on them."""


class LazyFields(Sequence[dict[str, Any]]):
    """Base of runs of records whose fields are made on access."""


class Parsed(NamedTuple):
    """A run of records that a format has found and parsed, the counterpart of `Chunk`.

    Record i is `values[i]`, bytes, fields or an `Unparsed`, and covers `places[i]` up to, not including, `places[i + 1]`: bytes, or record
    numbers of formats that count those. Bytes between two records belong to the first. `raw[i]` are its bytes as in the file; `raw` is None
    if a format has none. `size_bytes` are the bytes that were read for the run. `tail` are the last bytes before its end, b"" if places are
    record numbers. `as_is`: as long as no step changes the fields of a record and no converter needs fields, `raw` is its value.
    `envelopes[i]` belongs to record i; None if the source has none. A value of None is null in its source: no step works on it.
    """

    values: Sequence[Any]
    places: Sequence[int]
    size_bytes: int
    raw: Sequence[bytes] | None = None
    tail: bytes = b""
    schema: Schema | None = None
    as_is: bool = False
    envelopes: Envelopes | None = None

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
        """The number of records."""
        return len(self.values)

    @property
    def partial(self) -> bool:
        """False: the format knows where its records end."""
        return False

    def weight(self, index: int) -> int:
        """Returns the bytes that were read for its first `index` records; estimated if places do not cover what was read."""
        covered = self.places[-1] - self.places[0]
        if covered == self.size_bytes:
            return self.places[index] - self.places[0]
        return self.size_bytes * index // len(self.values)

    def rows(self, first: int = 1) -> Iterator[Draft]:
        """Yields a draft of each record; the first one is the `first`-th of its file."""
        for index, value in enumerate(self.values):
            raw = None if self.raw is None else self.raw[index]
            envelope = None if self.envelopes is None else self.envelopes[index]
            draft = Draft(value, self.places[index], self.places[index + 1], first + index, raw, self.schema, self.as_is)
            yield draft.within(envelope)

    def fitting(self, records: int, size_bytes: int) -> int:
        """Returns how many of its first records are at most `records` and about `size_bytes`; at least one."""
        count = len(self.values)
        by_size = count if self.size_bytes <= size_bytes else count * size_bytes // self.size_bytes
        return max(1, min(count, records, by_size))

    def before(self, position: int) -> int:
        """Returns how many records begin before `position`."""
        return bisect.bisect_left(self.places, position, 0, len(self.values))

    def cut(self, index: int) -> tuple[Parsed, Parsed]:
        """Returns the first `index` records and the others. Neither may be empty."""
        assert 0 < index < len(self.values), "half of a run is a run"
        return self._part(0, index), self._part(index, len(self.values))

    def sorted_out(self) -> list[Parsed]:
        """Returns the run, cut into runs of parsed records, of bad ones and of nulls; the run alone if it has one kind."""
        if isinstance(self.values, LazyFields) or set(map(type, self.values)).isdisjoint(_APART):
            return [self]
        kinds = groupby(type(value) if type(value) in _APART else None for value in self.values)
        ends = list(accumulate(sum(1 for _ in alike) for _, alike in kinds))
        return [self._part(begin, end) for begin, end in pairwise([0, *ends])] if len(ends) > 1 else [self]

    def _part(self, begin: int, end: int) -> Parsed:
        raw = None if self.raw is None else self.raw[begin:end]
        weight, tail = self.weight(end) - self.weight(begin), self.tail_before(end)
        part = self._replace(values=self.values[begin:end], places=self.places[begin : end + 1], size_bytes=weight, raw=raw, tail=tail)
        return part if self.envelopes is None else part._replace(envelopes=self.envelopes[begin:end])

    def tail_before(self, index: int) -> bytes:
        """Returns the part of `tail` that comes before the `index`-th record."""
        behind = self.places[-1] - self.places[index]
        return self.tail[:-behind] if behind else self.tail


class Chunk(NamedTuple):
    """A run of complete records, read at once.

    `raw` are the pieces between delimiters as in the file; `values` are the records that `text` makes of them, without empty lines if those
    are skipped. `raw` and `values` are the same list if nothing differs. `tail` are the last bytes before `end`, for the fingerprint.
    `partial`: one piece that no delimiter ends.
    """

    raw: list[bytes]
    values: list[bytes]
    start: int
    end: int
    delimiter: bytes
    text: Text
    skip_empty: bool
    tail: bytes
    partial: bool = False

    @property
    def size_bytes(self) -> int:
        """The number of bytes it covers."""
        return self.end - self.start

    @property
    def total(self) -> int:
        """The number of pieces."""
        return len(self.raw)

    def weight(self, index: int) -> int:
        """Returns how many bytes its first `index` pieces cover."""
        return sum(map(len, self.raw[:index])) + index * len(self.delimiter)

    def rows(self, first: int = 1) -> Iterator[Draft]:
        """Yields a draft of each record, without skipped empty lines. The first piece is the `first`-th record of its file."""
        position = self.start
        for number, raw in enumerate(self.raw, first):
            end = min(position + len(raw) + len(self.delimiter), self.end)
            if not self._is_skipped(raw):
                draft = Draft(self.text.value(raw), position, end, number)
                draft.partial = self.partial
                yield draft
            position = end

    def fitting(self, records: int, size_bytes: int) -> int:
        """Returns how many of its first pieces have at most `records` and `size_bytes`; at least one, however long."""
        if records >= len(self.values) and size_bytes >= self.end - self.start:
            return len(self.raw)
        taken = place = 0
        for index, raw in enumerate(self.raw):
            place += len(raw) + len(self.delimiter)
            taken += not self._is_skipped(raw)
            if index and (place > size_bytes or taken > records):
                return index
        return len(self.raw)

    def before(self, position: int) -> int:
        """Returns how many pieces begin before byte `position`."""
        place = self.start
        for index, raw in enumerate(self.raw):
            if place >= position:
                return index
            place += len(raw) + len(self.delimiter)
        return len(self.raw)

    def cut(self, index: int) -> tuple[Chunk, Chunk]:
        """Returns the first `index` pieces and the others, each as a chunk. Neither may be empty."""
        assert 0 < index < len(self.raw), "half of a chunk is a chunk"
        first, others = self.raw[:index], self.raw[index:]
        middle = self.start + self.weight(index)
        tail = self.tail[-(self.end - middle) :]
        return (
            self._replace(raw=first, values=self._values(first), end=middle, tail=self.tail_before(index)),
            self._replace(raw=others, values=self._values(others), start=middle, tail=tail),
        )

    def _values(self, raw: list[bytes]) -> list[bytes]:
        """Returns the records of some of the pieces."""
        return raw if self.values is self.raw else self.text.values(raw, skip_empty=self.skip_empty)

    def _is_skipped(self, stretch: bytes) -> bool:
        return self.skip_empty and stretch in (b"", self.text.cr)

    def tail_before(self, index: int) -> bytes:
        """Returns up to `TAIL_BYTES` of the chunk's bytes before its `index`-th piece."""
        stretches = self.raw[max(0, index - TAIL_BYTES) : index]
        return b"".join(stretch + self.delimiter for stretch in stretches)[-TAIL_BYTES:]
