"""Which files the driver holds open, and which it closes to stay below `max_open_files`."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from copycat_agent.sources.tracked import TrackedFile


class Descriptors:
    """The open files of one connector. A `TrackedFile` enters and leaves `opened` by itself.

    Never closed for room: files in flight (a task opens them through the driver's descriptor) and files that could not be
    opened again, because they have lost their name. So `max_open_files` bounds what matches; followed leftovers come on top,
    and one file while it is looked at for the first time.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.opened: set[TrackedFile] = set()

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
