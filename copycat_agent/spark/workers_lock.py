"""Which Python workers of an earlier run are still there: each holds a lock on a file in the state directory for as long as it lives.

A worker dies with its driver, but not in the same instant, and one that hangs in the kernel or is stopped not at all. What such a one
may still send is undone where lanes are fenced; to wait for it first spares the trouble, and connectors without lanes repeats.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from copycat_agent import logs

NAME = "workers.lock"
"""Its name in the state directory."""
VARIABLE = "COPYCAT_WORKERS_LOCK"
"""Where Spark's Python daemon finds it."""
WAIT_SECONDS = 10.0
"""How long a start waits for workers of an earlier run."""
_LOOK_SECONDS = 0.05
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_log = logs.get("spark")


def hold() -> None:
    """This process, and every fork of it, holds the lock until its end; what they start does not."""
    path = os.environ.get(VARIABLE)
    if path:
        with contextlib.suppress(OSError):  # then nobody waits for it
            fcntl.flock(os.open(path, _FLAGS, 0o600), fcntl.LOCK_SH)


def wait(path: Path, seconds: float = WAIT_SECONDS) -> tuple[int, ...]:
    """Wait until nobody holds the lock; the pids of those who still do after so long, which are told."""
    try:
        descriptor = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        _log.warning("whether workers of an earlier run are left cannot be found out", path=path, why=error.strerror)
        return ()
    try:
        return _wait(descriptor, seconds)
    finally:
        os.close(descriptor)


def _wait(descriptor: int, seconds: float) -> tuple[int, ...]:
    deadline = time.monotonic() + seconds
    while not _is_free(descriptor):
        if time.monotonic() >= deadline:
            pids = holders(descriptor)
            hint = "they will not send twice what lanes guard; end them, or find out what stopped them"
            _log.warning("workers of an earlier run are left", pids=" ".join(map(str, pids)), hint=hint)
            return pids
        time.sleep(_LOOK_SECONDS)
    return ()


def _is_free(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def holders(descriptor: int) -> tuple[int, ...]:
    """Processes that have the same file open as `descriptor`, but for this one, as far as this user may look at them.

    Told by the names that the kernel knows: to ask everybody's files themselves would hang where one of them is on a mount that does.
    """
    try:
        wanted = Path(f"/proc/self/fd/{descriptor}").readlink()
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return ()
    return tuple(sorted(pid for pid in pids if pid != os.getpid() and _has_open(pid, wanted)))


def _has_open(pid: int, wanted: Path) -> bool:
    with contextlib.suppress(OSError):  # it has ended, or is somebody else's
        for opened in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it is closed by now
                if opened.readlink() == wanted:
                    return True
    return False
