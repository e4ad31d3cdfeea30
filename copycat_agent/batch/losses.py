"""What a task gives up on, as entries of the loss ledger.

A record's bytes include its delimiter. Of a line over `line.max_bytes` everything beyond the limit is lost, its delimiter
included, whatever becomes of its beginning; a line that is dropped for its length is lost as a whole. So for every settled
stretch: bytes read = bytes of records acknowledged, dead-lettered raw or dropped on purpose + bytes lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from copycat_agent.model import Loss

ENTRIES_MAX = 20
"""Entries of one split in one batch; from then on a loss joins the latest entry with its reason, and sums stay exact."""

_OTHERS = "; and others"


class Losses:
    """The losses of one split, in the order of the file. Bounded in number, exact in bytes and records."""

    def __init__(self) -> None:
        self._entries: list[Loss] = []

    def add(self, loss: Loss) -> None:
        """Take one in. A neighbour of the latest entry with the same reason becomes a part of it."""
        index = self._joins(loss)
        if index is None:
            self._entries.append(loss)
        else:
            self._entries[index] = _joined(self._entries[index], loss)

    def _joins(self, loss: Loss) -> int | None:
        entries = self._entries
        if entries and entries[-1].reason == loss.reason and entries[-1].end == loss.start:
            return len(entries) - 1
        if len(entries) < ENTRIES_MAX:
            return None
        return next((index for index in reversed(range(len(entries))) if entries[index].reason == loss.reason), None)

    def __iter__(self) -> Iterator[Loss]:
        return iter(self._entries)

    def clear(self) -> None:
        """Forget them: what they belong to will be read again."""
        self._entries.clear()


def _joined(one: Loss, other: Loss) -> Loss:
    known = one.detail == other.detail or one.detail.endswith(_OTHERS)
    return one._replace(
        end=max(one.end, other.end),
        size_bytes=one.size_bytes + other.size_bytes,
        records=one.records + other.records,
        detail=one.detail if known else one.detail + _OTHERS,
    )
