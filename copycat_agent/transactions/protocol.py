"""The interface of the lane protocol: a generator yields `Step`s, `perform` executes them and sends back their results.

So a simulation can stop, kill or delay an actor between any two steps, with the code that runs in production (sans I/O:
https://sans-io.readthedocs.io).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from copycat_agent.model import OffsetsPartition

T = TypeVar("T")
Handle = Any
"""One transactional producer, which is used for at most one transaction."""


class Entry(NamedTuple):
    """A record of the offsets topic. `offset` is its offset there, -1 before it is sent."""

    key: bytes
    value: bytes | None
    offset: int = -1


class Steps(Protocol):
    """Performs the steps of the lane protocol.

    Every method may raise RetriableError, BlockedError or FatalError; FencedError only where its docstring says so.
    """

    def prepare(self, transactional_id: str) -> Handle:
        """Returns a new producer and starts its `init_transactions` in the background, which fences all others with its id."""

    def ready(self, handle: Handle) -> None:
        """Waits until `init_transactions` has ended: no earlier transaction of the id is open or undecided any more."""

    def begin(self, handle: Handle) -> None:
        """Begins the transaction. Raises FencedError when another producer has taken the id."""

    def send(self, handle: Handle, place: OffsetsPartition, entries: Sequence[Entry]) -> None:
        """Sends entries of the offsets topic in the transaction."""

    def flush(self, handle: Handle) -> None:
        """Waits until everything that was sent is acknowledged. Raises FencedError or RefusedError."""

    def commit(self, handle: Handle) -> None:
        """Commits. If it returns, the transaction is committed; if it raises, the outcome is unknown."""

    def close(self, handle: Handle) -> None:
        """Frees the producer; the next `prepare` of its id ends an open transaction. Raises nothing, never blocks for the network."""

    def cluster_id(self) -> str:
        """Returns the id of the cluster."""

    def end(self, place: OffsetsPartition) -> int:
        """Returns the end offset of the partition, open transactions included."""

    def replay(self, place: OffsetsPartition, since: int, end: int) -> list[Entry]:
        """Returns committed entries from `since` (or the first) up to `end`, in order. Waits for transactions open before `end`."""


class Step(NamedTuple):
    """One step: the name of a method of `Steps`, and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()


Procedure = Generator[Step, Any, T]
"""A part of the protocol: a generator that yields steps, receives their results or errors, and returns a T."""


def perform(procedure: Procedure[T], performer: Steps) -> T:
    """Runs the procedure to its end and performs every step with `performer`. Raises what the procedure raises."""
    try:
        step = next(procedure)
        while True:
            try:
                answer = getattr(performer, step.name)(*step.arguments)
            except Exception as error:  # noqa: BLE001 - the protocol decides what it means
                step = procedure.throw(error)
            else:
                step = procedure.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
