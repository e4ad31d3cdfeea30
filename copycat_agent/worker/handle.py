"""A connector by name: what it should be doing, what it counted, and what runs it while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from copycat_agent.worker.connector_metrics import ConnectorMetrics
from copycat_agent.worker.status import State, Status
from copycat_agent.worker.taps import Taps

if TYPE_CHECKING:
    from copycat_agent.options import Definition
    from copycat_agent.worker.connector import Connector
    from copycat_agent.worker.targets import Target

DISABLED = "disabled by its definition"
"""Reason of a connector whose definition says `enabled: false`."""
STOPPED = "stopped on request; start it with: copycat ctl resume {}"
"""Reason of a connector that a person stopped."""
NOT_NOW = "{} on request, so a run to the end leaves it out; include it again with: copycat ctl resume {}"
"""Reason of a connector that `run --until-idle` does not run."""


@dataclass(eq=False, slots=True)
class ConnectorHandle:
    """Owned by the worker and changed under its lock; `status` is for any thread.

    `inherit` are names whose offsets it takes over before it begins for the first time, `earlier` those that Kafka may know it by.
    """

    definition: Definition
    target: Target = "running"
    inherit: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    metrics: ConnectorMetrics = field(default_factory=ConnectorMetrics)
    taps: Taps = field(default_factory=Taps)
    connector: Connector | None = None
    since: float = field(default_factory=time.time)

    @property
    def runs(self) -> bool:
        """Whether it runs now, or is coming to its end."""
        return self.connector is not None and not self.connector.ended

    @property
    def state(self) -> State:
        """The state alone."""
        return self.status.state

    @property
    def status(self) -> Status:
        """How it is now."""
        connector, name = self.connector, self.definition.name
        if connector is None:
            state, reason = self._at_rest()
            metrics, definition = self.metrics, self.definition
            return Status(
                name, state, reason, self.since, metrics.counts, metrics.lag, errors=metrics.errors, enabled=definition.enabled,
                guarantee=definition.delivery.guarantee, delivery_outcomes=metrics.delivery_outcomes,
            )  # fmt: skip
        status = connector.status
        if self.target == "stopped" and connector.ended:
            return replace(status, state=State.STOPPED, reason=STOPPED.format(name))
        return status

    def _at_rest(self) -> tuple[State, str]:
        """State and reason of one that has no thread."""
        name = self.definition.name
        if not self.definition.enabled:
            return State.STOPPED, DISABLED
        if self.target == "stopped":
            return State.STOPPED, STOPPED.format(name)
        return (State.STOPPED, NOT_NOW.format(self.target, name)) if self.target == "paused" else (State.STARTING, "")
