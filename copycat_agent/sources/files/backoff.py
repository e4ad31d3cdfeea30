"""How long a file, or another partition, waits before it is tried again."""

from __future__ import annotations

from dataclasses import dataclass

RETRY_SECONDS = (0.5, 60.0)
"""First and longest wait of a file that could not be read."""
BLOCKED_SECONDS = (1.0, 60.0)
"""First and longest wait of a file whose topic is missing or forbidden."""
_DOUBLINGS = 10
"""Most doublings of a wait: an outage may last for days, and a float ends at 2**1024."""


def wait_seconds(bounds: tuple[float, float], times: int) -> float:
    """Returns the wait after `times` earlier failures: the first of `bounds`, doubled each time, at most the second."""
    first, longest = bounds
    return min(longest, first * 2.0 ** min(times, _DOUBLINGS))


@dataclass(frozen=True, slots=True)
class FileBackoff:
    """Why and until when a partition is not tried again.

    `errors`: how often in a row it could not be read; `blocked`: how often in a row its records could not be sent until someone
    repairs something. `retry_at`: `time.monotonic()`.
    """

    errors: int = 0
    blocked: int = 0
    retry_at: float = 0.0

    @property
    def error_seconds(self) -> float:
        """Returns how long it waits if it cannot be read once more."""
        return wait_seconds(RETRY_SECONDS, self.errors)

    def after_error(self, now: float, bounds: tuple[float, float] = RETRY_SECONDS) -> FileBackoff:
        """Returns the back-off of what could not be read at `now`. It grows each time. `bounds`: first and longest wait in seconds."""
        return FileBackoff(self.errors + 1, self.blocked, now + wait_seconds(bounds, self.errors))

    def after_block(self, now: float, bounds: tuple[float, float] = BLOCKED_SECONDS) -> FileBackoff:
        """Returns the back-off of what could not be sent at `now`. `bounds` as above."""
        return FileBackoff(self.errors, self.blocked + 1, now + wait_seconds(bounds, self.blocked))


READY = FileBackoff()
"""The back-off of what went well last."""
