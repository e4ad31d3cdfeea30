"""G. Records of several lines, and what time ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.rig.shipping import origin
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.shipping import Shipping

LONG = "1h"
"""A time that no test sees the end of."""


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def multiline(timeout: str = "300ms", **options: Any) -> dict[str, Any]:
    """A source section: a line that begins with a letter begins a record, unless `options` say otherwise."""
    rule = {} if {"continues", "ends", "preset"} & options.keys() else {"start": "^[A-Z]"}
    return {"multiline": {**rule, "timeout": timeout, **options}}


def wait_read(shipping: Shipping, path: Path) -> None:
    """Hold until a task has come to the end of `path` as it is now, and found nothing more that is complete."""
    wait_until(lambda: not shipping.status.lag.files and not shipping.status.tasks, message=lambda: f"{path} read: {shipping.status}")


def test_a_group_that_time_has_ended_is_not_sent_again_after_a_restart(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app"
    append(log, b"INFO hello\npart of hello\n")
    shipping.start(source=multiline())
    shipping.records(until=1)
    shipping.stop()
    append(log, b"INFO bye\n")
    shipping.start(source=multiline())
    records = shipping.records(until=2)
    shipping.stop()
    assert [record.value for record in records] == [b"INFO hello\npart of hello", b"INFO bye"]
    assert [origin(record) for record in records] == [("app", 0), ("app", 25)]
    assert len(shipping.records()) == 2


def test_files_never_share_a_group(shipping: Shipping, logs_dir: Path) -> None:
    for piece in (b"%s begins\n", b" more of %s\n", b" the end of %s\n"):
        for name in ("A", "B"):
            append(logs_dir / name, piece % name.encode())
    shipping.start(source=multiline())
    assert sorted(shipping.lines(until=2)) == [f"{name} begins\n more of {name}\n the end of {name}" for name in ("A", "B")]


def test_what_is_written_after_time_has_ended_a_group_is_a_record_of_its_own(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app"
    append(log, b"0\n 1\n")
    shipping.start(source=multiline(ends="^END"))
    assert shipping.lines(until=1) == ["0\n 1"]
    append(log, b" 2\n 3\n")
    assert shipping.lines(until=2) == ["0\n 1", " 2\n 3"]
    append(log, b"4\nEND\n5\nEND\n")
    assert shipping.lines(until=4)[2:] == ["4\nEND", "5\nEND"]


@pytest.mark.parametrize(("option", "middle"), [("truncate", ["B\n 1\n 2"]), ("drop", [])])
def test_a_group_over_the_limit_is_cut_and_the_next_one_is_intact(
    shipping: Shipping, logs_dir: Path, option: str, middle: list[str]
) -> None:
    log = logs_dir / "app"
    source = multiline(max_lines=3, on_too_long=option)
    append(log, b"A\nB\n 1\n 2\n 3\n 4\n")
    shipping.start(source=source)
    wait_until(lambda: shipping.status.counts.too_long == 1, message=lambda: f"{shipping.status}")
    shipping.stop()
    append(log, b" 5\nC\n c\n")
    shipping.start(source=source)
    records = shipping.records(until=2 + len(middle))
    status = shipping.stop()
    assert [(record.value or b"").decode() for record in records] == ["A", *middle, "C\n c"]
    assert [dict(record.headers).get("copycat.truncated") for record in records] == [None, *[b"true"] * len(middle), None]
    assert status.counts.too_long == 0
    assert status.lag.files == 0


def test_a_group_over_the_limit_goes_in_parts_also_around_a_restart(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app"
    source = multiline(LONG, max_lines=2)
    append(log, b"A\nB\n 1\n 2\n 3\n 4\n")
    shipping.start(source=source)
    shipping.records(until=3)
    shipping.stop()
    append(log, b" 5\n 6\nC\nD\n")
    shipping.start(source=source)
    records = shipping.records(until=6)
    status = shipping.stop()
    assert [(record.value or b"").decode() for record in records] == ["A", "B\n 1\n", " 2\n 3\n", " 4\n 5\n", " 6", "C"]
    said = [dict(record.headers) for record in records]
    assert [one.get("copycat.part") for one in said] == [None, b"1", b"2", b"3", b"4", None]
    assert [one.get("copycat.parts") for one in said] == [None] * 4 + [b"4", None]
    assert len({one.get("copycat.part_of") for one in said}) == 2
    assert status.counts.too_long == 0, "counted once, before the restart"


def test_a_stack_trace_that_is_written_around_a_restart_is_one_record(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app"
    source = multiline(LONG, preset="java")
    append(log, b"ready\nERROR failed\njava.lang.IllegalStateException: no\n\tat a.B.c(B.java:1)\n")
    shipping.start(source=source)
    shipping.records(until=1)
    wait_read(shipping, log)
    shipping.stop()
    append(log, b"\tat a.B.d(B.java:2)\nCaused by: x.Y: z\n\t... 1 more\nnext\n")
    shipping.start(source=source)
    records = shipping.lines(until=2)
    shipping.stop()
    assert records == [
        "ready",
        "ERROR failed\njava.lang.IllegalStateException: no\n\tat a.B.c(B.java:1)\n\tat a.B.d(B.java:2)\nCaused by: x.Y: z\n\t... 1 more",
    ]


def test_a_file_that_was_rotated_within_a_group_sends_it_in_time_and_first(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, b"A\nB\n b\n")
    shipping.start(source=multiline("15s"))  # the late line has to come before, also on a busy machine
    wait_until(lambda: shipping.status.counts.acknowledged, message=lambda: f"{shipping.status}")
    log.rename(logs_dir / "app.log.1")
    append(logs_dir / "app.log.1", b" late\n")
    append(log, b"C\nD\n")
    assert shipping.lines(until=4) == ["A", "B\n b\n late", "C", "D"]


def test_a_run_to_the_end_waits_for_no_time(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "app.log.1", b"A\n a\n unfinished")
    append(logs_dir / "app.log", b"B\nC\n c\n")
    shipping.start(until_idle=True, source=multiline(LONG))
    shipping.wait_idle()
    shipping.stop()
    assert shipping.lines() == ["A\n a\n unfinished", "B", "C\n c"]


def test_an_unfinished_last_line_is_sent_when_the_file_was_quiet_for_so_long(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app"
    append(log, b"hello wor")
    shipping.start(source={"line": {"flush_partial_after": "300ms"}})
    records = shipping.records(until=1)
    assert [record.value for record in records] == [b"hello wor"]
    append(log, b"ld\nnext\n")
    assert shipping.lines(until=3) == ["hello wor", "ld", "next"]


def test_an_unfinished_last_line_waits_when_only_groups_have_a_time(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app"
    append(log, b"A\n a\n unfin")
    shipping.start(source=multiline())
    assert shipping.lines(until=1) == ["A\n a"]
    wait_read(shipping, log)
    append(log, b"ished\nB\n")
    assert shipping.lines(until=3) == ["A\n a", " unfinished", "B"]


def test_entries_of_json_go_together_by_the_text_in_a_field_also_around_a_restart(shipping: Shipping, logs_dir: Path) -> None:
    log, texts = logs_dir / "app", ["ERROR boom", "\tat a.B", "\tat c.D", "INFO bye"]
    entries = [b'{"id": 12345678901234567890123, "n": %d, "log": %s}\n' % (n, json.dumps(text).encode()) for n, text in enumerate(texts)]
    source = multiline(LONG, field="log", on_too_long="dlq")
    append(log, b"".join(entries[:2]))
    shipping.start(source=source)
    wait_read(shipping, log)
    shipping.stop()
    append(log, b"".join(entries[2:]) + b'{"log": "INFO end"}\n')
    shipping.start(source=source)
    records = shipping.records(until=2)
    joined = entries[0].replace(b"ERROR boom", b"ERROR boom\\n\\tat a.B\\n\\tat c.D").rstrip(b"\n")
    assert [record.value for record in records] == [joined, entries[3].rstrip(b"\n")]
    assert [origin(record)[1] for record in records] == [0, len(b"".join(entries[:3]))]
