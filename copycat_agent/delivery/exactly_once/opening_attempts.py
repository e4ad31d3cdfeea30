"""One attempt to open lanes: its request, made from the store's rows about them, and its steps, on a thread that may wait for Kafka.

If the store does not know which id Kafka has for the connector's name, Kafka is asked that first (`transactions.name_lookup`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from copycat_agent.errors import RenamedError, RetriableError
from copycat_agent.fair_executor import FairExecutor, Participant
from copycat_agent.model import OFFSETS_TOPIC, Head, OffsetsPartition, SavedRow, SourcePartition, is_connector_id
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.transactions.checks import made_anew
from copycat_agent.transactions.entries import partition_of
from copycat_agent.transactions.name_lookup import NameQuery, look_up
from copycat_agent.transactions.opening import Adopt, LaneGroup, LaneSnapshot, OpeningPlan, open_lanes
from copycat_agent.transactions.protocol import Procedure, Steps, perform

if TYPE_CHECKING:
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.offsets.lanes import SavedLanes
    from copycat_agent.options import Definition

OPENINGS_AT_ONCE = 5
"""How many connectors of one cluster open their lanes at a time: each holds two producers per lane, and asks the coordinator for them.

Connectors whose latest opening failed, and those that have opened nothing since this start, use one slot fewer."""

_LEFT = "the connector stopped before its lanes were open"
_IN_LINE = "waits until the lanes of other connectors are open"
_ENDING = "waits until Kafka has ended what was begun in its lanes before"
_DOING = {
    "cluster_id": "asks which Kafka cluster this is",
    "prepare": _ENDING,
    "ready": _ENDING,
    "end": "reads its positions from Kafka",
    "replay": "reads its positions from Kafka, once all older transactions in its partition of {} have ended",
}
_CLAIMING = "claims its lanes in Kafka"


class KafkaAccess(Protocol):
    """Performs the steps of an opening, and creates the offsets topic. `producer.transactional.KafkaSteps` is one."""

    def cluster_id(self) -> str:
        """Returns the id of the cluster."""

    def ensure_topic(self, topic: str, /) -> int:
        """Creates the offsets topic if it does not exist. Returns how many partitions it has."""

    def close(self, handle: Any = None, /) -> None:  # noqa: ANN401 - a producer of the protocol, or None for everything
        """Frees what it holds."""


Perform = Callable[["Procedure[Any]"], Any]
"""`transactions.protocol.perform`, bound to the access of the attempt."""

Ask = Callable[[int, str, Perform], OpeningPlan]
"""`OpeningPlanner.all`: returns what to open, from the number of partitions of the offsets topic, the id of the cluster, and a
`Perform`."""

OnRenamed = Callable[[OpeningPlan], None]
"""`OpeningPlanner.renamed`, called with the request that found the id under another name."""

MakeKafkaAccess = Callable[["Definition", Callable[[], bool]], KafkaAccess]
"""`make(definition, stopping)`, called on the opening's thread. Raises what the steps raise."""


def kafka_access(definition: Definition, stopping: Callable[[], bool]) -> KafkaAccess:
    """Returns the steps on the definition's Kafka cluster."""
    return KafkaSteps(definition.kafka, f"copycat-{definition.name}-lanes", stopping=stopping)


Rows = Mapping[SourcePartition, SavedRow | None]
"""Saved rows by partition, None for forgotten ones."""


class OpeningResult(NamedTuple):
    """The request of an opening, and what it found."""

    plan: OpeningPlan
    snapshot: LaneSnapshot


