"""What a connector works with, where it writes what it did, and the open files that it hands to its next start within the process."""

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
    from copycat_agent.sources import Keeper, Source
    from copycat_agent.watch import Watcher
    from copycat_agent.worker.orders import Orders, Taps
    from copycat_agent.worker.poll_loop import PollLoop
    from copycat_agent.worker.status import ConnectorMetrics, ConnectorState


class Tools(NamedTuple):
    """What every connector works with, shared by all.

    `accounts`: what becomes of each file is entered in the store; `tracked`: with where its records are in Kafka, which costs about as much
    as sending them. `make_source` stands in for `SourceKind.make`.
    `until_idle`: connectors end once they have read what is there.
    `keeper` is given to sources whose files are worth keeping for the next process.
    """

    store: OffsetStore
    executor: Executor
    watcher: Watcher
    deliveries: Deliveries
    loop: PollLoop
    accounts: bool = False
    make_source: Callable[..., Source] | None = None
    tracked: bool = False
    keeper: Keeper | None = None
    until_idle: bool = False


class ConnectorContext(NamedTuple):
    """Where a connector reads what it should do, and writes what it did."""

    orders: Orders
    connector_state: ConnectorState
    metrics: ConnectorMetrics
    taps: Taps
    log: Log
    keeper: RestartKeeper


class RestartKeeper:
    """A `sources.Keeper` of one connector, in front of the agent's. Not thread-safe: the connector's steps call it.

    A connector that ended by an error is started again, and its source made anew. Without this, a deleted file that was not read to its end
    would be lost with the descriptor that its source had of it. While a run lasts, this only notes which files have nothing but their
    descriptor. When the source is closed, it copies these descriptors, and keeps them until the next source has looked at everything.
    """

    def __init__(self, keeper: Keeper | None, is_stopping: Callable[[], bool]) -> None:
        """`keeper` keeps files for the next process, if anybody does. A connector that `is_stopping` is not started again."""
        self._keeper = keeper
        self._is_stopping = is_stopping
        self._has_failed = False
        self._nameless: dict[str, int] = {}  # by name, the descriptor that the source has
        self._held: dict[str, int] = {}
        self._is_closing = False

    def begin(self) -> None:
        """A source was made: it may find what the last one had open."""
        self._nameless.clear()
        self._is_closing = False

    def end(self) -> None:
        """The source is about to be closed."""
        self._is_closing = self._comes_again

    def fail(self) -> None:
        """The connector waits for a person, nobody knows for how long: it hands nothing over."""
        self._has_failed = True

    def close(self) -> None:
        """The connector has come to its end: close what nobody took over."""
        while self._held:
            os.close(self._held.popitem()[1])

    def keep(self, owner: str, name: str, fd: int, *, first: bool = False) -> None:
        """Note a file that only its descriptor leads to (`first`)."""
        if first:
            self._nameless[name] = fd
        if self._keeper is not None:
            self._keeper.keep(owner, name, fd, first=first)

    def release(self, owner: str, name: str) -> None:
        """Let go of a file, or copy its descriptor, which is open still, where the next source is to have it."""
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
        """Returns the descriptor that the last source had, or the last process."""
        if name in self._held:
            return self._held[name]
        return None if self._keeper is None else self._keeper.find(name)

    def looked(self, owner: str, names: Container[str]) -> None:
        """The source has looked at everything: let go of what it does not need."""
        for name in list(self._held):
            self._let_go(name)
            if name not in names and self._keeper is not None:
                self._keeper.release(owner, name)
        if self._keeper is not None:
            self._keeper.looked(owner, names)

    def rename(self, old: str, new: str) -> None:
        """An owner has another name from now on."""
        if self._keeper is not None:
            self._keeper.rename(old, new)

    def survives(self, name: str) -> bool:
        """Whether the next source will have the file, in this process or the next one."""
        return (name in self._nameless and self._comes_again) or (self._keeper is not None and self._keeper.survives(name))

    @property
    def _comes_again(self) -> bool:
        return not (self._has_failed or self._is_stopping())

    def _let_go(self, name: str) -> None:
        if (fd := self._held.pop(name, None)) is not None:
            os.close(fd)
