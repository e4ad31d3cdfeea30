"""A connector by name: the state that people want, its counts, and the `Connector` that runs it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from copycat_agent import logs
from copycat_agent.errors import CopycatError
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import Definition
from copycat_agent.worker.connector import Connector
from copycat_agent.worker.orders import Taps
from copycat_agent.worker.status import ConnectorMetrics, State, Status

Target = Literal["running", "paused", "stopped"]

_log = logs.get("worker")


class TargetStates:
    """The state that a person wants for each connector: running, paused or stopped.

    Read from the store once, then kept in memory and in the store. Changed under the worker's lock, except
    that a connector's step renames a target when it takes over offsets.
    """

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._targets: dict[str, str] | None = None

    def of(self, names: Iterable[str]) -> Target:
        """Returns the target of the first name that has one; else `running`."""
        known = self._known()
        return cast("Target", next((known[name] for name in names if name in known), "running"))

    def set(self, name: str, target: Target) -> None:
        """Sets a target. If it cannot be saved, it holds for as long as this agent runs."""
        self._known()[name] = target
        try:
            self._store.set_target(name, target)
        except CopycatError as error:
            _log.warning(
                "the new target could not be saved: the next start of the agent will not know it",
                connector=name,
                wanted=target,
                why=str(error),
            )

    def rename(self, old: str, new: str) -> None:
        """Renames a target, after the store has renamed the connector."""
        known = self._known()
        if old in known:
            known.setdefault(new, known.pop(old))

    def _known(self) -> dict[str, str]:
        if self._targets is None:
            try:
                self._targets = self._store.targets()
            except CopycatError as error:
                _log.warning("what was paused or stopped before is not known, all connectors start", why=str(error))
                self._targets = {}
        return self._targets


DISABLED = "disabled by its definition"
"""The reason of a connector whose definition says `enabled: false`."""
STOPPED = "stopped on request; start it with: copycat ctl resume {}"
"""The reason of a connector that a person stopped."""
NOT_NOW = "{} on request, so a run to the end leaves it out; include it again with: copycat ctl resume {}"
"""The reason of a connector that `run --until-idle` does not run."""


@dataclass(eq=False, slots=True)
class ConnectorHandle:
    """Owned by the worker and changed under its lock, except `inherit`, which a connector's step empties. Any thread may read `status`.

    `inherit` are names whose offsets it takes over before its first start, `earlier` those under which Kafka may know it.
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
        """Returns whether it runs now, or is ending."""
        return self.connector is not None and not self.connector.ended

    @property
    def state(self) -> State:
        """Returns the state alone, which is cheap."""
        connector = self.connector
        if connector is None:
            return self._at_rest()[0]
        return State.STOPPED if self.target == "stopped" and connector.ended else connector.state

    @property
    def status(self) -> Status:
        """Returns its present status."""
        connector, name = self.connector, self.definition.name
        if connector is None:
            state, reason = self._at_rest()
            metrics, definition = self.metrics, self.definition
            return Status(
                name, state, reason, self.since, metrics.counts, metrics.lag, errors=metrics.errors, enabled=definition.enabled,
                guarantee=definition.promise, sink=definition.sink.type, delivery_outcomes=metrics.delivery_outcomes,
            )  # fmt: skip
        status = connector.status
        if self.target == "stopped" and connector.ended:
            return replace(status, state=State.STOPPED, reason=STOPPED.format(name))
        return status

    def _at_rest(self) -> tuple[State, str]:
        """Returns state and reason while nothing runs."""
        name = self.definition.name
        if not self.definition.enabled:
            return State.STOPPED, DISABLED
        if self.target == "stopped":
            return State.STOPPED, STOPPED.format(name)
        return (State.STOPPED, NOT_NOW.format(self.target, name)) if self.target == "paused" else (State.STARTING, "")
