"""The private directory (0700) of a session for temporary files, Spark's blocks and sockets.

Only the names below are ever deleted in it, whatever directory the caller names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from copycat_agent.errors import FatalError

TEMPORARY = "tmp"
"""The JVM's java.io.tmpdir and the workers' TMPDIR: /tmp may be mounted noexec, which breaks Spark's native libraries."""

LOCAL = "blocks"
"""spark.local.dir."""

SOCKETS = "sockets"
"""Directory of sockets."""

SPARK_SOCKETS = "s"
"""Directory of Spark's own sockets, below `SOCKETS`."""

SOCKET_DIR_BYTES = 58
"""Longest path of the directory by its name: a unix socket's path has at most 107 bytes, of which Spark's names take 42."""

_FILES = ("gateway", "jvm.args")


def prepare(run_dir: Path) -> Path:
    """Creates or empties the directory. Returns the directory for sockets. Raises FatalError if it is not a directory of this user."""
    try:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = run_dir.lstat()
        if status.st_uid != os.geteuid() or not run_dir.is_dir() or run_dir.is_symlink():
            raise FatalError(f"{run_dir} is not a directory of this user", "remove it, or choose another state directory")
        run_dir.chmod(0o700)
        remove(run_dir)
        for name in (TEMPORARY, LOCAL):
            (run_dir / name).mkdir(mode=0o700)
        sockets = _socket_dir(run_dir)
        (sockets / SPARK_SOCKETS).mkdir(mode=0o700)
    except OSError as error:
        msg = f"the directory {run_dir} cannot be used: {error.strerror or error}"
        raise FatalError(msg, "make it writable for this user, or choose another state directory") from error
    return sockets


def remove(run_dir: Path) -> None:
    """Deletes what `prepare` and a session have made. Raises nothing; the next `prepare` deletes what is left."""
    for name in (TEMPORARY, LOCAL):
        shutil.rmtree(run_dir / name, ignore_errors=True)
    shutil.rmtree(run_dir / SOCKETS, ignore_errors=True)
    for name in (SOCKETS, *_FILES):  # the first if it is a link
        with contextlib.suppress(OSError):
            (run_dir / name).unlink()


def sweep(run_dir: Path, sockets: Path) -> None:
    """Deletes what a dead JVM has left, for the next one, which fails if a directory cannot be made. The executors' sockets stay."""
    for directory in (run_dir / TEMPORARY, run_dir / LOCAL, sockets / SPARK_SOCKETS):
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, exist_ok=True)


def _socket_dir(run_dir: Path) -> Path:
    """Creates `run_dir/sockets`. Returns its path; if that is too long for sockets, by a descriptor that is never closed.

    A shorter directory elsewhere, as in /tmp, would be emptied after some days by who cleans up there.
    """
    sockets = run_dir.absolute() / SOCKETS
    sockets.mkdir(mode=0o700)
    if len(os.fsencode(sockets)) <= SOCKET_DIR_BYTES:
        return sockets
    return Path(f"/proc/{os.getpid()}/fd/{os.open(sockets, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}")