class OpeningPlanner:
    """Plans the openings of one connector."""

    def __init__(self, store: OffsetStore, name: str, tasks_max: int, earlier: Sequence[str]) -> None:
        """`earlier` are names that the connector had and that no connector has now, according to its definition."""
        self._store = store
        self._name = name
        self._wanted = tuple(range(tasks_max))
        self._earlier = earlier

    def all(self, partitions: int, cluster: str, perform: Perform) -> OpeningPlan:
        """Returns a request for every lane that the connector has or had, and those it is to have.

        `partitions` is how many the offsets topic of this `cluster` has. Raises what the store and the steps raise, and PositionsError.
        """
        kept = self._store.identified(self._name)
        names = self._unknown(kept)
        if names:
            found = perform(
                look_up(names, self._shared_plan(kept), lambda agent, key: self._default_partition(agent, key, cluster, partitions))
            )
            self._store.looked_up(self._name, found)
            kept = self._store.identified(self._name)
        return self._own(kept, cluster, partitions)

    def _unknown(self, kept: SavedLanes) -> list[NameQuery]:
        """Returns the connector's names whose entries in Kafka are not known here. A store that was lost may have known them."""
        own = [self._name] if kept.asks else []
        earlier = [one for one in self._earlier if not self._store.knows(one)] if kept.place is None else []
        merged = [NameQuery(one.key, one.agent) for one in kept.before if one.place.partition < 0 and not is_connector_id(one.key)]
        return list(dict.fromkeys((*map(NameQuery, own), *merged, *map(NameQuery, earlier))))

    def _shared_plan(self, kept: SavedLanes) -> OpeningPlan:
        """Returns the part that all requests of this connector share. A person's decision is added once it is known whose name it is."""
        identity = self._store.identity
        cluster = "" if kept.adopt == "local" else kept.cluster
        nowhere = LaneGroup(kept.id, OffsetsPartition(OFFSETS_TOPIC, -1))
        adopt: Adopt = "topic" if kept.adopt else ""
        return OpeningPlan(identity.uuid, nowhere, (), identity.nonce, identity.nonces, cluster, adopt=adopt, name=self._name)

    def _own(self, kept: SavedLanes, cluster: str, partitions: int) -> OpeningPlan:
        own = self._own_lanes(kept, cluster, partitions)
        if own.place.partition >= partitions and kept.cluster == cluster:
            raise made_anew(self._name, own.place, partitions)
        is_new_there = kept.adopt == "local" or kept.place is None or bool(kept.before)
        return replace(
            self._shared_plan(kept),
            lanes=own,
            wanted=self._wanted,
            cluster=kept.cluster,
            before=tuple(self._placed(kept, one, cluster, partitions) for one in kept.before),
            adopt=kept.adopt,
            publish=tuple(self._store.saved(self._name).items()) if is_new_there else (),
            home=self._default_partition(self._store.identity.uuid, self._name, cluster, partitions),
            registers=is_new_there or bool(kept.adopt) or kept.registered != self._name,
            checks_name=kept.is_new or kept.registered == self._name,
        )

    def renamed(self, plan: OpeningPlan) -> None:
        """Notes that the id now belongs to another connector: the next opening asks Kafka which id the name has."""
        self._store.renamed_since(self._name, plan.lanes.key)

    def _own_lanes(self, kept: SavedLanes, cluster: str, partitions: int) -> LaneGroup:
        place = kept.place
        if place is None or (kept.adopt and place.partition >= partitions):
            place = self._default_partition(self._store.identity.uuid, kept.id, cluster, partitions)
        return LaneGroup(kept.id, place, kept.heads)

    def _default_partition(self, agent: str, key: str, cluster: str, partitions: int) -> OffsetsPartition:
        """Returns the default partition for the entries of a key."""
        return OffsetsPartition(OFFSETS_TOPIC, partition_of(agent, key, self._store.partitions(cluster, partitions)))

    def _placed(self, kept: SavedLanes, group: LaneGroup, cluster: str, partitions: int) -> LaneGroup:
        """Returns the lanes to take over, in the default partition if theirs is unknown or gone.

        Raises PositionsError when it is gone and nobody has decided.
        """
        is_gone = group.place.partition >= partitions
        if is_gone and not kept.adopt and kept.cluster == cluster:
            raise made_anew(self._name, group.place, partitions)
        if group.place.partition >= 0 and not is_gone:
            return group
        return replace(group, place=self._default_partition(group.agent or self._store.identity.uuid, group.key, cluster, partitions))


class _CancellableAccess:
    """An access to Kafka that notes each step as it begins, and raises RetriableError before the next one once the attempt is cancelled."""

    def __init__(self, access: KafkaAccess, attempt: OpeningAttempt) -> None:
        self._access = access
        self._attempt = attempt

    def __getattr__(self, step: str) -> Any:  # noqa: ANN401 - a step, with its own type
        if step != "close":
            self._attempt.at(step)
        return getattr(self._access, step)


