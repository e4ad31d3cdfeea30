"""Scratch directories: each process writes its temporary files in its own, and those of dead processes are removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import uuid
from pathlib import Path

from copycat_agent.errors import BlockedError

_lock = threading.Lock()
_mine: dict[tuple[Path, int], Path] = {}


def scratch_below(base: Path) -> Path:
    """Returns the directory of this process below `base`. The first call creates it and removes those of dead processes. Raises OSError.

    A process holds a lock on its directory, which the kernel releases when the process ends: an unlocked directory is not in use.
    """
    with _lock:
        key = (base, os.getpid())
        if key not in _mine or not _mine[key].is_dir():
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sweep(base)
            _mine[key] = _make(base)
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


def _sweep(base: Path) -> None:
    for one in base.iterdir():
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
