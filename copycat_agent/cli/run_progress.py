"""The progress of a run to the end: bars on a terminal, else a line a minute, both on stderr; and the account of `run --until-idle`."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self

import typer

from copycat_agent.backfill.summary import VERSION, RunPart, Summary, summarise
from copycat_agent.display import age, rate, size, visible
from copycat_agent.errors import CopycatError
from copycat_agent.model import Counts
from copycat_agent.sources import FileView, Lag
from copycat_agent.worker import State, Status

if TYPE_CHECKING:
    from rich.progress import TaskID

    from copycat_agent.agent import Agent
    from copycat_agent.cli.running import StopSignals

BARS = 8
"""How many files in progress are shown one by one."""
LOOK_SECONDS = 0.2
LINE_SECONDS = 60.0
"""Time between two lines if there is no terminal."""
_FAILED_SHOWN = 10
_SMOOTH_SECONDS = 10.0
"""The period over which rates are averaged."""


class FollowedRun(Protocol):
    """The interface of a run whose progress is shown."""

    def wait(self, seconds: float) -> bool:
        """Waits up to `seconds`. Returns True once the run is over."""

    @property
    def status(self) -> Status:
        """Its present state."""

    def trouble(self) -> str:
        """Returns why nothing moves now, "" while something does."""

    def files(self) -> Sequence[FileView]:
        """Returns the progress in each file."""


class RunPace:
    """Rates and the time left, from occasional looks."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._records = self._left = 0
        self._is_first = True
        self.records_per_second = self.bytes_per_second = 0.0

    def look(self, status: Status) -> None:
        """Takes in the present state."""
        now = time.monotonic()
        records, left = status.counts.read, status.lag.bytes
        if not self._is_first and now > self._at:
            share = min(1.0, (now - self._at) / _SMOOTH_SECONDS) if self.records_per_second or self.bytes_per_second else 1.0
            self.records_per_second += share * ((records - self._records) / (now - self._at) - self.records_per_second)
            self.bytes_per_second += share * (max(0, self._left - left) / (now - self._at) - self.bytes_per_second)
        self._is_first = False
        self._at, self._records, self._left = now, records, left

    def left(self) -> str:
        """Returns how long the rest takes at this pace; "" if that is not known."""
        if self._left and self.bytes_per_second > 1:
            return f"about {age(self._left / self.bytes_per_second)} left"
        return ""


class ProgressBars:
    """Shows, on a terminal, one bar for everything, and one for each of a few files that are being read."""

    def __init__(self, work: FollowedRun, *, color: bool) -> None:
        self._work = work
        self._pace = RunPace()
        self._shown: dict[str, TaskID] = {}
        self._files_at = 0.0
        from rich.console import Console  # noqa: PLC0415 - only a run to the end on a terminal needs rich
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - as above

        console = Console(stderr=True, no_color=not color)
        columns = [TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.percentage:>3.0f}%")]
        self._progress = Progress(*columns, TextColumn("{task.fields[words]}"), console=console, transient=True)
        self._all = self._progress.add_task("all files", total=None, words="")
        self._most = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def look(self) -> None:
        """Shows the progress."""
        status = self._work.status
        self._pace.look(status)
        self._most = max(self._most, status.lag.bytes)
        pace = f"{rate(self._pace.records_per_second)}/s, {size(self._pace.bytes_per_second)}/s"
        words = ", ".join(one for one in (f"{status.counts.read:,} records", pace, self._pace.left()) if one)
        self._progress.update(self._all, total=self._most or None, completed=self._most - status.lag.bytes, words=words)
        if time.monotonic() >= self._files_at:
            begun = time.monotonic()
            self._show(self._work.files())
            self._files_at = time.monotonic() + max(1.0, 20 * (time.monotonic() - begun))

    def _show(self, files: Sequence[FileView]) -> None:
        reading = [file for file in files if file.is_open and file.unread][:BARS]
        for path in set(self._shown) - {file.path for file in reading}:
            self._progress.remove_task(self._shown.pop(path))
        for file in reading:
            if file.path not in self._shown:
                name = visible(file.path.rpartition("/")[2])
                self._shown[file.path] = self._progress.add_task(f"  {name}".replace("[", "\\["), total=max(1, file.size), words="")
            words = f"{file.records:,} records"
            self._progress.update(self._shown[file.path], completed=max(0, file.size - file.unread), words=words)


