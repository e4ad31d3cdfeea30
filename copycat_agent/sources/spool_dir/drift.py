"""Columns that come and go between files: told, never in the way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.model import Schema

TELL_SECONDS = 60.0
"""Least time between two warnings of one connector."""
_NAMED = 20
"""Columns that are named."""


class Drift:
    """Remembers the columns of the last file that was read."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._last: tuple[str, frozenset[str]] | None = None
        self._told_at = -TELL_SECONDS

    def note(self, path: str, schema: Schema | None) -> None:
        """A file with this schema was read. Warns when its columns are not those of the file before it."""
        if schema is None:
            return
        columns = frozenset(column.name for column in schema.columns)
        before, self._last = self._last, (path, columns)
        if before is None or before[1] == columns or self._clock() - self._told_at < TELL_SECONDS:
            return
        self._told_at = self._clock()
        new, missing = sorted(columns - before[1]), sorted(before[1] - columns)
        self._log.warning("columns differ between files", path=path, before=before[0], new=_listed(new), missing=_listed(missing))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" or "none"
