"""Waits until something is written to one of a few open files: the kernel tells, where it sees all writes, else time passes.

inotify(7), called directly: watchdog has no way to wait in the thread that reads, and to wake one thread by another costs as much again.
"""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Self

from copycat_agent.sources.files import clock

if TYPE_CHECKING:
    from collections.abc import Collection

INSTANCES_MAX = 16
"""Queues of events of one process: the kernel gives a user 128 by default, and others want some, too."""
_IN_MODIFY = 0x2
_QUEUE_BYTES = 2**16

_free = threading.BoundedSemaphore(INSTANCES_MAX)


class Growth:
    """The files of one batch, by their descriptors. For one thread."""

    def __init__(self, fds: Collection[int]) -> None:
        """Where events cannot be had of all of them, `wait` lets the time pass."""
        self._queue = -1
        if all(clock.is_local(os.fstat(fd).st_dev) for fd in fds) and _free.acquire(blocking=False):
            self._queue = queue_of(fds)
            if self._queue < 0:
                _free.release()
        self._poll = select.poll()
        if self.is_told:
            self._poll.register(self._queue, select.POLLIN)

    @property
    def is_told(self) -> bool:
        """Whether `wait` returns as soon as something is written."""
        return self._queue >= 0

    def forget(self) -> None:
        """What was written until now ends no `wait`."""
        if self.is_told:
            with suppress(BlockingIOError):
                os.read(self._queue, _QUEUE_BYTES)

    def wait(self, seconds: float) -> bool:
        """Until something has been written since the last `forget`, at most so long. Returns whether it is known to have been."""
        if self.is_told:
            return bool(self._poll.poll(seconds * 1000))
        time.sleep(seconds)
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_told:
            os.close(self._queue)
            self._queue = -1
            _free.release()


def queue_of(fds: Collection[int]) -> int:
    """Returns a queue that is told of writes to these files, -1 where there is none to be had."""
    queue: int = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if queue >= 0 and any(_libc().inotify_add_watch(queue, f"/proc/self/fd/{fd}".encode(), _IN_MODIFY) < 0 for fd in fds):
        os.close(queue)
        return -1
    return queue


@cache
def _libc() -> Any:  # noqa: ANN401 - its functions are made as they are asked for
    return ctypes.CDLL(None)
