"""What one batch may read and send: bytes, records and time; and when to look at the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from copycat_agent.formats import Chunk, Frame, Parsed
from copycat_agent.model import Batch

_BLOCK_BYTES = 2**20
"""Batches below this size are small: they read less at a time, and what is read may be cut."""
_LEAST_BLOCK_BYTES = 2**16
_LIKELY_BYTES = 1024
"""Of a record, so that a batch of few records does not read a whole block for them."""
_ANY = 2**62
LOOK_SECONDS = 0.1
"""How often work on records asks whether it has to end. One record may take long: a pattern tries for as much as that."""


class Watch:
    """Says whether work on records has to end before it is done, at little cost: who works on them asks once it is later than `until`."""

    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over
        self.until = time.monotonic() + LOOK_SECONDS

    def ends(self) -> bool:
        """Whether to work on no more records now."""
        now = time.monotonic()
        if now <= self.until:
            return False
        self.until = now + LOOK_SECONDS
        return self._is_over()


class Budget:
    """What is left of a batch's budget. A record may overdraw it, so that every batch gets ahead; nothing else does by much."""

    def __init__(self, batch: Batch) -> None:
        self._deadline = time.monotonic() + batch.max_seconds
        self._bytes = batch.max_bytes
        self._records = batch.max_records or _ANY
        self._is_small = batch.max_records > 0 or batch.max_bytes < _BLOCK_BYTES

    @property
    def is_spent(self) -> bool:
        """Whether reading should end."""
        return self._bytes <= 0 or self._records <= 0 or time.monotonic() > self._deadline

    @property
    def block_bytes(self) -> int | None:
        """How much to read at a time; None for the format's own choice, which is the fastest."""
        if not self._is_small:
            return None
        return max(1, min(_BLOCK_BYTES, self._bytes, max(_LEAST_BLOCK_BYTES, self._records * _LIKELY_BYTES)))

    def pieces(self, frame: Frame) -> Iterator[Frame]:
        """`frame`, cut to what is left; its last piece may be missing. Ask `is_spent` before taking the next one."""
        while self._is_small and isinstance(frame, Chunk | Parsed):
            index = frame.fitting(self._records, self._bytes)
            if index == frame.total:
                break
            piece, frame = frame.cut(index)
            yield piece
        yield frame

    def take(self, size_bytes: int, records: int) -> None:
        """So many bytes were read and so many records sent."""
        self._bytes -= size_bytes
        self._records -= records

    def extend(self, seconds: float) -> None:
        """Time that was lost without the batch's fault."""
        self._deadline += seconds

    def end(self) -> None:
        """Read no more."""
        self._bytes = 0
