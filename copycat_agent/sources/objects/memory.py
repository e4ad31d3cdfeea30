"""Remembers which objects were read once they are no longer partitions: 64 bits of each, in chunks that are saved once.

A chunk is a value of about 170 KB at most under a key of its own (`extending.Remembered`). It is never changed; small chunks are joined
into a larger one from time to time. With more than `CHUNKS_MOST` chunks those with the oldest objects are dropped: from then on an object
that is no newer than those counts as read. So a chunk stays until a full listing has begun after it was made, and is complete: any other
object that is no newer has been found by then. A first listing of many millions of objects therefore keeps 8 bytes for each.
"""

from __future__ import annotations

import base64
import itertools
import math
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from copycat_agent.extending import Finding, Gone, Position, Remembered

CHUNK_IDS = 16_384
"""Ids in a full chunk."""
CHUNKS_MOST = 64
"""Most chunks, besides those that no full listing has followed yet: a million objects."""
SMALL_MOST = 16
"""Chunks that are not full are joined once there are this many."""
RUNS_MOST = 8
"""Most sorted runs of ids beyond one for each `CHUNKS_MOST` chunks."""
_CHUNK, _FLOOR = "read-", "forgotten"


class _SavedIds(NamedTuple):
    """A chunk. `newest_ms` is the latest modification time of its objects, `last` the greatest of their names (earlier versions use it).

    `loaded_at` is when this process first saw it as saved.
    """

    ids: array[int]
    newest_ms: int
    last: str
    loaded_at: float = math.inf

    def value(self) -> Position:
        return {"ids": base64.b64encode(self.ids.tobytes()).decode(), "newest_ms": self.newest_ms, "last": self.last}


class ReadHistory:
    """A set of object ids, 64-bit numbers."""

    def __init__(self) -> None:
        self._chunks: dict[str, _SavedIds] = {}
        self._runs: list[array[int]] = []
        self._recent: set[int] = set()
        self._forgotten: list[tuple[int, str | None]] = []
        self._number = 0

    def recall(self, saved: Mapping[str, Position], now: float) -> None:
        """Loads what is saved. Chunks that are loaded already are skipped. `now` is the time by the clock of the listings."""
        keys = {key for key in saved if key.startswith(_CHUNK)}
        for key in keys - self._chunks.keys():
            ids = array("Q")
            ids.frombytes(base64.b64decode(saved[key]["ids"]))
            ids = array("Q", sorted(ids))  # sorting many of them together takes a third of the time then
            self._chunks[key] = _SavedIds(ids, saved[key]["newest_ms"], saved[key]["last"], now)
            self._number = max(self._number, int(key.removeprefix(_CHUNK)))
            self._recent.update(ids)
            if len(self._recent) > CHUNK_IDS:
                self._runs.append(array("Q", sorted(self._recent)))
                self._recent.clear()
        for key in self._chunks.keys() - keys:
            del self._chunks[key]
        if len(self._runs) > RUNS_MOST + len(self._chunks) // CHUNKS_MOST:
            chunks = [chunk.ids for chunk in self._chunks.values()]
            groups = (chunks[begin : begin + CHUNKS_MOST] for begin in range(0, len(chunks), CHUNKS_MOST))
            self._runs = [array("Q", sorted(itertools.chain.from_iterable(group))) for group in groups]
        if _FLOOR in saved:
            self._forgotten = [(newest_ms, passed) for newest_ms, passed in saved[_FLOOR]]

    def __contains__(self, one: int) -> bool:
        """Returns whether it is saved that this object was read."""
        return one in self._recent or any(_holds(run, one) for run in self._runs)

    def __len__(self) -> int:
        return sum(len(chunk.ids) for chunk in self._chunks.values())

    def is_forgotten(self, name: str, mtime_ms: int) -> bool:
        """Returns whether an object that is not in the set counts as read, because its chunk may have been dropped."""
        return any(mtime_ms <= newest_ms and (passed is None or name <= passed) for newest_ms, passed in self._forgotten)

    def add(self, ids: Iterable[int], newest_ms: int, last: str) -> Iterator[Finding]:
        """Yields the finding that saves these ids; `newest_ms` and `last` are as of `_SavedIds`. They are in the set after `recall`."""
        yield from self._remembered(_SavedIds(array("Q", ids), newest_ms, last))

    def joined(self, listed_since: float) -> Iterator[Finding]:
        """Yields findings that join small chunks, or drop the oldest of too many. The findings of a look are saved together.

        All objects that existed at `listed_since` have been found. The time is by the clock of `recall`.
        """
        small = [key for key, chunk in self._chunks.items() if len(chunk.ids) < CHUNK_IDS]
        if len(small) >= SMALL_MOST:
            ids = array("Q", (one for key in small for one in self._chunks[key].ids))
            newest_ms = max(self._chunks[key].newest_ms for key in small)
            last = max(self._chunks[key].last for key in small)
            for begin in range(0, len(ids), CHUNK_IDS):
                yield from self._remembered(_SavedIds(ids[begin : begin + CHUNK_IDS], newest_ms, last))
            yield from map(Gone, small)
            return
        followed = sorted((chunk.newest_ms, key) for key, chunk in self._chunks.items() if chunk.loaded_at <= listed_since)
        if dropped := followed[: max(0, len(self._chunks) - CHUNKS_MOST)]:
            newest_ms, _ = dropped[-1]
            yield Remembered(_FLOOR, [*(one for one in self._forgotten if one[0] > newest_ms), (newest_ms, None)])
            yield from (Gone(key) for _, key in dropped)

    def _remembered(self, chunk: _SavedIds) -> Iterator[Finding]:
        self._number += 1
        yield Remembered(f"{_CHUNK}{self._number:06}", chunk.value())


def _holds(run: array[int], one: int) -> bool:
    index = bisect_left(run, one)
    return index < len(run) and run[index] == one
