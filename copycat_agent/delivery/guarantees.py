"""Chooses a connector's delivery from a table with one line per guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from copycat_agent.delivery.at_least_once import AtLeastOnceGuarantee
from copycat_agent.delivery.base import Callbacks, Opening
from copycat_agent.delivery.exactly_once.guarantee import ExactlyOnceGuarantee
from copycat_agent.delivery.exactly_once.opening_attempts import OPENINGS_AT_ONCE, MakeKafkaAccess, kafka_access
from copycat_agent.delivery.files_delivery import FilesGuarantee
from copycat_agent.errors import CopycatError
from copycat_agent.fair_executor import FairExecutor
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import Definition


class Guarantee(Protocol):
    """Opens deliveries of one kind. Shared by all connectors, thread-safe. Every method may raise what the store raises."""

    def open(self, definition: Definition, callbacks: Callbacks, earlier: Sequence[str]) -> Opening:
        """Begins to open a connector's delivery. Raises FatalError when a person has to decide something first.

        `earlier`: names under which Kafka may know the connector when the store does not.
        """

    def leave(self, connector: str) -> None:
        """Called when the connector runs with another guarantee from now on."""

    def remember(self, connector: str, error: CopycatError) -> None:
        """Saves what the commands for a person's decision need. Called when the connector ended with this error."""


class Deliveries:
    """Opens the deliveries of an agent's connectors. Thread-safe."""

    def __init__(
        self,
        store: OffsetStore,
        *,
        keeps_accounts: bool = False,
        make_access: MakeKafkaAccess = kafka_access,
        threads: FairExecutor | None = None,
    ) -> None:
        """`keeps_accounts`: the outcome of each file is saved in the store. `make_access`: makes the lanes' access to Kafka.

        `threads` provides the threads on which lanes are opened, daemons by default.
        """
        self._guarantees: Mapping[str, Guarantee] = {
            "at_least_once": AtLeastOnceGuarantee(store),
            "exactly_once": ExactlyOnceGuarantee(
                store, threads or FairExecutor(OPENINGS_AT_ONCE), make_access, keeps_accounts=keeps_accounts
            ),
            "files": FilesGuarantee(store),
        }

    def open(self, definition: Definition, callbacks: Callbacks, earlier: Sequence[str] = ()) -> Opening:
        """Begins to open the definition's delivery. Raises as `Guarantee.open` does."""
        asked = _guarantee(definition)
        opening = self._guarantees[asked].open(definition, callbacks, earlier)
        for name, guarantee in self._guarantees.items():
            if name != asked:
                guarantee.leave(definition.name)
        return opening

    def ended(self, definition: Definition, error: CopycatError) -> None:
        """Called when the connector ended with this error. Raises what the store raises."""
        self._guarantees[_guarantee(definition)].remember(definition.name, error)


def _guarantee(definition: Definition) -> str:
    return definition.delivery.guarantee if definition.sink.has_topics else "files"
