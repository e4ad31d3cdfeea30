"""`run --until-idle`: how far all connectors are, and the account of what they did."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from copycat_agent.backfill.summary import VERSION, Part, Summary, summarise
from copycat_agent.cli.backfill_progress import bars_of
from copycat_agent.cli.shown import visible
from copycat_agent.errors import CopycatError
from copycat_agent.model import Counts
from copycat_agent.sources import FileView, Lag
from copycat_agent.worker import State, Status

if TYPE_CHECKING:
    from copycat_agent.agent import Agent

_FAILED_SHOWN = 10


class UntilIdle:
    """Made before the connectors begin; `end` before the agent is closed."""

    def __init__(self, agent: Agent, *, bars: bool, color: bool) -> None:
        """`bars`: show how far it is on stderr, a terminal."""
        self._agent = agent
        self._began = time.time()
        self._before = dict(agent.loss_totals())
        self._bars = bars_of(self, color=color) if bars else None
        if self._bars:
            self._bars.__enter__()

    def wait(self, seconds: float) -> bool:
        """At most so long; True once all have come to their end."""
        if self._bars:
            self._bars.look()
        return self._agent.worker.wait(seconds)

    @property
    def status(self) -> Status:
        """All connectors as one."""
        statuses = self._agent.statuses()
        lags = [status.lag for status in statuses]
        lag = Lag(sum(lag.bytes for lag in lags), sum(lag.files for lag in lags))
        return Status("all", State.RUNNING, counts=sum((status.counts for status in statuses), Counts()), lag=lag)

    def trouble(self) -> str:
        """Why a connector does not move, "" while all do."""
        return next((one.reason for one in self._agent.statuses() if one.state in {State.RETRYING, State.BLOCKED}), "")

    def files(self) -> Sequence[FileView]:
        """What they follow, as far as they answer now."""
        found: list[FileView] = []
        for status in self._agent.statuses():
            with contextlib.suppress(CopycatError):
                found += self._agent.files(status.name)
        return found

    def end(self, *, interrupted: bool) -> list[Summary]:
        """Settle what is in flight, and give the account of each connector. Those that came to their end begin their next one anew."""
        if self._bars:
            self._bars.__exit__()
        self._agent.worker.stop()
        return [self._account(status, interrupted=interrupted) for status in self._agent.statuses() if status.enabled]

    def _account(self, status: Status, *, interrupted: bool) -> Summary:
        part = Part(status, self._began, time.time(), interrupted)
        summary = summarise(self._agent.definition(status.name), self._agent, part, before=self._before, untouched=True)
        if summary["state"] == "finished":
            self._agent.begin_accounts(status.name)
        return summary


def failed_files(summaries: Sequence[Summary]) -> list[str]:
    """A line for each of the first files that could not be read to their end."""
    failed = [file for summary in summaries for file in summary["files"] if file["state"] == "failed"]
    lines = [f"  failed: {visible(file['path'])}: {file['why']}" for file in failed[:_FAILED_SHOWN]]
    return [*lines, f"  and {len(failed) - _FAILED_SHOWN} more"] if len(failed) > _FAILED_SHOWN else lines


def as_document(summaries: Sequence[Summary], code: int) -> str:
    """The accounts of all connectors as JSON."""
    return json.dumps({"version": VERSION, "exit_code": code, "connectors": summaries}, indent=2)
