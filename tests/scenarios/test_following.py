"""Batches that stay at the ends of their logs: what comes meanwhile, of that file and of others, goes on as without them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from copycat_agent.sources.log_file import file_planner
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, numbers, settled, wait_read

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.shipping import Shipping


@pytest.fixture(autouse=True)
def _nothing_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end when they have to, not because nothing comes."""
    monkeypatch.setattr(file_planner, "FOLLOW_SECONDS", 600.0)


def start(shipping: Shipping, log: Path, *, lines: int = 1, beside: int = 0, pattern: str = "*.log", **source: str) -> None:
    """A connector that has read the first lines of `log`, and those of others `beside`, and whose batch stays at their ends."""
    append(log, *numbers(0, lines))
    shipping.start(source={"include": [str(log.with_name(pattern))], **source})
    wait_read(shipping, lines + beside)
    append(log, "it stays")
    wait_until(
        lambda: shipping.status.counts.acknowledged == lines + beside + 1 and shipping.status.tasks > 0, 30, "a batch reports and goes on"
    )


def test_what_is_reported_is_saved_while_the_batch_goes_on(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    start(shipping, log)
    append(log, *numbers(1, 100))
    wait_read(shipping, 101)
    assert shipping.status.tasks == 1
    wait_until(lambda: not shipping.status.lag.bytes, 30, "nothing is left")
    assert settled(shipping, range(101)) == ["0", "it stays", *numbers(1, 100)]


def test_another_file_does_not_wait_for_it(shipping: Shipping, logs_dir: Path) -> None:
    log, other = logs_dir / "app.log", logs_dir / "other.log"
    start(shipping, log)
    append(other, "other")
    wait_read(shipping, 3)
    append(log, "more")
    append(other, "more of the other")
    assert sorted(settled(shipping, range(5))) == ["0", "it stays", "more", "more of the other", "other"]


@pytest.mark.parametrize("pattern", ["*.log", "*"])
def test_the_next_generation_comes_at_once_and_behind_it(shipping: Shipping, logs_dir: Path, pattern: str) -> None:
    log = logs_dir / "app.log"
    start(shipping, log, pattern=pattern)
    with log.open("a", buffering=1) as old:
        log.rename(logs_dir / "app.log.1")
        old.write("late\n")
        append(log, "new")
        assert settled(shipping, range(4)) == ["0", "it stays", "late", "new"]


def test_a_new_log_under_the_name_of_one_that_is_followed_is_heard_of_while_another_file_keeps_the_batch(
    shipping: Shipping, logs_dir: Path
) -> None:
    log, other = logs_dir / "app.log", logs_dir / "other.log"
    append(other, "other")
    start(shipping, log, beside=1, scan_interval="1h")
    log.rename(logs_dir / "app.log.1")
    log.touch()
    append(other, "seen")
    wait_read(shipping, 4)
    append(log, "new")
    assert sorted(settled(shipping, range(5))) == ["0", "it stays", "new", "other", "seen"]


def test_a_copy_and_a_cut_under_it_lose_and_repeat_nothing(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    start(shipping, log, lines=200)
    append(log, "the last one")
    wait_read(shipping, 202)
    shutil.copy(log, logs_dir / "app.log.1")
    os.truncate(log, 0)
    append(log, "new")
    assert settled(shipping, range(203)) == [*numbers(0, 200), "it stays", "the last one", "new"]


def test_a_stop_repeats_nothing(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    start(shipping, log)
    append(log, "not reported yet")
    shipping.lines(until=3)
    shipping.stop()
    shipping.start(source={"include": [str(log)]})
    append(log, "after")
    assert settled(shipping, range(4)) == ["0", "it stays", "not reported yet", "after"]
