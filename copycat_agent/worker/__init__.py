"""The worker: runs the connectors of a set of definitions, and makes one set become another."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from copycat_agent.worker.connector import Connector
from copycat_agent.worker.status import State, Status

if TYPE_CHECKING:
    from copycat_agent.executor import Executor
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.watch import Watcher

__all__ = ["State", "Status", "Worker"]

STOP_SECONDS = 15.0
"""How long what is in flight may take to be acknowledged when connectors are stopped."""


class Worker:
    """Owns the connectors. `apply`, `stop` and `wait` are called from one thread; `statuses` from any."""

    def __init__(self, store: OffsetStore, executor: Executor, watcher: Watcher, *, until_idle: bool = False) -> None:
        """`until_idle`: connectors end when everything that is there is read."""
        self._store = store
        self._executor = executor
        self._watcher = watcher
        self._until_idle = until_idle
        self._connectors: dict[str, Connector] = {}
        self._ended = threading.Condition()

    def apply(self, definitions: Iterable[Definition]) -> None:
        """Run exactly these definitions: equal ones go on untouched, others are drained and replaced, those not named are drained."""
        wanted = {definition.name: definition for definition in definitions if definition.enabled}
        leaving = [one for name, one in self._connectors.items() if wanted.get(name) != one.definition]
        self._drain(leaving)
        for connector in leaving:
            del self._connectors[connector.definition.name]
        for name, definition in wanted.items():
            if name not in self._connectors:
                self._connectors[name] = self._start(definition)

    def statuses(self) -> tuple[Status, ...]:
        """Every connector as it is now, by name."""
        return tuple(self._connectors[name].status for name in sorted(self._connectors))

    def wait(self, seconds: float) -> bool:
        """Wait until all connectors have ended by themselves, at most `seconds`; True when they have."""
        with self._ended:
            return self._ended.wait_for(lambda: all(one.ended for one in self._connectors.values()), seconds)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stop reading, settle what is in flight within `seconds`, commit, end all threads."""
        self._drain(list(self._connectors.values()), seconds)

    def _start(self, definition: Definition) -> Connector:
        connector = Connector(definition, self._store, self._executor, self._watcher, until_idle=self._until_idle, on_end=self._one_ended)
        connector.start()
        return connector

    def _drain(self, connectors: list[Connector], seconds: float = STOP_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        for connector in connectors:
            connector.stop(deadline)
        for connector in connectors:
            connector.join()

    def _one_ended(self) -> None:
        with self._ended:
            self._ended.notify_all()
