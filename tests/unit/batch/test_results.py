"""The results of a batch with at_least_once, where a source cannot say where one of its splits is."""

from __future__ import annotations

import types
from typing import Any, Never

from copycat_agent.batch.progress import SplitProgress
from copycat_agent.delivery.at_least_once import AtLeastOnceTask
from copycat_agent.errors import CopycatError, FatalError
from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult
from tests.unit.batch import rig


class Odd(SplitProgress):
    """Its source's own code raises."""

    def result(self, error: CopycatError | None) -> Never:
        del error
        raise KeyError("position")


def test_a_result_that_cannot_be_made_leaves_the_others_alone() -> None:
    splits = [Split(SourcePartition("app", key), key, "", SourceOffset(7), 9) for key in "abc"]
    progresses = [SplitProgress(splits[0]), Odd(splits[1]), SplitProgress(splits[2])]
    run: Any = types.SimpleNamespace(run=lambda: None, progresses=progresses)
    producer: Any = types.SimpleNamespace(begin=lambda _stopping: None, take_view=lambda: None)
    producers: Any = types.SimpleNamespace(take=lambda *_about, **_how: producer, give_back=lambda *_about: None)
    encoder: Any = types.SimpleNamespace(kafka=None)
    batch = rig.batch_of(rig.definition("x:1", "t"), *splits)
    wrong = FatalError("a bug")
    results = AtLeastOnceTask().run(batch, encoder, producers, rig.never, lambda *_about: run, lambda _error: wrong)
    assert results == (SplitResult(splits[0], splits[0].offset), SplitResult(splits[1], splits[1].offset, error=wrong), results[2])
    assert results[2].error is None
