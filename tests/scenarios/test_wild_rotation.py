"""B, C and spool-dir 60, 61. Rotations that meet a reader that is late: nothing is lost that was seen, and what is lost is known."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import create_topic, unique_topic
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, numbers, settled, told, wait_read
from tests.scenarios.test_losses import entered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import ProxiedBroker
    from tests.rig.proxy import Proxy
    from tests.rig.shipping import Shipping


@pytest.fixture
def slow(make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker) -> tuple[Shipping, Proxy]:
    """A connector, and the network between it and its broker."""
    bootstrap = proxied_broker.bootstrap
    return make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic())), proxied_broker.proxy


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_a_burst_is_delivered_though_the_broker_is_far_slower_than_the_rotation_waits(
    slow: tuple[Shipping, Proxy], logs_dir: Path, count: int
) -> None:
    """B7: rotated and deleted right behind the burst, with most of it unread, and `rotate_wait` long over before it is through."""
    (shipping, proxy), log = slow, logs_dir / "app.log"
    append(log, "warm")
    source = {"include": [str(log)], "rotate_wait": "200ms"}
    shipping.start(source=source, record={"origin_headers": False}, kafka={"client": {"compression.type": "none"}})
    wait_read(shipping, 1)
    proxy.pause()
    with log.open("ab") as file:
        file.write(b"".join(b"%07d %s\n" % (number, b"x" * 20) for number in range(count)))
    wait_until(lambda: shipping.status.lag.bytes > 0, message="the burst is seen")
    log.rename(logs_dir / "away")
    (logs_dir / "away").unlink()
    append(log, "next")
    time.sleep(1.0)  # five times as long as the rotation waits
    assert shipping.status.counts.acknowledged == 1
    proxy.forward()
    proxy.throttle(3_500_000 if count > 100_000 else 350_000)
    wait_read(shipping, count + 2, 500)
    shipping.stop()
    proxy.forward()
    lines = shipping.lines()
    assert len(lines) == count + 2
    assert [int(line[:7]) for line in lines[1:-1]] == list(range(count))
    assert lines[-1] == "next"


def test_a_file_moved_over_the_log_in_the_midst_of_reading_it_goes_on(slow: tuple[Shipping, Proxy], logs_dir: Path) -> None:
    """C9: at line 2 of 4."""
    (shipping, proxy), log, fresh = slow, logs_dir / "app.log", logs_dir / ".fresh"
    append(log, "1", "2")
    shipping.start()
    wait_read(shipping, 2)
    proxy.pause()
    append(log, "3", "4")
    wait_until(lambda: shipping.status.lag.bytes > 0, message="two more lines are seen")
    shutil.copy(log, fresh)
    append(fresh, "5")
    fresh.replace(log)
    proxy.forward()
    assert settled(shipping, range(5)) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_file_whose_last_line_is_taken_away_is_told_and_goes_on(
    shipping: Shipping, logs_dir: Path, caplog: pytest.LogCaptureFixture, is_running: bool
) -> None:
    """C11. What is left of the file cannot be told from a rewrite that begins alike, so it is read again rather than passed over."""
    caplog.set_level("INFO", "copycat_agent")
    log = logs_dir / "app.log"
    append(log, *numbers(10, 20))
    shipping.start()
    wait_read(shipping, 10)
    if not is_running:
        shipping.stop()
    os.truncate(log, 9 * 3)
    if is_running:
        wait_until(lambda: shipping.status.lag.truncated_files == 1, message="the cut is seen")
    else:
        shipping.start()
    append(log, "20")
    wait_until(lambda: "20" in shipping.lines(), message=lambda: f"{shipping.status}")
    shipping.stop()
    lines = shipping.lines()
    assert lines[:10] == numbers(10, 20)
    assert lines[10:] == [*numbers(10, 19), "20"]
    events = ("file begun anew, reading from its beginning", "file begun anew while the agent was away, reading from its beginning")
    assert sum(told(caplog, event, path=str(log)) for event in events) == 1


def test_what_was_seen_and_is_in_no_copy_is_lost_to_the_byte(slow: tuple[Shipping, Proxy], logs_dir: Path) -> None:
    """Fault 41, spool-dir 61: copytruncate with lines written between the copy and the cut, all of them seen."""
    (shipping, proxy), log = slow, logs_dir / "app.log"
    append(log, *numbers(1000, 1500))
    shipping.start(source={"include": [f"{log}*"]}, delivery={"linger": "100ms"})  # so that no batch stays at the end of the file
    wait_read(shipping, 500)
    proxy.pause()
    append(log, "1500")
    wait_until(lambda: shipping.status.tasks, message="a batch with this line only is under way")
    append(log, *numbers(1501, 2000))
    shutil.copy(log, logs_dir / "app.log.1")
    append(log, *numbers(2000, 2040))
    wait_until(lambda: shipping.status.lag.bytes >= 540 * 5, message="all of it is seen")
    os.truncate(log, 0)
    append(log, "new")
    proxy.forward()
    assert sorted(settled(shipping, range(1001))) == [*numbers(1000, 2000), "new"]
    shipping.start()
    wait_until(lambda: sum(loss.size_bytes for loss in entered(shipping)) == 40 * 5, message=lambda: f"{entered(shipping)}")
    assert {(loss.reason, loss.path) for loss in entered(shipping)} == {("destroyed", str(log))}


def test_an_unfinished_line_of_a_rotated_file_arrives_and_nothing_twice(shipping: Shipping, logs_dir: Path) -> None:
    """Spool-dir 60: rotated while the agent was down; nobody will finish the line, so it need not come before the new file's."""
    log = logs_dir / "app.log"
    append(log, "1")
    source = {"include": [str(log)], "rotate_wait": "0s"}
    shipping.start(source=source)
    wait_read(shipping, 1)
    shipping.stop()
    with log.open("a") as file:
        file.write("world")
    log.rename(logs_dir / "app.log.1")
    append(log, "new 1", "new 2")
    shipping.start(source=source)
    lines = settled(shipping, range(4))
    assert [line for line in lines if line != "world"] == ["1", "new 1", "new 2"]
    assert lines.count("world") == 1
