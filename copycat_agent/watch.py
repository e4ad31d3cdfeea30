"""The door to watchdog: wakes a connector early when something happens in its directories. A scan stays the truth.

Events that only reading causes (opened, closed without a write) are not asked for: they would make the agent wake itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection
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
from watchdog.observers.inotify import InotifyEmitter, InotifyObserver
from watchdog.observers.inotify_c import InotifyEvent, InotifyFD

from copycat_agent import logs

if TYPE_CHECKING:
    from watchdog.observers.api import ObservedWatch

_EVENTS: list[type[FileSystemEvent]] = [
    FileModifiedEvent, FileCreatedEvent, FileDeletedEvent, FileMovedEvent, DirCreatedEvent, DirDeletedEvent, DirMovedEvent,
]
MAX_SINGLE_WATCHES = 64
"""A watch costs a thread. With more directories than this, their common roots are watched with everything below."""
PACE_SECONDS = 0.04
"""Least time between two reads of the kernel's event queue: below `delivery.linger`, so that it adds no delay to a trickle."""

_log = logs.get("watch")


class Wake(FileSystemEventHandler):
    """What has happened in one connector's directories since it last looked. Filled by events, emptied by the connector."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._grown: set[str] = set()
        self._other = False
        self._nudged = False
        self._listening = False

    def dispatch(self, event: FileSystemEvent) -> None:
        """Called by watchdog's thread."""
        with self._condition:
            if type(event) is FileModifiedEvent:
                self._grown.add(os.fsdecode(event.src_path))
            else:
                self._other = True
            if self._listening:
                self._condition.notify()

    def nudge(self) -> None:
        """Wake the connector for something that is no file's event."""
        with self._condition:
            self._nudged = True
            self._condition.notify()

    def wait(self, seconds: float, *, deaf: bool = False) -> None:
        """Wait until something happens, at most `seconds`. `deaf`: only a nudge counts, events are kept for the next `take`.

        A connector that paces itself waits deaf: being woken for every line would cost more than reading it.
        """
        deadline = time.monotonic() + seconds
        with self._condition:
            while not self._nudged and (deaf or not (self._grown or self._other)):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._listening = not deaf
                self._condition.wait(left)
            self._listening = False
            self._nudged = False

    def take(self) -> tuple[set[str], bool]:
        """Paths of files that were written to, and whether anything else happened; both are forgotten here."""
        with self._condition:
            grown, self._grown = self._grown, set()
            other, self._other = self._other, False
        return grown, other


class _PacedReader(InotifyFD):
    """Reads the kernel's queue at most every `PACE_SECONDS`; until then the kernel folds equal events into one.

    Without it, a file that is written to 200 times a second cost 7 % of a core in three threads of watchdog. The first event
    after a pause is still read at once.
    """

    _read_at = 0.0

    def read_events(self, **options: int) -> list[InotifyEvent]:
        """See `InotifyFD.read_events`."""
        pause = self._read_at + PACE_SECONDS - time.monotonic()
        if pause > 0:
            self.stopped_event.wait(pause)
        events = super().read_events(**options)
        self._read_at = time.monotonic()
        return events


class _PacedObserver(InotifyObserver):
    """watchdog's observer for Linux with a `_PacedReader`."""

    def __init__(self) -> None:
        self._inotify_fd = _PacedReader()
        self._inotify_fd.start()
        BaseObserver.__init__(self, InotifyEmitter, inotify_fd=self._inotify_fd)


class Watcher:
    """File-system events for all connectors of the agent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observer = _PacedObserver()
        self._observer.start()
        self._watched: dict[Wake, dict[str, tuple[ObservedWatch, int]]] = {}
        self._failed: set[str] = set()

    def watch(self, wake: Wake, directories: Collection[str]) -> None:
        """From now on events in exactly `directories` reach `wake`. What cannot be watched is left to scans, with one warning."""
        recursive = len(directories) > MAX_SINGLE_WATCHES
        wanted = _roots(directories) if recursive else set(directories)
        with self._lock:
            watched = self._watched.setdefault(wake, {})
            present = {path: inode for path in wanted if (inode := _inode(path))}
            for path in [path for path, (_, inode) in watched.items() if present.get(path) != inode]:
                self._forget(wake, *watched.pop(path))
            for path in present.keys() - watched.keys():
                watch = self._schedule(wake, path, recursive=recursive)
                if watch is not None:
                    watched[path] = (watch, present[path])

    def unwatch(self, wake: Wake) -> None:
        """No more events for `wake`."""
        self.watch(wake, ())
        with self._lock:
            self._watched.pop(wake, None)

    def close(self) -> None:
        """Stop watching."""
        self._observer.stop()
        self._observer.join()

    def _schedule(self, wake: Wake, path: str, *, recursive: bool) -> ObservedWatch | None:
        try:
            watch = self._observer.schedule(wake, path, recursive=recursive, event_filter=_EVENTS)
        except OSError as error:
            if path not in self._failed:
                self._failed.add(path)
                _log.warning(
                    "directory cannot be watched, it is looked at every scan_interval instead", path=path,
                    why=error.strerror, hint="raise fs.inotify.max_user_watches and fs.inotify.max_user_instances",
                )
            return None
        self._failed.discard(path)
        return watch

    def _forget(self, wake: Wake, watch: ObservedWatch, _inode: int) -> None:
        self._observer.remove_handler_for_watch(wake, watch)
        others = any(watch == entry[0] for owner, entries in self._watched.items() if owner is not wake for entry in entries.values())
        if not others:
            self._observer.unschedule(watch)


def _roots(directories: Collection[str]) -> set[str]:
    """Those of `directories` that lie in none of the others."""
    roots: set[str] = set()
    for path in sorted(directories):
        if not any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots):
            roots.add(path)
    return roots


def _inode(path: str) -> int:
    """Inode of a directory, 0 when there is none: one that was made anew needs a new watch."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0
