"""The threads that have begun in this process since a moment: other tests' threads are in it too, and end when they like."""

from __future__ import annotations

import threading
from pathlib import Path


class NewThreads:
    """The threads that have begun since it was made. Those that were there before count neither while they live nor when they end."""

    def __init__(self) -> None:
        self._before = {*threading.enumerate()}

    def named(self, *prefixes: str) -> list[threading.Thread]:
        """Returns those that live now and whose name begins with one of `prefixes`."""
        return [one for one in threading.enumerate() if one not in self._before and one.name.startswith(prefixes)]


def held() -> tuple[int, int]:
    """How many threads (those of libraries too) and open files this process has."""
    return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))
