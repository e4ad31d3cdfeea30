"""Determines the outcome of a batch's delivery when its process has not reported it.

A batch is given to one process, once: if two could have it, the report of one would say nothing about the other. The outcome of a batch
without an answer is `unknown` if it may have reached a process, else `undone`.

Executors import this before they know whether they have what a batch needs: it imports only the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from copycat_agent.errors import CopycatError
from copycat_agent.model import Batch, LaneOutcome, LanePlan, LaneState, Results, SourceOffset, SourcePartition, SplitResult


class BatchOutcomes(Protocol):
    """The outcomes of one kind of delivery."""

    needs_kafka_check: bool
    """Whether Kafka has to be asked about a batch even if no process is known to have begun it."""

    def add(self, batch: Batch, results: Results, why: str, *, begun: bool, again: bool = False) -> Results:
        """Returns the results with the outcome of the delivery, where they have none.

        `begun`: a process may have had the batch. `again`: another process may have had it before the one that answers.
        """


class _Acknowledged:
    """At least once, and into files, where tasks always ask the store: results are independent of each other."""

    needs_kafka_check = False

    def add(self, _batch: Batch, results: Results, _why: str, *, begun: bool, again: bool = False) -> Results:  # noqa: ARG002 - see `BatchOutcomes`
        """Returns the results unchanged."""
        return results


class _Transaction:
    """Exactly once: the first result carries the outcome of the transaction."""

    needs_kafka_check = True

    def add(self, batch: Batch, results: Results, why: str, *, begun: bool, again: bool = False) -> Results:
        """Returns the results, the first with the outcome: that of any result, else unknown if a process may have begun it, else undone."""
        plan = batch.delivery
        assert isinstance(plan, LanePlan), "a transaction has a lane"
        if not results:
            return results
        state: LaneState = "unknown" if begun else "undone"
        said = next((one.outcome for one in results if one.outcome is not None), LaneOutcome(state, plan.head, why))
        if said.state == "undone" and again:  # a process that had it before may have committed it
            said = said._replace(state="unknown")
        first, *rest = (replace(one, outcome=None) if one.outcome else one for one in results)
        return replace(first, outcome=said), *rest


OUTCOMES: Mapping[str, BatchOutcomes] = {"at_least_once": _Acknowledged(), "exactly_once": _Transaction(), "files": _Acknowledged()}
"""By the guarantee in a batch's plan, or `files`."""


def unanswered_results(batch: Batch, error: CopycatError | None, *, begun: bool) -> Results:
    """Returns the results of a batch without an answer: every split keeps its offset. Not `begun`: no process has ever had it."""
    results = tuple(SplitResult(split, split.offset, error=error) for split in batch.splits)
    return OUTCOMES[batch.delivery.guarantee].add(batch, results, str(error or ""), begun=begun)


def completed(batch: Batch, results: Results, why: str, *, again: bool) -> Results:
    """Returns the results, with an outcome if they have none: nothing was begun, because of `why`. `again` as in `BatchOutcomes.add`."""
    return OUTCOMES[batch.delivery.guarantee].add(batch, results, why, begun=False, again=again)


def needs_kafka_check(batch: Batch) -> bool:
    """Returns whether Kafka has to be asked about this batch even if no process is known to have begun it."""
    return OUTCOMES[batch.delivery.guarantee].needs_kafka_check


class ReportedOffsets:
    """The offsets that one batch that stays has reported for its splits. Changed by one thread at a time."""

    def __init__(self) -> None:
        self._offsets: dict[SourcePartition, SourceOffset] = {}

    def note(self, results: Results) -> None:
        """Notes results that the batch has reported."""
        self._offsets.update((one.split.partition, one.offset) for one in results)

    def apply(self, results: Results) -> Results:
        """Returns the results. One that ends before the reported offset is replaced by an empty one at that offset, with its error."""
        return tuple(map(self._applied, results))

    def _applied(self, result: SplitResult) -> SplitResult:
        offset = self._offsets.get(result.split.partition)
        if offset is None or result.offset.position >= offset.position:
            return result
        return SplitResult(replace(result.split, offset=offset), offset, error=result.error)
