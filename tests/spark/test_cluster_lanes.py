"""What an executor of a cluster answers for a batch in a lane. No cluster is needed: these are functions of one process."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import copycat_agent
from copycat_agent.model import Batch, Head, LaneId, LaneOutcome, LanePlan, LaneState, OffsetsPartition, SourceOffset, SplitResult
from copycat_agent.spark import cluster_task
from tests.unit.batch.rig import batch_of, definition, never, split_of, write

if TYPE_CHECKING:
    from pathlib import Path

PLAN = LanePlan(LaneId("agent", "app", 0), Head(4, "n", 7), OffsetsPartition("positions", 0))


def outcomes(batch: Batch, state: LaneState) -> list[LaneOutcome | None]:
    """What the results of a batch say of its lane, when the run of what can be read of it comes to `state`."""

    def run(given: Batch, *_: object) -> tuple[SplitResult, ...]:
        results = [SplitResult(split, split.offset) for split in given.splits]
        return (replace(results[0], outcome=LaneOutcome(state, Head(4, "n", 7))), *results[1:])

    message = cluster_task.BatchMessage(batch, "", copycat_agent.__version__, None)
    results: tuple[SplitResult, ...] = pickle.loads(cluster_task.run_batch_message(message, never, run))
    return [result.outcome for result in results]


@pytest.mark.parametrize("is_second", [True, False])
def test_the_outcome_is_on_the_first_result_whichever_files_look_otherwise_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_second: bool
) -> None:  # fmt: skip
    monkeypatch.setattr(cluster_task, "_is_second_try", lambda: is_second)
    short, good = split_of(write(tmp_path / "short", b"a"), end=99), split_of(write(tmp_path / "good", b"a"))
    batch = replace(batch_of(definition("x:1", "t"), short, replace(good, offset=SourceOffset(0))), delivery=PLAN)
    nothing_sent = "unknown" if is_second else "undone"
    for state, told in {"committed": "committed", "idle": "idle", "undone": nothing_sent, "unknown": "unknown"}.items():
        first, second = outcomes(batch, state)  # type: ignore[arg-type]
        assert (first and first.state, second) == (told, None)
    (alone,) = outcomes(replace(batch, splits=(short,)), "committed")
    assert alone is not None
    assert (alone.state, alone.head) == (nothing_sent, PLAN.head)


def test_an_executor_that_cannot_run_it_has_not_begun(tmp_path: Path) -> None:
    batch = replace(batch_of(definition("x:1", "t"), split_of(write(tmp_path / "f", b"a"))), delivery=PLAN)
    refusal = cluster_task.refused(cluster_task.BatchMessage(batch, "", "another version", None))
    assert refusal is not None
    (result,) = pickle.loads(refusal)
    assert result.outcome.state == "undone"
