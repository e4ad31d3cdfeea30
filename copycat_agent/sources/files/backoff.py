"""How long a file waits before it is tried again."""

from __future__ import annotations

RETRY_SECONDS = (0.5, 60.0)
"""First and longest wait of a file that could not be read."""
BLOCKED_SECONDS = (1.0, 60.0)
"""First and longest wait of a file whose topic is missing or forbidden."""
_DOUBLINGS = 10
"""No more: an outage may last for days, and a float ends at 2**1024."""


def wait_seconds(bounds: tuple[float, float], times: int) -> float:
    """The wait after it went wrong `times` times before: the first, doubled each time, at most the longest."""
    first, longest = bounds
    return min(longest, first * 2.0 ** min(times, _DOUBLINGS))
