"""A connector's lanes are opened before its source is made, and tried again while Kafka is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent import failpoints
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.model import Counts, SourceOffset, SourcePartition
from copycat_agent.worker.attempts import Opener
from copycat_agent.worker.lanes import Lanes
from copycat_agent.worker.patience import Patience
from copycat_agent.worker.status import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.transactions.opening import Opening
    from copycat_agent.worker.attempts import Attempt, Opened
    from copycat_agent.worker.tools import Books, Tools

TELL_SECONDS = 1.0
"""What an opening waits for is told when it takes longer."""
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
    while books.orders.stop_at is None:
        try:
            found = _await(opener.all(), books)
            return found and _lanes(definition, tools, opener, found, books)
        except RetriableError as error:
            books.tally.count_error("open", type(error).__name__)
            patience.retry(error)
            books.orders.rest(patience.backoff.seconds_left(), books.standing.beat)
    return None


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
    tally, (asked, truth) = books.tally, found
    place = asked.lanes.place
    news = tools.store.lanes_opened(definition.name, truth.cluster, place, truth, _saved_here(asked), keeps_accounts=tools.accounts)
    if tally.lane_outcomes["openings"]:  # batches of this process, whose end nobody has seen
        tally.counts += sum((one.counts for one in news), Counts())
    tally.count_lane("openings")
    if news:
        books.log.info("positions taken over from Kafka", files=len(news), topic=place.topic, partition=place.partition)
    return Lanes(definition, tools.store, opener, found, tally, books.log)


def _saved_here(asked: Opening) -> list[tuple[SourcePartition, SourceOffset]]:
    """Rows of the store that Kafka has been told with the last claim."""
    return [(partition, offset) for partition, offset in asked.publish if offset is not None]
