"""The task's side of a lane: one transaction per batch.

A transaction that moves the head from `seq` to `seq + 1` uses the id that `transactional_id` gives for `seq`, and a producer of its own. So
any other process has to fence this one before it can take that step, and an EndTxn that the network delivers late finds a newer epoch. The
producer for the next step is prepared before the commit: nobody can then have taken that step before us without fencing it, and the head
need not be read again, which costs about 40 ms. A producer that was not prepared that way has to read the head, up to the read_uncommitted
end, and begins only if it is exactly the planned one.

A transaction is given up by preparing its id anew, not by asking for an abort: the markers of such an abort have the epoch of the
transaction, and a broker that does not verify (before 3.6, or switched off) would count a produce request that comes late to the next
transaction that commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from copycat_agent import failpoints
from copycat_agent.errors import CopycatError, FencedError
from copycat_agent.model import Head, LaneOutcome, LanePlan, Position
from copycat_agent.transactions.entries import head_entry, position_entries, read, transactional_id
from copycat_agent.transactions.protocol import Handle, Procedure, Step

_LOOK_STEPS = 64
"""The end of the partition is looked up once in this many steps, before a head is sent there; readers of the lane need not look before it.

The exact offset of each head is not asked for: the library would report the delivery of every record, which costs a fifth of the rate."""


class PreparedProducer(NamedTuple):
    """A producer for the step from `seq` on. `head`: the head that it was made ready for; None: the head has to be read first.

    `is_begun`: its transaction is open, and empty.
    """

    seq: int
    handle: Handle
    head: Head | None = None
    is_begun: bool = False


class LaneWriter:
    """Keeps one process's state of a lane between two batches. For one batch at a time.

    For a batch, call `begin`, send records and dead letters with the handle that it returns, then call `finish`; or `undo` if it cannot be
    finished, or `keep` if nothing was sent. `rest` frees every producer that it holds, in any state.
    """

    def __init__(self) -> None:
        self._prepared: PreparedProducer | None = None
        self._open: Handle | None = None
        self._next: Handle | None = None

    def begin(self, plan: LanePlan) -> Procedure[Handle]:
        """Returns a producer with an open transaction. Raises FencedError when the head is not as planned, and what the steps raise.

        After any error nothing is open, and nothing is sent.
        """
        try:
            yield from self._get_ready(plan)
        except Exception:
            yield from self.rest()
            raise
        if self._next is None:
            self._next = yield from self._prepare(plan, plan.head.seq + 1)
        return self._open

    def _prepare(self, plan: LanePlan, seq: int) -> Procedure[Handle | None]:
        """Returns a producer for a step that is not taken yet; None if that fails now, since nothing depends on it."""
        try:
            return (yield Step("prepare", (transactional_id(plan.lane, seq),)))
        except CopycatError:
            return None

    def _get_ready(self, plan: LanePlan) -> Procedure[None]:
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.head == plan.head:
            self._open = prepared.handle
            if not prepared.is_begun:
                yield Step("begin", (self._open,))
            return
        again = prepared.handle if prepared and prepared.head is None and prepared.seq == plan.head.seq else None
        unused = None if again else prepared and prepared.handle
        leftover, self._open, self._next = (self._open, self._next), again, None
        yield from self._drop(*leftover, unused)
        if self._open is None:
            self._open = yield Step("prepare", (transactional_id(plan.lane, plan.head.seq),))
        yield from self._make_sure(plan, self._open)
        yield Step("begin", (self._open,))

    def _make_sure(self, plan: LanePlan, handle: Handle) -> Procedure[None]:
        """Checks that the head is as planned, and that only `handle` can move it next. Fences before it reads."""
        yield Step("ready", (handle,))
        end = yield Step("end", (plan.place,))
        entries = yield Step("replay", (plan.place, max(0, plan.head.offset), end))
        head = read(entries, plan.lane.agent, plan.lane.key).heads.get(plan.lane.number, Head())
        _compare(plan, head)

    def finish(self, plan: LanePlan, handle: Handle, positions: Sequence[Position]) -> Procedure[LaneOutcome]:
        """Commits what was sent, together with `positions`. Never raises a CopycatError: the outcome says what is known."""
        now = Head(plan.head.seq + 1, plan.head.nonce, plan.head.offset)
        assert all(one.seq == now.seq and one.lane == plan.lane.number for one in positions), "a transaction takes one step of one lane"
        told = position_entries(plan.lane.agent, plan.lane.key, [one._replace(nonce=now.nonce) for one in positions])
        try:
            now = yield from self._looked_up(plan, now)
            yield Step("send", (handle, plan.place, [*told, head_entry(plan.lane, now)]))
            yield Step("flush", (handle,))
            yield from self._make_next_ready()
            failpoints.hit("positions-sent")
        except CopycatError as error:
            return (yield from self.undo(plan, handle, error))
        try:
            yield Step("commit", (handle,))
            failpoints.hit("committed")
        except CopycatError as error:
            yield from self.rest()
            return LaneOutcome("unknown", plan.head, str(error))
        following, self._open, self._next = self._next, None, None
        yield Step("close", (handle,))
        if following is not None:
            self._prepared = PreparedProducer(now.seq, following, now)
        return LaneOutcome("committed", now)

    def _looked_up(self, plan: LanePlan, now: Head) -> Procedure[Head]:
        """Returns the head to send next; every `_LOOK_STEPS` steps with a newer lower bound of its offset."""
        if now.seq % _LOOK_STEPS == 0:
            with suppress(CopycatError):
                return now._replace(offset=(yield Step("end", (plan.place,))))
        return now

    def undo(self, plan: LanePlan, handle: Handle, why: Exception | str) -> Procedure[LaneOutcome]:
        """Gives the transaction up. It was never asked to commit, so nothing of it can be committed any more.

        After FencedError the outcome is unknown: another process has taken the lane, perhaps for this very batch.
        """
        self._open = handle
        yield from self.rest()
        if isinstance(why, FencedError):
            return LaneOutcome("unknown", plan.head, str(why))
        again = yield from self._prepare(plan, plan.head.seq)
        if again is not None:
            self._prepared = PreparedProducer(plan.head.seq, again)
        return LaneOutcome("undone", plan.head, str(why))

    def keep(self, plan: LanePlan, handle: Handle) -> LaneOutcome:
        """Keeps the open transaction for the next batch: nothing was sent and there is nothing to commit."""
        self._open = None
        self._prepared = PreparedProducer(plan.head.seq, handle, plan.head, is_begun=True)
        return LaneOutcome("idle", plan.head)

    def rest(self) -> Procedure[None]:
        """Frees every producer: no batch follows for a while, or at all."""
        mine = (self._open, self._next, self._prepared and self._prepared.handle)
        self._open = self._next = self._prepared = None
        yield from self._drop(*mine)

    def _make_next_ready(self) -> Procedure[None]:
        """Makes the next transaction's producer ready before this one commits. If that fails, the next one reads the head."""
        if self._next is not None:
            try:
                yield Step("ready", (self._next,))
            except CopycatError:
                following, self._next = self._next, None
                yield Step("close", (following,))

    def _drop(self, *handles: Handle | None) -> Procedure[None]:
        for handle in handles:
            if handle is not None:
                yield Step("close", (handle,))


def _compare(plan: LanePlan, head: Head) -> None:
    """Raises FencedError when the lane's head is not the one that the batch was planned at."""
    if head[:2] != plan.head[:2]:
        raise FencedError(f"lane {plan.lane.number} is at step {head.seq}, and the batch was planned at {plan.head.seq}")
