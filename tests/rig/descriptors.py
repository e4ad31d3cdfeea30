"""A process that has no descriptors left."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

_MOST = 512


@contextlib.contextmanager
def no_descriptors_left(spare: int = 0) -> Iterator[None]:
    """Within it, this process can open nothing, or so much."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, _MOST), hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(spare):
            os.close(taken.pop())
        yield
    finally:
        for one in taken:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
