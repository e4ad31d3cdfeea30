"""The state directory. It is private, and locked by one agent at a time."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from copycat_agent import logs
from copycat_agent.errors import FatalError

_log = logs.get("offsets")

DATABASE = "offsets.db"
_LOCK = "lock"
_LINKS = 8
"""Most symbolic links followed in a row."""
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class StateDir:
    """A locked state directory. The kernel frees the lock when the process ends, however it ends.

    flock locks the inode of `lock`, so the lock holds for every path to the directory (a symlinked parent, a bind mount). With O_CLOEXEC
    neither the JVM nor any other child process inherits it.
    """

    def __init__(self, path: Path, directory_fd: int, lock_fd: int) -> None:
        """Called by `acquire`."""
        self.path = path
        self._directory_fd = directory_fd
        self._lock_fd = lock_fd

    @classmethod
    def acquire(cls, path: Path, *, create: bool = True) -> Self:
        """Checks that the directory is private, and locks it. `create` makes a missing one. Raises FatalError if any of this fails."""
        path = _without_links(Path(os.path.abspath(path)))  # noqa: PTH100 - resolve() would follow any link
        try:
            if not create:
                path.stat()
            directory_fd = _open_private(path)
        except OSError as error:
            if not create and isinstance(error, FileNotFoundError):
                raise FatalError(f"there is no state directory {path}", "name the agent's: --state-dir DIR") from None
            msg = f"state directory {path} cannot be used: {error.strerror}"
            raise FatalError(msg, "give the agent a directory of its own with --state-dir") from error
        try:
            return cls(path, directory_fd, _lock(path, directory_fd))
        except OSError as error:
            os.close(directory_fd)
            msg = f"the lock in state directory {path} cannot be used: {error.strerror}"
            raise FatalError(msg, f"the agent needs to read and write {shlex.quote(str(path / _LOCK))}") from error
        except FatalError:
            os.close(directory_fd)
            raise

    def sync(self) -> None:
        """Makes renames and new files in the directory durable. Raises OSError as fsync does."""
        os.fsync(self._directory_fd)

    def replace(self, name: str, text: str) -> None:
        """Writes a file in the directory. A power cut leaves the whole text, or what was there before. Raises OSError."""
        unfinished = self.path / f"{name}.new"
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, _NEW_FILE_FLAGS, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
            stream.write(text)
            stream.flush()
            os.fsync(descriptor)
        unfinished.rename(self.path / name)
        self.sync()

    def release(self) -> None:
        """Frees the lock. The file stays: if it were removed, two agents could lock two inodes. Idempotent."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            os.close(self._directory_fd)
            self._lock_fd = -1


def _without_links(path: Path) -> Path:
    """Resolves links that root or this user made, as systemd's DynamicUser does. Raises FatalError for links of anybody else.

    The target must be private like any other state directory.
    """
    for _ in range(_LINKS):
        try:
            status = path.lstat()
        except OSError:
            return path  # opening it raises the error
        if not stat.S_ISLNK(status.st_mode):
            return path
        if status.st_uid not in (0, os.geteuid()):
            msg = f"state directory {path} is a symbolic link that user {status.st_uid} made"
            raise FatalError(msg, f"remove it, or name the directory itself: --state-dir {shlex.quote(os.path.realpath(path))}")
        path = path.parent / path.readlink()
    msg = f"state directory {path} is a symbolic link to a symbolic link, and so on"
    raise FatalError(msg, "name the directory itself with --state-dir")


def _open_private(path: Path) -> int:
    """Opens the directory, and creates a missing one. Raises FatalError if others could have written to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    directory_fd = os.open(path, _DIRECTORY_FLAGS)
    try:
        _check_private(path, os.fstat(directory_fd))
        _close_to_others(path, directory_fd)
    except BaseException:
        os.close(directory_fd)
        raise
    return directory_fd


def _close_to_others(path: Path, directory_fd: int) -> None:
    """Sets mode 0700: the directory contains the names of all logs, and perhaps the agent's socket."""
    mode = stat.S_IMODE(os.fstat(directory_fd).st_mode)
    if mode & 0o077:
        os.fchmod(directory_fd, 0o700)
        _log.info("state directory is closed to other users", path=path, mode_was=f"{mode:04o}", mode="0700")


def _check_private(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        msg = f"state directory {path} belongs to user {status.st_uid}, this runs as user {os.geteuid()}"
        give = f"chown -R {os.geteuid()} {shlex.quote(str(path))}"
        raise FatalError(
            msg, f"run it as that user: sudo -u '#{status.st_uid}' copycat ...; or, if the directory is to change hands: {give}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        msg = f"state directory {path} is writable for others (mode {stat.S_IMODE(status.st_mode):04o})"
        raise FatalError(msg, f"chmod 700 {shlex.quote(str(path))}")


def _lock(path: Path, directory_fd: int) -> int:
    """Locks the directory, and writes the pid to the lock file. Returns the descriptor that holds the lock."""
    while True:
        lock_fd = os.open(_LOCK, _LOCK_FLAGS, 0o600, dir_fd=directory_fd)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock_fd, 20, 0).strip()
            os.close(lock_fd)
            who = f"pid {int(holder)}" if holder.isdigit() else "pid not known yet"
            msg = f"another agent ({who}) uses state directory {path}"
            raise FatalError(msg, "stop it first, or give this agent a directory of its own with --state-dir") from None
        if _is_current(lock_fd, directory_fd):
            os.ftruncate(lock_fd, 0)
            os.pwrite(lock_fd, b"%d\n" % os.getpid(), 0)
            return lock_fd
        os.close(lock_fd)


def _is_current(lock_fd: int, directory_fd: int) -> bool:
    """Returns whether the locked file still has its name: it may have been removed between open and flock."""
    try:
        named = os.stat(_LOCK, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(lock_fd))


def marker_of(database: Path) -> Path:
    """Returns the path of the marker that keeps an agent from starting with an empty store after a quarantine."""
    return database.with_name(database.name + ".quarantined")


def marker_text(database: Path) -> str:
    """Returns the marker's text, "" if there is no marker."""
    try:
        return marker_of(database).read_text("utf-8", "replace").strip() or "the offset store was damaged"
    except FileNotFoundError:
        return ""


def leave_marker(directory: StateDir, database: Path, why: str) -> None:
    """Writes the marker: no agent starts with an empty store until a person has decided. Raises OSError."""
    directory.replace(marker_of(database).name, f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {why}\n")