def follow(work: FollowedRun, stop: StopSignals, *, quiet: bool, color: bool) -> None:
    """Shows the progress until the run is over or stopped. Trouble is shown even if `quiet`, once for each kind and then once a minute."""
    shows_bars = os.isatty(2) and not quiet
    teller = ProgressBars(work, color=color) if shows_bars else ProgressLines(work, quiet=quiet)
    trouble = _StallReporter()
    with teller:
        while not stop.asked and not work.wait(LOOK_SECONDS):
            teller.look()
            trouble.look(work.trouble())


class _StallReporter:
    """Reports why nothing moves: it may need a person."""

    def __init__(self) -> None:
        self._reported = ""
        self._reported_at = 0.0

    def look(self, why: str) -> None:
        now = time.monotonic()
        if why and (why != self._reported or now - self._reported_at > LINE_SECONDS):
            self._reported, self._reported_at = why, now
            typer.echo(f"waiting: {visible(why)}; it goes on by itself, or end it with Ctrl-C and resume later", err=True)
        elif not why and self._reported:
            self._reported = ""
            typer.echo("it goes on", err=True)


class ProgressLines:
    """Prints a line a minute; nothing if `quiet`."""

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
        """Prints the progress, if it is time to."""
        if self._quiet or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LINE_SECONDS
        status = self._work.status
        self._pace.look(status)
        typer.echo(line_of(status, self._pace), err=True)


def line_of(status: Status, pace: RunPace) -> str:
    """Returns `app: 1,234 records read (5.6 MiB), 78.9 MiB in 3 files left; 1,000 records/s, 5.0 MiB/s; about 2m left`."""
    counts, lag = status.counts, status.lag
    done = f"{status.name}: {counts.read:,} records read ({size(counts.read_bytes)}), {size(lag.bytes)} in {lag.files:,} files left"
    now = f"{rate(pace.records_per_second)} records/s, {size(pace.bytes_per_second)}/s"
    return "; ".join(one for one in (done, now, pace.left()) if one)


class UntilIdle:
    """The progress and account of `--until-idle`. Made before the connectors begin; call `end` before the agent is closed."""

    def __init__(self, agent: Agent, *, bars: bool, color: bool) -> None:
        """`bars`: shows the progress on stderr, a terminal."""
        self._agent = agent
        self._began = time.time()
        self._bars = ProgressBars(self, color=color) if bars else None
        if self._bars:
            self._bars.__enter__()

    def wait(self, seconds: float) -> bool:
        """Waits up to `seconds`. Returns True once all have come to their end."""
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
        """Returns why a connector does not move, "" while all do."""
        return next((one.reason for one in self._agent.statuses() if one.state in {State.RETRYING, State.BLOCKED}), "")

    def files(self) -> Sequence[FileView]:
        """Returns the followed files, of connectors that answer now."""
        found: list[FileView] = []
        for status in self._agent.statuses():
            with contextlib.suppress(CopycatError):
                found += self._agent.files(status.name)
        return found

    def end(self, *, interrupted: bool) -> list[Summary]:
        """Settles what is in flight. Returns the account of each connector; those that came to their end begin their next one anew."""
        if self._bars:
            self._bars.__exit__()
        self._agent.worker.stop()
        return [self._account(status, interrupted=interrupted) for status in self._agent.statuses() if status.enabled]

    def _account(self, status: Status, *, interrupted: bool) -> Summary:
        part = RunPart(status, self._began, time.time(), interrupted)
        summary = summarise(self._agent.definition(status.name), self._agent, part, untouched=True)
        if summary["state"] == "finished":
            self._agent.begin_accounts(status.name)
        return summary


def failed_files(summaries: Sequence[Summary]) -> list[str]:
    """Returns a line for each of the first files that could not be read to their end."""
    failed = [file for summary in summaries for file in summary["files"] if file["state"] == "failed"]
    lines = [f"  failed: {visible(file['path'])}: {file['why']}" for file in failed[:_FAILED_SHOWN]]
    return [*lines, f"  and {len(failed) - _FAILED_SHOWN} more"] if len(failed) > _FAILED_SHOWN else lines


def as_document(summaries: Sequence[Summary], code: int) -> str:
    """Returns the accounts of all connectors as JSON."""
    return json.dumps({"version": VERSION, "exit_code": code, "connectors": summaries}, indent=2)
