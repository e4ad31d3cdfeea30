"""The door to watchdog: wakes a connector early when something happens in its directories. A scan stays the truth.

Events that only reading causes (opened, closed without a write) are not asked for: they would make the agent wake itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers.api import BaseObserver
from watchdog.observers.inotify import InotifyEmitter
from watchdog.observers.inotify_c import DEFAULT_EVENT_BUFFER_SIZE, InotifyEvent, InotifyFD

from copycat_agent import logs

if TYPE_CHECKING:
    from watchdog.observers.api import ObservedWatch

_EVENTS: list[type[FileSystemEvent]] = [
    FileModifiedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
]
MAX_SINGLE_WATCHES = 64
"""A watch costs a thread. With more directories than this, their common roots are watched with everything below."""
MAX_DIRECTORIES_BELOW = 8192
"""A root with more directories below it is not watched: it would use up what the kernel allows the whole host."""
MAX_TOLD = 100
"""Directories that cannot be watched and are told one by one."""
LINGER_SECONDS = 0.05
"""`delivery.linger`, when it is not said otherwise; who lingers longer is told as soon."""
STEP_SHARE = 0.8
"""Least time between two looks into the kernel's queue, as a share of the shortest linger: who paces itself notices nothing."""
CROWD = 1000
"""With so many events at once the queue, which the kernel bounds (16,384 by default), is emptied without a rest."""
MAX_GROWN = 10_000
"""Paths kept for a connector that does not ask; with more it is told to look at everything."""

_log = logs.get("watch")


class Wake(FileSystemEventHandler):
    """What has happened in one connector's directories since it last looked. Filled by events, emptied by the connector."""

    def __init__(self, linger: float = LINGER_SECONDS) -> None:
        """`linger`: how long its connector paces itself. Events may come later by a little less than that."""
        self.step_seconds = STEP_SHARE * min(linger, LINGER_SECONDS)
        self._lock = threading.Lock()
        self._grown: set[str] = set()
        self._other = False
        self._nudged = False
        self._call: Callable[[], None] | None = None
        self._deaf = True

    def dispatch(self, event: FileSystemEvent) -> None:
        """Called by watchdog's thread."""
        with self._lock:
            if type(event) is FileModifiedEvent and len(self._grown) < MAX_GROWN:
                self._grown.add(os.fsdecode(event.src_path))
            else:
                self._other = True
            call = None if self._deaf else self._take_call()
        if call is not None:
            call()

    def nudge(self) -> None:
        """Wake the connector for something that is no file's event."""
        with self._lock:
            self._nudged = True
            call = self._take_call()
        if call is not None:
            call()

    def arm(self, call: Callable[[], None], *, deaf: bool) -> bool:
        """Have `call` called once, from any thread, as soon as something happens. False when it has happened: then it is not called.

        `deaf`: only a nudge counts, events are kept for the next `take`. A connector that paces itself waits deaf: being woken for every
        line would cost more than reading it.
        """
        with self._lock:
            if self._nudged or (not deaf and (self._grown or self._other)):
                self._nudged = False
                return False
            self._call, self._deaf = call, deaf
            return True

    def disarm(self) -> None:
        """The wait is over: who waited looks at everything now."""
        with self._lock:
            self._nudged, self._call = False, None

    def wait(self, seconds: float, *, deaf: bool = False) -> None:
        """Wait in this thread until something happens, at most `seconds`. See `arm`."""
        over = threading.Event()
        if self.arm(over.set, deaf=deaf):
            over.wait(seconds)
        self.disarm()

    def take(self) -> tuple[set[str], bool]:
        """Paths of files that were written to, and whether anything else happened; both are forgotten here."""
        with self._lock:
            grown, self._grown = self._grown, set()
            other, self._other = self._other, False
        return grown, other

    def _take_call(self) -> Callable[[], None] | None:
        call, self._call = self._call, None
        return call


