"""The lanes of a connector whose guarantee is exactly_once, while it works: what each batch is told, and what became of it.

A batch whose outcome is not known stays in flight until its lane is opened again and Kafka has said what is so: only then the source
hears of it. All of this happens in the connector's thread; what waits for Kafka does so on others.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from copycat_agent.errors import RetriableError
from copycat_agent.model import LaneId, LaneOutcome, LanePlan, SourcePartition, Split, SplitResult
from copycat_agent.worker.recovery import Recovery
from copycat_agent.worker.telling import LANE, Telling

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from copycat_agent.executor import Results
    from copycat_agent.logs import Log
    from copycat_agent.model import Batch, Head, Place
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.sources import Changes
    from copycat_agent.worker.attempts import Attempt, Opened, Opener, Rows
    from copycat_agent.worker.tally import Tally

PACE_SECONDS = 0.2
"""Least time between two batches of a connector that is up to date: each is a transaction, with a producer of its own and markers in
every partition it wrote to. A line of a trickle is then with read_committed consumers in less than half a second."""
ALSO_MOST = 200
"""Offsets that the driver changed by itself and that go along with a batch, at most: about 100 KiB of its transaction."""


@dataclass(eq=False, slots=True)
class _Flight:
    """A batch under way: its plan, the files in it, those of `also`, and splits that wait for its end, see `admit`."""

    plan: LanePlan
    splits: frozenset[SourcePartition]
    also: frozenset[SourcePartition]
    held: list[Split] = field(default_factory=list)
    recovery: Recovery | None = None


class Lanes:
    """Open from the beginning. `close` it when the connector ends."""

    def __init__(self, definition: Definition, store: OffsetStore, opener: Opener, found: Opened, tally: Tally, log: Log) -> None:
        self.place: Place = found.wanted.opening.lanes.place
        self.cluster = found.truth.cluster
        self.heads: dict[int, Head] = dict(found.truth.heads)
        """Where each lane is, as of the last batch that is known and saved. Replaced, not changed: read by any thread."""
        self._definition = definition
        self._store = store
        self._agent = store.identity.uuid
        self._opener = opener
        self._tally = tally
        self._log = log
        self._flights: dict[int, _Flight] = {}
        self.telling = Telling(definition, store, self._tell)

    def _tell(self, rows: Rows) -> Attempt:
        return self._opener.again(LANE, self.heads, self.place, self.cluster, rows)

    def is_free(self, number: int) -> bool:
        """Whether a batch may be planned for the lane, as far as its driver does nothing there itself."""
        return number != LANE or not self.telling.is_under_way

    def admit(self, splits: Sequence[Split]) -> tuple[Split, ...]:
        """Those that may go now. The others come back, unread, with the results of the batch that tells an offset of their file.

        Were their own batch committed before that one, the older offset would come last. With a file those go that come after it.
        """
        where: dict[SourcePartition | None, list[Split]] = dict.fromkeys(self.telling.rows, self.telling.held)
        for flight in self._flights.values():
            where |= dict.fromkeys(flight.also, flight.held)
        admitted: list[Split] = []
        for split in splits:
            if split.after in where and split.partition not in where:
                where[split.partition] = where[split.after]
            where.get(split.partition, admitted).append(split)
        return tuple(admitted)

    def plan(self, number: int, splits: Iterable[Split]) -> LanePlan:
        """What a batch with these splits is told. Raises what the store raises, but not where it cannot be read now."""
        mine = frozenset(split.partition for split in splits)
        busy = mine.union(self.telling.rows, *(one.splits | one.also for one in self._flights.values()))
        name = self._definition.name
        try:
            rows = self._store.unpublished(name, ALSO_MOST + len(busy))
        except RetriableError:  # what they say can wait, the records cannot
            rows = {}
        also = tuple(islice((row for row in rows.items() if row[0] not in busy), ALSO_MOST))
        plan = LanePlan(LaneId(self._agent, name, number), self.heads[number], self.place, also)
        self._flights[number] = _Flight(plan, mine, frozenset(partition for partition, _ in also))
        self.telling.postpone()
        return plan

    def take_in(self, batch: Batch, results: tuple[SplitResult, ...]) -> Results | None:
        """None when it is known what became of the batch; else a future that will know, or raise what ends the connector."""
        flight, outcome = self._flights[batch.task.number], _outcome(results)
        if flight.recovery is not None or _is_known(flight.plan, outcome):
            return None
        self._tally.count_lane("unknown")
        number = batch.task.number
        flight.recovery = Recovery(
            batch, results, lambda: self._opener.again(number, self.heads, self.place, self.cluster), self._definition.errors
        )
        flight.recovery.tend()
        return flight.recovery.results

    def results_of(self, number: int, results: tuple[SplitResult, ...]) -> tuple[SplitResult, ...]:
        """What the source may hear of a batch that is over, now that it is known."""
        flight, outcome = self._flights[number], _outcome(results)
        assert outcome is not None, "it is known"
        if flight.recovery is None:
            self._tally.count_lane(outcome.state)
        else:
            self._tell_recovered(number, flight.recovery, outcome)
        held, flight.held = flight.held, []
        return (*results, *(SplitResult(split, split.offset) for split in held))

    def entry(self, number: int, results: Sequence[SplitResult], changes: Changes) -> dict[str, Any]:
        """What `OffsetStore.commit` is to save beside the changes that the source made of the results."""
        plan, outcome = self._flights[number].plan, _outcome(results)
        if outcome is None or outcome.state != "committed":
            return {}
        told = {one.split.partition for one in results if _is_told(one, changes)}
        heads = {number: outcome.head} if told or plan.also or changes.offsets or changes.forget else {}
        return {"heads": heads, "told": told, "also": plan.also, "connector": self._definition.name}

    def heads_of(self, unsaved: Iterable[tuple[int, Sequence[SplitResult]]]) -> dict[str, Any]:
        """What `OffsetStore.commit` is to save of batches whose changes are saved once more at the end; all of them are told again."""
        found = ((number, _outcome(results)) for number, results in unsaved)
        heads = {number: outcome.head for number, outcome in found if outcome is not None and outcome.state == "committed"}
        return {"heads": heads, "connector": self._definition.name} if heads else {}

    def saved(self, number: int, results: Sequence[SplitResult]) -> None:
        """What became of a lane's batch is in the store: the next one may be planned."""
        flight, outcome = self._flights.pop(number), _outcome(results)
        self.heads = {**self.heads, number: outcome.head if outcome else flight.plan.head}

    def tend(self) -> None:
        """Go on with what is not known, which raises nothing (see the futures of `take_in`), and with what is told between batches.

        Raises what ends the connector.
        """
        told = self.telling.end()
        if told is not None:
            self.heads = {**self.heads, LANE: told}
        for recovery in self._recoveries():
            if not recovery.results.done():
                recovery.tend()

    @property
    def trouble(self) -> RetriableError | None:
        """Why the outcome of a batch, or where a lane is, is still not known; None where all are, or it takes but a moment."""
        doubts = (one.trouble for one in self._recoveries() if not one.results.done())
        return next(filter(None, (*doubts, self.telling.trouble)), None)

    @property
    def doubtful(self) -> frozenset[int]:
        """Lanes with a batch of which is not known what became of it."""
        return frozenset(number for number, one in self._flights.items() if one.recovery and not one.recovery.results.done())

    def close(self) -> None:
        """The connector ends: what is not known yet, the next start finds out."""
        self.telling.cancel()
        for recovery in self._recoveries():
            recovery.cancel()

    def _recoveries(self) -> list[Recovery]:
        return [one.recovery for one in self._flights.values() if one.recovery is not None]

    def _tell_recovered(self, number: int, recovery: Recovery, outcome: LaneOutcome) -> None:
        self._tally.count_lane("openings")
        self._tally.count_lane(outcome.state)
        became = "committed" if outcome.state == "committed" else "not committed"
        seconds = round(time.monotonic() - recovery.began, 2)
        self._log.warning("Kafka was asked what became of a batch", task=number, batch=became, why=recovery.why, seconds=seconds)


def _outcome(results: Iterable[SplitResult]) -> LaneOutcome | None:
    return next((one.lane for one in results if one.lane is not None), None)


def _is_known(plan: LanePlan, outcome: LaneOutcome | None) -> bool:
    """Whether nobody else need be asked."""
    if outcome is None or outcome.state == "unknown":
        return False
    if outcome.state == "committed":
        return outcome.head[:2] == (plan.head.seq + 1, plan.head.nonce)
    return outcome.head == plan.head


def _is_told(result: SplitResult, changes: Changes) -> bool:
    """Whether the transaction says of the file what the store is about to: the driver may know another name of it by now."""
    partition = result.split.partition
    saved = changes.offsets.get(partition)
    if saved is None or partition in changes.forget:
        return False
    return (saved.path, saved.gone_ms) == (result.offset.path, result.offset.gone_ms)
