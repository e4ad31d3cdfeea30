"""A batch whose process is gone: its splits stand where they stood, into whatever it was delivered."""

from __future__ import annotations

import pytest

from copycat_agent.delivery.batch_outcomes import OUTCOMES, completed, unanswered_results
from copycat_agent.errors import RetriableError
from copycat_agent.executor import TASK_DELIVERIES
from copycat_agent.model import AT_LEAST_ONCE, AtLeastOncePlan, Batch, FilesPlan, SourceOffset, SourcePartition, Split, TaskId


def test_whatever_a_task_delivers_has_an_outcome_without_its_answer() -> None:
    assert set(OUTCOMES) == set(TASK_DELIVERIES)


@pytest.mark.parametrize("plan", [AT_LEAST_ONCE, FilesPlan()])
@pytest.mark.parametrize("begun", [True, False])
def test_splits_stand_where_they_stood(plan: AtLeastOncePlan | FilesPlan, begun: bool) -> None:
    split = Split(SourcePartition("lake", "orders/0"), "orders/0", "", SourceOffset(12), 20)
    batch = Batch(TaskId("lake", 0), b"", (split,), 1, 1.0, delivery=plan)
    error = RetriableError("runner 0 is gone")
    results = unanswered_results(batch, error, begun=begun)
    assert [(one.offset, one.error, one.outcome) for one in results] == [(split.offset, error, None)]
    assert completed(batch, results, "", again=True) == results
