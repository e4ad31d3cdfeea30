"""Descriptors that a file server has forgotten (ESTALE): the file may be well, and only its name leads to it again."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.sources.log_file.tracked import TrackedFile


def close_if_stale(file: TrackedFile) -> bool:
    """After an error: close the file when its descriptor will never work again. Returns whether it did.

    Its turn opens it by its name then, and its identity tells whether it is the same; when the name is gone, a scan searches
    for it as for any file that went away while it was closed. Trouble that may pass (EIO) leaves the descriptor alone: it may be
    the only way to a deleted file.
    """
    if file.fd < 0 or file.in_flight or not _is_stale(file.fd):
        return False
    file.close()
    return True


def _is_stale(fd: int) -> bool:
    """As a task meets it: opened through the driver's descriptor, looked at and read."""
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.fstat(fd)
            os.pread(again, 1, 0)
        finally:
            os.close(again)
    except OSError as error:
        return error.errno == errno.ESTALE
    return False
