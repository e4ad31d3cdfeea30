"""Writes files of definitions atomically and durably: a concurrent reader sees the old text or the new.

A draft has a hidden name beside the file, which neither the agent nor `check` takes for a definition. It is the same name each time, and
its writer holds a lock on it: the draft of a process that was killed is removed by the next writer.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_ASIDE = ".disabled"
_ASIDE_MAX = 100
_CHANGED = "somebody changed it meanwhile, so it is left alone"


def create(path: Path, content: bytes) -> None:
    """Creates a file that only its owner can read. Raises FileExistsError if one exists, which is unchanged then."""
    with _draft(path) as (descriptor, draft):
        _fill(descriptor, content)
        os.link(draft, path, follow_symlinks=False)
        os.unlink(draft)  # noqa: PTH108 - as the rest of this module
    _sync_directory(path.parent)


def rewrite(path: Path, before: bytes, content: bytes) -> None:
    """Replaces `before` by `content`; mode, owner and attributes stay, and a link still leads there.

    Raises OSError if that fails, and if the file does not hold `before` any more; the file is unchanged then. A file with several names
    (hard links) keeps the old text under its other names.
    """
    target = path.resolve(strict=True)
    status = target.stat()
    with _draft(target) as (descriptor, draft):
        _like(descriptor, target, status)
        _fill(descriptor, content)
        _refuse_changed(target, before)
        os.replace(draft, target)  # noqa: PTH105
    _sync_directory(target.parent)


def remove(path: Path, before: bytes) -> None:
    """Removes a file that holds `before`. Raises OSError as `rewrite`."""
    _refuse_changed(path, before)
    path.unlink()
    _sync_directory(path.parent)


def put_aside(path: Path, before: bytes) -> Path:
    """Renames a file that holds `before` so that it is not taken for a definition. Returns the new path. Raises OSError as `rewrite`."""
    _refuse_changed(path, before)
    names = (path.with_name(f"{path.name}{_ASIDE}{number or ''}") for number in range(_ASIDE_MAX))
    aside = next((name for name in names if not os.path.lexists(name)), None)
    if aside is None:
        raise OSError(errno.EEXIST, f"there are {_ASIDE_MAX} files {path.name}{_ASIDE}* beside it already", str(path))
    path.rename(aside)
    _sync_directory(path.parent)
    return aside


def _refuse_changed(path: Path, before: bytes) -> None:
    if path.read_bytes() != before:
        raise OSError(errno.EAGAIN, _CHANGED, str(path))


@contextlib.contextmanager
def _draft(target: Path) -> Iterator[tuple[int, str]]:
    """Yields a new empty file beside `target`, open, locked, and its path. It is removed at the end, unless it was renamed."""
    path = str(target.with_name(f".{target.name}.writing"))
    _remove_left(path, target)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor, path
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        raise
    finally:
        os.close(descriptor)


def _remove_left(path: str, target: Path) -> None:
    """Removes the draft of a writer that is gone. Raises OSError while one is active."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)  # noqa: PTH108
    except BlockingIOError:
        raise OSError(errno.EAGAIN, "somebody else is writing it", str(target)) from None
    finally:
        os.close(descriptor)


def _fill(descriptor: int, content: bytes) -> None:
    """Writes all of the content, and syncs it."""
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.fsync(descriptor)


def _like(descriptor: int, target: Path, status: os.stat_result) -> None:
    """Gives the new file the owner, mode and attributes of the old one."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)  # before the mode, of which it would clear bits
    os.fchmod(descriptor, status.st_mode & 0o7777)
    with contextlib.suppress(OSError):  # a file system without attributes, or one that does not allow setting them
        for name in os.listxattr(target):
            os.setxattr(descriptor, name, os.getxattr(target, name))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
