"""Remembers which objects were read once they are no longer partitions: 64 bits of each, in chunks that are saved once.

A chunk is a value of about 170 KB at most under a key of its own (`extending.Remembered`). It is never changed; small chunks are joined
into a larger one from time to time. With more than `CHUNKS_MOST` chunks the one with the oldest objects is dropped: from then on an object
that is no newer than those, and whose name had been listed at that time, counts as read.
"""

from __future__ import annotations

import base64
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from copycat_agent.extending import Finding, Gone, Position, Remembered

CHUNK_IDS = 16_384
"""Ids in a full chunk."""
CHUNKS_MOST = 64
"""Most chunks: a million objects."""
SMALL_MOST = 16
"""Chunks that are not full are joined once there are this many."""
_CHUNK, _FLOOR = "read-", "forgotten"


class _Chunk(NamedTuple):
    """A chunk. `newest_ms` is the latest modification time of its objects, `last` the greatest of their names."""

    ids: array[int]
    newest_ms: int
    last: str

    def value(self) -> Position:
        return {"ids": base64.b64encode(self.ids.tobytes()).decode(), "newest_ms": self.newest_ms, "last": self.last}


class ReadHistory:
    """A set of object ids, 64-bit numbers."""

    def __init__(self) -> None:
        self._chunks: dict[str, _Chunk] = {}
        self._sorted = array("Q")
        self._recent: set[int] = set()
        self._forgotten: list[tuple[int, str | None]] = []
        self._number = 0

    def recall(self, saved: Mapping[str, Position]) -> None:
        """Loads what is saved. Chunks that are loaded already are skipped."""
        keys = {key for key in saved if key.startswith(_CHUNK)}
        for key in keys - self._chunks.keys():
            ids = array("Q")
            ids.frombytes(base64.b64decode(saved[key]["ids"]))
            self._chunks[key] = _Chunk(ids, saved[key]["newest_ms"], saved[key]["last"])
            self._number = max(self._number, int(key.removeprefix(_CHUNK)))
            self._recent.update(ids)
        for key in self._chunks.keys() - keys:
            del self._chunks[key]
        if len(self._recent) > CHUNK_IDS:
            self._sorted = array("Q", sorted(one for chunk in self._chunks.values() for one in chunk.ids))
            self._recent.clear()
        if _FLOOR in saved:
            self._forgotten = [(newest_ms, passed) for newest_ms, passed in saved[_FLOOR]]

    def __contains__(self, one: int) -> bool:
        """Returns whether it is saved that this object was read."""
        index = bisect_left(self._sorted, one)
        return one in self._recent or (index < len(self._sorted) and self._sorted[index] == one)

    def __len__(self) -> int:
        return sum(len(chunk.ids) for chunk in self._chunks.values())

    def is_forgotten(self, name: str, mtime_ms: int) -> bool:
        """Returns whether an object that is not in the set counts as read, because its chunk may have been dropped."""
        return any(mtime_ms <= newest_ms and _reaches(passed, name) for newest_ms, passed in self._forgotten)

    def add(self, ids: Iterable[int], newest_ms: int, last: str) -> Iterator[Finding]:
        """Yields the finding that saves these ids; `newest_ms` and `last` are as of `_Chunk`. They are in the set after `recall`."""
        yield from self._remembered(_Chunk(array("Q", ids), newest_ms, last))

    def joined(self, passed: str | None) -> Iterator[Finding]:
        """Yields findings that join small chunks, or drop the oldest of too many. The findings of a look are saved together.

        `passed` is the name up to which everything was listed; None for everything.
        """
        small = [key for key, chunk in self._chunks.items() if len(chunk.ids) < CHUNK_IDS]
        if len(small) >= SMALL_MOST:
            ids = array("Q", (one for key in small for one in self._chunks[key].ids))
            newest_ms = max(self._chunks[key].newest_ms for key in small)
            last = max(self._chunks[key].last for key in small)
            for begin in range(0, len(ids), CHUNK_IDS):
                yield from self._remembered(_Chunk(ids[begin : begin + CHUNK_IDS], newest_ms, last))
            yield from map(Gone, small)
        elif len(self._chunks) > CHUNKS_MOST:
            oldest = min(self._chunks, key=lambda key: self._chunks[key].newest_ms)
            _, newest_ms, last = self._chunks[oldest]
            if not _reaches(passed, last):
                return  # the first listing since the start is not far enough yet
            others = [one for one in self._forgotten if one[0] > newest_ms or not _reaches(passed, one[1])]
            yield Remembered(_FLOOR, [*others, (newest_ms, passed)])
            yield Gone(oldest)

    def _remembered(self, chunk: _Chunk) -> Iterator[Finding]:
        self._number += 1
        yield Remembered(f"{_CHUNK}{self._number:06}", chunk.value())


def _reaches(passed: str | None, name: str | None) -> bool:
    """Returns whether a listing up to `passed` (None: of everything) included this name."""
    return passed is None or (name is not None and name <= passed)
