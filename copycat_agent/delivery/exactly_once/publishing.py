"""Offsets that the driver changed by itself are published in a transaction of their own, once the connector is quiet.

Without that, a store that is rebuilt from Kafka would lack them where nothing was sent for long: of a connector that began at the end of
its files, for example.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from copycat_agent.backoff import Backoff
from copycat_agent.delivery.exactly_once.recovery import UnexpectedError
from copycat_agent.errors import BehindError, BlockedError, RetriableError
from copycat_agent.model import Head, Split, SplitResult

if TYPE_CHECKING:
    from copycat_agent.delivery.exactly_once.attempts import Attempt, Rows
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition

LANE = 0
"""The lane that does it: every connector has it."""
QUIET_SECONDS = 3.0
"""Nothing is sent and nothing changes for so long before offsets are published: the next batch would take them along for nothing."""
AGAIN_SECONDS = 30.0
"""After a failure: records go first."""
MOST = 2000
"""Offsets in one such transaction: about 1 MiB."""


class OffsetPublisher:
    """For the connector's thread.

    When it fails nobody knows where its lane is: it may have been committed all the same. Nothing is planned there, and nothing else is
    said of its files, before the lane was opened again.
    """

    def __init__(self, definition: Definition, store: OffsetStore, publish: Callable[[Rows], Attempt]) -> None:
        """`publish` opens lane `LANE` again, with these offsets in its first transaction."""
        self.rows: Rows = {}
        """Those that are being published: nothing else may be written about them meanwhile."""
        self.held: list[Split] = []
        """Splits of their files, which wait."""
        self._connector, self._store, self._publish = definition.name, store, publish
        self._attempt: Attempt | None = None
        self._backoff = Backoff(definition.errors)
        self._error: RetriableError | None = None
        self._at = time.monotonic() + QUIET_SECONDS

    @property
    def is_under_way(self) -> bool:
        """Whether the lane is taken by it, or not known to be where it was."""
        return self._attempt is not None or self._error is not None

    @property
    def has_work(self) -> bool:
        """Whether it publishes something, or will when its time has come."""
        return self.is_under_way or self._at < math.inf

    @property
    def trouble(self) -> RetriableError | None:
        """Why its lane is not used now, None while all is well."""
        if self._error is None:
            return None
        kind = BlockedError if isinstance(self._error, BlockedError) else RetriableError
        return kind(f"task {LANE} waits until its lane is open again; {self._error}")

    def postpone(self) -> None:
        """Something was sent, or has changed: wait from now."""
        self._at = time.monotonic() + QUIET_SECONDS

    def begin(self) -> None:
        """Nothing is in flight: publish what is not published, if it is time for it. Raises FatalError as the store does."""
        if self.is_under_way or time.monotonic() < self._at:
            return
        self._at = math.inf
        try:
            rows = self._store.unpublished(self._connector, MOST)
            self._attempt = self._publish(rows) if rows else None
        except RetriableError:  # the store's: nothing was begun
            self._at = time.monotonic() + AGAIN_SECONDS
        else:
            self.rows = rows

    def end(self) -> Head | None:
        """Where the lane is, once it is over and has gone well. Raises what ends the connector."""
        try:
            return self._end()
        except BehindError as error:
            raise UnexpectedError(error.message) from None
        except RetriableError as error:
            self._error = error.with_traceback(None)  # its frames have what was read
            self._backoff.failed(error)
            return None

    def _end(self) -> Head | None:
        if self._attempt is None:
            if self._error is not None and not self._backoff.seconds_left():
                self._attempt = self._publish({})
            return None
        if not self._attempt.is_over:
            return None
        attempt, self._attempt = self._attempt, None
        head = attempt.result().truth.heads[LANE]
        rows, self.rows = self.rows, {}
        told = {} if self._error else rows
        with contextlib.suppress(RetriableError):  # then it is told again
            self._store.commit({}, heads={LANE: head}, also=told.items(), connector=self._connector)
        if self._error is not None:
            self._error, self._at = None, time.monotonic() + AGAIN_SECONDS
            self._backoff.succeeded()
        elif len(rows) == MOST:
            self._at = time.monotonic()
        return head

    def take_back(self) -> tuple[SplitResult, ...]:
        """Splits that wait no longer, unread."""
        if self.is_under_way or not self.held:
            return ()
        held, self.held = self.held, []
        return tuple(SplitResult(split, split.offset) for split in held)

    def cancel(self) -> None:
        """The connector ends."""
        if self._attempt is not None:
            self._attempt.cancel()
