"""Runners are started again and again, and the log says why they ended as often as that is news."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from copycat_agent.spark import runner_pool
from copycat_agent.spark.runner_pool import RunnerJobs

if TYPE_CHECKING:
    import pytest

    from copycat_agent.spark.current_session import Session
    from copycat_agent.spark.host import SparkHost
    from copycat_agent.spark.runner_pool import RunnerEvents

LIVES = [("cut off", 0.0), ("cut off", 0.0), ("too old", 0.0), ("killed", 60.0), ("killed", 60.0), ("killed", 0.0), ("closed", 0.0)]
"""Why a runner ended, and for how long it was connected."""


class Lives:
    """The host and the executor of runners that live as `LIVES` say."""

    def __init__(self) -> None:
        self.left = list(LIVES)
        self.last_begins, self.last_ends = threading.Event(), threading.Event()

    def session(self, _seconds: float) -> object:
        """Whatever."""
        return self

    def run_job(self, _session: Session, _index: int) -> str:
        """Take longer than a runner that is steady, as a time-out of a connection does."""
        threading.Event().wait(2 * runner_pool.STEADY_SECONDS)
        if len(self.left) == 1:
            self.last_begins.set()
            self.last_ends.wait(60)
        return self.left[0][0]

    def ended(self, _index: int, _problem: str) -> float:
        """Go on to the next life."""
        return self.left.pop(0)[1]


def test_why_a_runner_ended_is_logged_when_it_changes_or_the_runner_had_worked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_pool, "STEADY_SECONDS", 0.01)
    monkeypatch.setattr(runner_pool, "MOST_PAUSE_SECONDS", 0.01)
    lives = Lives()
    jobs = RunnerJobs(cast("SparkHost", lives), lives.run_job, cast("RunnerEvents", lives))
    jobs.keep(0)
    assert lives.last_begins.wait(60)
    jobs.close()
    lives.last_ends.set()
    jobs.wait(60)
    told = [record.__dict__["fields"]["reason"] for record in caplog.records if "runner ended" in record.getMessage()]
    assert told == ["cut off", "too old", "killed", "killed"]
