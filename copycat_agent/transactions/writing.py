"""The task's half of a lane: one transaction per batch.

A transaction that takes the head from `seq` to `seq + 1` uses the id that `transactional_id` gives for `seq`, and a producer of its own.
So whoever else would take that step has to fence this one first, and an EndTxn that the network delivers late finds a newer epoch.
The producer for the step after it is prepared before the commit: nobody can then have taken that step before us without fencing it, and
the head need not be read again. A producer that was not prepared so has to read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from copycat_agent import failpoints
from copycat_agent.errors import CopycatError, FencedError
from copycat_agent.model import Head, LaneOutcome, LanePlan, Position
from copycat_agent.transactions.entries import entries_of, head_entry, read, transactional_id
from copycat_agent.transactions.protocol import Handle, Lines, Step


class _Prepared(NamedTuple):
    """A producer that was made ready before the head came to be `head`. `is_begun`: its transaction is open, and empty."""

    head: Head
    handle: Handle
    is_begun: bool = False


class LaneWriter:
    """What one process knows of a lane between two batches. For one batch at a time.

    A batch: `begin`, records and dead letters sent with the handle that it returns, then `finish`, or `undo` where it cannot be
    finished, or `keep` where nothing was sent.
    """

    def __init__(self) -> None:
        self._prepared: _Prepared | None = None
        self._next: Handle | None = None

    def begin(self, plan: LanePlan) -> Lines[Handle]:
        """Returns a producer with an open transaction. FencedError when the lane is not where `plan` says; what the steps raise.

        After any error nothing is open, and nothing is sent.
        """
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.head == plan.head:
            handle = prepared.handle
            if prepared.is_begun:
                return handle
        else:
            following, self._next = self._next, None
            yield from self._drop(prepared and prepared.handle, following)
            handle = yield from self._fence(plan)
        try:
            yield Step("begin", (handle,))
        except Exception:
            yield Step("close", (handle,))
            raise
        self._next = yield Step("prepare", (transactional_id(plan.lane, plan.head.seq + 1),))
        return handle

    def _fence(self, plan: LanePlan) -> Lines[Handle]:
        """A new producer, and with it the certainty that the head is as planned. Fence before read."""
        handle = yield Step("prepare", (transactional_id(plan.lane, plan.head.seq),))
        try:
            yield Step("ready", (handle,))
            end = yield Step("end", (plan.place,))
            entries = yield Step("replay", (plan.place, max(0, plan.head.offset), end))
            head = read(entries, plan.lane.agent, plan.lane.connector).heads.get(plan.lane.number, Head())
            _compare(plan, head)
        except Exception:
            yield Step("close", (handle,))
            raise
        return handle

    def finish(self, plan: LanePlan, handle: Handle, positions: Sequence[Position]) -> Lines[LaneOutcome]:
        """Commit what was sent, together with `positions`. Never raises a CopycatError: the outcome says what is known."""
        now = Head(plan.head.seq + 1, plan.head.nonce)
        assert all(one.seq == now.seq and one.lane == plan.lane.number for one in positions), "a transaction takes one step of one lane"
        try:
            yield Step("send", (handle, plan.place, [*entries_of(plan.lane.agent, positions), head_entry(plan.lane, now)]))
            offset = yield Step("flush", (handle,))
        except CopycatError as error:
            return (yield from self.undo(plan, handle, str(error)))
        now = now._replace(offset=offset)
        following = yield from self._make_ready()
        failpoints.hit("positions-sent")
        try:
            yield Step("commit", (handle,))
        except CopycatError as error:
            yield from self._drop(handle, following)
            return LaneOutcome("unknown", plan.head, str(error))
        failpoints.hit("committed")
        yield Step("close", (handle,))
        if following is not None:
            self._prepared = _Prepared(now, following)
        return LaneOutcome("committed", now)

    def undo(self, plan: LanePlan, handle: Handle, why: str) -> Lines[LaneOutcome]:
        """Give the transaction up. It was never asked to commit, so nothing of it can be committed any more."""
        following, self._next = self._next, None
        yield Step("abort", (handle,))
        yield from self._drop(handle, following)
        return LaneOutcome("undone", plan.head, why)

    def keep(self, plan: LanePlan, handle: Handle) -> LaneOutcome:
        """Nothing was sent and nothing is to be said: the next batch uses the same transaction."""
        self._prepared = _Prepared(plan.head, handle, is_begun=True)
        return LaneOutcome("idle", plan.head)

    def rest(self) -> Lines[None]:
        """No batch follows for a while: free the producers that are kept for it."""
        prepared, self._prepared = self._prepared, None
        following, self._next = self._next, None
        yield from self._drop(prepared and prepared.handle, following)

    def _make_ready(self) -> Lines[Handle | None]:
        """The next transaction's producer, ready before this one commits; None where that did not work: then the head is read."""
        following, self._next = self._next, None
        if following is not None:
            try:
                yield Step("ready", (following,))
            except CopycatError:
                yield Step("close", (following,))
                return None
        return following

    def _drop(self, *handles: Handle | None) -> Lines[None]:
        for handle in handles:
            if handle is not None:
                yield Step("close", (handle,))


def _compare(plan: LanePlan, head: Head) -> None:
    """Raises FencedError when the lane is not where the batch was planned."""
    if head[:2] != plan.head[:2]:
        msg = f"lane {plan.lane.number} is at step {head.seq}, and the batch was planned at {plan.head.seq}"
        raise FencedError(msg)
