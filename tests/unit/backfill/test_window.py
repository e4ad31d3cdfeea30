"""--since and --until: records by their time; what does not say belongs to the line before, and nobody is left out for silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.encoding.window import Window, WindowOptions
from copycat_agent.formats import Draft
from copycat_agent.model import Column, Record, Schema
from tests.unit.backfill.conftest import by_name

if TYPE_CHECKING:
    from tests.unit.backfill.conftest import Rig

NOON = 1_795_262_400_000  # 2026-11-21T12:00:00Z


def stamped(minute: int, text: str) -> str:
    return f"2026-11-21T12:{minute:02d}:00Z {text}"


def test_only_records_of_the_time_are_sent_the_first_moment_in_the_last_out(rig: Rig) -> None:
    path = rig.write("app.log", *(stamped(minute, "x") for minute in range(60)))
    summary = rig.run([path], window=WindowOptions(since_ms=NOON + 10 * 60_000, until_ms=NOON + 20 * 60_000))
    (file,) = summary["files"]
    assert rig.lines() == [stamped(minute, "x") for minute in range(10, 20)]
    assert (file["read"], file["acknowledged"], file["dropped"], file["undated"]) == (60, 10, 50, 0)
    assert summary["complete"]


@pytest.mark.parametrize("batch", ["64MiB", "64KiB"])
def test_a_line_without_a_time_belongs_to_the_line_before_wherever_batches_end(rig: Rig, batch: str) -> None:
    lines = []
    for minute in range(60):
        lines += [stamped(minute, "Traceback"), *(f"  frame {number} of {minute} {'x' * 60}" for number in range(80))]
    path = rig.write("app.log", *lines)
    window = WindowOptions(since_ms=NOON + 30 * 60_000, until_ms=None)
    rig.run([path], window=window, delivery={"max_batch_bytes": batch, "tasks_max": 1})
    assert rig.lines() == lines[30 * 81 :]


def test_records_without_any_time_are_sent_and_counted(rig: Rig) -> None:
    paths = [rig.write("a.log", "no time", "here neither"), rig.write("b.log", "before the first", stamped(5, "x"))]
    files = by_name(rig.run(paths, window=WindowOptions(since_ms=NOON + 3_600_000)))
    assert sorted(rig.lines()) == ["before the first", "here neither", "no time"]
    assert (files["a.log"]["undated"], files["b.log"]["undated"], files["b.log"]["dropped"]) == (2, 1, 1)


def takes(options: WindowOptions, value: object, schema: Schema | None = None, timestamp_ms: int | None = None) -> bool:
    bound = Window(options, "utf-8", "utf-8").bind(lambda *_: b"", 0, NOON)
    bound.see(Draft(value, 0, 1, schema=schema))  # type: ignore[arg-type]
    return bound.takes(Record(value, 0, 1, 1, timestamp_ms=timestamp_ms))  # type: ignore[arg-type]


SINCE = WindowOptions(since_ms=NOON)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"timestamp": "2026-11-21T12:00:00Z"}, True),
        ({"timestamp": "2026-11-21T11:59:59.999Z"}, False),
        ({"ts": NOON}, True),
        ({"ts": NOON - 1}, False),
        ({"other": "2026-11-21T11:00:00Z"}, True),
    ],
)
def test_fields_that_are_named_as_times_are_say_when(value: dict[str, object], wanted: bool) -> None:
    assert takes(SINCE, value) is wanted


def test_a_column_typed_as_a_time_and_a_field_that_was_named_go_before_the_usual_names() -> None:
    value = {"made": "2026-11-21T11:00:00Z", "time": "2026-11-21T13:00:00Z"}
    assert takes(SINCE, value)
    assert not takes(SINCE, value, Schema((Column("made", "timestamp"),)))
    assert not takes(WindowOptions(since_ms=NOON, time_field="made"), value)


def test_a_time_that_a_transform_has_set_goes_before_all() -> None:
    assert not takes(SINCE, {"time": "2026-11-21T13:00:00Z"}, timestamp_ms=NOON - 1)
