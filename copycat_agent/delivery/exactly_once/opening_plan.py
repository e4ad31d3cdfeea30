"""What an opening of a connector's lanes asks for, by what the store knows of them.

Mostly that is one opening. Two come first where names have changed hands: lanes that stand under the connector's name and are another
connector's by now are opened for that one, and what stands there of them is deleted before the connector takes over its own earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from copycat_agent.errors import CopiedError, PositionsError
from copycat_agent.model import OFFSETS_TOPIC, Place
from copycat_agent.transactions.entries import partition_of
from copycat_agent.transactions.opening import Lanes, Opening, Truth
from copycat_agent.transactions.refusals import made_anew, other_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.offsets import OffsetStore
    from copycat_agent.offsets.lanes import KeptLanes
    from copycat_agent.offsets.takeovers import Pending

Save = Callable[[Truth], None]


class OpeningPlan(NamedTuple):
    """What is asked for. `first`: this one only comes first; save what it finds by this, and ask again.

    `owner`: for whom, where that is another connector.
    """

    opening: Opening
    first: Save | None = None
    owner: str = ""


class Asking:
    """What to ask for one connector."""

    def __init__(self, store: OffsetStore, name: str, tasks_max: int, earlier: Sequence[str]) -> None:
        """`earlier`: names that it had, and nobody has now, by what its definition says."""
        self._store = store
        self._name = name
        self._wanted = tuple(range(tasks_max))
        self._earlier = earlier

    def all(self, partitions: int, cluster: str, lease: ExitStack, wait: Callable[[], None]) -> OpeningPlan:
        """Every lane that it has or had, and those it is to have.

        `partitions` are those that the offsets topic of this `cluster` has. Where lanes change hands, `lease` keeps others from doing the
        same until it is closed; `wait` is called again and again until they let it, and may raise. Raises what the store raises, and
        PositionsError.
        """
        kept, pending = self._known()
        if kept.before or pending or self._forgotten(kept):
            self._take(lease, wait)
            kept, pending = self._known()  # whoever had it may have done what was to do
        if pending is not None and pending.kept.cluster in {"", cluster}:
            return self._for_owner(pending, cluster, partitions)
        if kept.adopt == "moved":
            if kept.cluster not in {"", cluster}:
                raise other_cluster(self._name, kept.cluster, cluster)
            if kept.before or self._forgotten(kept):
                return self._without_others(kept, cluster, partitions)
            kept = replace(kept, adopt="local")  # nothing of its own can be there
        return OpeningPlan(self._own(kept, cluster, partitions))

    def _known(self) -> tuple[KeptLanes, Pending | None]:
        return self._store.lanes(self._name), self._store.pending(self._name)

    def _take(self, lease: ExitStack, wait: Callable[[], None]) -> None:
        while not self._store.handing_over.acquire(timeout=0.1):
            wait()
        lease.callback(self._store.handing_over.release)

    def _for_owner(self, pending: Pending, cluster: str, partitions: int) -> OpeningPlan:
        """Find out what the name's earlier holder did last."""
        owner, group, kept = pending
        adopt = kept.adopt if kept.adopt != "moved" else ""
        placed = self._placed(replace(kept, adopt=adopt), group, owner, cluster, partitions)
        wanted = () if placed.known else (0,)  # something has to be fenced before it is read
        opening = replace(self._opening(placed, wanted), cluster=kept.cluster, adopt=adopt, owner=owner)
        return OpeningPlan(opening, lambda truth: self._store.brought_home(pending, truth), owner)

    def _without_others(self, kept: KeptLanes, cluster: str, partitions: int) -> OpeningPlan:
        """Delete what stands under the name and is nobody's any more."""
        own = self._own_lanes(kept, cluster, partitions)
        opening = replace(self._opening(own, (0,)), adopt="local")
        forgotten = self._forgotten(kept)
        return OpeningPlan(opening, lambda truth: self._store.cleared(self._name, own.place, truth, forgotten))

    def _own(self, kept: KeptLanes, cluster: str, partitions: int) -> Opening:
        assert kept.adopt != "moved", "that comes first"
        forgotten = self._forgotten(kept)
        before = (*kept.before, *forgotten)
        is_new_there = kept.adopt == "local" or kept.place is None or bool(before)
        own = self._own_lanes(kept, cluster, partitions)
        if own.place.partition >= partitions and kept.cluster == cluster:
            raise made_anew(self._name, own.place, partitions)
        if before and kept.place is None:
            self._store.expected(self._name, (*forgotten, own))
        placed = tuple(self._placed(kept, one, self._name, cluster, partitions) for one in before)
        publish = tuple(self._store.read(self._name).items()) if is_new_there else ()
        asked = self._opening(own, self._wanted)
        return replace(asked, cluster=kept.cluster, before=placed, adopt=kept.adopt, publish=publish)

    def _opening(self, lanes: Lanes, wanted: tuple[int, ...]) -> Opening:
        identity = self._store.identity
        return Opening(identity.uuid, lanes, wanted, identity.nonce, identity.nonces)

    def _own_lanes(self, kept: KeptLanes, cluster: str, partitions: int) -> Lanes:
        place = kept.place
        if place is None or place.partition < 0 or (kept.adopt and place.partition >= partitions):
            place = self._everybodys(self._store.identity.uuid, self._name, cluster, partitions)
        return Lanes(self._name, place, kept.heads)

    def _everybodys(self, agent: str, name: str, cluster: str, partitions: int) -> Place:
        """Where a connector's entries stand, as long as nobody knows better."""
        return Place(OFFSETS_TOPIC, partition_of(agent, name, self._store.partitions(cluster, partitions)))

    def _forgotten(self, kept: KeptLanes) -> list[Lanes]:
        """Lanes that it had under earlier names, where the store knows nothing of any: it may have known once, and was lost."""
        if kept.place is not None:
            return []
        known = {one.connector for one in kept.before}
        names = [name for name in self._earlier if name not in known and not self._store.knows(name)]
        return [Lanes(name, Place(OFFSETS_TOPIC, -1)) for name in names]

    def _placed(self, kept: KeptLanes, group: Lanes, owner: str, cluster: str, partitions: int) -> Lanes:
        """Lanes that are taken over stand where everybody's do, when nothing is known here of where, or that place is gone.

        Raises PositionsError when it is gone, and nobody has decided.
        """
        is_gone = group.place.partition >= partitions
        if is_gone and not kept.adopt and kept.cluster == cluster:
            raise made_anew(owner, group.place, partitions)
        if group.place.partition >= 0 and not is_gone:
            return group
        return replace(group, place=self._everybodys(group.agent or self._store.identity.uuid, group.connector, cluster, partitions))


def refused(store: OffsetStore, plan: OpeningPlan, error: PositionsError) -> PositionsError:
    """What to raise for it: of another connector's lanes the store is told in that one's name."""
    if not plan.owner or not isinstance(error, CopiedError):
        return error
    store.lanes_refused(plan.owner, error)
    return PositionsError(error.message, error.hint)
