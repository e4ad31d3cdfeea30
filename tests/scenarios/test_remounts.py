"""File systems that are mounted again under another device number: nothing that was read is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.rig.disk import remountable
from tests.rig.kafka import consume, wait_for_markers
from tests.rig.waiting import wait_until
from tests.scenarios.log_files import append, numbers, settled, wait_read
from tests.scenarios.test_spool_dir import drop, spool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.shipping import Shipping

HALF_READ = [(False, True), (True, True)]
"""What is saved of the files: done, begun."""


def test_of_log_files(shipping: Shipping, tmp_path: Path) -> None:
    """D8."""
    with remountable(tmp_path) as disk:
        log, source = disk.place / "app.log", {"include": [f"{disk.place}/*.log"]}
        append(log, *numbers(0, 500))
        shipping.start(source=source)
        wait_read(shipping, 500)
        shipping.stop()
        disk.again()
        append(log, "new")
        shipping.start(source=source)
        assert settled(shipping, range(501)) == [*numbers(0, 500), "new"]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_of_spooled_files(shipping: Shipping, tmp_path: Path, guarantee: str) -> None:
    """One that is read, and one that is half read; with exactly_once also from the positions in Kafka alone."""
    with remountable(tmp_path) as disk:
        sections: dict[str, Any] = {
            "source": spool(dir=str(disk.place), order_by="name"),
            "delivery": {"guarantee": guarantee, "max_batch_bytes": "64KiB"},
        }
        drop(disk.place, "a", *numbers(0, 3000))
        drop(disk.place, "b", *numbers(3000, 60_000))
        shipping.start(**sections, limits={"records_per_second": 1000})
        wait_until(lambda: sorted((offset.done, offset.position > 0) for offset in shipping.offsets.values()) == HALF_READ, 60)
        shipping.stop()
        sent = len(shipping.lines())
        assert sent < 60_000
        for is_lost in (False, guarantee == "exactly_once"):
            disk.again()
            for path in shipping.state_dir.glob("offsets.db*") if is_lost else ():
                path.unlink()
            shipping.start(**sections)
            wait_until(lambda: shipping.status.lag.files == 0 and len(shipping.offsets) == 2, 60, lambda: f"{shipping.status}")
            wait_until(lambda: all(offset.done for offset in shipping.offsets.values()), 60, lambda: f"{shipping.status}")
            shipping.stop()
        wait_for_markers(shipping.bootstrap, shipping.topic)
        arrived = [int(record.value or b"") for record in consume(shipping.bootstrap, shipping.topic, "read_committed")]
        assert sorted(arrived) == [*range(60_000)]