class OpeningAttempt:
    """One attempt, started by the constructor. `on_end` is called on its thread."""

    def __init__(
        self,
        threads: FairExecutor,
        definition: Definition,
        make: MakeKafkaAccess,
        ask: Ask,
        on_end: Callable[[], None],
        on_renamed: OnRenamed,
    ) -> None:
        """`ask` and `on_renamed` are called on its thread."""
        self.doing = _IN_LINE
        self._begun = time.monotonic()
        self._cancelled = threading.Event()
        self._definition, self._make, self._ask, self._on_renamed = definition, make, ask, on_renamed
        self._future = threads.take(definition.kafka.bootstrap_servers, Participant(definition.name, definition.name), self._open)
        self._future.add_done_callback(lambda _: on_end())

    @property
    def is_over(self) -> bool:
        """Returns whether there is a result."""
        return self._future.done()

    @property
    def seconds(self) -> float:
        """Returns the seconds since the attempt was requested."""
        return time.monotonic() - self._begun

    def result(self) -> OpeningResult:
        """Returns what the attempt found, once it is over. Raises what the attempt raised."""
        return self._future.result()

    def cancel(self) -> None:
        """Ends the attempt before its next step; its result is not needed any more. Lanes that it has fenced have to be opened anew."""
        self._cancelled.set()
        self._future.cancel()

    def at(self, step: str) -> None:
        """Notes the next step. Raises RetriableError when the attempt was cancelled."""
        if self._cancelled.is_set():
            raise RetriableError(_LEFT)
        self.doing = _DOING.get(step, _CLAIMING).format(OFFSETS_TOPIC)

    def _open(self) -> OpeningResult:
        self.at("cluster_id")
        access = self._make(self._definition, self._cancelled.is_set)
        try:
            there = access.ensure_topic(OFFSETS_TOPIC), access.cluster_id()
            watched = cast("Steps", _CancellableAccess(access, self))
            plan = self._ask(*there, lambda procedure: perform(procedure, watched))
            try:
                return OpeningResult(plan, perform(open_lanes(plan), watched))
            except RenamedError:
                self._on_renamed(plan)
                raise
        finally:
            access.close()


class LaneOpener:
    """Opens the lanes of one connector, all of them or one again."""

    def __init__(
        self,
        definition: Definition,
        store: OffsetStore,
        threads: FairExecutor,
        make: MakeKafkaAccess,
        on_end: Callable[[], None],
        earlier: Sequence[str] = (),
    ) -> None:
        """`earlier` are names that the connector had and no connector has now: the store that knew it by them may be lost."""
        asking = self._asking = OpeningPlanner(store, definition.name, definition.delivery.tasks_max, earlier)
        self._begin: Callable[[Ask], OpeningAttempt] = lambda ask: OpeningAttempt(threads, definition, make, ask, on_end, asking.renamed)

    def all(self) -> OpeningAttempt:
        """Opens every lane that the connector has or had, and those it is to have."""
        return self._begin(self._asking.all)

    def again(self, plan: OpeningPlan, number: int, head: Head, tell: Rows | None = None) -> OpeningAttempt:
        """Opens one of the lanes in `plan` again (`reopening_plan`), while the others work.

        Used to find out the outcome of its last transaction, or to write `tell` to the topic.
        """
        lanes = replace(plan.lanes, known={number: head})
        one = replace(plan, lanes=lanes, wanted=(number,), only=frozenset({number}), publish=tuple((tell or {}).items()))
        return self._begin(lambda *_: one)


def reopening_plan(found: OpeningResult) -> OpeningPlan:
    """Returns the request for later openings of single lanes, without what is done already and may be large: publishing and taking over."""
    lanes = replace(found.plan.lanes, known={})
    return replace(
        found.plan,
        lanes=lanes,
        cluster=found.snapshot.cluster,
        before=(),
        adopt="",
        publish=(),
        home=None,
        registers=False,
        checks_name=False,
    )
