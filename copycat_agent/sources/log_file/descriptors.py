"""The open files of one connector: how many there may be, which are closed to make room, and which the next process gets."""

from __future__ import annotations

import errno
import heapq
import math
import os
import resource
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from copycat_agent.sources.files.paths.regular_files import SPARE

if TYPE_CHECKING:
    from copycat_agent.sources.base import DescriptorStore
    from copycat_agent.sources.files.identity import Identity
    from copycat_agent.sources.log_file.tracked import TrackedFile

LIMIT_SECONDS = 10.0
"""How long the process's limit of open files is cached. A lowered limit shows earlier, because files cannot be opened."""


class OpenFiles(set["TrackedFile"]):
    """The open files of a connector; `TrackedFile` adds and discards them. `keeper` keeps them for the next process.

    `are_many`: some were closed for room. Then only those that have left their patterns are kept: telling the service manager about every
    file that is opened for its turn would cost more than reading it.
    """

    def __init__(self, owner: str) -> None:
        super().__init__()
        self.keeper: DescriptorStore | None = None
        self.are_many = False
        self._owner = owner

    def add(self, file: TrackedFile, /) -> None:
        """Adds a file that was just opened."""
        super().add(file)
        if self.keeper is not None and not self.are_many:
            self.keeper.keep(self._owner, file.identity.name, file.fd)

    def discard(self, file: TrackedFile, /) -> None:  # type: ignore[override]  # nothing else is ever in it
        """Removes a file that was closed, or whose descriptor was given away."""
        super().discard(file)
        if self.keeper is not None:
            self.keeper.release(self._owner, file.identity.name)

    def keep_first(self, file: TrackedFile) -> None:
        """Makes the keeper prefer this file: only its descriptor leads to it."""
        if self.keeper is not None and file.fd >= 0:
            self.keeper.keep(self._owner, file.identity.name, file.fd, first=True)

    def left(self, identity: Identity) -> int | None:
        """Returns the keeper's descriptor of a file that an earlier process of the agent had open; None if there is none."""
        return None if self.keeper is None else self.keeper.find(identity.name)

    def looked(self) -> None:
        """Tells the keeper that the connector has checked everything, and needs only the files that are open now."""
        if self.keeper is not None:
            self.keeper.looked(self._owner, {file.identity.name for file in self})


class Descriptors:
    """The open files of one connector. A `TrackedFile` adds itself to `open_files` and removes itself.

    Never closed for room: files in flight (a task opens them through the driver's descriptor) and files that could not be opened again,
    because they have lost their name. So `max_open_files` bounds what matches; followed leftovers come on top, and one file while it is
    examined for the first time.
    """

    def __init__(self, connector: str, wanted: int) -> None:
        """`wanted` is `max_open_files`; the process's own limit may allow fewer."""
        self.open_files = OpenFiles(connector)
        self._wanted = wanted
        self._shrunk = (0, 0)
        self._process_limit, self._known_until = 0, -math.inf

    @property
    def limit(self) -> int:
        """How many files may be open now, at least one."""
        if (now := time.monotonic()) >= self._known_until:
            self._process_limit, self._known_until = _process_limit(), now + LIMIT_SECONDS
        most, (most_then, share) = self._process_limit, self._shrunk
        allowed = min(most - SPARE, share) if most == most_then else most - SPARE
        return max(1, min(self._wanted, allowed))

    def shrink(self) -> bool:
        """Halves the number of open files until the process's limit changes, as it may open no more. Returns whether any was closed."""
        before = len(self.open_files)
        self._known_until = -math.inf  # it may have been lowered
        self._shrunk = _process_limit(), before // 2
        self.make_room(0, unread=True)
        return len(self.open_files) < before

    def make_room(self, wanted: int, keep: Collection[TrackedFile] = (), *, unread: bool) -> int:
        """Closes files that are not needed so that `wanted` more may be opened; returns how many may.

        Files that are read go first, the longest unused first; files with something unread only if `unread`.
        """
        count = len(self.open_files) + wanted
        surplus = count - self.limit if count > 1 else 0  # one may always be open
        if surplus > 0:
            self.open_files.are_many = True
            closable = [file for file in self.open_files if not file.in_flight and file.draining_since is None and file not in keep]
            for file in heapq.nsmallest(surplus, closable, key=lambda file: (file.unread, file.reading.turn)):
                file.refresh()  # it may have grown
                if file.has_its_name() and (unread or not file.unread):
                    file.close()
        return max(0, min(wanted, self.limit - len(self.open_files))) if wanted else 0


def _process_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def close_if_stale(file: TrackedFile) -> bool:
    """Closes a file, after an error, if its descriptor will never work again. Returns whether it did.

    Its turn then opens it by name, and its identity shows whether it is the same; if the name is gone, a scan searches for it as for any
    file that went away while it was closed. An error that may pass (EIO) leaves the descriptor alone: it may be the only way to a deleted
    file.
    """
    if file.fd < 0 or file.in_flight or not _is_stale(file.fd):
        return False
    file.close()
    return True


def _is_stale(fd: int) -> bool:
    """Returns whether the descriptor is stale, by the steps of a task: open through the driver's descriptor, stat, read."""
    try:
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.fstat(fd)
            os.pread(again, 1, 0)
        finally:
            os.close(again)
    except OSError as error:
        return error.errno == errno.ESTALE
    return False
