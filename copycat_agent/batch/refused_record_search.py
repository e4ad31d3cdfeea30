"""Searches for the record that Kafka refused in a run: sends the records again in small groups, then one by one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from itertools import islice

from copycat_agent.batch.policy import ErrorPolicy, RecordOutcome, StopAt
from copycat_agent.batch.progress import SplitProgress
from copycat_agent.batch.sending import LOOK_SECONDS, Sender
from copycat_agent.encoding.encoder import SplitEncoder
from copycat_agent.errors import DataError, FileError
from copycat_agent.formats import Chunk, Frame, LongLine, Parsed, RecordPart
from copycat_agent.producer import TaskProducer

GROUP_RECORDS = 100
"""Records between two flushes."""
SEARCH_SECONDS = 10.0
"""Time limit of the search; then the batch returns what it has settled, and the next one continues."""


class RefusedRecordSearch:
    """One search among records that were sent and are not settled."""

    def __init__(self, producer: TaskProducer, policy: ErrorPolicy, sender: Sender, stopping: Callable[[], bool], *, whole: bool) -> None:
        """`whole`: the records have to be settled together, so the search has no time limit."""
        self._producer = producer
        self._policy = policy
        self._sender = sender
        self._stopping = stopping
        self._until = math.inf if whole else time.monotonic() + SEARCH_SECONDS
        self._refused = sender.refused

    @property
    def is_vain(self) -> bool:
        """Returns whether everything was sent again without a refusal: no single record was the cause."""
        return self._sender.refused == self._refused and time.monotonic() < self._until

    def send(self, progress: SplitProgress, encoder: SplitEncoder, frames: Iterable[Frame], target: int) -> bool:
        """Sends and settles frames of a split up to position `target`. Returns False when the time ends before."""
        for frame in frames:
            is_sent = self._send(progress, encoder, _up_to(frame, target))
            if is_sent and progress.sent_position >= target:
                return True
            if not is_sent or self._is_late():
                return False
        if progress.sent_position < target:
            raise FileError(f"{progress.split.path!r} changed while it was read", "the agent reads it again")
        return True

    def _is_late(self) -> bool:
        return self._stopping() or time.monotonic() > self._until

    def _send(self, progress: SplitProgress, encoder: SplitEncoder, frame: Frame) -> bool:
        """Sends a frame and waits for its acknowledgements. Returns False when the time ends before; then a part of it is settled."""
        if isinstance(frame, Chunk | Parsed):
            return self._send_chunk(progress, encoder, frame)
        if isinstance(frame, LongLine | RecordPart):
            _, stop = self._deliver(progress, [self._policy.of_frame(progress, encoder, frame)])
            if stop:
                raise stop
        self._policy.pass_frame(progress, frame)
        return True

    def _send_chunk(self, progress: SplitProgress, encoder: SplitEncoder, chunk: Chunk | Parsed) -> bool:
        drafts, delivered = chunk.rows(progress.sent_records + 1), 0
        while delivered < len(chunk.values):
            group = islice(drafts, GROUP_RECORDS)
            outcomes, stop = self._policy.outcomes(progress, encoder, group, time.monotonic() + LOOK_SECONDS)
            settled, earlier = self._deliver(progress, outcomes)
            delivered += settled
            if stop := earlier or stop:
                progress.pass_up_to(chunk, stop.draft, delivered)
                raise stop
            if delivered < len(chunk.values) and self._is_late():
                progress.pass_with(chunk, outcomes[-1].draft, delivered)
                return False
        progress.pass_chunk(chunk)
        return True

    def _deliver(self, progress: SplitProgress, outcomes: list[RecordOutcome]) -> tuple[int, StopAt | None]:
        """Sends and settles a group; a group with a refused record is sent again, record by record.

        Returns the number of settled ones, from the first on, and the StopAt of the next one, when it stops the connector.
        """
        sent, stop = self._sender.produce(progress, outcomes)
        try:
            self._producer.flush()
        except DataError as refused:
            return self._deliver_singly(progress, sent, refused, stop)
        self._policy.count(progress, sent)
        return len(sent), stop

    def _deliver_singly(
        self, progress: SplitProgress, outcomes: list[RecordOutcome], refused: DataError, stop: StopAt | None
    ) -> tuple[int, StopAt | None]:
        for index, outcome in enumerate(outcomes):
            try:
                replacement = outcome if len(outcomes) > 1 else self._sender.instead(progress, outcome, refused)
            except StopAt as found:
                return index, found
            _, found_later = self._deliver(progress, [replacement])
            if found_later:
                return index, found_later
        return len(outcomes), stop


def _up_to(frame: Frame, target: int) -> Frame:
    """Returns the part of `frame` before byte `target`, if it can be cut: reading again cuts blocks elsewhere."""
    if not isinstance(frame, Chunk | Parsed) or frame.end <= target:
        return frame
    index = frame.before(target)
    return frame.cut(index)[0] if 0 < index < frame.total else frame
