"""Reading small files that someone else may have put there: never more than asked for, never waiting."""

from __future__ import annotations

import errno
import os
import stat


def read_small_file(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """Returns all bytes of a regular file (links are followed), opened so that a pipe or device cannot hold us up.

    Raises OSError, with `strerror` fit to be shown, when it cannot be read, is no regular file, or has more than
    `bytes_max` bytes.
    """
    return read_with_status(path, bytes_max)[0]


def read_with_status(path: str | os.PathLike[str], bytes_max: int) -> tuple[bytes, os.stat_result]:
    """`read_small_file`, and the status that the file had just before its bytes were read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError:
        raise OSError(errno.EINVAL, "not a file name") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"more than {bytes_max} bytes")
    return content, status
