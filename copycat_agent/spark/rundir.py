"""The private directory (0700) of a session for temporary files, Spark's blocks and sockets.

Only the names below are ever deleted in it, whatever directory the caller names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from copycat_agent.errors import FatalError

TEMPORARY = "tmp"
"""The JVM's java.io.tmpdir and the workers' TMPDIR: /tmp may be mounted noexec, which breaks Spark's native libraries."""

LOCAL = "blocks"
"""spark.local.dir."""

SOCKETS = "sockets"
"""Directory of sockets, or a link to one with a shorter path."""

SPARK_SOCKETS = "s"
"""Directory of Spark's own sockets, below `SOCKETS`."""

SOCKET_DIR_BYTES = 58
"""Longest path of the directory: a unix socket's path has at most 107 bytes, of which Spark's names take 42."""

_FILES = ("gateway", "jvm.args")
_SHORT_PREFIX = "copycat-"


def prepare(run_dir: Path) -> Path:
    """Creates or empties the directory. Returns the directory for sockets. Raises FatalError if it is not a directory of this user."""
    try:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = run_dir.lstat()
        if status.st_uid != os.geteuid() or not run_dir.is_dir() or run_dir.is_symlink():
            msg = f"{run_dir} is not a directory of this user"
            raise FatalError(msg, "remove it, or choose another state directory")
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
    sockets = run_dir / SOCKETS
    if sockets.is_symlink():
        target = sockets.readlink()
        with contextlib.suppress(OSError):
            if target.name.startswith(_SHORT_PREFIX) and target.lstat().st_uid == os.geteuid():
                shutil.rmtree(target, ignore_errors=True)
        with contextlib.suppress(OSError):
            sockets.unlink()
    shutil.rmtree(sockets, ignore_errors=True)
    for name in _FILES:
        with contextlib.suppress(OSError):
            (run_dir / name).unlink()


def sweep(run_dir: Path, sockets: Path) -> None:
    """Deletes what a dead JVM has left, for the next one, which fails if a directory cannot be made. The executors' sockets stay."""
    for directory in (run_dir / TEMPORARY, run_dir / LOCAL, sockets / SPARK_SOCKETS):
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.mkdir(mode=0o700, exist_ok=True)


def _socket_dir(run_dir: Path) -> Path:
    """Creates `run_dir/sockets`; if its path is too long for sockets, as a link to a private directory with a short path. Returns that."""
    sockets = run_dir.absolute() / SOCKETS
    if len(os.fsencode(sockets)) <= SOCKET_DIR_BYTES:
        sockets.mkdir(mode=0o700)
        return sockets
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    short = len(os.fsencode(runtime)) + len(_SHORT_PREFIX) + 9 <= SOCKET_DIR_BYTES and os.access(runtime, os.W_OK | os.X_OK)
    target = Path(tempfile.mkdtemp(prefix=_SHORT_PREFIX, dir=runtime if short else "/tmp"))  # noqa: S108  mkdtemp makes it private
    sockets.symlink_to(target)
    return target
