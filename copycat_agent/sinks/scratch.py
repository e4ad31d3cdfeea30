"""Scratch directories: each process writes its temporary files in its own, and those of dead processes are removed.

::

    <base>/on-<boot id of the kernel>/<process>/
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
import uuid
from pathlib import Path

from copycat_agent.errors import BlockedError
from copycat_agent.sources.files.clock import boot

ABANDONED_SECONDS = 86400.0
"""Age at which what nobody can be asked about is removed. A process that is still alive makes itself another directory."""

_lock = threading.Lock()
_mine: dict[tuple[Path, int], Path] = {}


def scratch_below(base: Path) -> Path:
    """Returns the directory of this process below `base`. The first call creates it and removes those of dead processes. Raises OSError.

    A process holds a lock on its directory, which the kernel releases when the process ends: an unlocked directory is not in use. Other
    hosts that have mounted `base` do not see it (an NFS client does not pass it on), so there is a directory for each running kernel, and
    what is in those of others is removed once it is old.
    """
    with _lock:
        key = (base, os.getpid())
        if key not in _mine or not _mine[key].is_dir():
            here = base / f"on-{boot() or os.uname().nodename}"
            for one in (base, here):
                one.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(here)
            _sweep_others(here)
            _mine[key] = _make(here)
        return _mine[key]


def own_scratch(base: Path) -> Path:
    """As `scratch_below`, where `base` is in a directory that other users may write. Raises BlockedError with what to do."""
    try:
        directory = scratch_below(base)
        is_ours = base.lstat().st_uid == os.getuid()
    except OSError as error:
        raise BlockedError(f"cannot make a directory in {base}: {os.strerror(error.errno or 0)}", "make room there") from None
    if not is_ours:
        raise BlockedError(f"{base} belongs to another user", "remove it")
    return directory


def _make(base: Path) -> Path:
    """Makes a locked directory. It is renamed after it was locked, so that no other process finds it unlocked."""
    unlocked = base / f"new-{uuid.uuid4().hex}"
    unlocked.mkdir(mode=0o700)
    fcntl.flock(_opened(unlocked), fcntl.LOCK_EX)  # open until this process ends
    return unlocked.rename(base / uuid.uuid4().hex)


def _sweep_others(here: Path) -> None:
    """Removes what is old in directories of other hosts, and outside of any: there earlier versions made those of processes."""
    unknown = list(here.glob("new-*"))
    for one in here.parent.iterdir():
        if one == here:
            continue
        if not one.name.startswith("on-"):
            unknown.append(one)
            continue
        with contextlib.suppress(OSError):
            unknown += one.iterdir()
            one.rmdir()  # if it is empty
    for one in unknown:
        with contextlib.suppress(OSError):
            if one.lstat().st_mtime < time.time() - ABANDONED_SECONDS:
                shutil.rmtree(one, ignore_errors=True)


def _sweep(here: Path) -> None:
    for one in here.iterdir():
        if one.name.startswith("new-"):
            continue
        with contextlib.suppress(OSError):
            fd = _opened(one)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(one, ignore_errors=True)
            finally:
                os.close(fd)


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
