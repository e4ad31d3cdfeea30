"""The clocks that stamp files: the kernel's, or a file server's. The wall clock of this process may differ."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

from copycat_agent.mountinfo import mounts

_STAMPED_HERE = frozenset(("btrfs", "overlay", "ramfs", "tmpfs", "zfs"))
"""File system types without a disk of their own whose files are stamped by this host's kernel."""

_SERVER_SECONDS = 86_400.0
"""How far the clock of a file server may be off."""


_CLOSE_NS = 1_000_000
"""Two reads of one clock that are no further apart count as simultaneous."""
_LONG_NS = 2**63
_READS = 1000
"""Attempts to read two clocks simultaneously. If the process loses the processor in each of them, the best attempt counts."""


@cache
def _touched() -> int:
    """Returns the descriptor of a file in memory, -1 if none can be made."""
    try:
        fd = os.memfd_create("copycat-clock")
        os.utime(fd)
    except OSError:
        return -1
    return fd


def now_ns() -> int:
    """Returns the time that the kernel would give a file that was changed now, epoch nanoseconds."""
    fd = _touched()
    if fd < 0:
        return time.time_ns()
    os.utime(fd)
    return os.fstat(fd).st_mtime_ns


@cache
def boot() -> str:
    """Returns the kernel's id of the present boot, "" if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii", "replace").strip()
    except OSError:
        return ""


def ahead_ns() -> int:
    """Returns by how many nanoseconds the kernel's clock is ahead of the time since `boot`. Less than before: it was set back.

    The two clocks are read one after the other, and on a busy host this process may lose the processor in between, which would look like a
    clock that was set back. So the second one is read before and after the first, until both reads are close.
    """
    ahead, closest = 0, _LONG_NS
    for _ in range(_READS):
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        now = now_ns()
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if after - before < closest:
            ahead, closest = now - after, after - before
        if closest < _CLOSE_NS:
            break
    return min(ahead, 2**63 - 1)  # the largest number of SQLite


@cache
def is_local(device: int) -> bool:
    """Returns whether this host's kernel stamps the files of a device; False if a server may do so, with a clock of its own."""
    if os.major(device):
        return True
    name = f"{os.major(device)}:{os.minor(device)}"
    kinds = {mount.kind for mount in mounts() if mount.device == name}
    return bool(kinds) and kinds <= _STAMPED_HERE


def seconds_since(device: int, stamped_ns: int) -> float:
    """Returns the least time since a file of this device got this time stamp; 0.0 if it is in the future."""
    past = (now_ns() - stamped_ns) / 1e9
    return max(0.0, past if is_local(device) else past - _SERVER_SECONDS)


def seen_ns(device: int, changed_ns: int) -> int:
    """Returns a time, now or earlier, by the clock that stamps a device's files, one of which was last changed at `changed_ns`."""
    return now_ns() if is_local(device) else changed_ns
