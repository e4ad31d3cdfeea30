"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_POLL_SECONDS = 0.02
_MOST_POLL_SECONDS = 0.5


def wait_until(condition: Callable[[], T], deadline_seconds: float = 60.0, message: str | Callable[[], str] = "condition") -> T:
    """Call `condition` until it returns something true, and return that. AssertionError with `message` after the deadline."""
    deadline = time.monotonic() + deadline_seconds
    while True:
        asked = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        if now > deadline:
            text = message() if callable(message) else message
            msg = f"not within {deadline_seconds} s: {text}"
            raise AssertionError(msg)
        time.sleep(min(max(_POLL_SECONDS, 2 * (now - asked)), _MOST_POLL_SECONDS))  # one that reads whole topics takes a third of a core
