"""What monitoring asks a running agent: is it alive, ready, delivering, and how much of everything. The door to prometheus_client."""

from __future__ import annotations

from copycat_agent.metrics.health import Health, Trouble, Verdict
from copycat_agent.metrics.web import PATHS, health_app

__all__ = ["PATHS", "Health", "Trouble", "Verdict", "health_app"]
