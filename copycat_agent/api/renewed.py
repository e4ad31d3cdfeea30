"""What is made from files of the operator's, and made anew when they change: certificates, logins."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from copycat_agent import logs
from copycat_agent.errors import FatalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AGAIN_SECONDS = 5.0
"""Between two tries to take files that are no good: a certificate may be there a moment before its key."""

Made = TypeVar("Made")
_log = logs.get("api")


class Renewed(Generic[Made]):
    """A value made by `make`, which reads `files` and raises FatalError when they are no good. Call it for the value. Thread-safe."""

    def __init__(self, files: Sequence[str], make: Callable[[], Made]) -> None:
        """Raises FatalError: at the start there is nothing older to go on with."""
        self._files, self._make = files, make
        self._lock = threading.Lock()
        self._seen = self._look()
        self._made = make()
        self._failed_at = float("-inf")

    def __call__(self) -> Made:
        """As the files are now, else as they were when they were good last."""
        seen = self._look()
        with self._lock:
            if seen != self._seen and time.monotonic() - self._failed_at > AGAIN_SECONDS:
                try:
                    self._made, self._seen = self._make(), seen
                    _log.info("files of the API are new", files=self._files)
                except FatalError as error:
                    self._failed_at = time.monotonic()
                    _log.warning("files of the API cannot be used; what they held before goes on", error=error)
            return self._made

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_state(path) for path in self._files]


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)  # noqa: PTH116 - follows links, as renewal tools make them
    except OSError:
        return None
    return info.st_ino, info.st_size, info.st_mtime_ns
