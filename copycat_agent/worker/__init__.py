"""The worker: runs connectors in one poll loop, and reports their status."""

from __future__ import annotations

from copycat_agent.worker.connector import STUCK_SECONDS
from copycat_agent.worker.status import BOUNDS_SECONDS, State, Status, Timing
from copycat_agent.worker.worker import Worker

__all__ = ["BOUNDS_SECONDS", "STUCK_SECONDS", "State", "Status", "Timing", "Worker"]
