"""One try to open lanes: fence, read and claim, on a thread that may wait for Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from copycat_agent.delivery.exactly_once.opening_plan import Asking, OpeningPlan, refused
from copycat_agent.errors import PositionsError, RetriableError
from copycat_agent.model import OFFSETS_TOPIC, Head, Place, SourceOffset, SourcePartition
from copycat_agent.producer.transactional import KafkaSteps
from copycat_agent.transactions.opening import Lanes as LanesOf
from copycat_agent.transactions.opening import Opening, Truth, open_lanes
from copycat_agent.transactions.protocol import Steps, perform
from copycat_agent.turns import Party, Turns

if TYPE_CHECKING:
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition

AT_ONCE = 5
"""Connectors of one cluster that open their lanes at a time: each holds two producers per lane, and asks the coordinator for them.

Of those whose last opening failed, and that have not opened any yet, one fewer."""

_LEFT = "the connector stopped before its lanes were open"
_IN_LINE = "waits until the lanes of other connectors are open"
_ENDING = "waits until Kafka has ended what was begun in its lanes before"
_DOING = {
    "cluster_id": "asks which Kafka cluster this is",
    "hand over": "waits for a connector that takes over lanes of an earlier name",
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


Ask = Callable[[int, str, ExitStack, Callable[[], None]], OpeningPlan]
"""See `opening_plan.Asking.all`."""

MakeWorld = Callable[["Definition", Callable[[], bool]], World]
"""`make(definition, stopping)`, called on the opening's thread. Raises what the steps raise."""


def kafka_world(definition: Definition, stopping: Callable[[], bool]) -> World:
    """The definition's Kafka cluster."""
    return KafkaSteps(definition.kafka, f"copycat-{definition.name}-lanes", stopping=stopping)


Rows = Mapping[SourcePartition, SourceOffset | None]
"""Offsets by partition, None for those that are forgotten."""


class Opened(NamedTuple):
    """What an opening was asked for, and found."""

    plan: OpeningPlan
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

    def __init__(
        self, turns: Turns, definition: Definition, store: OffsetStore, make: MakeWorld, ask: Ask, on_end: Callable[[], None]
    ) -> None:
        """`ask` is called on its thread."""
        self.doing = _IN_LINE
        self._begun = time.monotonic()
        self._cancelled = threading.Event()
        self._lease = ExitStack()
        self._definition, self._store, self._make, self._ask = definition, store, make, ask
        self._future = turns.take(definition.kafka.bootstrap_servers, Party(definition.name, definition.name), self._open)
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

    def leave(self) -> None:
        """What it found is saved, or nobody wants it: others may do what it kept them from, as soon as it is over."""
        self._future.add_done_callback(lambda _: self._lease.close())

    def at(self, step: str) -> None:
        """It comes to this step. Raises RetriableError when it was cancelled."""
        if self._cancelled.is_set():
            raise RetriableError(_LEFT)
        self.doing = _DOING.get(step, _CLAIMING).format(OFFSETS_TOPIC)

    def _open(self) -> Opened:
        self.at("cluster_id")
        world = self._make(self._definition, self._cancelled.is_set)
        try:
            there = world.ensure_topic(OFFSETS_TOPIC), world.cluster_id()
            plan = self._ask(*there, self._lease, lambda: self.at("hand over"))
            try:
                return Opened(plan, perform(open_lanes(plan.opening), cast("Steps", _Watched(world, self))))
            except PositionsError as error:
                if (told := refused(self._store, plan, error)) is error:
                    raise
                raise told from error
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
        self._asking = Asking(store, definition.name, definition.delivery.tasks_max, earlier)
        self._begin: Callable[[Ask], Attempt] = lambda ask: Attempt(turns, definition, store, make, ask, on_end)

    def all(self) -> Attempt:
        """Every lane that the connector has or had, and those it is to have; or what comes first: see `opening_plan`.

        Raises what the store raises.
        """
        return self._begin(self._asking.all)

    def again(self, number: int, heads: Mapping[int, Head], place: Place, cluster: str, tell: Rows | None = None) -> Attempt:
        """One lane, while the others work: to know what became of its last transaction, or to `tell` something.

        Raises what the store raises.
        """
        identity = self._store.identity
        lanes = LanesOf(self._definition.name, place, {number: heads[number]})
        publish = tuple((tell or {}).items())
        who = (identity.nonce, identity.nonces)
        asked = Opening(identity.uuid, lanes, (number,), *who, cluster, publish=publish, only=frozenset({number}))
        return self._begin(lambda *_: OpeningPlan(asked))
