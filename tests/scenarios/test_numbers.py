"""Numbers that files may have and that calendars, or 64 bits, do not hold: they cost neither a record nor anybody else's."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.worker import State
from tests.rig.kafka import consume
from tests.rig.shipping import Shipping
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.executor import InlineExecutor
    from copycat_agent.watch import Watcher

SECONDS = (-(2**62), -62_135_596_801, -1, 9_223_372_037, 10_413_792_000, 253_402_300_800, 2**62)
"""Before the year 1, in 1969, in 2262 beyond 64 bits of nanoseconds, in 2300, in 10000, and beyond any."""
MEMORY = Path("/dev/shm")
"""tmpfs keeps any date, and files of 8 EiB."""
GUARANTEES = ("at_least_once", "exactly_once")


@pytest.fixture
def shipping(
    tmp_path: Path, broker: DevBroker, inline: InlineExecutor, watcher: Watcher, make_topic: Callable[..., str]
) -> Iterator[Shipping]:
    """One connector over a directory of a file system that keeps any number, where there is one."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else tmp_path) as root:
        shipping = Shipping(Path(root), "app", broker.bootstrap, make_topic(), inline, watcher)
        yield shipping
        shipping.close()


def arrived(shipping: Shipping, count: int | None = None) -> list[str]:
    """What a read_committed consumer sees, sorted; the first word of each line."""
    found = consume(shipping.bootstrap, shipping.topic, "read_committed", count)
    return sorted((one.value or b"").decode().split()[0] for one in found)


def running(shipping: Shipping) -> None:
    """Wait until everything is read and saved."""
    wait_until(
        lambda: shipping.status.state is State.RUNNING and not (shipping.status.lag.files or shipping.status.tasks),
        message=lambda: f"{shipping.status}",
    )


def knows_unread(shipping: Shipping, count: int, size_bytes: int) -> None:
    """Wait until `count` lines are acknowledged, and so many bytes or more are known to be unread."""
    wait_until(
        lambda: (status := shipping.status).counts.acknowledged >= count and status.lag.bytes >= size_bytes,
        message=lambda: f"{shipping.status}",
    )


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("source", ["log_file", "spool_dir"])
def test_files_of_any_date_are_sent_once_over_restarts(shipping: Shipping, source: str, guarantee: str) -> None:
    for number, second in enumerate(SECONDS):
        path = shipping.logs / f"{number}.log"
        path.write_text(f"line-{number} Nov 23 12:00:00\n")
        os.utime(path, ns=(0, second * 10**9))
    options: dict[str, Any] = {"type": source}
    if source == "spool_dir":
        done = shipping.logs.parent / "done"
        done.mkdir(exist_ok=True)
        options |= {"ready": {"min_age": "0s"}, "cleanup": {"policy": "move_by_date", "to": str(done)}}
    steps = [{"regex": r"(?P<what>\S+) (?P<when>.+)"}, {"timestamp": {"field": "when", "format": "%b %d %H:%M:%S", "zone": "UTC"}}]
    record = {"value": "{what} {@timestamp:%Y}", "timestamp": "read"}
    expected = [f"line-{number}" for number in range(len(SECONDS))]
    for _ in range(2):
        shipping.start(source=options, transforms=steps, record=record, converters={"value": "string"}, delivery={"guarantee": guarantee})
        assert arrived(shipping, len(SECONDS)) == expected
        running(shipping)
        wait_until(lambda: source == "log_file" or not list(shipping.logs.iterdir()), message="the cleanup")
        assert shipping.stop().errors == {}
    assert arrived(shipping) == expected
    if source == "spool_dir":
        assert sum(path.is_file() for path in done.rglob("*.log")) == len(SECONDS)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_largest_file_there_can_be_is_cut_twice_and_counted_as_far_as_numbers_go(shipping: Shipping, guarantee: str) -> None:
    path, largest = shipping.logs / "sparse.log", 2**63 - 1
    path.write_text("line-0\n")
    try:
        os.truncate(path, largest)
    except OSError:
        largest = 2**43
        os.truncate(path, largest)
    shipping.start(delivery={"guarantee": guarantee})
    for number in range(1, 4):
        arrived(shipping, number)
        knows_unread(shipping, number, largest // 2)  # what it has never seen it cannot miss; the rest is being read
        path.write_text(f"line-{number}\n")
        if number < 3:
            os.truncate(path, largest)
    expected = [f"line-{number}" for number in range(4)]
    assert arrived(shipping, 4) == expected
    running(shipping)
    assert shipping.stop().errors == {}
    shipping.start(delivery={"guarantee": guarantee})
    running(shipping)
    assert shipping._store is not None
    destroyed = shipping._store.loss_totals()["app", "destroyed"]
    assert destroyed.size_bytes == 2**63 - 1 or largest < 2**62
    assert destroyed.entries >= 3
    assert arrived(shipping) == expected
