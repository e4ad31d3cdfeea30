"""What people want each connector to be, remembered over restarts of the agent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, cast

from copycat_agent import logs
from copycat_agent.errors import CopycatError

if TYPE_CHECKING:
    from copycat_agent.offsets import OffsetStore

Target = Literal["running", "paused", "stopped"]

_log = logs.get("worker")


class Targets:
    """Read once, kept in the store. Used under the worker's lock."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._targets: dict[str, str] | None = None

    def of(self, names: Iterable[str]) -> Target:
        """That of the first name that has one; else `running`."""
        known = self._known()
        return cast("Target", next((known[name] for name in names if name in known), "running"))

    def set(self, name: str, target: Target) -> None:
        """From now on. When it cannot be saved it holds for as long as this agent runs."""
        self._known()[name] = target
        try:
            self._store.set_target(name, target)
        except CopycatError as error:
            _log.warning("the next start of the agent will not know this", connector=name, wanted=target, why=str(error))

    def rename(self, old: str, new: str) -> None:
        """The store has renamed a connector, its target included."""
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
