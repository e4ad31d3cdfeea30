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
    """A connector at one moment. `counts` since it was started; `since` and `acknowledged_at` in epoch seconds (0: never)."""

    name: str
    state: State = State.STARTING
    reason: str = ""
    since: float = field(default_factory=time.time)
    counts: Counts = field(default_factory=Counts)
    lag: Lag = field(default_factory=Lag)
    retries: int = 0
    acknowledged_at: float = 0.0
    troubled_files: int = 0
