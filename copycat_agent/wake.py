"""Wakes connectors: collects the events of the kernel's queue since a connector last looked, and notifies who waits for them.

Of watchdog, which only this module uses, it takes only the queue, since its observers need a thread for each directory. Events of mere
reading (opened, closed without a write) are not requested: they would make the agent wake itself. Wake-ups come from any thread: an order,
or a batch that returned.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from watchdog.observers.inotify_c import (
    DEFAULT_EVENT_BUFFER_SIZE,
    CallbackId,
    InotifyConstants,
    InotifyEvent,
    InotifyFD,
    Mask,
    WatchDescriptor,
)

from copycat_agent import logs

LINGER_SECONDS = 0.05
"""The default of `delivery.linger`; with a longer linger events come as soon."""
_STEP_SHARE = 0.8
STEP_SECONDS = _STEP_SHARE * LINGER_SECONDS
"""Least time between two reads of the kernel's queue, a share of the shortest linger: the linger hides it."""
FOLLOWED_SECONDS = 1.0
FOLLOWED_FILE_SECONDS = 0.005
"""Least time between two looks at followed files that were written to; the second one counts for each of them."""
MAX_GROWN = 10_000
"""How many paths are kept for a connector that does not take them; with more, it has to check everything."""
CROWD = 1000
"""With this many events at once the queue, which the kernel bounds (16,384 by default), is emptied without pauses."""
TROUBLE_SECONDS = 5.0
"""Time until the queue is read again after an error."""
_EVENTS = Mask(
    InotifyConstants.IN_MODIFY
    | InotifyConstants.IN_CREATE
    | InotifyConstants.IN_DELETE
    | InotifyConstants.IN_MOVED_FROM
    | InotifyConstants.IN_MOVED_TO
    | InotifyConstants.IN_DELETE_SELF
    | InotifyConstants.IN_MOVE_SELF
)

_log = logs.get("watch")

Directory = tuple[int, int]
"""Device and inode."""


class Wake:
    """The events in one connector's directories since it last looked. Filled by the queue, emptied by the connector."""

    def __init__(self, linger: float = LINGER_SECONDS) -> None:
        """`linger`: how long its connector paces itself. Events may come later by a little less than that."""
        self.step_seconds = min(_STEP_SHARE * linger, STEP_SECONDS)
        self._lock = threading.Lock()
        self._grown: set[str] = set()
        self._followed: frozenset[str] = frozenset()
        self._behind: set[str] = set()
        self._tell_at = 0.0
        self._unsure: frozenset[str] = frozenset()
        self._other = False
        self._woken = self._was_woken = False
        self._call: Callable[[], None] | None = None
        self._deaf = True

    def written(self, path: str) -> None:
        """Records a write to the file at `path`. Called by the thread that reads the kernel's queue."""
        with self._lock:
            if path in self._followed:
                self._behind.add(path)
                return
            if len(self._grown) < MAX_GROWN:
                self._grown.add(path)
            else:
                self._other = True
        self._tell()

    def changed(self) -> None:
        """Records that a name was made, removed or moved: only a scan can tell what happened. Called as `written`."""
        with self._lock:
            self._other = True
            self._unsure |= self._followed  # another file may have such a name now
            self._heed(frozenset())
        self._tell()

    def follow(self, paths: frozenset[str]) -> None:
        """Sets the files at whose ends batches stay, by their `paths`: writes to these do not wake the connector.

        They are reported now and then, so that it is known what is unread while Kafka takes nothing, and once the batch has ended, since
        they may have come after its last read. If a name was made, removed or moved meanwhile, writes wake as usual, until the batch of
        that time has ended. Called by the connector, between its waits.
        """
        with self._lock:
            self._unsure &= paths
            if self._other:
                self._unsure |= paths - self._followed
            self._heed(paths - self._unsure)

    def _heed(self, followed: frozenset[str]) -> None:
        """Sets the followed files; writes to others that were held back are reported now."""
        self._grown |= self._behind - followed
        self._behind &= followed
        self._followed = followed

    def wakeup(self) -> None:
        """Wakes the connector for something other than a file event."""
        with self._lock:
            self._woken = True
        self._tell()

    def arm(self, call: Callable[[], None], *, deaf: bool) -> bool:
        """Arranges for one call of `call`, from any thread, as soon as something happens. Returns False, without a call, if it already has.

        `deaf`: only a `wakeup` counts, events are kept for the next `take`. A connector that paces itself waits deaf: being woken for every
        line would cost more than reading it.
        """
        with self._lock:
            if self._woken or (not deaf and (self._grown or self._other)):
                return False
            self._call, self._deaf = call, deaf
            return True

    def disarm(self) -> None:
        """Ends the wait: the caller checks everything now."""
        with self._lock:
            self._was_woken = self._was_woken or self._woken
            self._woken, self._call = False, None

    def wait(self, seconds: float, *, deaf: bool = False) -> None:
        """Waits in this thread until something happens, at most `seconds`. See `arm`."""
        over = threading.Event()
        if self.arm(over.set, deaf=deaf):
            over.wait(seconds)
        self.disarm()

    @property
    def has_news(self) -> bool:
        """Whether anything has happened, a `wakeup` included, since the last `take`. Called by the connector, between its waits."""
        return self._was_woken or self._other or bool(self._grown) or (bool(self._behind) and time.monotonic() >= self._tell_at)

    def take(self) -> tuple[set[str], bool]:
        """Returns and forgets the paths of files that were written to, and whether anything else happened."""
        with self._lock:
            self._was_woken = False
            grown, self._grown = self._grown, set()
            if self._behind and (now := time.monotonic()) >= self._tell_at:
                grown, self._behind = grown | self._behind, set()
                self._tell_at = now + max(FOLLOWED_SECONDS, FOLLOWED_FILE_SECONDS * len(self._followed))
            other, self._other = self._other, False
        return grown, other

    def _tell(self) -> None:
        """Calls back the waiting connector. Without the lock, since the call may take another one."""
        with self._lock:
            if self._call is None or (self._deaf and not self._woken):
                return
            call, self._call = self._call, None
        call()


