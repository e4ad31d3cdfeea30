"""A batch whose process is gone: its splits stand where they stood, into whatever it was delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent import logs
from copycat_agent.delivery.at_least_once import AtLeastOnceGuarantee
from copycat_agent.delivery.base import Callbacks
from copycat_agent.delivery.batch_outcomes import OUTCOMES, completed, unanswered_results
from copycat_agent.errors import RetriableError
from copycat_agent.executor import TASK_DELIVERIES
from copycat_agent.model import AT_LEAST_ONCE, AtLeastOncePlan, Batch, FilesPlan, SourceOffset, SourcePartition, Split, TaskId
from copycat_agent.offsets import OffsetStore
from copycat_agent.spark.runners import ANSWER_SECONDS
from tests.unit.batch.rig import definition

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.parametrize("milliseconds", [5_000, 30_000, 120_000, 300_000])
def test_an_answer_is_waited_for_longer_than_a_record_may_take(tmp_path: Path, milliseconds: int) -> None:
    connector = definition("127.0.0.1:9", "t", client={"message.timeout.ms": str(milliseconds)})
    callbacks = Callbacks(lambda _: None, lambda _: None, lambda: None, logs.get("test"))
    with OffsetStore.open(tmp_path) as store:
        plan = AtLeastOnceGuarantee(store).open(connector, callbacks, ()).advance().plan(0, ())
    batch = Batch(TaskId("app", 0), b"", (), 1, 5.0, delivery=plan)
    flush_seconds = milliseconds / 1000 + 15  # see `TaskProducer`
    assert batch.max_seconds + flush_seconds < batch.settled_seconds + ANSWER_SECONDS
