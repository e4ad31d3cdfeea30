"""Waits for Python workers of an earlier run. Each holds a lock on a file in the state directory as long as it lives.

A worker dies with its driver, but not at once, and not if it hangs in the kernel or is stopped. Fenced lanes undo what it may still send;
waiting for it avoids that, and for connectors without lanes it avoids duplicates.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from copycat_agent import logs

NAME = "workers.lock"
"""Name of the file in the state directory."""
VARIABLE = "COPYCAT_WORKERS_LOCK"
"""Environment variable with its path, for Spark's Python daemon."""
WAIT_SECONDS = 10.0
"""How long a start waits for workers of an earlier run."""
_LOOK_SECONDS = 0.05
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC

_log = logs.get("spark")


def hold() -> None:
    """Locks the file for this process and all its forks until they end, but not for programs that they start."""
    path = os.environ.get(VARIABLE)
    if path:
        with contextlib.suppress(OSError):  # then the next start does not wait
            fcntl.flock(os.open(path, _FLAGS, 0o600), fcntl.LOCK_SH)


def wait(path: Path, seconds: float = WAIT_SECONDS) -> tuple[int, ...]:
    """Waits until no process holds the lock. Returns, and logs, the pids of those that still do after `seconds`."""
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
    """Returns the other processes that have the same file open as `descriptor`, as far as this user may see them.

    Files are compared by the kernel's names: a stat could hang if one is on a mount that hangs.
    """
    try:
        wanted = Path(f"/proc/self/fd/{descriptor}").readlink()
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    except OSError:
        return ()
    return tuple(sorted(pid for pid in pids if pid != os.getpid() and _has_open(pid, wanted)))


def _has_open(pid: int, wanted: Path) -> bool:
    with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
        for opened in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # the file was closed meanwhile
                if opened.readlink() == wanted:
                    return True
    return False
