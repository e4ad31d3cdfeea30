"""What framing yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Protocol

TAIL_BYTES = 256
"""Bytes before a position that its fingerprint covers."""

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
        return self._decoded(stretch.removesuffix(self.cr) if self.cr else stretch)

    def values(self, stretches: list[bytes], *, skip_empty: bool) -> list[bytes]:
        """The values of some stretches, without those of empty lines where they are skipped."""
        values, cr = stretches, self.cr
        if cr:
            size = -len(cr)
            values = [line[:size] if line.endswith(cr) else line for line in stretches]
        if skip_empty:
            values = [line for line in values if line]
        return list(map(self._decoded, values)) if self.codec else values

    def _decoded(self, text: bytes) -> bytes:
        return text.decode(self.codec, "replace").encode("utf-8", "replace") if self.codec else text


class Row(NamedTuple):
    """One record within a chunk: bytes `start` up to, not including, `end`, delimiter included. `ordinal` lines go before it."""

    value: bytes
    start: int
    end: int
    ordinal: int


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

    def rows(self) -> Iterator[Row]:
        """The records with their places in the file; skipped empty lines are left out."""
        position = self.start
        for index, raw in enumerate(self.raw):
            end = min(position + len(raw) + len(self.delimiter), self.end)
            if not self._is_skipped(raw):
                yield Row(self.text.value(raw), position, end, index)
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
        middle = self.start + sum(map(len, first)) + index * len(self.delimiter)
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
    """Bytes of no record. hole: NUL bytes that nobody wrote; a line before it ends there. bom: the mark at byte 0 of a text."""

    start: int
    end: int
    tail: bytes
    reason: Literal["hole", "bom"]


Frame = Chunk | LongLine | SkippedRest | Gap


class Frames(Protocol):
    """Finds the records of one connector's files. Stateless: one object serves any number of files and threads."""

    @property
    def on_too_long(self) -> Literal["dlq", "truncate", "drop"]:
        """What becomes of a record over the limit."""

    def frames(
        self,
        read: Reader,
        start: int,
        end: int,
        *,
        skipping: bool = False,
        final: bool = False,
        flush: bool = False,
        block_bytes: int | None = None,
    ) -> Iterator[Frame]:
        """Frames from byte `start`, none of them reaching beyond byte `end`; each begins where the one before it ended.

        `skipping`: `start` lies inside an over-long record. `final`: what stands before `end` without a delimiter is a record.
        `flush`: an open group of whole lines before `end` is a record. `block_bytes`: read that little at a time; a record that
        is longer comes alone. Ends when no complete record is left. Raises what `read` raises.
        """
