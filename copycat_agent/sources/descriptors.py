"""Which files the driver holds open, and which it closes to stay below `max_open_files`."""

from __future__ import annotations

import heapq
import resource
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.sources.tracked import TrackedFile


SPARE = 48
"""Descriptors of the process that files leave to everything else: the store, sockets, runners, directories that are listed."""


class Descriptors:
    """The open files of one connector. A `TrackedFile` enters and leaves `opened` by itself.

    Never closed for room: files in flight (a task opens them through the driver's descriptor) and files that could not be
    opened again, because they have lost their name. So `max_open_files` bounds what matches; followed leftovers come on top,
    and one file while it is looked at for the first time.
    """

    def __init__(self, wanted: int) -> None:
        """`wanted` is `max_open_files`; the process's own limit may allow fewer."""
        self.opened: set[TrackedFile] = set()
        self._wanted = wanted
        self._shrunk = (0, 0)

    @property
    def limit(self) -> int:
        """How many may be open now, at least one."""
        most, (most_then, share) = _process_limit(), self._shrunk
        allowed = min(most - SPARE, share) if most == most_then else most - SPARE
        return max(1, min(self._wanted, allowed))

    def shrink(self) -> bool:
        """The process may open no more: hold half as many files until its limit changes. Returns whether something was closed."""
        before = len(self.opened)
        self._shrunk = _process_limit(), before // 2
        self.make_room(0, unread=True)
        return len(self.opened) < before

    def make_room(self, wanted: int, keep: Collection[TrackedFile] = (), *, unread: bool) -> int:
        """Close what is not needed so that `wanted` more may be opened; returns how many may.

        Files that are read go first, the longest unused first; files with something unread only when `unread`.
        """
        surplus = len(self.opened) + wanted - self.limit
        if surplus > 0:
            closable = [file for file in self.opened if not file.in_flight and file.gone_since is None and file not in keep]
            for file in heapq.nsmallest(surplus, closable, key=lambda file: (file.unread, file.planned_at)):
                if file.has_its_name() and (unread or not file.unread):
                    file.close()
        return max(0, min(wanted, self.limit - len(self.opened)))


def _process_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 if soft == resource.RLIM_INFINITY else soft