class _EndingFilter(logging.Filter):
    """Leaves out what watchdog calls an error: an event that comes while a watch ends. Nobody waits for it any more."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        return "thread is inactive" not in record.getMessage()


logging.getLogger("watchdog.observers.inotify").addFilter(_EndingFilter())


class PacedQueue(InotifyFD):
    """The kernel's queue of events, read in steps.

    watchdog wakes three threads for every event, which for a file that is written to 200 times a second was more than half of
    what following it cost. A first event is read at once; what follows it within a step comes together, and a file that was
    written to several times in it comes once.
    """

    def __init__(self) -> None:
        """Raises OSError when the kernel allows no more."""
        super().__init__()
        self.step_seconds = STEP_SHARE * LINGER_SECONDS
        self.on_overflow: Callable[[], None] = lambda: None
        self._rest = 0.0

    def read_events(self, *, event_buffer_size: int = DEFAULT_EVENT_BUFFER_SIZE) -> list[InotifyEvent]:
        """Called by its own thread: wait for events, and take them."""
        time.sleep(self._rest)
        events = super().read_events(event_buffer_size=event_buffer_size)
        self._rest = self.step_seconds if len(events) < CROWD else 0.0
        return folded(events)

    def handle_event(self, event: InotifyEvent) -> None:
        """Called by its own thread, for each event."""
        super().handle_event(event)
        if event.is_queue_overflow:
            self.on_overflow()


def folded(events: list[InotifyEvent]) -> list[InotifyEvent]:
    """`events` without the second and later writes to the same file; all others count, in their order."""
    written: set[InotifyEvent] = set()
    kept = []
    for event in events:
        if event not in written:
            kept.append(event)
        if event.is_modify:
            written.add(event)
    return kept


@dataclass(slots=True)
class _Place:
    """One watch, shared by all connectors that want it. `directory` is its device and inode: made anew, it needs a new watch."""

    watch: ObservedWatch
    directory: tuple[int, int]
    wakes: set[Wake] = field(default_factory=set)


class Watcher:
    """File-system events for all connectors of the agent. Thread-safe. Where events cannot be had, scans do alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observer: BaseObserver | None = None
        self._places: dict[tuple[str, bool], _Place] = {}
        self._told: set[str] = set()
        try:
            self._queue = PacedQueue()
        except OSError as error:
            self._cannot("", error.strerror or "")
            return
        self._queue.on_overflow = self._lose_track
        self._queue.start()
        self._observer = BaseObserver(InotifyEmitter, inotify_fd=self._queue)
        self._observer.start()

    def watch(self, wake: Wake, directories: Collection[str]) -> None:
        """From now on events in exactly `directories` reach `wake`. What cannot be watched is left to scans, with one warning."""
        recursive = len(directories) > MAX_SINGLE_WATCHES
        wanted = _roots(directories) if recursive else set(directories)
        present = {(path, recursive): directory for path in wanted if (directory := _directory(path))}
        with self._lock:
            for key, place in list(self._places.items()):
                if key in present and place.directory != present[key]:
                    self._renew(key, place, present[key])
                if wake in place.wakes and key not in present:
                    self._leave(key, place, wake)
            for key, directory in present.items():
                if key not in self._places or wake not in self._places[key].wakes:
                    self._join(key, directory, wake)
            steps = [wake.step_seconds for place in self._places.values() for wake in place.wakes]
            if steps:
                self._queue.step_seconds = min(steps)

    def unwatch(self, wake: Wake) -> None:
        """No more events for `wake`."""
        self.watch(wake, ())

    @property
    def step_seconds(self) -> float:
        """How long an event may wait for the next look into the kernel's queue."""
        return self._queue.step_seconds if self._observer is not None else 0.0

    def close(self) -> None:
        """Stop watching."""
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()
            self._queue.stop()
            self._queue.join()

    def _lose_track(self) -> None:
        """The kernel has dropped events: anything may have happened in any of the directories. Called by the queue's thread."""
        hint = "nothing is lost; if it comes often, raise fs.inotify.max_queued_events"
        _log.warning("file events were dropped by the kernel, everything is looked at", hint=hint)
        with self._lock:
            for (path, _), place in self._places.items():
                for wake in place.wakes:
                    wake.dispatch(FileModifiedEvent(path))

    def _join(self, key: tuple[str, bool], directory: tuple[int, int], wake: Wake) -> None:
        place = self._places.get(key)
        watch = self._schedule(key, wake)
        if watch is None:
            return
        if place is None:
            place = self._places[key] = _Place(watch, directory)
        place.wakes.add(wake)

    def _leave(self, key: tuple[str, bool], place: _Place, wake: Wake) -> None:
        assert self._observer is not None
        place.wakes.discard(wake)
        self._observer.remove_handler_for_watch(wake, place.watch)
        if not place.wakes:
            self._observer.unschedule(place.watch)
            del self._places[key]

    def _renew(self, key: tuple[str, bool], place: _Place, directory: tuple[int, int]) -> None:
        """The directory was made anew: everyone's watch is on the old one. Who cannot be moved asks again at its next scan."""
        assert self._observer is not None
        self._observer.unschedule(place.watch)
        del self._places[key]
        for wake in place.wakes:
            self._join(key, directory, wake)

    def _schedule(self, key: tuple[str, bool], wake: Wake) -> ObservedWatch | None:
        if self._observer is None:
            return None
        path, recursive = key
        if recursive and key not in self._places and _has_too_much_below(path):
            self._cannot(path, f"more than {MAX_DIRECTORIES_BELOW} directories lie below it")
            return None
        try:  # watchdog follows links below a recursive watch without end, hence only a single directory's
            watch = self._observer.schedule(wake, path, recursive=recursive, event_filter=_EVENTS, follow_symlink=not recursive)
        except (OSError, RuntimeError) as error:  # RuntimeError: no more threads
            self._cannot(path, str(error))
            return None
        self._told.discard(path)
        return watch

    def _cannot(self, path: str, why: str) -> None:
        if path not in self._told and len(self._told) < MAX_TOLD:
            self._told.add(path)
            _log.warning(
                "directory cannot be watched, it is looked at every scan_interval instead",
                path=path or "any",
                why=why,
                hint="raise fs.inotify.max_user_watches and fs.inotify.max_user_instances",
            )


def _roots(directories: Collection[str]) -> set[str]:
    """Those of `directories` that lie in none of the others."""
    roots: set[str] = set()
    latest = "\0"
    for path in sorted(directories, key=lambda path: path.split("/")):
        if path != latest and not path.startswith(latest.rstrip("/") + "/"):
            roots.add(path)
            latest = path
    return roots


def _has_too_much_below(root: str) -> bool:
    """Whether there are more than `MAX_DIRECTORIES_BELOW` directories; counts no further."""
    count = 0
    for _, names, _ in os.walk(root):
        count += len(names)
        if count > MAX_DIRECTORIES_BELOW:
            return True
    return False


def _directory(path: str) -> tuple[int, int] | None:
    """Device and inode of a directory, None when there is none."""
    try:
        info = Path(path).stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino
