"""When a connector last looked at its directories: what was made in them since, nobody has seen."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from copycat_agent.model import SourcePartition
from copycat_agent.sources.base import Changes, Offsets
from copycat_agent.sources.followed import STARTED
from copycat_agent.sources.paths.discovery import Mark

SLACK_NS = 20_000_000
"""The kernel's file times are those of its last tick, up to 10 ms ago."""
_SAVE_SECONDS = 60.0
"""How often the time is saved, at most, when a scan saves nothing else."""


class LastLook:
    """Epoch nanoseconds of the look before this one; 0 when nobody knows, as at the first look of all.

    What is saved (`size` of the STARTED row, epoch milliseconds) is never later than the truth: in doubt a file counts as unseen.
    `was_open` (its `records`): files that were made since then were not taken up yet when the agent ended.
    """

    def __init__(self, connector: str, offsets: Offsets) -> None:
        """`offsets` is the live view of what is saved."""
        self._started = SourcePartition(connector, STARTED)
        self._offsets = offsets
        row = offsets.get(self._started)
        self._at_ns = row.size * 1_000_000 if row is not None else 0
        self.was_open = row is not None and row.records > 0
        self._begun_ns = self._at_ns
        self._blind: dict[str, int] = {}
        self._saved_at = -_SAVE_SECONDS
        self._saved_marks: Mapping[str, Mark] = {}

    def begin(self) -> None:
        """A look begins."""
        self._begun_ns = time.time_ns() - SLACK_NS

    def before(self, directory: str) -> int:
        """When this directory was last listed, as of before the look that has begun."""
        return self._blind.get(directory, self._at_ns)

    def end(self, unlisted: Collection[str], open_since_ns: list[int], marks: Mapping[str, Mark], changes: Changes) -> None:
        """A look is over; these directories could not be listed. `open_since_ns`: times since which not every file is taken up."""
        self._blind = {directory: self._blind.get(directory, self._at_ns) for directory in unlisted}
        self._at_ns = self._begun_ns
        is_due = bool(changes.offsets) or time.monotonic() - self._saved_at > _SAVE_SECONDS
        if is_due and marks != self._saved_marks:  # where nothing came or went, the time of an earlier look says as much
            self._saved_marks, self._saved_at = dict(marks), time.monotonic()
            self.save(open_since_ns, changes)

    def save(self, open_since_ns: list[int], changes: Changes) -> None:
        """Save it now. No effect before the first look."""
        row = changes.offsets.get(self._started) or self._offsets.get(self._started)
        if row is not None and self._at_ns:
            known = min([self._at_ns, *open_since_ns, *self._blind.values()])
            changes.offsets[self._started] = replace(row, size=known // 1_000_000, records=len(open_since_ns))
