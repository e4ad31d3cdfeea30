"""What a connector tells about itself."""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass, field

from copycat_agent.model import Counts
from copycat_agent.sources import Lag


class State(enum.StrEnum):
    """States of a connector. FAILED needs a person; RETRYING and BLOCKED end by themselves once the outside is well."""

    STARTING = enum.auto()
    RUNNING = enum.auto()
    RETRYING = enum.auto()
    BLOCKED = enum.auto()
    STOPPED = enum.auto()
    FAILED = enum.auto()


@dataclass(frozen=True, slots=True)
class Status:
    """A connector at one moment. `counts` since it was started; `since` and `acknowledged_at` in epoch seconds (0: never).

    BLOCKED with `lag.blocked_files` means these files only: the others go on. `unsaved`: it stopped and could not save offsets.
    """

    name: str
    state: State = State.STARTING
    reason: str = ""
    since: float = field(default_factory=time.time)
    counts: Counts = field(default_factory=Counts)
    lag: Lag = field(default_factory=Lag)
    retries: int = 0
    acknowledged_at: float = 0.0
    unsaved: bool = False

    @property
    def troubled_files(self) -> int:
        """Files and directories that match and cannot be read now."""
        return self.lag.troubled_files
