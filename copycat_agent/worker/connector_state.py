"""In which state a connector is, why and since when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.worker.status import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.logs import Log


class Now(NamedTuple):
    """A state with its reason ("" when it needs none) and its beginning in epoch seconds."""

    state: State
    reason: str
    since: float


class ConnectorState:
    """Written by the connector's thread; `now` and `unsaved` are read by any."""

    def __init__(self, log: Log, on_change: Callable[[], None] = lambda: None) -> None:
        self.now = Now(State.STARTING, "", time.time())
        self.unsaved = ""
        """Why offsets cannot be saved at the moment, "" when they can."""
        self.lost_grip = False
        """It stopped and could not save offsets."""
        self._log = log
        self._on_change = on_change

    @property
    def state(self) -> State:
        """The state alone."""
        return self.now.state

    def become(self, state: State, reason: str = "") -> None:
        """Take this state, if it is another one or has another reason. Its beginning stays when only the reason changes."""
        before = self.now
        if (state, reason) == before[:2]:
            return
        log = self._log.bind(why=reason) if reason else self._log
        log.info("connector state", always=True, state=state)
        self.now = Now(state, reason, before.since if state is before.state else time.time())
        self._on_change()
