"""Search for a record that Kafka refuses, where a refusal undoes the whole transaction: each attempt has fewer records.

Attempts take half of the range in which it must be. One that succeeds is committed, and later batches search the rest of the range; an
attempt with a single record that is refused has found it. A range that succeeds piece by piece, with nothing refused, was too large as a
whole: the topic takes less at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from copycat_agent.batch.progress import SplitProgress
from copycat_agent.model import Batch, SourcePartition

_ANY_RECORDS = 2**20
"""An attempt with this many records is not limited."""
_NO_END = 2**63


class RefusedTransactionSearch:
    """Holds the range in which the refused record can be. One per lane, kept between its batches.

    It is among the next `_among` messages of the files in `_ends`, in their order, before these positions. `_most` is the most messages of
    an attempt, 0 for any. After a find it is twice the distance between the last two finds; each commit doubles it.
    """

    def __init__(self) -> None:
        self._ends: dict[SourcePartition, int] = {}
        self._among = 0
        self._is_single = False
        self._most = 0
        self._since = _ANY_RECORDS

    def part(self, batch: Batch) -> Batch:
        """Returns the part of the batch to try; all of it if nothing was refused."""
        splits = {one.partition: one for one in batch.splits if one.offset.position < self._ends.get(one.partition, -1)}
        if not splits:
            self._ends = {}  # it is in files that are not here: when they are planned again, they are refused again
            return _at_most(batch, self._most)
        ordered = tuple(splits[partition] for partition in self._ends if partition in splits)
        there = {one.partition for one in batch.splits}
        if any(one.after in there and one.after not in splits for one in ordered):
            ordered = batch.splits  # an older file of the log has got more data, and goes first
        return _at_most(replace(batch, splits=ordered), max(1, self._among // 2))

    def refused(self, part: Batch, progresses: Sequence[SplitProgress], sent: int) -> bool:
        """Notes a refusal in `part`, of which `sent` messages were sent. Returns whether only the first record can be the cause."""
        opened = [one for one in progresses if one.stream is not None]
        ends = {one.split.partition: one.sent_position for one in opened if one.sent_position > one.split.offset.position}
        self._ends = {**ends, **{one.split.partition: _NO_END for one in opened[-1:]}}
        self._among = max(1, min(part.max_records or sent, sent))
        self._is_single = self._among == 1
        return self._is_single

    def committed(self, progresses: Sequence[SplitProgress], messages: int, *, found: bool) -> bool:
        """Notes a commit of `messages` messages. `found`: a refused one, or its dead letter, is among them.

        Returns whether the whole suspected range is committed with nothing refused: it was too large as a whole. A single message that was
        refused, and is taken now, was not: the topic's limits have changed.
        """
        was_looked_for, self._ends = bool(self._ends), self._left(progresses)
        self._among -= messages
        if found:
            self._most, self._since, self._ends = _held_back(max(1, 2 * self._since)), 0, {}
            return False
        self._since = min(_ANY_RECORDS, self._since + messages)
        self._most = _held_back(2 * self._most)
        if self._among > 0:
            return False
        is_through = was_looked_for and not self._is_single and all(end == _NO_END for end in self._ends.values())
        self._ends = {}
        return is_through

    def _left(self, progresses: Sequence[SplitProgress]) -> dict[SourcePartition, int]:
        now = {one.split.partition: one.settled.position for one in progresses}
        return {partition: end for partition, end in self._ends.items() if now.get(partition, -1) < end}


def _held_back(records: int) -> int:
    return records if records < _ANY_RECORDS else 0


def _at_most(batch: Batch, records: int) -> Batch:
    if not records or 0 < batch.max_records <= records:
        return batch
    return replace(batch, max_records=records)
