"""`limits` slow a connector down; nothing is dropped, nothing changes its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scenarios.log_files import append, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.shipping import Shipping


def rate(shipping: Shipping, count: int, *, weigh: bool = False) -> float:
    """What arrived per second, records, or bytes of their lines, beside two bursts of a second each. By the records' times.

    One is saved up before the first batch, one while that begins, which may take a busy machine so long.
    """
    records = shipping.records(until=count)
    first = min(record.timestamp_ms or 0 for record in records)
    last = max(record.timestamp_ms or 0 for record in records)
    amount = sum(len(record.value or b"") + 1 for record in records) if weigh else len(records)
    return amount / ((last - first) / 1000 + 2)


@pytest.mark.parametrize("transforms", [[], [{"drop_if": {"message": {"matches": "^x"}}}]])
def test_records_per_second_are_kept_over_the_whole_run(shipping: Shipping, logs_dir: Path, transforms: list[object]) -> None:
    lines = numbers(1000, 3000)
    append(logs_dir / "app", *lines)
    shipping.start(limits={"records_per_second": 400}, transforms=transforms)
    assert rate(shipping, 2000) <= 440
    shipping.wait_caught_up()
    assert shipping.lines() == lines


def test_bytes_per_second_are_kept_over_the_whole_run(shipping: Shipping, logs_dir: Path) -> None:
    lines = [f"{number:099d}" for number in range(1000)]
    append(logs_dir / "app", *lines)
    shipping.start(limits={"bytes_per_second": "20KiB"})
    assert rate(shipping, 1000, weigh=True) <= 20 * 1024 * 1.1
    shipping.wait_caught_up()
    assert shipping.lines() == lines


def test_a_line_longer_than_a_second_allows_still_goes(shipping: Shipping, logs_dir: Path) -> None:
    lines = ["a" * 5000, "b", "c" * 3000]
    append(logs_dir / "app", *lines)
    shipping.start(limits={"bytes_per_second": "2KiB"})
    assert shipping.lines(until=3) == lines
