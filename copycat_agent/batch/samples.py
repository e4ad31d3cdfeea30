"""Records as they were sent, for `copycat tap`."""

from __future__ import annotations

from collections.abc import Sequence

from copycat_agent.batch.items import Item
from copycat_agent.batch.progress import Progress
from copycat_agent.formats import Chunk, Parsed
from copycat_agent.masks import NOTHING_SECRET, Mask
from copycat_agent.model import Sample
from copycat_agent.producer import Outgoing

_SHOWN_BYTES = 4096


class Samples:
    """Takes the first records of a batch, up to the number it asked for. They count once they are settled, as records do."""

    def __init__(self, wanted: int, progresses: Sequence[Progress], mask: Mask = NOTHING_SECRET) -> None:
        self._mask = mask
        self._wanted = wanted
        self._progresses = progresses

    @property
    def are_wanted(self) -> bool:
        """Whether more of them are."""
        return bool(self._wanted) and self._room() > 0

    def of_values(self, progress: Progress, chunk: Chunk | Parsed, topic: str, values: Sequence[bytes], tail: Outgoing) -> None:
        """From records that differ in their value only; `values` are those of the chunk's first records."""
        if self._wanted:
            for row, value in zip(chunk.rows(), values[: self._room()], strict=False):
                progress.sample(self._sample(progress, row.start, row.end, (topic, value, *tail)))

    def of_items(self, progress: Progress, items: Sequence[Item]) -> None:
        """From items on their way, dead letters included."""
        if self._wanted:
            for item in [item for item in items if item.message is not None][: self._room()]:
                progress.sample(self._sample(progress, item.row.start, item.row.end, item.message or ()))

    def _room(self) -> int:
        return max(0, self._wanted - sum(progress.sampled for progress in self._progresses))

    def _sample(self, progress: Progress, start: int, end: int, message: Outgoing) -> Sample:
        """`message` may end early, as `Outgoing` says: the rest has its defaults. Secrets are hidden before anything is cut."""
        full: Outgoing = self._mask.value(message + (None,) * (8 - len(message)))
        headers = tuple((name, content[:_SHOWN_BYTES]) for name, content in full[7] or ())
        return Sample(full[0], _cut(full[2]), _cut(full[1]), headers, full[6] or None, progress.split.path, start, end)


def _cut(content: bytes | None) -> bytes | None:
    return None if content is None else content[:_SHOWN_BYTES]
