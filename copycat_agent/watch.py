"""Watches directories for connectors. Scans stay authoritative: without events, they do everything."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from copycat_agent import logs
from copycat_agent.wake import Directory, PacedQueue, Wake, WatchedDirectory

KERNEL_LIMIT = Path("/proc/sys/fs/inotify/max_user_watches")
"""How many directories the kernel lets one user watch."""
MOST_SHARE = 0.5
"""The most watches of this agent, as a share of `KERNEL_LIMIT`: other programs of its user need some, too."""
MAX_REPORTED = 100
"""How many directories that cannot be watched are logged one by one."""

_log = logs.get("watch")


class Watcher:
    """File-system events for all connectors of the agent, read by one thread. Thread-safe. Without events, scans do everything."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.queue: PacedQueue | None = None
        """The kernel's queue of events, None if it is not available."""
        self._places: dict[str, WatchedDirectory] = {}
        self._wanted: dict[Wake, frozenset[str]] = {}
        """The names under which each connector watches directories."""
        self._steps: Counter[float] = Counter()
        """How many connectors have each event delay, in seconds."""
        self._reported: set[str] = set()
        try:
            self.queue = PacedQueue()
        except OSError as error:
            self._cannot("", error.strerror or "")
            return
        self.queue.start()

    def watch(self, wake: Wake, directories: Collection[str]) -> bool:
        """Sends events in exactly `directories` to `wake` from now on. What cannot be watched is left to scans, with one warning.

        Returns whether that is new for one of them: what changed in it after it was listed, and before now, has sent no event.
        """
        with contextlib.ExitStack() as opened:  # before the lock, as nearly everything that may hang with a mount
            present = {path: directory for path in directories if (directory := _directory(path))}
            new = {path: found for path, directory in present.items() if (found := self._open(path, directory, wake, opened))}
            with self._lock:
                if (queue := self.queue) is None:
                    return False
                for path in self._wanted.get(wake, frozenset()) - present.keys():
                    self._leave(queue, path, wake)
                have_joined = [self._join(queue, path, descriptor, directory, wake) for path, (descriptor, directory) in new.items()]
                queue.step_seconds = min(self._steps, default=queue.step_seconds)
                return any(have_joined)

    def unwatch(self, wake: Wake) -> None:
        """Ends the events for `wake`."""
        self.watch(wake, ())

    @property
    def step_seconds(self) -> float:
        """How long an event may wait for the next read of the kernel's queue."""
        return self.queue.step_seconds if self.queue is not None else 0.0

    def watches(self, directory: str) -> bool:
        """Returns whether events in `directory` are received."""
        place = self._places.get(directory)
        return place is not None and place.descriptor is not None

    def close(self) -> None:
        """Stops watching. `watch` does nothing from now on."""
        with self._lock:
            queue, self.queue = self.queue, None
        if queue is not None:
            queue.stop()
            queue.join()

    def _open(self, path: str, directory: Directory, wake: Wake, opened: contextlib.ExitStack) -> tuple[int, Directory] | None:
        """Opens a directory that has to be watched for `wake`. Returns descriptor and identity; None if it is. `opened` closes it."""
        place = self._place(path, directory)
        if self.queue is None or (place is not None and wake in place.wakes):
            return None
        with contextlib.suppress(OSError):  # gone meanwhile, or not permitted: the source reports that
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NONBLOCK)
            opened.callback(os.close, descriptor)
            info = os.fstat(descriptor)
            return descriptor, (info.st_dev, info.st_ino)
        return None

    def _place(self, path: str, directory: Directory) -> WatchedDirectory | None:
        """Returns the watch under this name, unless the directory is gone, or another one now."""
        place = self._places.get(path)
        return place if place is not None and place.descriptor is not None and place.directory == directory else None

    def _join(self, queue: PacedQueue, path: str, descriptor: int, directory: Directory, wake: Wake) -> bool:
        """Watches the directory for `wake`, and for those that watched the former directory of its name. Returns whether it can."""
        place = self._place(path, directory)
        if place is None:
            before = self._places.get(path)
            if before is not None:
                self._end(queue, before)
            place = self._begin(queue, WatchedDirectory(path, directory, before.wakes if before else frozenset()), descriptor)
        if place is not None:
            place.wakes |= {wake}
            if wake not in self._wanted:
                self._steps[wake.step_seconds] += 1
            self._wanted[wake] = self._wanted.get(wake, frozenset()) | {path}
        return place is not None

    def _begin(self, queue: PacedQueue, place: WatchedDirectory, opened: int) -> WatchedDirectory | None:
        """Watches an open directory in the kernel. Returns None if that fails; the connectors try again at their next scan."""
        try:
            if len(self._places) >= most_watches():
                raise OSError(errno.ENOSPC, "other programs of this user need the rest of what the kernel allows")  # noqa: TRY301
            place.descriptor = queue.watch(opened, place)
        except OSError as error:
            self._cannot(place.path, error.strerror or str(error))
            return None
        self._places[place.path] = place
        self._reported.discard(place.path)
        return place

    def _leave(self, queue: PacedQueue, path: str, wake: Wake) -> None:
        self._wanted[wake] -= {path}
        if not self._wanted[wake]:
            del self._wanted[wake]
            self._steps -= Counter({wake.step_seconds: 1})  # leaves no zeros
        place = self._places.get(path)
        if place is not None:
            place.wakes -= {wake}
            if not place.wakes:
                self._end(queue, place)

    def _end(self, queue: PacedQueue, place: WatchedDirectory) -> None:
        descriptor, place.descriptor = place.descriptor, None
        if descriptor is not None:
            queue.unwatch(descriptor, place)
        del self._places[place.path]

    def _cannot(self, path: str, why: str) -> None:
        if path not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(path)
            _log.warning(
                "directory cannot be watched, it is looked at every scan_interval instead",
                path=path or "any",
                why=why,
                hint="raise fs.inotify.max_user_watches and fs.inotify.max_user_instances",
            )


def most_watches() -> int:
    """Returns how many directories this agent may watch."""
    try:
        return int(MOST_SHARE * int(KERNEL_LIMIT.read_text("ascii")))
    except (OSError, ValueError):
        return 4096  # half of what old kernels allow


def _directory(path: str) -> Directory | None:
    """Returns the identity of a directory; None if there is none."""
    try:
        info = Path(path).stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino
