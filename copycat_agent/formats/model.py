"""What framing yields."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, Literal, NamedTuple, Protocol

from copycat_agent.formats.draft import Draft, Unparsed
from copycat_agent.formats.parts import Part
from copycat_agent.model import Schema

TAIL_BYTES = 256
"""Bytes before a position that its fingerprint covers."""

OnTooLong = Literal["dlq", "truncate", "split", "drop"]
"""What becomes of a record over the limit."""

Reader = Callable[[int, int], bytes]
"""`read(position, size)`: up to `size` bytes from `position`; fewer only at the end of the file. Raises OSError."""


class Text(NamedTuple):
    """How a stretch between delimiters becomes a record's value.

    `cr` is taken off its end where it stands there. `codec`: it is decoded with that and encoded as UTF-8, what cannot be
    decoded replaced by U+FFFD; "" leaves its bytes as they are.
    """

    cr: bytes = b""
    codec: str = ""

    def value(self, stretch: bytes) -> bytes:
        """The value of one stretch, or of a group of lines with delimiters in it."""
        return self.decoded(stretch.removesuffix(self.cr) if self.cr else stretch)

    def values(self, stretches: list[bytes], *, skip_empty: bool) -> list[bytes]:
        """The values of some stretches, without those of empty lines where they are skipped."""
        values, cr = stretches, self.cr
        if cr:
            size = -len(cr)
            values = [line[:size] if line.endswith(cr) else line for line in stretches]
        if skip_empty:
            values = [line for line in values if line]
        return list(map(self.decoded, values)) if self.codec else values

    def decoded(self, text: bytes) -> bytes:
        """UTF-8 of some bytes, all of them."""
        return text.decode(self.codec, "replace").encode("utf-8", "replace") if self.codec else text


class Chunk(NamedTuple):
    """A run of complete records, read at once.

    `raw` are the stretches between delimiters as they stand in the file; `values` are the records that `text` makes of them,
    where empty lines are skipped without those. `raw` and `values` are the same list when nothing differs. `tail` are the last
    bytes before `end`, for the fingerprint. `partial`: one stretch that no delimiter ends.
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
        """What it weighs: the bytes it covers."""
        return self.end - self.start

    @property
    def total(self) -> int:
        """How many stretches it is made of."""
        return len(self.raw)

    def weight(self, index: int) -> int:
        """How many bytes its first `index` stretches cover."""
        return sum(map(len, self.raw[:index])) + index * len(self.delimiter)

    def rows(self, first: int = 1) -> Iterator[Draft]:
        """A draft of each record; skipped empty lines are left out. The first stretch is the `first`-th record of its file."""
        position = self.start
        for number, raw in enumerate(self.raw, first):
            end = min(position + len(raw) + len(self.delimiter), self.end)
            if not self._is_skipped(raw):
                draft = Draft(self.text.value(raw), position, end, number)
                draft.partial = self.partial
                yield draft
            position = end

    def fitting(self, records: int, size_bytes: int) -> int:
        """How many stretches hold no more than so many records and bytes; at least one, however long."""
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
        """How many stretches begin before byte `position`."""
        place = self.start
        for index, raw in enumerate(self.raw):
            if place >= position:
                return index
            place += len(raw) + len(self.delimiter)
        return len(self.raw)

    def cut(self, index: int) -> tuple[Chunk, Chunk]:
        """The first `index` stretches and the others, each a chunk. Neither may be empty."""
        assert 0 < index < len(self.raw), "half of a chunk is a chunk"
        first, others = self.raw[:index], self.raw[index:]
        middle = self.start + self.weight(index)
        tail = self.tail[-(self.end - middle) :]
        return (
            self._replace(raw=first, values=self._values(first), end=middle, tail=self.tail_before(index)),
            self._replace(raw=others, values=self._values(others), start=middle, tail=tail),
        )

    def _values(self, raw: list[bytes]) -> list[bytes]:
        """The records of some of the stretches."""
        return raw if self.values is self.raw else self.text.values(raw, skip_empty=self.skip_empty)

    def _is_skipped(self, stretch: bytes) -> bool:
        return self.skip_empty and stretch in (b"", self.text.cr)

    def tail_before(self, index: int) -> bytes:
        """Up to `TAIL_BYTES` of the chunk's bytes before its `index`-th stretch."""
        stretches = self.raw[max(0, index - TAIL_BYTES) : index]
        return b"".join(stretch + self.delimiter for stretch in stretches)[-TAIL_BYTES:]


class LongLine(NamedTuple):
    """A line longer than the limit. `head` are its first bytes, up to the limit; `end` is how far it has been passed.

    `complete` is False when its delimiter has not been seen yet: the next frame, perhaps of a later split, is `SkippedRest`.
    `value` is what can be sent of `head`: text cut at a character's end; None when that is `head` itself.
    """

    head: bytes
    start: int
    end: int
    complete: bool
    tail: bytes
    value: bytes | None = None