@dataclass(eq=False, slots=True)
class WatchedDirectory:
    """A directory under one of its names, watched for all connectors that want it; a `WatchCallback` of watchdog.

    `wakes` is replaced, never changed: the queue's thread reads it without a lock.
    """

    path: str
    directory: Directory
    wakes: frozenset[Wake] = frozenset()
    descriptor: WatchDescriptor | None = None
    """None once the directory is gone, and its watch with it."""

    def on_event(self, event: InotifyEvent) -> None:
        """Called by the queue's thread."""
        path = os.path.join(self.path, os.fsdecode(event.name)) if event.is_modify and not event.is_directory else ""  # noqa: PTH118 - hot
        for wake in self.wakes:
            if path:
                wake.written(path)
            else:
                wake.changed()

    def on_watch_deleted(self, _descriptor: WatchDescriptor) -> None:
        """Records that the directory is gone. Called by the queue's thread."""
        self.descriptor = None
        for wake in self.wakes:
            wake.changed()

    def on_queue_overflow(self) -> None:
        """Handles events that the kernel has dropped. A write to the directory itself makes a connector check everything."""
        for wake in self.wakes:
            wake.written(self.path)


class PacedQueue(InotifyFD):
    """The kernel's queue of events, read in steps.

    A first event is read at once; those within a step after it come together, and several writes to a file in it come as one event, since
    the kernel merges equal events: waking for each of 200 writes a second cost 7 % of a core, more than half of the cost of following the
    file.
    """

    def __init__(self) -> None:
        """Raises OSError if the kernel allows no more."""
        super().__init__()
        self.step_seconds = STEP_SECONDS
        self._rest = 0.0

    def read_events(self, *, event_buffer_size: int = DEFAULT_EVENT_BUFFER_SIZE) -> list[InotifyEvent]:
        """Called by its own thread: waits for events, and returns them."""
        time.sleep(self._rest)
        try:
            events = super().read_events(event_buffer_size=event_buffer_size)
        except OSError as error:  # it would end the thread, and no connector would get events from then on
            _log.warning("file events cannot be read, scans find what they would tell", why=error.strerror, retry_s=TROUBLE_SECONDS)
            self._rest = TROUBLE_SECONDS
            return []
        self._rest = self.step_seconds if len(events) < CROWD else 0.0
        return folded(events)

    def watch(self, directory: int, place: WatchedDirectory) -> WatchDescriptor:
        """Makes the kernel report events in an open directory to `place`. Raises OSError if it does not."""
        link = f"/proc/self/fd/{directory}".encode()  # a name would be looked up once more, under watchdog's lock
        return self.add_callback(link, _EVENTS, place, CallbackId(id(place)))

    def unwatch(self, descriptor: WatchDescriptor, place: WatchedDirectory) -> None:
        """Ends the events for `place`."""
        self.remove_callbacks([(descriptor, CallbackId(id(place)))])

    def handle_event(self, event: InotifyEvent) -> None:
        """Called by its own thread, for each event."""
        super().handle_event(event)
        if event.is_queue_overflow:
            hint = "nothing is lost; if it comes often, raise fs.inotify.max_queued_events"
            _log.warning("file events were dropped by the kernel, everything is looked at", hint=hint)


def folded(events: list[InotifyEvent]) -> list[InotifyEvent]:
    """Returns `events` without the second and later writes to the same file; all others stay, in their order."""
    written: set[InotifyEvent] = set()
    kept = []
    for event in events:
        if event not in written:
            kept.append(event)
        if event.is_modify:
            written.add(event)
    return kept
