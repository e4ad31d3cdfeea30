"""What crosses a process arrives as it was, whatever is in it."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from copycat_agent.errors import BlockedError
from copycat_agent.model import (
    Batch,
    BrokerView,
    ClientView,
    Counts,
    Fingerprint,
    Loss,
    Rejection,
    Sample,
    SourceOffset,
    SourcePartition,
    Split,
    SplitResult,
    TaskId,
)

PARTITION = SourcePartition("app", "fd:1:0:0")
PRINT = Fingerprint(1024, "ab", 256, "cd")
OFFSET = SourceOffset(7, 6, done=True, skipping=True, path="/log/\udcff", size=5, gone_ms=4, fingerprint=PRINT)
SPLIT = Split(PARTITION, "/log/a", "/proc/1/fd/2", OFFSET, 99, final=True, inode=3, mtime_ms=8)
COUNTS = Counts(1, 2, 3, 4, 5, 6, 7)
RESULT = SplitResult(
    SPLIT,
    OFFSET,
    COUNTS,
    at_end=True,
    changed=True,
    error=BlockedError("topic is missing", "create it"),
    rejections=(Rejection("/log/a", 1, 2, "parse", "bad"),),
    losses=(Loss(PARTITION, "/log/a", 1, 2, 1, 0, "too_long", "cut", 3),),
    samples=(Sample("t", None, b"v", (), None, "/log/a", 1, 2),),
    client=ClientView(1.0, (BrokerView("b", "up", None),), 1, 2, 3),
)
BATCH = Batch(TaskId("app", 1), b"definition", (SPLIT,), 1, 2.0, 3, 4)
VALUES = [PRINT, OFFSET, SPLIT, COUNTS, RESULT, BATCH]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_field_arrives(value: Any) -> None:
    arrived = pickle.loads(pickle.dumps(value, 5))
    for field in dataclasses.fields(value):
        sent, got = getattr(value, field.name), getattr(arrived, field.name)
        assert got == sent or (str(got), type(got)) == (str(sent), type(sent)), field.name  # errors compare by identity


@pytest.mark.parametrize("kind", [type(value) for value in VALUES], ids=lambda kind: kind.__name__)
def test_no_field_is_left_out_or_mixed_up_by_the_way_it_is_pickled(kind: type) -> None:
    """Anew from its arguments, in the order of the fields: a field that is added later has to be added there, too."""
    values = tuple(object() for _ in dataclasses.fields(kind))
    assert kind(*values).__reduce__() == (kind, values)


def test_counts_add_up_field_by_field() -> None:
    assert sum([COUNTS, COUNTS], Counts()) == Counts(2, 4, 6, 8, 10, 12, 14)