class SkippedRest(NamedTuple):
    """More of a line that was reported as `LongLine` before."""

    start: int
    end: int
    complete: bool
    tail: bytes


class Gap(NamedTuple):
    """Bytes of no record. hole: NUL bytes that nobody wrote; a line before it ends there. bom: the mark at byte 0 of a text.

    header: what a format has before, between or after its records, on purpose.
    """

    start: int
    end: int
    tail: bytes
    reason: Literal["hole", "bom", "header"]


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
        """Where its first record begins."""
        return self.places[0]

    @property
    def end(self) -> int:
        """Where its last record ends."""
        return self.places[-1]

    @property
    def total(self) -> int:
        """How many records it is made of."""
        return len(self.values)

    @property
    def partial(self) -> bool:
        """A format knows where its records end."""
        return False

    def weight(self, index: int) -> int:
        """What its first `index` records weigh: about, where that is not what they cover."""
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
        """How many records are no more than so many, and weigh about so much; at least one."""
        count = len(self.values)
        by_size = count if self.size_bytes <= size_bytes else count * size_bytes // self.size_bytes
        return max(1, min(count, records, by_size))

    def before(self, position: int) -> int:
        """How many records begin before `position`."""
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
        """What of `tail` stands before the `index`-th record."""
        behind = self.places[-1] - self.places[index]
        return self.tail[:-behind] if behind else self.tail


Frame = Chunk | Parsed | LongLine | SkippedRest | Part | Gap


class Frames(Protocol):
    """Finds the records of one connector's files. Stateless: one object serves any number of files and threads."""

    @property
    def on_too_long(self) -> OnTooLong:
        """What becomes of a record over the limit."""

    def frames(  # noqa: PLR0913 - how to read
        self,
        read: Reader,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = False,
        flush: bool = False,
        block_bytes: int | None = None,
        cut: str = "",
    ) -> Iterator[Frame]:
        """Frames from byte `start`, none of them reaching beyond byte `end`; each begins where the one before it ended.

        `skipping`: `start` lies inside an over-long record. `cut`: between two parts of it, see `Cut.parse`; given only to those that
        split records. `final`: what stands before `end` without a delimiter is a record. `flush`: an open group of whole lines before
        `end` is a record. `block_bytes`: read that little at a time; a record that is longer comes alone. Ends when no complete record
        is left. Raises what `read` raises.
        """


class RecordFile(Protocol):
    """A whole file as a record format reads it: unpacked bytes by position, and what the format keeps of it.

    Calling it is `Reader`. Raises FileError when the file cannot be read now, and DamageError where it cannot be unpacked.
    """

    @property
    def size(self) -> int:
        """Unpacked bytes in the file; -1 while that is not known, as of a packed one."""

    @property
    def name(self) -> str:
        """Its name, for words."""

    @property
    def memo(self) -> dict[str, Any]:
        """What a format wants to find again when the next batch of this file runs in this process: empty at first, and after a kill.

        It makes the next batch quick, and nothing depends on it: a kill costs no more than reading again.
        """

    def __call__(self, position: int, size: int, /) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file. Going back far in a packed file costs."""


class RecordFormat(Protocol):
    """Finds and reads the records of one connector's files: `Frames` for whole files. Stateless: what is a file's is in its `memo`."""

    @property
    def on_too_long(self) -> OnTooLong:
        """What becomes of a record over the limit."""

    @property
    def counts_records(self) -> bool:
        """Whether positions are record numbers from 0, where a format cannot seek to a record (Avro, Parquet). Else they are bytes.

        The records before a position in its block are then decoded again; no decoder's state is kept in an offset.
        """

    @property
    def finds_end(self) -> bool:
        """Whether it finds the end of a packed file by itself, where a read comes short. Else it is asked again once the end is known."""

    @property
    def makes_fields(self) -> bool:
        """Whether values are fields, which become JSON when no converter is named. Else they are bytes."""

    def frames(
        self,
        file: RecordFile,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = True,
        flush: bool = False,
        block_bytes: int | None = None,
    ) -> Iterator[Frame]:
        """Frames from position `start`, which is 0 or where a frame or one of its records ended; none reaches beyond `end`.

        `final`: the file ends at `end`; what is unfinished there is a record or damage. Else it is left for later. `block_bytes`:
        read about that little at a time. Raises what `file` raises, and DamageError, with the byte or the record in its words, where
        nothing behind can be read: every record before it has been yielded then.
        """

    def cuts(self, file: RecordFile, parts: int) -> tuple[int, ...]:
        """Positions, in order and between 0 and the end, that cut the file into up to `parts` ranges of records; () when it cannot be cut.

        Called by the driver, with an unpacked file. What is before the first record belongs to the first range.
        """
