"""The poll loop: runs all connectors on a few threads.

A connector is a generator: it does what is due now and yields a `Wait`. It owns no thread, so a thousand idle connectors need no more
threads than one; a thread for each would cost 33 % of a core with a thousand of them. Long waits end together, and one thread serves them
one after the other: a step of an idle connector takes less time than waking a thread for it. A step that takes long, because a file system
hangs, keeps its thread; another thread then goes on with the ready connectors, so that none waits for it. Before that the mounts of the
slow step are asked (`Mounts`): connectors that touch one that does not answer are held until it does. So a mount that hangs takes at most
`THREADS` threads, and the one that asks it, however many connectors read from it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from copycat_agent import logs
from copycat_agent.wake import Wake
from copycat_agent.worker.mounts import ConnectorMounts, Mounts

THREADS = 8
"""Most threads, not counting those whose step takes longer than `SLOW_SECONDS`."""
SLOW_SECONDS = 0.5
"""A step that has taken this long may hang: another thread takes its place."""
ASK_MOUNTS_SECONDS = 0.25
"""A step that has taken this long has its mounts asked, and again as it gets older, at least once a second."""
PATIENCE_SECONDS = 0.1
"""A connector whose long wait ended this long ago, and that still waits for a thread, gets another one, up to `THREADS`."""
LONG_SECONDS = 1.0
"""A wait that is longer ends together with others, later by at most an eighth of its length."""

_log = logs.get("worker")


class Wait(NamedTuple):
    """Resume at `until` (`time.monotonic()`), or earlier when `Wake.wakeup` is called. `deaf`: file events alone do not end the wait."""

    until: float
    deaf: bool = True


Steps = Generator[Wait, None, None]
"""The steps of a connector, each ended by a `Wait`. It handles its own exceptions: one that escapes is logged and ends it."""


@dataclass(eq=False, slots=True)
class ScheduledConnector:
    """A connector in the loop.

    `busy_since` is when its present step began, or since when it has waited for a thread or has been held (`time.monotonic()`); None while
    it waits for its time or its `wake`. `asked_at` is when its mounts were last asked in its present step.
    """

    steps: Steps
    wake: Wake
    mount_user: ConnectorMounts = field(default_factory=ConnectorMounts)
    busy_since: float | None = None
    asked_at: float = -math.inf
    wait: int = 0
    """Number of its present wait, 0 while it does not wait."""


class PollLoop:
    """Runs connectors. Thread-safe. Threads are started on demand, as daemons, because a step may hang for good."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_ready = threading.Condition(self._lock)
        self._has_news = threading.Condition(self._lock)  # for the thread that keeps the time
        self._ready: deque[ScheduledConnector] = deque()
        self._without_thread = 0  # connectors that found no idle thread since the timer last looked
        # A heap of their end, number, connector, and whether they are long; those that ended early stay in it for a while.
        self._waits: list[tuple[float, int, ScheduledConnector, bool]] = []
        self._waiting = self._threads = 0
        self._idle = 0  # threads that wait in `_has_ready` and have not been notified yet
        self._busy: set[ScheduledConnector] = set()
        self._held: dict[ScheduledConnector, str] = {}  # by the mount that they are held for
        self.mounts = Mounts(self._release)
        self._numbers = itertools.count(1)
        self._timer: threading.Thread | None = None
        self._closed = False

    def start(self, steps: Steps, wake: Wake, mount_user: ConnectorMounts | None = None) -> ScheduledConnector:
        """Adds a connector, whose first step runs soon. `wake` belongs to it alone. Raises RuntimeError where no thread can be started."""
        running = ScheduledConnector(steps, wake, mount_user or ConnectorMounts())
        with self._lock:
            if self._timer is None:
                timer = threading.Thread(target=self._keep_time, name="poll-loop", daemon=True)
                timer.start()
                self._timer = timer
            self._make_ready(running)
        return running

    def longest_step(self) -> float:
        """Returns for how many seconds the oldest step has been under way, held, or has waited for a thread; 0 without a step."""
        with self._lock:
            now, oldest = time.monotonic(), (*self._busy, *self._held, *itertools.islice(self._ready, 1))
            return max((now - (running.busy_since or now) for running in oldest), default=0.0)

    def look_at_slow_steps(self) -> None:
        """Wakes the timer to check the mounts of slow steps, also while nothing else happens. Called every now and then."""
        with self._lock:
            self._has_news.notify()

    def close(self) -> None:
        """Runs no further step. Steps under way are left to end, or to hang."""
        with self._lock:
            self._closed = True
            self._has_ready.notify_all()
            self._has_news.notify_all()

    def _make_ready(self, running: ScheduledConnector) -> None:
        """Queues its next step for a thread: an idle one, or one that the timer finds or starts."""
        self._append(running)
        if not self._notify_idle():
            self._without_thread += 1
            self._has_news.notify()

    def _append(self, running: ScheduledConnector) -> None:
        running.busy_since = time.monotonic()
        self._ready.append(running)

    def _notify_idle(self) -> bool:
        if not self._idle:
            return False
        self._idle -= 1
        self._has_ready.notify()
        return True

    def _go_on(self, running: ScheduledConnector, wait_number: int) -> None:
        """Ends the wait of this number, unless it has ended before."""
        with self._lock:
            if running.wait == wait_number:
                self._end_wait(running)
                self._make_ready(running)

    def _end_wait(self, running: ScheduledConnector) -> None:
        running.wait = 0
        self._waiting -= 1

    def _keep_time(self) -> None:
        """Thread: ends waits whose time has come, and sees to it that what is ready does not wait for a thread."""
        with self._lock:
            while not self._closed:
                now = time.monotonic()
                if self._end_waits(now):
                    self._notify_idle()  # one for all of them
                left = self._waits[0][0] - now if self._waits else math.inf
                if self._ready:
                    left = min(left, self._add_threads(now))
                if self._busy or self._held:  # after `_add_threads`: a thread whose mounts are only being asked now is not replaced yet
                    left = min(left, self._ask_slow_mounts(now))
                self._without_thread = 0
                self._has_news.wait(min(left, threading.TIMEOUT_MAX))

    def _end_waits(self, now: float) -> bool:
        """Makes connectors ready whose time has come. Returns whether long waits were among them, for which no thread is notified yet."""
        has_ended = False
        while self._waits and self._waits[0][0] <= now:
            _, wait, running, is_long = heapq.heappop(self._waits)
            if running.wait != wait:
                continue
            self._end_wait(running)
            if is_long:
                self._append(running)
                has_ended = True
            else:
                self._make_ready(running)
        return has_ended

    def _add_threads(self, now: float) -> float:
        """Adds a thread once a connector waits for one. Returns after how many seconds to check again.

        Threads with a slow step do not count once its mounts have been asked.
        """
        slow = sum(running.asked_at > 0 and now - (running.busy_since or now) > SLOW_SECONDS for running in self._busy)
        waited = now - (self._ready[0].busy_since or now)
        least = 1 if waited >= PATIENCE_SECONDS or self._threads <= slow else 0
        wanted = max(least, min(self._without_thread, len(self._ready)))
        for _ in range(wanted):
            if not (self._notify_idle() or self._start_thread(slow)):
                return SLOW_SECONDS / 2
        return PATIENCE_SECONDS

    def _ask_slow_mounts(self, now: float) -> float:
        """Checks the mounts of slow steps, if that is due. Returns after how many seconds to check again."""
        slow = {running: age for running in self._busy if (age := now - (running.busy_since or now)) > ASK_MOUNTS_SECONDS}
        is_due = any(now - running.asked_at >= min(1.0, age / 4) for running, age in slow.items())
        if is_due or any(now - running.asked_at >= 1.0 for running in self._held):  # whose mount may be gone
            self.mounts.ask(running.mount_user for running in slow)
            for running in (*slow, *self._held):
                running.asked_at = now
        return PATIENCE_SECONDS

    def _hold(self, running: ScheduledConnector, mount: str) -> None:
        """Holds a connector until a mount answers, which may have happened meanwhile."""
        with self._lock:
            self._busy.discard(running)
            if mount in self.mounts.waited:
                self._held[running] = mount
            else:
                self._make_ready(running)

    def _release(self, mount: str) -> None:
        """Releases the connectors that are held for a mount."""
        with self._lock:
            for running in [one for one, waited in self._held.items() if waited == mount]:
                del self._held[running]
                self._make_ready(running)

    def _start_thread(self, slow: int) -> bool:
        """Starts a thread. Returns False if there are enough, or the host has no more: existing ones serve the connector later."""
        if self._threads - slow >= THREADS:
            return False
        try:
            threading.Thread(target=self._serve, name=f"connectors-{next(self._numbers)}", daemon=True).start()
        except (RuntimeError, MemoryError):
            return False
        self._threads += 1
        return True

    def _serve(self) -> None:
        while (running := self._next()) is not None:
            if self.mounts.waited and (mount := self.mounts.waited_for(running.mount_user)):
                self._hold(running, mount)
                continue
            running.wake.disarm()
            wait = None
            try:
                wait = next(running.steps, None)
            except Exception as error:  # noqa: BLE001 - the other connectors go on
                _log.error("a connector ended unexpectedly; please report it", why=type(error).__name__, error=error)
            self._park(running, wait)

    def _park(self, running: ScheduledConnector, wait: Wait | None) -> None:
        """Ends the step that has yielded `wait`; None: the connector has ended.

        The wake is armed under the lock: once the wait is over another thread may go on, and a late `arm` would take that thread's wake-up.
        """
        number = next(self._numbers)
        with self._lock:
            self._busy.discard(running)
            running.busy_since = None
            if wait is None:
                return
            running.wait = number
            self._waiting += 1
            is_over = wait.until <= time.monotonic()
            if is_over or not running.wake.arm(lambda: self._go_on(running, number), deaf=wait.deaf):
                self._end_wait(running)
                self._make_ready(running)
            elif wait.until < math.inf:
                self._remember(wait.until, running)

    def _remember(self, until: float, running: ScheduledConnector) -> None:
        """Registers this wait with the timer. Waits that ended early are dropped from the heap once they are most of it."""
        if is_long := (seconds := until - time.monotonic()) > LONG_SECONDS:
            slot = 2.0 ** math.floor(math.log2(seconds / 8))
            until = math.ceil(until / slot) * slot
        heapq.heappush(self._waits, (until, running.wait, running, is_long))
        if self._waits[0][1] == running.wait:
            self._has_news.notify()
        if len(self._waits) > 64 + 4 * self._waiting:
            self._waits = [one for one in self._waits if one[2].wait == one[1]]
            heapq.heapify(self._waits)

    def _next(self) -> ScheduledConnector | None:
        """Waits for a connector that is ready and returns it; None when the calling thread is to end."""
        with self._lock:
            while self._closed or not self._ready:
                if self._closed or self._idle >= THREADS:
                    self._threads -= 1
                    return None
                self._idle += 1
                self._has_ready.wait()
            running = self._ready.popleft()
            running.busy_since, running.asked_at = time.monotonic(), -math.inf
            self._busy.add(running)
            return running
