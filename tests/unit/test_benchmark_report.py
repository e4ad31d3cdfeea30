"""The benchmark's tables: ratios are to a tool of the same run, medians are taken column by column."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import rate, report
from benchmarks.latency import Latency
from benchmarks.rate import Rate

if TYPE_CHECKING:
    from pathlib import Path

FAST, SLOW = Rate(1000.0, 1.0, 2.0, 3.0, 2**20), Rate(400.0, 4.0, 8.0, 6.0, 2**30)


def test_ratios_are_to_the_tools_that_ran_beside_it() -> None:
    table = report.rates({"copycat": SLOW, "kcat": FAST})
    (row,) = [line for line in table.splitlines() if line.startswith("| copycat")]
    assert row == "| copycat | 400 | 0.40 | - | 4.00 | 8.0 s | 6.0 | 1024 MiB |"


def test_a_median_takes_each_column_by_itself() -> None:
    mixed = Rate(400.0, 1.0, 8.0, 3.0, 2**30)
    assert rate.median([FAST, SLOW, mixed]) == mixed


def test_the_figures_are_kept_with_their_units(tmp_path: Path) -> None:
    report.write_json(
        tmp_path / "found.json", "2 cores", {"copycat": FAST}, {}, {"a trickle": {"copycat": Latency(1.0, 2.0, 3.0, 0.05, 0.001)}}
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["one_file"]["copycat"]["lines_per_second"] == 1000.0
    assert found["a trickle"]["copycat"]["p99_ms"] == 2.0
    assert found["two_files"] == {}
