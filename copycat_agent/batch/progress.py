"""How far one split is: what is sent, and what of it is settled."""

from __future__ import annotations

from dataclasses import replace

from copycat_agent.errors import CopycatError
from copycat_agent.formats import TAIL_BYTES
from copycat_agent.model import Counts, Rejection, Split, SplitResult
from copycat_agent.sources.stream import Stream

REJECTIONS_NAMED = 10
"""Rejected records per split that are named one by one; all are counted."""


class Progress:
    """One split under way. *Sent* runs ahead of *settled*; `settle` moves settled up to sent, nothing else does."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.stream: Stream | None = None
        self.at_end = False
        self.changed = False
        self.error: CopycatError | None = None
        self.settled = split.offset
        self.sent_position = split.offset.position
        self.sent_records = split.offset.records
        self._skipping = split.offset.skipping
        self._tail = self._settled_tail = b""
        self._counts = Counts()
        self._unsettled = Counts()
        self._rejections: list[Rejection] = []
        self._unsettled_rejections: list[Rejection] = []

    @property
    def unsettled_bytes(self) -> int:
        """Bytes sent but not settled."""
        return self.sent_position - self.settled.position

    def begin(self, stream: Stream) -> None:
        """Its file is open and is what was read before. Raises FileError.

        The bytes before the offset are taken along, so that a fingerprint covers `TAIL_BYTES` however little is read at a time.
        """
        self.stream = stream
        position = self.settled.position
        self._tail = self._settled_tail = stream.read(max(0, position - TAIL_BYTES), min(TAIL_BYTES, position))

    def advance(self, end: int, records: int, tail: bytes, *, skipping: bool = False) -> None:
        """Everything before byte `end` is on its way, `records` more of them; `tail` are the last bytes before `end`."""
        self._unsettled += Counts(read=records, read_bytes=end - self.sent_position)
        self.sent_position = end
        self.sent_records += records
        self._skipping = skipping
        self._tail = (self._tail + tail)[-TAIL_BYTES:]

    def count(self, counts: Counts) -> None:
        """What becomes of records on their way, once they are settled."""
        self._unsettled += counts

    def reject(self, rejection: Rejection) -> None:
        """Name a bad record, once it is settled."""
        if len(self._rejections) + len(self._unsettled_rejections) < REJECTIONS_NAMED:
            self._unsettled_rejections.append(rejection)

    def settle(self) -> None:
        """Kafka has everything that was sent: the offset moves there, with a fingerprint of what was read."""
        if self.sent_position == self.settled.position and self._skipping == self.settled.skipping:
            return
        assert self.sent_position >= self.settled.position, "an offset never moves back"
        assert self.stream is not None
        self.settled = replace(
            self.settled,
            position=self.sent_position,
            records=self.sent_records,
            skipping=self._skipping,
            path=self.split.path,
            fingerprint=self.stream.fingerprint(self.sent_position, self._tail),
        )
        self._settled_tail = self._tail
        self._counts += self._unsettled
        self._unsettled = Counts()
        self._rejections += self._unsettled_rejections
        self._unsettled_rejections.clear()

    def rewind(self) -> None:
        """Forget what was sent since the last `settle`: it will be read again, so the end is not reached."""
        self.at_end = False
        self.sent_position, self.sent_records = self.settled.position, self.settled.records
        self._skipping = self.settled.skipping
        self._tail = self._settled_tail
        self._unsettled = Counts()
        self._unsettled_rejections.clear()

    def result(self, error: CopycatError | None) -> SplitResult:
        """The result as it stands; `error` is the batch's, the split's own comes first."""
        return SplitResult(
            self.split,
            self.settled,
            self._counts,
            at_end=self.at_end,
            changed=self.changed,
            error=self.error or error,
            rejections=tuple(self._rejections),
        )

    def close(self) -> None:
        """Close the file."""
        if self.stream is not None:
            self.stream.close()
