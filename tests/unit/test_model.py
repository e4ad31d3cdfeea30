"""What crosses processes, and is saved, survives being pickled."""

from __future__ import annotations

import pickle
import sys
from dataclasses import fields
from typing import Any

import pytest

from copycat_agent.model import Head, LaneId, LanePlan, OffsetsPartition, SourceState, state_partition
from copycat_agent.model.records import Compact


def kinds(of: type[Any] = Compact) -> list[type[Any]]:
    """All that are compact; of each, `dataclass(slots=True)` leaves one that nobody uses."""
    found = [one for kind in of.__subclasses__() for one in (kind, *kinds(kind))]
    return [kind for kind in found if getattr(sys.modules[kind.__module__], kind.__name__) is kind]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_each_is_pickled_whole_however_many_fields_it_has(kind: type[Any]) -> None:
    one = kind(*(f"value of {field.name}" for field in fields(kind)))
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_batch_takes_the_state_of_its_connector_along() -> None:
    state = SourceState({"first_ms": 1, "boot": "b"})
    plan = LanePlan(LaneId("agent", "~id", 0), Head(), OffsetsPartition("offsets", 0), ((state_partition("app"), state),))
    assert pickle.loads(pickle.dumps(plan)).driver_rows == plan.driver_rows
