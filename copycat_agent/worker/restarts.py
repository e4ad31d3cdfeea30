"""When a connector that ended by itself is started again, and when it is not."""

from __future__ import annotations

import time

RESTART_SECONDS = (1.0, 60.0)
"""First and longest wait before a connector is started again."""
BUGS_MAX = 3
"""So many unexpected errors within `BUGS_SECONDS` end the connector: what one file brings about would be sent again at each start."""
BUGS_SECONDS = 3600.0
STEADY_SECONDS = 60.0
"""A connector that has worked so long begins with the shortest wait again."""


class Restarts:
    """Those of one connector."""

    def __init__(self) -> None:
        self.pause_seconds = 0.0
        """The wait before the next start; 0 before the first one."""
        self._bugs: list[float] = []

    def ended(self, begun: float) -> float:
        """It began at `begun` (`time.monotonic()`) and ended by something that may be over next time. Returns the wait, which grows."""
        shortest, longest = RESTART_SECONDS
        steady = time.monotonic() - begun > STEADY_SECONDS
        self.pause_seconds = shortest if steady or not self.pause_seconds else min(longest, 2 * self.pause_seconds)
        return self.pause_seconds

    def keeps_happening(self, error: Exception, *, has_sent: bool) -> bool:
        """Whether it is better not to try again after a bug. What the host lacks for a while counts only where something was sent."""
        if has_sent or not isinstance(error, OSError | MemoryError):
            now = time.monotonic()
            self._bugs = [*(at for at in self._bugs if at > now - BUGS_SECONDS), now]
        return len(self._bugs) >= BUGS_MAX
