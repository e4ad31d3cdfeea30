"""How much is sent before receipts are waited for: what a line carries in time."""

from __future__ import annotations

import pytest

from copycat_agent.producer.task_memory import LEAST_BYTES, MOST_BYTES, Pace


class Line:
    """A line of so many bytes per second, on a clock of its own."""

    def __init__(self, bytes_per_second: float, timeout_seconds: float = 30.0) -> None:
        self.bytes_per_second = bytes_per_second
        self.pace = Pace()
        self.failures = 0
        self._timeout_seconds = timeout_seconds

    def run(self, size_bytes: int | None = None) -> float:
        """Send a run, as large as it may be when nothing is said; returns how long it took."""
        size_bytes = self.pace.run_bytes if size_bytes is None else size_bytes
        took = size_bytes / self.bytes_per_second
        if took > self._timeout_seconds:
            self.failures += 1
            self.pace.failed()
        else:
            self.pace.acknowledged(size_bytes, took, 5.0)
        return took


@pytest.mark.parametrize("bytes_per_second", [10_000, 100_000, 1_000_000, 3_000_000])
def test_a_slow_line_gets_runs_that_it_carries_in_time(bytes_per_second: float) -> None:
    line = Line(bytes_per_second)
    times = [line.run() for _ in range(100)]
    assert line.failures <= 3
    assert max(times[10:]) < 10


def test_a_fast_line_keeps_the_largest_runs() -> None:
    line = Line(100e6)
    assert [line.pace.run_bytes for _ in range(5) if line.run()] == [MOST_BYTES] * 5


def test_after_an_outage_the_runs_are_soon_as_large_as_before() -> None:
    line = Line(1)
    for _ in range(20):
        line.run()
    assert line.pace.run_bytes == LEAST_BYTES
    line.bytes_per_second = 100e6
    for _ in range(4):
        line.run()
    assert line.pace.run_bytes == MOST_BYTES


def test_a_trickle_says_nothing_about_large_runs() -> None:
    line = Line(100_000)
    for _ in range(5):
        line.run()
    fitting = line.pace.run_bytes
    for _ in range(50):
        line.run(200)
    assert line.pace.run_bytes == fitting
