"""Remembers since when topics are deleted: their positions are forgotten after a day."""

from __future__ import annotations

import time
from collections.abc import Iterable

FORGET_SECONDS = 86_400.0
"""How long a topic has to be missing without a break. Another cluster may answer for hours behind the same name."""


class DeletedTopics:
    """Topics that were read to their ends before a broker said that they do not exist. Times are those of `time.monotonic`."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def saw(self, missing: Iterable[str]) -> None:
        """Notes which topics are missing now. All others are not."""
        now = time.monotonic()
        self._since = {name: self._since.get(name, now) for name in missing}

    def old(self) -> set[str]:
        """Returns the topics to forget."""
        now = time.monotonic()
        return {name for name, since in self._since.items() if now >= since + FORGET_SECONDS}
