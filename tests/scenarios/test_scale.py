"""Many files, few descriptors, long backlogs: nothing is lost, nobody waits for ever, and what is kept returns to its bound."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.rig.shipping import origin
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, descriptors, settled, wait_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.rig.shipping import Shipping

BACKLOG_LINES = 12_000
"""Of a kilobyte each: three turns of one file of several."""


def test_empty_files_are_followed_and_say_nothing(shipping: Shipping, logs_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = [logs_dir / f"{number}.log" for number in range(300)]
    for path in paths:
        path.touch()
    shipping.start(source={"watch": "poll"})
    wait_until(lambda: shipping.status.lag.known_files == len(paths))
    caplog.clear()
    append(paths[137], "the first line of all")
    assert shipping.lines(until=1) == ["the first line of all"]  # found by a scan, and there were others before it
    assert not [record for record in caplog.records if record.name.startswith("copycat_agent.") and record.levelname != "DEBUG"]
    shipping.stop()
    assert shipping.lines() == ["the first line of all"]


def test_one_open_file_is_enough_for_rotated_files_and_their_followers(shipping: Shipping, logs_dir: Path) -> None:
    shipping.start(source={"max_open_files": 1})
    expected = []
    for turn in range(4):
        for name in ("one", "two"):
            path = logs_dir / f"{name}.log"
            if turn:
                path.rename(logs_dir / f"{name}.log.{turn}")
            expected.append(f"{name} {turn}")
            append(path, expected[-1])
        shipping.lines(until=len(expected))
        wait_until(lambda: len(descriptors(logs_dir)) <= 1, message=lambda: f"{descriptors(logs_dir)}")  # more while others are looked at
    assert Counter(settled(shipping, expected)) == Counter(expected)


def test_what_changed_first_is_read_first(shipping: Shipping, logs_dir: Path) -> None:
    paths = [logs_dir / name for name in ("c", "a", "d", "b")]
    for second, path in enumerate(paths):
        append(path, *(f"{path.name} {number}" for number in range(50)))
        os.utime(path, (1_700_000_000 + second, 1_700_000_000 + second))
    touched = paths.pop(1)
    os.utime(touched, (1_700_000_100, 1_700_000_100))
    shipping.start(delivery={"tasks_max": 1}, source={"max_open_files": 1})
    wait_read(shipping, 200)
    shipping.stop()
    assert shipping.lines() == [f"{path.name} {number}" for path in (*paths, touched) for number in range(50)]


def test_two_backlogs_advance_side_by_side(shipping: Shipping, logs_dir: Path) -> None:
    for name in ("one", "two"):
        _fill(logs_dir / name)
    shipping.start(delivery={"tasks_max": 1, "max_batch_bytes": "1MiB"})
    wait_read(shipping, 2 * BACKLOG_LINES)
    shipping.stop()
    files = [origin(record)[0] for record in shipping.records()]
    assert len(files) == 2 * BACKLOG_LINES
    assert max(files.index("one"), files.index("two")) < BACKLOG_LINES  # the second began before the first was through


def test_a_quiet_file_does_not_wait_for_the_end_of_a_backlog(shipping: Shipping, logs_dir: Path) -> None:
    _fill(logs_dir / "large")
    append(logs_dir / "quiet", "at first")
    shipping.start(delivery={"tasks_max": 1}, limits={"records_per_second": 200})  # the backlog alone takes a minute
    wait_read(shipping, 2)
    append(logs_dir / "quiet", "at last")
    before = shipping.records(until=lambda found: any(record.value == b"at last" for record in found))
    shipping.stop()
    assert len(before) < BACKLOG_LINES - 1000
    shipping.start(delivery={"tasks_max": 1})
    shipping.records(until=BACKLOG_LINES + 2)
    shipping.stop()
    assert len(shipping.records()) == BACKLOG_LINES + 2


def test_files_that_come_and_go_leave_nothing_behind(shipping: Shipping, logs_dir: Path) -> None:
    append(logs_dir / "stays", "here")
    shipping.start(source={"forget_after": "1s", "rotate_wait": "0s"})
    for turn in range(3):
        paths = [logs_dir / f"{turn}-{number}" for number in range(100)]
        for path in paths:
            append(path, path.name)
        wait_read(shipping, 1 + 100 * (turn + 1))
        for path in paths:
            path.unlink()
    wait_until(lambda: len(shipping.offsets) == 1, message=lambda: f"{len(shipping.offsets)} rows")
    assert [offset.path for offset in shipping.offsets.values()] == [str(logs_dir / "stays")]
    wait_until(lambda: {name.rpartition("/")[2] for name in descriptors(logs_dir)} <= {"stays"}, message=lambda: f"{descriptors(logs_dir)}")
    wait_until(lambda: shipping.status.lag.known_files == 1, message=lambda: f"{shipping.status}")
    expected = ["here", *(f"{turn}-{number}" for turn in range(3) for number in range(100))]
    assert Counter(settled(shipping, expected)) == Counter(expected)


def test_forgetting_is_each_connector_s_own(make_shipping: Callable[..., Shipping], logs_dir: Path) -> None:
    forgetful, faithful = make_shipping("forgetful"), make_shipping("faithful")
    append(logs_dir / "comes-and-goes", "line")
    forgetful.start(source={"forget_after": "1s", "rotate_wait": "0s"})
    faithful.start(source={"rotate_wait": "0s"})
    wait_read(forgetful, 1)
    wait_read(faithful, 1)
    (logs_dir / "comes-and-goes").unlink()
    wait_until(lambda: not forgetful.offsets)
    assert len(faithful.offsets) == 1


def test_a_stop_in_the_middle_of_a_large_file_goes_on_there(shipping: Shipping, logs_dir: Path) -> None:
    lines = _fill(logs_dir / "large")
    shipping.start(delivery={"max_batch_bytes": "1MiB"}, limits={"records_per_second": 200})
    wait_read(shipping, 300)
    shipping.stop()
    before = len(shipping.records())
    assert before < len(lines)
    shipping.start()
    wait_read(shipping, len(lines) - before)
    shipping.stop()
    assert [record.value for record in shipping.records()] == lines  # in order, none twice, so none from the beginning


def _fill(path: Path) -> list[bytes]:
    lines = [b"%01023d" % number for number in range(BACKLOG_LINES)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    return lines
