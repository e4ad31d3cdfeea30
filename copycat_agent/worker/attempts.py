"""One try to open lanes: fence, read and claim, on a thread that may wait for Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from copycat_agent.errors import RetriableError
from copycat_agent.model import OFFSETS_TOPIC, Head, Place, SourceOffset, SourcePartition
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.transactions.entries import partition_of
from copycat_agent.transactions.opening import Lanes as LanesOf
from copycat_agent.transactions.opening import Opening, Truth, made_anew, open_lanes
from copycat_agent.transactions.protocol import Steps, perform

if TYPE_CHECKING:
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.offsets.lanes import KeptLanes
    from copycat_agent.options import Definition
    from copycat_agent.worker.turns import Turns

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


class World(Protocol):
    """What an opening needs: the steps of the protocol, the offsets topic, and an end. `producer.transactional.KafkaSteps` is one."""

    def cluster_id(self) -> str:
        """Which cluster this is."""

    def ensure_topic(self, topic: str, /) -> int:
        """Make the offsets topic if there is none; how many partitions it has."""

    def close(self, handle: Any = None, /) -> None:  # noqa: ANN401 - a producer of the protocol, or None for everything
        """Free what it holds."""


Ask = Callable[[int, Callable[[], str]], Opening]

MakeWorld = Callable[["Definition", Callable[[], bool]], World]
"""`make(definition, stopping)`, called on the opening's thread. Raises what the steps raise."""


def kafka_world(definition: Definition, stopping: Callable[[], bool]) -> World:
    """The definition's Kafka cluster."""
    return KafkaSteps(definition.kafka, f"copycat-{definition.name}-lanes", stopping=stopping)


Rows = Mapping[SourcePartition, SourceOffset | None]
"""Offsets by partition, None for those that are forgotten."""


class Opened(NamedTuple):
    """What an opening was asked for, and found."""

    asked: Opening
    truth: Truth


class _Watched:
    """A world whose steps say what they are at, and which ends with a RetriableError before the next one when nobody waits any more."""

    def __init__(self, world: World, attempt: Attempt) -> None:
        self._world = world
        self._attempt = attempt

    def __getattr__(self, step: str) -> Any:  # noqa: ANN401 - a step, with its own type
        if step != "close":
            self._attempt.at(step)
        return getattr(self._world, step)


class Attempt:
    """One try, under way from the beginning. `on_end` is called on its thread."""

    def __init__(self, turns: Turns, definition: Definition, make: MakeWorld, ask: Ask, on_end: Callable[[], None]) -> None:
        """`ask` is called with the number of partitions of the offsets topic, and what asks for the cluster."""
        self.doing = _IN_LINE
        self._begun = time.monotonic()
        self._cancelled = threading.Event()
        self._definition, self._make, self._ask = definition, make, ask
        self._future = turns.take(definition.kafka.bootstrap_servers, self._open)
        self._future.add_done_callback(lambda _: on_end())

    @property
    def is_over(self) -> bool:
        """Whether there is a result."""
        return self._future.done()

    @property
    def seconds(self) -> float:
        """Since it was asked for."""
        return time.monotonic() - self._begun

    def result(self) -> Opened:
        """What it found, once it is over. Raises what it raised."""
        return self._future.result()

    def cancel(self) -> None:
        """Nobody waits for it any more: it ends before its next step. What it has fenced until then has to be opened anew."""
        self._cancelled.set()
        self._future.cancel()

    def at(self, step: str) -> None:
        """It comes to this step. Raises RetriableError when it was cancelled."""
        if self._cancelled.is_set():
            raise RetriableError(_LEFT)
        self.doing = _DOING.get(step, _CLAIMING).format(OFFSETS_TOPIC)

    def _open(self) -> Opened:
        self.at("cluster_id")
        world = self._make(self._definition, self._cancelled.is_set)
        try:
            asked = self._ask(world.ensure_topic(OFFSETS_TOPIC), world.cluster_id)
            truth = perform(open_lanes(asked), cast("Steps", _Watched(world, self)))
            return Opened(asked, truth)
        finally:
            world.close()


class Opener:
    """Opens the lanes of one connector, all of them or one again."""

    def __init__(
        self,
        definition: Definition,
        store: OffsetStore,
        turns: Turns,
        make: MakeWorld,
        on_end: Callable[[], None],
        earlier: Sequence[str] = (),
    ) -> None:
        """`earlier` are names that the connector had, and nobody has now: the store that knew it by them may be lost."""
        self._definition = definition
        self._store = store
        self._earlier = earlier
        self._begin: Callable[[Ask], Attempt] = lambda ask: Attempt(turns, definition, make, ask, on_end)

    def all(self) -> Attempt:
        """Every lane that the connector has or had, and those it is to have. Raises what the store raises."""
        name, identity = self._definition.name, self._store.identity
        kept = self._store.lanes(name)
        wanted = tuple(range(self._definition.delivery.tasks_max))
        before = (*kept.before, *self._forgotten(kept))
        is_new_there = kept.adopt == "local" or kept.place is None or bool(before)

        def ask(partitions: int, cluster: Callable[[], str]) -> Opening:
            place = kept.place
            if place is None or before:
                partitions = self._store.partitions(cluster(), partitions)
            if place is None or (kept.adopt and place.partition >= partitions):
                place = Place(OFFSETS_TOPIC, partition_of(identity.uuid, name, partitions))
            if place.partition >= partitions and kept.cluster == cluster():
                raise made_anew(name, place, partitions)
            lanes = LanesOf(name, place, kept.heads)
            placed = tuple(_placed(one, identity.uuid, partitions) for one in before)
            publish = tuple(self._store.read(name).items()) if is_new_there else ()
            who = (identity.nonce, identity.nonces)
            return Opening(identity.uuid, lanes, wanted, *who, kept.cluster, placed, kept.adopt, publish)

        return self._begin(ask)

    def _forgotten(self, kept: KeptLanes) -> list[LanesOf]:
        """Where the store knows nothing of its lanes: those that it had under earlier names, of which it may have known."""
        known = {one.connector for one in kept.before}
        return [LanesOf(name, Place(OFFSETS_TOPIC, -1)) for name in self._earlier if name not in known] if kept.place is None else []

    def again(self, number: int, heads: Mapping[int, Head], place: Place, cluster: str, tell: Rows | None = None) -> Attempt:
        """One lane, while the others work: to know what became of its last transaction, or to `tell` something.

        Raises what the store raises.
        """
        identity = self._store.identity
        lanes = LanesOf(self._definition.name, place, {number: heads[number]})
        publish = tuple((tell or {}).items())
        who = (identity.nonce, identity.nonces)
        asked = Opening(identity.uuid, lanes, (number,), *who, cluster, publish=publish, only=frozenset({number}))
        return self._begin(lambda *_: asked)


def _placed(group: LanesOf, agent: str, partitions: int) -> LanesOf:
    """Lanes that are taken over from somebody of whom nothing is known here stand where everybody's do."""
    if group.place.partition >= 0:
        return group
    return replace(group, place=Place(OFFSETS_TOPIC, partition_of(group.agent or agent, group.connector, partitions)))
