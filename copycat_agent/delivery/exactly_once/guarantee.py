"""Exactly once, as an agent's connectors ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.delivery.exactly_once.opening import ExactlyOnceOpening
from copycat_agent.errors import CopycatError, PositionsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.delivery.base import Report
    from copycat_agent.delivery.exactly_once.attempts import MakeWorld
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.turns import Turns


class ExactlyOnceGuarantee:
    """See `delivery.opening.Guarantee`."""

    def __init__(self, store: OffsetStore, turns: Turns, make_world: MakeWorld, *, keeps_accounts: bool) -> None:
        """Lanes are opened in `turns`, in what `make_world` makes: a Kafka cluster, or what stands in for it."""
        self._store = store
        self._turns = turns
        self._make_world = make_world
        self._keeps_accounts = keeps_accounts

    def open(self, definition: Definition, report: Report, earlier: Sequence[str]) -> ExactlyOnceOpening:
        """See `Guarantee.open`."""
        how = {"keeps_accounts": self._keeps_accounts}
        return ExactlyOnceOpening(definition, self._store, self._turns, self._make_world, report, earlier, **how)

    def leave(self, connector: str) -> None:
        """See `Guarantee.leave`."""
        self._store.leave_lanes(connector)

    def remember(self, connector: str, error: CopycatError) -> None:
        """See `Guarantee.remember`."""
        if isinstance(error, PositionsError):
            self._store.lanes_refused(connector, error)
