"""The shared tools of connectors, the places where one records its work, and the open files that it passes to its next start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from copycat_agent.delivery.guarantees import Deliveries
    from copycat_agent.executor import Executor
    from copycat_agent.logs import Log
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.sources import DescriptorStore, Source
    from copycat_agent.watch import Watcher
    from copycat_agent.worker.orders import ConnectorCommands, Taps
    from copycat_agent.worker.poll_loop import PollLoop
    from copycat_agent.worker.status import ConnectorMetrics, ConnectorState


class WorkerServices(NamedTuple):
    """The tools that all connectors share.

    `accounts`: the results of each file are entered in the store; `tracked`: with the offsets of its records in Kafka, which costs about as
    much as sending them. `make_source` replaces `SourceKind.make`. `until_idle`: connectors end once they have read what is there. `keeper`
    is given to sources whose files are worth keeping for the next process.
    """

    store: OffsetStore
    executor: Executor
    watcher: Watcher
    deliveries: Deliveries
    loop: PollLoop
    accounts: bool = False
    make_source: Callable[..., Source] | None = None
    tracked: bool = False
    keeper: DescriptorStore | None = None
    until_idle: bool = False


class ConnectorContext(NamedTuple):
    """The orders that a connector follows, and the places where it records its work."""

    orders: ConnectorCommands
    connector_state: ConnectorState
    metrics: ConnectorMetrics
    taps: Taps
    log: Log
    keeper: RestartKeeper


class RestartKeeper:
    """A `sources.DescriptorStore` of one connector, in front of the agent's. Not thread-safe: the connector's steps call it.

    A connector that ended by an error is restarted with a new source. Without this class, a deleted file that was not read to its end would
    be lost with the descriptor that its source had of it. While a run lasts, it only notes which files exist only through their descriptor.
    When the source is closed, it copies these descriptors, and keeps them until the next source has looked at everything.
    """

    def __init__(self, keeper: DescriptorStore | None, is_stopping: Callable[[], bool]) -> None:
        """`keeper` keeps files for the next process, if there is one. A connector that `is_stopping` is not started again."""
        self._keeper = keeper
        self._is_stopping = is_stopping
        self._has_failed = False
        self._nameless: dict[str, int] = {}  # the source's descriptors, by name
        self._held: dict[str, int] = {}
        self._is_closing = False

    def begin(self) -> None:
        """Prepares for a new source, which may look for files that the last one had open."""
        self._nameless.clear()
        self._is_closing = False

    def end(self) -> None:
        """Notes that the source is about to be closed."""
        self._is_closing = not (self._has_failed or self._is_stopping())

    def fail(self) -> None:
        """Notes that the connector waits for a person, who may take any time: nothing is kept for a next source."""
        self._has_failed = True

    def close(self) -> None:
        """Closes the descriptors that no source took over, because the connector has ended."""
        while self._held:
            os.close(self._held.popitem()[1])

    def keep(self, owner: str, name: str, fd: int, *, first: bool = False) -> None:
        """Keeps a file; with `first`, notes that it exists only through its descriptor."""
        if first:
            self._nameless[name] = fd
        if self._keeper is not None:
            self._keeper.keep(owner, name, fd, first=first)

    def release(self, owner: str, name: str) -> None:
        """Releases a file, or copies its descriptor, which is still open, if the next source is to have it."""
        fd = self._nameless.pop(name, None)
        if fd is not None and self._is_closing:
            with contextlib.suppress(OSError):  # no descriptors left
                copy = os.dup(fd)
                self._let_go(name)
                self._held[name] = copy
                return
        if self._keeper is not None:
            self._keeper.release(owner, name)

    def find(self, name: str) -> int | None:
        """Returns the descriptor that the last source or the last process had, or None."""
        if name in self._held:
            return self._held[name]
        return None if self._keeper is None else self._keeper.find(name)

    def looked(self, owner: str, names: Container[str]) -> None:
        """Releases what the source does not need, after it has looked at everything."""
        for name in list(self._held):
            self._let_go(name)
            if name not in names and self._keeper is not None:
                self._keeper.release(owner, name)
        if self._keeper is not None:
            self._keeper.looked(owner, names)

    def rename(self, old: str, new: str) -> None:
        """Renames an owner."""
        if self._keeper is not None:
            self._keeper.rename(old, new)

    def _let_go(self, name: str) -> None:
        if (fd := self._held.pop(name, None)) is not None:
            os.close(fd)
