"""What a process has learnt of its tasks: a process lives as long as the agent, and names of connectors come and go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from copycat_agent.model import TaskId

T = TypeVar("T")

FORGET_SECONDS = 86_400.0
"""What was not asked for in a day costs little to learn again."""


class Remembered(Generic[T]):
    """One thing per task, for as long as it is asked for now and then. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[TaskId, tuple[T, float]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, task: TaskId) -> T | None:
        """What is known of it."""
        known = self._known.get(task)
        return None if known is None else self.keep(task, known[0])

    def keep(self, task: TaskId, what: T) -> T:
        """Remember it, and return it."""
        self._known[task] = what, time.monotonic()
        return what

    def forget(self) -> None:
        """Let go what was not asked for during `FORGET_SECONDS`."""
        since = time.monotonic() - FORGET_SECONDS
        for task in [task for task, (_, used) in self._known.items() if used < since]:
            del self._known[task]
