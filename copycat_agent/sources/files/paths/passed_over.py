"""Paths that match but are not read, each told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.logs import Log


class PassedOver:
    """What is wrong with which path, as of this scan and the one before; nothing older is remembered."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._now: dict[str, str] = {}
        self._before: dict[str, str] = {}
        self._unreadable: int | None = 0

    def __contains__(self, path: str) -> bool:
        return path in self._now

    def is_unreadable(self, path: str) -> bool:
        """Whether it is one of `paths`: something is there, and nobody knows what."""
        return self._now.get(path, "").startswith("cannot be")

    @property
    def unreadable(self) -> int:
        """How many paths matched and could not be opened, listed or read."""
        if self._unreadable is None:
            self._unreadable = len(self.paths())
        return self._unreadable

    def paths(self) -> list[str]:
        """The paths that `unreadable` counts."""
        return [path for path, why in self._now.items() if why.startswith("cannot be")]

    def reasons(self) -> dict[str, str]:
        """Everything that matches and is not read, and why."""
        return dict(self._now)

    def begin_scan(self) -> None:
        """From here on it counts as this scan."""
        self._before, self._now, self._unreadable = self._now, {}, 0

    def warn(self, path: str, why: str) -> None:
        """Say what is wrong with a path; again only after it was right for a scan, or is wrong in another way."""
        if self._before.get(path) != why and self._now.get(path) != why:
            self._log.warning("path passed over", path=path, why=why)
        self._now[path] = why
        self._unreadable = None  # counted when it is asked for: lag is, in every cycle
