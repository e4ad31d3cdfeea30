"""What an opening of a connector's lanes asks for, by what the store knows of them.

Kafka is asked first what it has of the connector's name, where the store does not know: see `transactions.names`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from copycat_agent.model import OFFSETS_TOPIC, Place, is_connector_id
from copycat_agent.transactions.entries import partition_of
from copycat_agent.transactions.names import AskedName, look_up
from copycat_agent.transactions.opening import Adopt, Lanes, Opening
from copycat_agent.transactions.refusals import made_anew

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.offsets import OffsetStore
    from copycat_agent.offsets.lanes import KeptLanes
    from copycat_agent.transactions.protocol import Lines

Perform = Callable[["Lines[Any]"], Any]
"""`transactions.protocol.perform`, with the world that is there."""


class Asking:
    """What to ask for one connector."""

    def __init__(self, store: OffsetStore, name: str, tasks_max: int, earlier: Sequence[str]) -> None:
        """`earlier`: names that it had, and nobody has now, by what its definition says."""
        self._store = store
        self._name = name
        self._wanted = tuple(range(tasks_max))
        self._earlier = earlier

    def all(self, partitions: int, cluster: str, perform: Perform) -> Opening:
        """Every lane that it has or had, and those it is to have.

        `partitions` are those that the offsets topic of this `cluster` has. Raises what the store and the steps raise, and PositionsError.
        """
        kept = self._store.identified(self._name)
        names = self._unknown(kept)
        if names:
            found = perform(look_up(names, self._asked(kept), lambda agent, key: self._everybodys(agent, key, cluster, partitions)))
            self._store.looked_up(self._name, found)
            kept = self._store.identified(self._name)
        return self._own(kept, cluster, partitions)

    def _unknown(self, kept: KeptLanes) -> list[AskedName]:
        """Names of the connector of which it is not known here what Kafka has of them. A store that was lost may have known."""
        own = [self._name] if kept.asks else []
        earlier = [one for one in self._earlier if not self._store.knows(one)] if kept.place is None else []
        merged = [AskedName(one.key, one.agent) for one in kept.before if one.place.partition < 0 and not is_connector_id(one.key)]
        return list(dict.fromkeys((*map(AskedName, own), *merged, *map(AskedName, earlier))))

    def _asked(self, kept: KeptLanes) -> Opening:
        """What every opening says of who asks; a name is nobody's before it was asked for, so what a person has decided comes later."""
        identity = self._store.identity
        cluster = "" if kept.adopt == "local" else kept.cluster
        nowhere = Lanes(kept.id, Place(OFFSETS_TOPIC, -1))
        adopt: Adopt = "topic" if kept.adopt else ""
        return Opening(identity.uuid, nowhere, (), identity.nonce, identity.nonces, cluster, adopt=adopt, name=self._name)

    def _own(self, kept: KeptLanes, cluster: str, partitions: int) -> Opening:
        own = self._own_lanes(kept, cluster, partitions)
        if own.place.partition >= partitions and kept.cluster == cluster:
            raise made_anew(self._name, own.place, partitions)
        is_new_there = kept.adopt == "local" or kept.place is None or bool(kept.before)
        return replace(
            self._asked(kept),
            lanes=own,
            wanted=self._wanted,
            cluster=kept.cluster,
            before=tuple(self._placed(kept, one, cluster, partitions) for one in kept.before),
            adopt=kept.adopt,
            publish=tuple(self._store.read(self._name).items()) if is_new_there else (),
            home=self._everybodys(self._store.identity.uuid, self._name, cluster, partitions),
            registers=is_new_there or bool(kept.adopt) or kept.registered != self._name,
            checks_name=kept.is_new or kept.registered == self._name,
        )

    def renamed(self, asked: Opening) -> None:
        """What was asked for is another connector's by now: the next opening asks Kafka which id the name has."""
        self._store.renamed_since(self._name, asked.lanes.key)

    def _own_lanes(self, kept: KeptLanes, cluster: str, partitions: int) -> Lanes:
        place = kept.place
        if place is None or (kept.adopt and place.partition >= partitions):
            place = self._everybodys(self._store.identity.uuid, kept.id, cluster, partitions)
        return Lanes(kept.id, place, kept.heads)

    def _everybodys(self, agent: str, key: str, cluster: str, partitions: int) -> Place:
        """Where the entries of a key stand, as long as nobody knows better."""
        return Place(OFFSETS_TOPIC, partition_of(agent, key, self._store.partitions(cluster, partitions)))

    def _placed(self, kept: KeptLanes, group: Lanes, cluster: str, partitions: int) -> Lanes:
        """Lanes that are taken over stand where everybody's do, when nothing is known here of where, or that place is gone.

        Raises PositionsError when it is gone, and nobody has decided.
        """
        is_gone = group.place.partition >= partitions
        if is_gone and not kept.adopt and kept.cluster == cluster:
            raise made_anew(self._name, group.place, partitions)
        if group.place.partition >= 0 and not is_gone:
            return group
        return replace(group, place=self._everybodys(group.agent or self._store.identity.uuid, group.key, cluster, partitions))
