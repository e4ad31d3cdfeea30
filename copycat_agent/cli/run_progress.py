"""How far a run to the end is: bars on a terminal, else a line a minute, both on stderr; and the account of `run --until-idle`."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import typer

from copycat_agent.backfill.summary import VERSION, RunPart, Summary, summarise
from copycat_agent.cli.rates import RunPace
from copycat_agent.cli.shown import rate, size, visible
from copycat_agent.errors import CopycatError
from copycat_agent.model import Counts
from copycat_agent.sources import FileView, Lag
from copycat_agent.worker import State, Status

if TYPE_CHECKING:
    from copycat_agent.agent import Agent
    from copycat_agent.cli.progress_bars import Bars
    from copycat_agent.cli.rates import FollowedRun
    from copycat_agent.cli.running import Stopping

LOOK_SECONDS = 0.2
LINE_SECONDS = 60.0
"""Between two lines where there is no terminal."""
_FAILED_SHOWN = 10


def bars_of(work: FollowedRun, *, color: bool) -> Bars:
    """Bars on stderr, a terminal. To be used as a context manager."""
    from copycat_agent.cli.progress_bars import Bars  # noqa: PLC0415 - imports rich, which nobody else needs

    return Bars(work, color=color)


def follow(work: FollowedRun, stop: Stopping, *, quiet: bool, color: bool) -> None:
    """Until it is over, or a stop is asked for. Trouble is told even when `quiet`, once for each kind and then once a minute."""
    shows_bars = os.isatty(2) and not quiet
    teller = bars_of(work, color=color) if shows_bars else ProgressLines(work, quiet=quiet)
    trouble = _Trouble()
    with teller:
        while not stop.asked and not work.wait(LOOK_SECONDS):
            teller.look()
            trouble.look(work.trouble())


class _Trouble:
    """Says why nothing moves: what it waits for may take a person."""

    def __init__(self) -> None:
        self._told = ""
        self._told_at = 0.0

    def look(self, why: str) -> None:
        now = time.monotonic()
        if why and (why != self._told or now - self._told_at > LINE_SECONDS):
            self._told, self._told_at = why, now
            typer.echo(f"waiting: {visible(why)}; it goes on by itself, or end it with Ctrl-C and resume later", err=True)
        elif not why and self._told:
            self._told = ""
            typer.echo("it goes on", err=True)


class ProgressLines:
    """A line a minute; nothing when `quiet`."""

    def __init__(self, work: FollowedRun, *, quiet: bool) -> None:
        self._work = work
        self._quiet = quiet
        self._pace = RunPace()
        self._next = time.monotonic() + LINE_SECONDS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def look(self) -> None:
        """Say how far it is, if it is time to."""
        if self._quiet or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LINE_SECONDS
        status = self._work.status
        self._pace.look(status)
        typer.echo(line_of(status, self._pace), err=True)


def line_of(status: Status, pace: RunPace) -> str:
    """`app: 1,234 records read (5.6 MiB), 78.9 MiB in 3 files left; 1,000 records/s, 5.0 MiB/s; about 2m left`."""
    counts, lag = status.counts, status.lag
    done = f"{status.name}: {counts.read:,} records read ({size(counts.read_bytes)}), {size(lag.bytes)} in {lag.files:,} files left"
    now = f"{rate(pace.records_per_second)} records/s, {size(pace.bytes_per_second)}/s"
    return "; ".join(one for one in (done, now, pace.left()) if one)


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
        part = RunPart(status, self._began, time.time(), interrupted)
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
