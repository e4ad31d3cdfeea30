"""Which files the driver holds open, and which it closes to stay below `max_open_files`."""

from __future__ import annotations

import heapq
import resource
from collections.abc import Collection
from typing import TYPE_CHECKING

from copycat_agent.sources.files.paths.opening import SPARE

if TYPE_CHECKING:
    from copycat_agent.sources.base import Keeper
    from copycat_agent.sources.files.identity import Identity
    from copycat_agent.sources.log_file.tracked import TrackedFile


class OpenFiles(set["TrackedFile"]):
    """The open files of a connector, as `TrackedFile` adds and discards them. `keeper` keeps them for the next process.

    `are_many`: some were closed for room. Then they are kept only when they have left their patterns: to tell the service manager of
    every file that is opened for its turn would cost more than reading it.
    """

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.keeper: Keeper | None = None
        self.are_many = False
        self._owner = owner

    def add(self, file: TrackedFile, /) -> None:
        """`file` has been opened."""
        super().add(file)
        if self.keeper is not None and not self.are_many:
            self.keeper.keep(self._owner, file.identity.name, file.fd)

    def discard(self, file: TrackedFile, /) -> None:  # type: ignore[override]  # nothing else is ever in it
        """`file` has been closed, or its descriptor given away."""
        super().discard(file)
        if self.keeper is not None:
            self.keeper.release(self._owner, file.identity.name)

    def keep_first(self, file: TrackedFile) -> None:
        """Nothing but its descriptor leads to `file`."""
        if self.keeper is not None and file.fd >= 0:
            self.keeper.keep(self._owner, file.identity.name, file.fd, first=True)

    def left(self, identity: Identity) -> int | None:
        """Descriptor of a file that an earlier process of the agent had open, None when there is none. It stays the keeper's."""
        return None if self.keeper is None else self.keeper.find(identity.name)

    def looked(self) -> None:
        """The connector has looked at everything: what it has not open now it needs no more."""
        if self.keeper is not None:
            self.keeper.looked(self._owner, {file.identity.name for file in self})

    def survives(self, file: TrackedFile) -> bool:
        """Whether the agent stops, and the next process will have `file` open."""
        return self.keeper is not None and self.keeper.survives(file.identity.name)


class Descriptors:
    """The open files of one connector. A `TrackedFile` enters and leaves `opened` by itself.

    Never closed for room: files in flight (a task opens them through the driver's descriptor) and files that could not be
    opened again, because they have lost their name. So `max_open_files` bounds what matches; followed leftovers come on top,
    and one file while it is looked at for the first time.
    """

    def __init__(self, connector: str, wanted: int) -> None:
        """`wanted` is `max_open_files`; the process's own limit may allow fewer."""
        self.opened = OpenFiles(connector)
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
            self.opened.are_many = True
            closable = [file for file in self.opened if not file.in_flight and file.gone_since is None and file not in keep]
            for file in heapq.nsmallest(surplus, closable, key=lambda file: (file.unread, file.schedule.turn)):
                if file.has_its_name() and (unread or not file.unread):
                    file.close()
        return max(0, min(wanted, self.limit - len(self.opened)))


def _process_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 if soft == resource.RLIM_INFINITY else soft
