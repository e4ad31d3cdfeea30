"""How far a run to the end is: bars on a terminal, else a line a minute. Both on stderr."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Self

import typer

from copycat_agent.cli.pace import Pace
from copycat_agent.cli.shown import rate, size, visible

if TYPE_CHECKING:
    from copycat_agent.cli.pace import Work
    from copycat_agent.cli.progress_bars import Bars
    from copycat_agent.cli.stopping import Stopping
    from copycat_agent.worker import Status

LOOK_SECONDS = 0.2
LINE_SECONDS = 60.0
"""Between two lines where there is no terminal."""


def bars_of(work: Work, *, color: bool) -> Bars:
    """Bars on stderr, a terminal. To be used as a context manager."""
    from copycat_agent.cli.progress_bars import Bars  # noqa: PLC0415 - imports rich, which nobody else needs

    return Bars(work, color=color)


def follow(work: Work, stop: Stopping, *, quiet: bool, color: bool) -> None:
    """Until it is over, or a stop is asked for. Trouble is told even when `quiet`, once for each kind and then once a minute."""
    shows_bars = os.isatty(2) and not quiet
    teller = bars_of(work, color=color) if shows_bars else Lines(work, quiet=quiet)
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


class Lines:
    """A line a minute; nothing when `quiet`."""

    def __init__(self, work: Work, *, quiet: bool) -> None:
        self._work = work
        self._quiet = quiet
        self._pace = Pace()
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


def line_of(status: Status, pace: Pace) -> str:
    """`app: 1,234 records read (5.6 MiB), 78.9 MiB in 3 files left; 1,000 records/s, 5.0 MiB/s; about 2m left`."""
    counts, lag = status.counts, status.lag
    done = f"{status.name}: {counts.read:,} records read ({size(counts.read_bytes)}), {size(lag.bytes)} in {lag.files:,} files left"
    now = f"{rate(pace.records_per_second)} records/s, {size(pace.bytes_per_second)}/s"
    return "; ".join(one for one in (done, now, pace.left()) if one)
