"""When a loop of kills ends."""

from __future__ import annotations

import signal
import sys
import time


class LoopEnd:
    """The end after so many minutes, or at the first SIGTERM. Either way the checks for losses follow; a second SIGTERM skips them."""

    def __init__(self, minutes: float) -> None:
        self._at = time.monotonic() + minutes * 60
        signal.signal(signal.SIGTERM, self._asked_to_end)

    @property
    def has_come(self) -> bool:
        """Whether no further kill is to be made."""
        return time.monotonic() >= self._at

    def _asked_to_end(self, *_: object) -> None:
        if self.has_come:
            sys.exit(143)  # as an exception, so that nothing is left running
        self._at = 0.0
        print("ends after this kill, with the checks; a second SIGTERM skips them", file=sys.stderr, flush=True)
