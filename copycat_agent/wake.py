"""How a connector is woken: what has happened since it last looked, and who waits for it.

Events come from the thread that reads the kernel's queue (`watch`), nudges from any thread: an order, or a batch that came back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

LINGER_SECONDS = 0.05
"""`delivery.linger`, when it is not said otherwise; who lingers longer is told as soon."""
_STEP_SHARE = 0.8
STEP_SECONDS = _STEP_SHARE * LINGER_SECONDS
"""Least time between two looks into the kernel's queue, a share of the shortest linger: who paces itself notices nothing."""
MAX_GROWN = 10_000
"""Paths kept for a connector that does not ask; with more it is told to look at everything."""


class Wake:
    """What has happened in one connector's directories since it last looked. Filled by events, emptied by the connector."""

    def __init__(self, linger: float = LINGER_SECONDS) -> None:
        """`linger`: how long its connector paces itself. Events may come later by a little less than that."""
        self.step_seconds = min(_STEP_SHARE * linger, STEP_SECONDS)
        self._lock = threading.Lock()
        self._grown: set[str] = set()
        self._other = False
        self._nudged = self._was_nudged = False
        self._call: Callable[[], None] | None = None
        self._deaf = True

    def written(self, path: str) -> None:
        """Something was written to the file at `path`. Called by the thread that reads the kernel's queue."""
        with self._lock:
            if len(self._grown) < MAX_GROWN:
                self._grown.add(path)
            else:
                self._other = True
        self._tell()

    def changed(self) -> None:
        """A name was made, removed or moved: only a scan can tell what happened. Called as `written`."""
        with self._lock:
            self._other = True
        self._tell()

    def nudge(self) -> None:
        """Wake the connector for something that is no file's event."""
        with self._lock:
            self._nudged = True
        self._tell()

    def arm(self, call: Callable[[], None], *, deaf: bool) -> bool:
        """Have `call` called once, from any thread, as soon as something happens. False when it has happened: then it is not called.

        `deaf`: only a nudge counts, events are kept for the next `take`. A connector that paces itself waits deaf: being woken for every
        line would cost more than reading it.
        """
        with self._lock:
            if self._nudged or (not deaf and (self._grown or self._other)):
                return False
            self._call, self._deaf = call, deaf
            return True

    def disarm(self) -> None:
        """The wait is over: who waited looks at everything now."""
        with self._lock:
            self._was_nudged = self._was_nudged or self._nudged
            self._nudged, self._call = False, None

    def wait(self, seconds: float, *, deaf: bool = False) -> None:
        """Wait in this thread until something happens, at most `seconds`. See `arm`."""
        over = threading.Event()
        if self.arm(over.set, deaf=deaf):
            over.wait(seconds)
        self.disarm()

    @property
    def has_news(self) -> bool:
        """Whether anything has happened, a nudge included, since the last `take`. Called by the connector, between its waits."""
        return self._was_nudged or self._other or bool(self._grown)

    def take(self) -> tuple[set[str], bool]:
        """Paths of files that were written to, and whether anything else happened; both are forgotten here."""
        with self._lock:
            self._was_nudged = False
            grown, self._grown = self._grown, set()
            other, self._other = self._other, False
        return grown, other

    def _tell(self) -> None:
        """Calls who waits for what has just happened. Without the lock, since the call may take another one."""
        with self._lock:
            if self._call is None or (self._deaf and not self._nudged):
                return
            call, self._call = self._call, None
        call()
