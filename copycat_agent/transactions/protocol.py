"""How the protocol and the world meet: a generator yields `Step`s, `perform` has them done and sends back what they return.

So a simulation can stop, kill or delay an actor between any two steps, with the very code that runs in production
(sans I/O: https://sans-io.readthedocs.io).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from copycat_agent.model import OffsetsPartition

T = TypeVar("T")
Handle = Any
"""One transactional producer, which is used for one transaction at most."""


class Entry(NamedTuple):
    """A record of the offsets topic. `offset` is where it stands, -1 before it is sent."""

    key: bytes
    value: bytes | None
    offset: int = -1


class Steps(Protocol):
    """Does what the protocol of a lane asks for.

    Every method may raise RetriableError, BlockedError or FatalError; those that say so, FencedError.
    """

    def prepare(self, transactional_id: str) -> Handle:
        """A new producer, whose `init_transactions` begins now, behind the caller's back: it fences all others with its id."""

    def ready(self, handle: Handle) -> None:
        """Wait until that has come to its end: nothing of the id's earlier transactions is open or undecided any more."""

    def begin(self, handle: Handle) -> None:
        """Begin the transaction. FencedError when somebody else has taken the id."""

    def send(self, handle: Handle, place: OffsetsPartition, entries: Sequence[Entry]) -> None:
        """Send entries of the offsets topic in the transaction."""

    def flush(self, handle: Handle) -> None:
        """Wait until everything that was sent is acknowledged. FencedError, RefusedError."""

    def commit(self, handle: Handle) -> None:
        """Commit. When it returns, that is so; when it raises, nobody knows."""

    def close(self, handle: Handle) -> None:
        """Free the producer; an open transaction is left to the next `prepare` of its id. Raises nothing, never blocks for the network."""

    def cluster_id(self) -> str:
        """Returns the id of the cluster."""

    def end(self, place: OffsetsPartition) -> int:
        """The end of the place, open transactions included."""

    def replay(self, place: OffsetsPartition, since: int, end: int) -> list[Entry]:
        """Committed entries from offset `since`, or the first there is, up to `end`, in order. Waits for transactions open before `end`."""


class Step(NamedTuple):
    """One step: a method of `Steps`, and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()


Lines = Generator[Step, Any, T]
"""A piece of the protocol: it yields steps, is sent what they return, or thrown what they raise, and returns a T."""


def perform(lines: Lines[T], world: Steps) -> T:
    """Go through `lines`, with every step done by `world`. Raises what they raise."""
    try:
        step = next(lines)
        while True:
            try:
                answer = getattr(world, step.name)(*step.arguments)
            except Exception as error:  # noqa: BLE001 - the protocol decides what it means
                step = lines.throw(error)
            else:
                step = lines.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
