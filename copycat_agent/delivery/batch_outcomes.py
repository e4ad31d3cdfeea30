"""The outcome of a batch's delivery when its process has not told it.

A batch is given to one process, once: if two could have it, what one says of it would say nothing about the other. A batch that may have
reached a process and has no answer is unknown; one that certainly has not is undone.

A process of a cluster looks here before it knows whether it has what a batch needs: only the model is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from copycat_agent.errors import CopycatError
from copycat_agent.model import Batch, LaneOutcome, LanePlan, LaneState, SourceOffset, SourcePartition, SplitResult

if TYPE_CHECKING:
    from copycat_agent.delivery.base import Results


class BatchOutcomes(Protocol):
    """One delivery's."""

    is_always_asked: bool
    """Whether Kafka has to be asked about a batch even if no process is known to have begun it."""

    def add(self, batch: Batch, results: Results, why: str, *, begun: bool, again: bool = False) -> Results:
        """The results with what is known of the delivery, where they do not say it themselves.

        `begun`: a process may have had the batch. `again`: another process may have had it before the one that answers.
        """


class _Acknowledged:
    """At least once, and into files, where the store is always asked: each result stands for itself."""

    is_always_asked = False

    def add(self, _batch: Batch, results: Results, _why: str, *, begun: bool, again: bool = False) -> Results:  # noqa: ARG002 - see `BatchOutcomes`
        """The results as they are."""
        return results


class _Transaction:
    """Exactly once: the first result says what became of the transaction."""

    is_always_asked = True

    def add(self, batch: Batch, results: Results, why: str, *, begun: bool, again: bool = False) -> Results:
        """The first result gets the outcome: what a result says of it, else unknown if a process may have begun it, else undone."""
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
"""By what a batch's plan names: the guarantee, or files."""


def without_answer(batch: Batch, error: CopycatError | None, *, begun: bool) -> Results:
    """Results of a batch that gave no answer: every split stands where it stood. Not `begun`: no process has ever had it."""
    results = tuple(SplitResult(split, split.offset, error=error) for split in batch.splits)
    return OUTCOMES[batch.delivery.guarantee].add(batch, results, str(error or ""), begun=begun)


def completed(batch: Batch, results: Results, why: str, *, again: bool) -> Results:
    """Returns the results, with an outcome where none says it: nothing was begun, for this reason. `again` as in `BatchOutcomes.add`."""
    return OUTCOMES[batch.delivery.guarantee].add(batch, results, why, begun=False, again=again)


def is_always_asked(batch: Batch) -> bool:
    """Whether Kafka has to be asked about this batch even if no process is known to have begun it."""
    return OUTCOMES[batch.delivery.guarantee].is_always_asked


class Reached:
    """How far the splits of one batch that stays have come, as it has reported. Changed by one thread at a time."""

    def __init__(self) -> None:
        self._offsets: dict[SourcePartition, SourceOffset] = {}

    def note(self, results: Results) -> None:
        """It has reported these."""
        self._offsets.update((one.split.partition, one.offset) for one in results)

    def apply(self, results: Results) -> Results:
        """The results; those made without what was reported are as of a batch that broke off there: nothing since then, and why."""
        return tuple(map(self._applied, results))

    def _applied(self, result: SplitResult) -> SplitResult:
        offset = self._offsets.get(result.split.partition)
        if offset is None or result.offset.position >= offset.position:
            return result
        return SplitResult(replace(result.split, offset=offset), offset, error=result.error)
