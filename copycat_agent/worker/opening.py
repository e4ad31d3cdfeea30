"""A connector's lanes are opened before its source is made, and tried again while Kafka is away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from copycat_agent import failpoints
from copycat_agent.errors import BehindError, FatalError, RetriableError
from copycat_agent.model import Counts, SourceOffset, SourcePartition
from copycat_agent.worker.attempts import Opener
from copycat_agent.worker.lanes import Lanes
from copycat_agent.worker.patience import Patience
from copycat_agent.worker.status import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.transactions.opening import Opening
    from copycat_agent.worker.attempts import Attempt, Opened
    from copycat_agent.worker.tools import Books, Tools

T = TypeVar("T")

TELL_SECONDS = 1.0
"""What an opening waits for is told when it takes longer."""
AGAIN_SECONDS = 10.0
"""So much later Kafka is asked once more, by a new client, before it is believed to lack what this host has seen.

Brokers need 9 s to find out that one of them is cut off from the others.
"""
_LOOK_SECONDS = 0.2


def opened(definition: Definition, tools: Tools, books: Books, earlier: Sequence[str] = ()) -> Lanes | None:
    """The connector's lanes, open; None where it has none, or a stop was asked for meanwhile. Raises what ends the connector.

    `earlier`: see `Opener`. Called in its thread, which beats meanwhile: STARTING, or RETRYING or BLOCKED while Kafka does not let it.
    """
    if definition.delivery.guarantee != "exactly_once":
        _begin_without(definition, tools.store)
        return None
    opener = Opener(definition, tools.store, tools.turns, tools.make_world, books.orders.wake.nudge, earlier)
    patience = Patience(definition, books.standing, books.tally, books.log)
    doubt = Doubt()
    while books.orders.stop_at is None:
        try:
            lanes = doubt.of(lambda: _try(definition, tools, opener, books))
            if lanes is not None:
                return lanes
        except RetriableError as error:
            books.tally.count_error("open", type(error).__name__)
            patience.retry(error)
            books.orders.rest(max(patience.backoff.seconds_left(), doubt.seconds_left()), books.standing.beat)
    return None


class Doubt:
    """Whether Kafka really lacks what this host has seen: a broker that is cut off from the others says so, too."""

    def __init__(self) -> None:
        self._again_at = 0.0

    def of(self, look: Callable[[], T]) -> T:
        """What `look` returns. A BehindError that it raises becomes a RetriableError, as long as there was none `AGAIN_SECONDS` before."""
        begun = time.monotonic()
        try:
            return look()
        except BehindError as error:
            if self._again_at and begun >= self._again_at:
                raise
            self._again_at = self._again_at or time.monotonic() + AGAIN_SECONDS
            hint = f"a broker that is cut off from the others may have said so: Kafka is asked again within {AGAIN_SECONDS:g} s"
            raise RetriableError(error.message, hint) from None

    def seconds_left(self) -> float:
        """Until it is worth asking again."""
        return max(0.0, self._again_at - time.monotonic())


def _try(definition: Definition, tools: Tools, opener: Opener, books: Books) -> Lanes | None:
    """None when a stop was asked for, or when what was done only comes first. Raises what it raised, and what the store raises."""
    attempt = opener.all()
    try:
        found = _await(attempt, books)
        if found is None:
            return None
        if found.wanted.first is None:
            return _lanes(definition, tools, opener, found, books)
        failpoints.hit("claimed")
        found.wanted.first(found.truth)
        books.log.info("lanes that stand under this name from before were taken out of the way", owner=found.wanted.owner or "nobody")
        return None
    finally:
        attempt.leave()


def _begin_without(definition: Definition, store: OffsetStore) -> None:
    """Raises FatalError where its offsets are lost: nobody else has them."""
    undecided = store.undecided(definition.name)
    if undecided:
        hint = f"put offsets.db back from a backup; or read everything again: copycat offsets reset {definition.name}"
        raise FatalError(undecided, hint)
    store.leave_lanes(definition.name)


def _await(attempt: Attempt, books: Books) -> Opened | None:
    """What it found; None when a stop was asked for before. Raises what it raised."""
    orders, standing = books.orders, books.standing
    while not attempt.is_over:
        if orders.stop_at is not None:
            attempt.cancel()
            return None
        standing.beat()
        orders.answer(None)
        if attempt.seconds > TELL_SECONDS and standing.state is State.STARTING:
            standing.become(State.STARTING, attempt.doing)
        orders.wake.wait(_LOOK_SECONDS, deaf=True)
    return attempt.result()


def _lanes(definition: Definition, tools: Tools, opener: Opener, found: Opened, books: Books) -> Lanes:
    """Save what was found. Raises what the store raises."""
    failpoints.hit("claimed")
    tally, asked, truth = books.tally, found.wanted.opening, found.truth
    place = asked.lanes.place
    news = tools.store.lanes_opened(definition.name, truth.cluster, place, truth, _saved_here(asked), keeps_accounts=tools.accounts)
    if tally.lane_outcomes["openings"]:  # batches of this process, whose end nobody has seen
        tally.counts += sum((one.counts for one in news), Counts())
    tally.count_lane("openings")
    if news:
        books.log.info("positions taken over from Kafka", files=len(news), topic=place.topic, partition=place.partition)
    return Lanes(definition, tools.store, opener, found, tally, books.log)


def _saved_here(asked: Opening) -> list[tuple[SourcePartition, SourceOffset]]:
    """Rows of the store that Kafka has been told."""
    return [(partition, offset) for partition, offset in asked.publish if offset is not None]
