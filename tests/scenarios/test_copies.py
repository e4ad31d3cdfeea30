"""C. Copies, rewrites and archives of logs: what was read of the log is not read again, and what was not comes from the copy."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.rig.kafka import create_topic, unique_topic
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, numbers, settled, wait_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import ProxiedBroker
    from tests.rig.shipping import Shipping

LOGROTATE = "/usr/sbin/logrotate"


def rotate(tmp_path: Path, log: Path, *options: str) -> None:
    """`logrotate -f` of one log, with these options."""
    config = tmp_path / "logrotate.conf"
    config.write_text("\n".join([f"{log} {{", "rotate 20", *options, "}", ""]))
    config.chmod(0o644)
    subprocess.run([LOGROTATE, "-f", "-s", str(tmp_path / "logrotate.state"), str(config)], check=True, timeout=60)


@pytest.mark.parametrize("names", ["app.log*", "app.log"])
def test_the_unread_end_of_a_log_is_taken_from_its_copy_and_nothing_is_repeated(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, logs_dir: Path, tmp_path: Path, names: str
) -> None:
    """C5: with the copy inside the patterns and outside."""
    bootstrap, proxy, log = proxied_broker.bootstrap, proxied_broker.proxy, logs_dir / "app.log"
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    append(log, *numbers(0, 1000))
    shipping.start(source={"include": [f"{logs_dir}/{names}"]})
    wait_read(shipping, 1000)
    shipping.stop()
    append(log, *numbers(1000, 2000))
    rotate(tmp_path, log, "copytruncate")
    append(log, *numbers(2000, 3000))
    proxy.forward()
    shipping.start(source={"include": [f"{logs_dir}/{names}"]})
    assert settled(shipping, range(3000)) == numbers(0, 3000)
    assert lost(shipping) == 0


def lost(shipping: Shipping) -> int:
    """Bytes in the ledger, of all starts."""
    shipping.start()
    try:
        return shipping.status.lag.lost_bytes
    finally:
        shipping.stop()


@pytest.mark.parametrize("exclude", [[], ["*.gz"]])
def test_logrotate_that_copies_cuts_and_compresses_loses_and_repeats_nothing(
    shipping: Shipping, logs_dir: Path, tmp_path: Path, exclude: list[str]
) -> None:
    """C4: archives are read, as the rest of what was read already, or let alone."""
    log = logs_dir / "app.log"
    shipping.start(source={"include": [f"{log}*"], "exclude": exclude})
    for cycle in range(3):
        append(log, *numbers(cycle * 5000, (cycle + 1) * 5000))
        wait_read(shipping, (cycle + 1) * 5000)
        rotate(tmp_path, log, "copytruncate", "compress")
    append(log, "end")
    assert settled(shipping, range(15_001)) == [*numbers(0, 15_000), "end"]


def test_a_file_moved_over_the_log_with_its_lines_and_one_more_goes_on(shipping: Shipping, logs_dir: Path) -> None:
    """C9."""
    log, fresh = logs_dir / "app.log", logs_dir / ".fresh"
    append(log, "1", "2", "3", "4")
    shipping.start()
    wait_read(shipping, 4)
    shutil.copy(log, fresh)
    append(fresh, "5")
    time.sleep(0.02)  # kernels stamp files every few milliseconds only
    fresh.replace(log)
    assert settled(shipping, range(5)) == ["1", "2", "3", "4", "5"]


def test_copytruncate_under_load_repeats_nothing_and_counts_what_it_destroys(shipping: Shipping, logs_dir: Path) -> None:
    """Fault 41: a writer that appends all the time, a copy and a cut with time between them for lines that nobody gets."""
    log, written, stop = logs_dir / "app.log", 0, threading.Event()
    log.touch()

    def write() -> None:
        nonlocal written
        with log.open("ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"".join(b"%09d\n" % number for number in range(written, written + 20)))
                written += 20
                time.sleep(0.001)

    shipping.start(source={"include": [f"{log}*"]})
    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_read(shipping, 1)
        for number in range(1, 6):
            time.sleep(0.3)
            shutil.copy(log, logs_dir / f"app.log.{number}")
            os.truncate(log, 0)
    finally:
        stop.set()
        writer.join()
    append(log, "end")
    wait_until(lambda: "end" in shipping.lines(), 30, lambda: f"{shipping.status}")
    wait_until(lambda: shipping.status.lag.bytes == 0, 30, lambda: f"{shipping.status}")
    gap = shipping.status.lag.lost_bytes
    shipping.stop()
    lines = shipping.lines()
    missing = written + 1 - len(set(lines))
    assert len(lines) == len(set(lines))
    assert missing * 10 >= gap, "no byte that arrived is called lost"


@pytest.mark.parametrize("is_read", [True, False])
def test_a_log_rotated_and_compressed_while_the_agent_was_down_is_not_sent_again(
    shipping: Shipping, logs_dir: Path, tmp_path: Path, is_read: bool
) -> None:
    """Fault 46, with the archive among the patterns' files."""
    log = logs_dir / "app.log"
    append(log, *numbers(0, 1000))
    shipping.start()
    wait_read(shipping, 1000)
    shipping.stop()
    if not is_read:
        append(log, *numbers(1000, 2000))
    rotate(tmp_path, log, "compress", "create 0644")
    append(log, "new")
    assert [path.name for path in logs_dir.iterdir() if path.suffix == ".gz"] == ["app.log.1.gz"]
    shipping.start()
    expected = [*numbers(0, 1000 if is_read else 2000), "new"]
    assert sorted(settled(shipping, expected)) == sorted(expected)


def test_an_archive_of_the_log_that_no_pattern_matches_gives_what_was_not_read(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "app.log"
    append(log, *numbers(0, 1000))
    shipping.start(source={"include": [str(log)]})
    wait_read(shipping, 1000)
    shipping.stop()
    append(log, *numbers(1000, 2000))
    (logs_dir / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    shipping.start(source={"include": [str(log)]})
    assert settled(shipping, range(2000)) == numbers(0, 2000)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("names", ["app.log*", "app.log"])
def test_copies_over_the_previous_copy_lose_and_repeat_nothing(shipping: Shipping, logs_dir: Path, names: str, guarantee: str) -> None:
    """`cp app.log app.log.1 && : > app.log`: app.log.1 keeps its inode. While the agent runs, and with unread lines while it is down."""
    log, copy = logs_dir / "app.log", logs_dir / "app.log.1"
    definition: dict[str, Any] = {"source": {"include": [f"{logs_dir}/{names}"]}, "delivery": {"guarantee": guarantee}}
    append(log, *numbers(0, 1000))
    shipping.start(**definition)
    for cycle in range(1, 3):
        shipping.lines(until=cycle * 1000)
        shutil.copyfile(log, copy)
        os.truncate(log, 0)
        append(log, *numbers(cycle * 1000, cycle * 1000 + 1000))
    shipping.lines(until=3000)
    for cycle in range(3, 5):
        shipping.stop()
        append(log, *numbers(cycle * 1000, cycle * 1000 + 500))
        shutil.copyfile(log, copy)
        os.truncate(log, 0)
        append(log, *numbers(cycle * 1000 + 500, cycle * 1000 + 1000))
        shipping.start(**definition)
        shipping.lines(until=cycle * 1000 + 1000)
    arrived = settled(shipping, range(5000))
    assert sorted(arrived, key=int) == numbers(0, 5000)
    assert lost(shipping) == 0
