"""What `copycat run` tells the service manager: when the agent is up, how its connectors are, and that it does not hang."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.agent import Agent
    from copycat_agent.systemd import ServiceManager

READY_SECONDS = 10.0
"""How long the first look of a connector at its directories may hold up "ready": a dead network file system must not for ever."""


class Serving:
    """Called by the loop of `run`, in its thread. Does nothing without a service manager."""

    def __init__(self, manager: ServiceManager, agent: Agent) -> None:
        self._manager = manager
        self._agent = agent
        self._began = time.monotonic()
        self._is_ready = False
        self._reload_asked = False

    def tick(self) -> None:
        """Tell what is new and feed the watchdog, unless the agent hangs. Called about twice a second."""
        if not self._manager.listens:
            return
        status = self._summary()
        if not self._is_ready:
            if self._agent.worker.started() or time.monotonic() - self._began > READY_SECONDS:
                self._is_ready = True
                self._manager.ready(status)
        elif self._reload_asked and not self._agent.reloading:
            self._reload_asked = False
            self._manager.ready(status)
        self._manager.status(status)
        self._manager.feed(self._agent.heartbeat())

    def reloading(self) -> None:
        """A reload is about to be asked for."""
        self._reload_asked = True
        self._manager.reloading()

    def stopping(self) -> None:
        """The agent is about to settle what is in flight."""
        self._manager.stopping("settles what is in flight")

    def _summary(self) -> str:
        """`3 connectors: 2 running, 1 blocked`."""
        counts = Counter(status.state.value for status in self._agent.statuses() if status.enabled)
        total = sum(counts.values())
        states = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
        return f"{total} connector{'' if total == 1 else 's'}{': ' if states else ''}{states}"
