"""Bars for a run to the end, on a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from copycat_agent.cli.rates import RunPace
from copycat_agent.cli.shown import rate, size, visible

if TYPE_CHECKING:
    from copycat_agent.cli.rates import FollowedRun
    from copycat_agent.sources import FileView

BARS = 8
"""Files in progress that are shown one by one."""


class Bars:
    """One bar for everything, and one for each of a few files that are being read."""

    def __init__(self, work: FollowedRun, *, color: bool) -> None:
        self._work = work
        self._pace = RunPace()
        self._shown: dict[str, TaskID] = {}
        self._files_at = 0.0
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
        """Show how far it is."""
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
