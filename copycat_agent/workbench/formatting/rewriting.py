"""Replacing a definition's file by another version of itself: all of it or nothing, and nobody else's change is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path


def rewrite(path: Path, before: bytes, content: bytes) -> None:
    """Put `content` in place of `before`, atomically and for good; mode, owner and attributes stay, a link goes on leading there.

    Raises OSError when that cannot be done, and when the file holds something else than `before` by now; the file is as it was then.
    A file with several names (hard links) leaves its other names with the old text.
    """
    target = path.resolve(strict=True)
    status = target.stat()
    # a hidden name: neither the agent nor `check` takes it for a definition
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".fmt", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _like(descriptor, target, status)
            os.fsync(descriptor)
        if target.read_bytes() != before:
            raise OSError(errno.EAGAIN, "somebody changed it meanwhile, so it is left alone", str(path))  # noqa: TRY301 - it cleans up too
        os.replace(name, target)  # noqa: PTH105 - as the rest of this function
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise
    _sync_directory(target.parent)


def _like(descriptor: int, target: Path, status: os.stat_result) -> None:
    """Give the new file what the old one has beside its text."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        os.fchown(descriptor, status.st_uid, status.st_gid)  # before the mode: it would clear bits of it
    os.fchmod(descriptor, status.st_mode & 0o7777)
    with contextlib.suppress(OSError):  # a file system without attributes, or one that lets nobody set them
        for name in os.listxattr(target):
            os.setxattr(descriptor, name, os.getxattr(target, name))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
