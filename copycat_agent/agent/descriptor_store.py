"""Leaves open log files with the service manager, so that deleted files survive kill -9 and a restart of the service."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Container, Mapping

from copycat_agent import logs
from copycat_agent.offsets import OffsetStore
from copycat_agent.sources import Identity
from copycat_agent.systemd import ServiceManager

RETRY_SECONDS = 30.0
"""Pause after a message that the service manager did not accept."""
_ANYBODY = ""
"""Owner of files that may belong to any connector."""

_log = logs.get("agent")


def known_files(store: OffsetStore, *, rebuild: bool) -> dict[str, set[str]] | None:
    """Returns the names of files that are not read to their end, each with the connectors that have an offset for it.

    None when that is unknown: the store was just rebuilt (`rebuild`), and positions come from Kafka.
    """
    connectors = store.connectors()
    if rebuild and not connectors:
        return None
    found: dict[str, set[str]] = {}
    for connector in connectors:
        for partition, offset in store.read(connector).items():
            if not offset.done:
                with contextlib.suppress(ValueError):  # the offset of another kind of source
                    found.setdefault(Identity.parse(partition.key)[0].name, set()).add(connector)
    return found


class SystemdDescriptorStore:
    """A `sources.DescriptorStore` for all connectors, over the service manager's store. Thread-safe.

    A file is stored once for all its owners, and removed when the last one has released it. When there is no room, files kept with `first`
    replace others. Its name is its identity (device, inode, birth), which leads to the offset of any generation: with the generation in
    the name, every truncation would remove and store the same open file, and systemd drops the second of two descriptors of one file.

    A file that was passed on is reopened through /proc/self/fd, so that permissions are checked again, and is read only if the patterns
    still match it. An upgrade has to restart the service: a stop would drop what is stored.
    """

    def __init__(self, manager: ServiceManager, owners: Mapping[str, set[str]] | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`owners` as `known_files` returns it. Passed files without an owner are removed and closed."""
        self._manager = manager
        self._clock = clock
        self._lock = threading.Lock()
        self._frozen = False
        self._owners: dict[str, set[str]] = {}
        self._first: set[str] = set()
        self._unremoved: dict[str, None] = {}
        self._retry_at = 0.0
        self._passed = manager.passed
        for name in list(self._passed):
            self._owners[name] = {_ANYBODY} if owners is None else set(owners.get(name, ()))
            if not self._owners[name]:
                self._remove(name)
        if self._passed:
            _log.info("open files were passed on by the service manager", files=len(self._passed))

    def keep(self, owner: str, name: str, fd: int, *, first: bool = False) -> None:
        """Leaves a copy of the descriptor with the service manager, if there is room."""
        with self._lock:
            if self._frozen or not self._manager.listens:
                return
            self._remove_the_rest()
            if name not in self._owners and not (self._may_ask() and self._has_room(first=first) and self._store(name, fd)):
                return
            self._owners.setdefault(name, set()).add(owner)
            if first:
                self._first.add(name)

    def release(self, owner: str, name: str) -> None:
        """Releases a file that the owner does not need any more; the last owner's release removes it."""
        with self._lock:
            owners = self._owners.get(name)
            if self._frozen or owners is None or owner not in owners:
                return
            owners.discard(owner)
            if owners <= {_ANYBODY}:
                self._remove(name)

    def looked(self, owner: str, names: Container[str]) -> None:
        """Releases files that were passed on and are not in `names`. Called when the owner has scanned all its files."""
        with self._lock:
            others = [name for name in self._passed if name not in names]
        for name in others:
            self.release(owner, name)

    def find(self, name: str) -> int | None:
        """Returns the descriptor that was passed on under this name, None without one."""
        with self._lock:
            return self._passed.get(name)

    def rename(self, old: str, new: str) -> None:
        """Gives all files of one owner to another."""
        with self._lock:
            for owners in self._owners.values():
                if old in owners:
                    owners.discard(old)
                    owners.add(new)

    def freeze(self) -> None:
        """Changes nothing from now on: stored files are for the next process. Called when the agent stops."""
        with self._lock:
            self._frozen = True

    def _has_room(self, *, first: bool) -> bool:
        if len(self._owners) < self._manager.most_stored:
            return True
        if not first:
            return False
        other = next((name for name in self._owners if name not in self._first and name not in self._passed), None)
        if other is None:
            return False
        self._remove(other)
        return True

    def _remove(self, name: str) -> None:
        del self._owners[name]
        self._first.discard(name)
        if (fd := self._passed.pop(name, None)) is not None:
            os.close(fd)
        self._unremoved[name] = None
        self._remove_the_rest()

    def _remove_the_rest(self) -> None:
        """Asks the service manager to remove files, also those of failed tries: a deleted file uses disk space as long as it is kept."""
        while self._unremoved and self._may_ask():
            name = next(iter(self._unremoved))
            if not self._note_answer(self._manager.unstore(name)):
                return
            del self._unremoved[name]

    def _store(self, name: str, fd: int) -> bool:
        self._unremoved.pop(name, None)
        return self._note_answer(self._manager.store(name, fd))

    def _may_ask(self) -> bool:
        return self._clock() >= self._retry_at

    def _note_answer(self, accepted: bool) -> bool:  # noqa: FBT001 - the manager's answer
        """Returns `accepted`. Pauses messages when it is False: a service manager that accepts none blocks the sender, for each file."""
        if not accepted:
            self._retry_at = self._clock() + RETRY_SECONDS
        return accepted
