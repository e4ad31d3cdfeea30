"""Fair scheduling of many parties on a few places, so that failing ones never hold all of them.

`FairQueue` is the rule, `Turns` applies it to threads. A dead broker keeps each batch that waits for it in a place for half a minute;
without the rule a few connectors of such a broker leave none to the others.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from copycat_agent.errors import RetriableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from copycat_agent.model import Batch, SplitResult

T = TypeVar("T")
RESERVED_SHARE = 8
"""One place in this many, and at least one of two, is reserved: not for failing parties, and not for any one group alone."""


class Party(NamedTuple):
    """One that takes turns. `group` names what parties share and what may be dead, such as a Kafka cluster."""

    group: str
    name: str


def party_of(batch: Batch) -> Party:
    """Returns the party of a batch: turns are by connector, those of one Kafka cluster form a group."""
    return Party(batch.cluster, batch.task.connector)


def went_well(results: Iterable[SplitResult]) -> bool:
    """Returns whether nothing of a batch has to be tried again."""
    return not any(isinstance(result.error, RetriableError) for result in results)


@dataclass(slots=True)
class _Seat(Generic[T]):
    """The state of a party. `served`: the number of its latest turn. `well`: whether its latest work went well; False before any."""

    waiting: deque[T] = field(default_factory=deque)
    running: int = 0
    served: int = 0
    well: bool = False


class FairQueue(Generic[T]):
    """Items that wait, by party. Not thread-safe.

    Next is the group with the fewest places, in it the party with the fewest, of several the one whose turn is the longest ago. Neither one
    group alone nor all parties together whose latest work failed, or that have done none, get the last places.
    """

    def __init__(self) -> None:
        self._seats: dict[Party, _Seat[T]] = {}
        self._waiting: dict[bool, dict[Party, None]] = {True: {}, False: {}}  # by `well`: the parties with waiting items, in order
        self._groups: Counter[str] = Counter()
        self._running: Counter[bool] = Counter()  # by `well`
        self._numbers = itertools.count(1)

    def __iter__(self) -> Iterator[T]:
        """Yields everything that waits."""
        parties = [*self._waiting[True], *self._waiting[False]]
        return itertools.chain.from_iterable(self._seats[party].waiting for party in parties)

    def __bool__(self) -> bool:
        """Returns whether anything waits."""
        return any(self._waiting.values())

    @property
    def busy(self) -> int:
        """The number of places that are taken."""
        return self._running.total()

    def add(self, party: Party, item: T) -> None:
        """Adds an item that waits for its turn."""
        seat = self._seats.setdefault(party, _Seat())
        seat.waiting.append(item)
        self._waiting[seat.well][party] = None

    def remove(self, party: Party, item: T) -> bool:
        """Removes an item that waits; returns False if it did not wait."""
        seat = self._seats.get(party)
        if seat is None or item not in seat.waiting:
            return False
        seat.waiting.remove(item)
        self._leave_if_idle(party, seat)
        return True

    def next(self, places: int) -> Party | None:
        """Returns the party whose turn it is with `places` in all; None if there is no place for any waiting party."""
        if self.busy >= places:
            return None
        most = max(1, places - max(1, places // RESERVED_SHARE))
        may = [True] if self._running[False] >= most else [True, False]
        able = [party for well in may for party in self._waiting[well] if self._groups[party.group] < most]
        return min(able, key=lambda party: (self._groups[party.group], self._seats[party].running, self._seats[party].served), default=None)

    def take(self, places: int) -> tuple[Party, T] | None:
        """Returns the next item, which has a place from now on, until `done`; None as `next`."""
        party = self.next(places)
        if party is None:
            return None
        seat = self._seats[party]
        item = seat.waiting.popleft()
        self._leave_if_idle(party, seat)
        seat.running += 1
        seat.served = next(self._numbers)
        self._groups[party.group] += 1
        self._running[seat.well] += 1
        return party, item

    def done(self, party: Party, *, well: bool | None) -> None:
        """Frees the place of one of its items. `well`: how its work went; None if that is not known."""
        seat = self._seats[party]
        seat.running -= 1
        self._groups[party.group] -= 1
        self._running[seat.well] -= 1
        if well is None or well is seat.well:
            return
        self._running[seat.well] -= seat.running
        self._waiting[seat.well].pop(party, None)
        seat.well = well
        self._running[well] += seat.running
        if seat.waiting:
            self._waiting[well][party] = None

    def _leave_if_idle(self, party: Party, seat: _Seat[T]) -> None:
        if not seat.waiting:
            self._waiting[seat.well].pop(party, None)


class _Piece(NamedTuple):
    """Work that waits, and the future for its result."""

    future: Future[Any]
    work: Callable[[], Any]
    went_well: Callable[[Any], bool]


def _on_a_daemon(work: Callable[[], None]) -> None:
    """Starts a thread that does not delay the end of the process. Raises RuntimeError if no thread is available."""
    threading.Thread(target=work, name="turns", daemon=True).start()


class Turns:
    """Work on threads, a limited number in each line, in turns. Thread-safe."""

    def __init__(self, places: int, start: Callable[[Callable[[], None]], object] = _on_a_daemon) -> None:
        """`places`: threads of a line; with one there are none to reserve. `start` calls its argument on a thread."""
        self._places = places
        self._start = start
        self._lock = threading.Lock()
        self._threads: Counter[Hashable] = Counter()
        self._lines: dict[Hashable, FairQueue[_Piece]] = {}

    def take(self, line: Hashable, party: Party, work: Callable[[], T], went_well: Callable[[T], bool] = lambda _: True) -> Future[T]:
        """Does `work` on a thread when it is its turn in the line. The future runs from then on; until then it can be cancelled.

        Work that raises has not gone well. Raises RetriableError if no thread is available: then nothing is queued.
        """
        piece = _Piece(Future(), work, went_well)
        with self._lock:
            queue = self._lines.setdefault(line, FairQueue())
            queue.add(party, piece)
            try:
                self._make_room(line)
            except RuntimeError as error:  # then the line works with the threads that it has
                if not self._threads[line]:
                    queue.remove(party, piece)
                    hint = "see how many threads this user and service may have: ulimit -u, TasksMax= of the unit"
                    raise RetriableError(f"no thread to work with: {error}", hint) from None
        return piece.future

    def withdraw(self, line: Hashable, party: Party, future: Future[Any]) -> bool:
        """Removes waiting work; the caller resolves its future. Returns False if it has begun."""
        with self._lock:
            queue = self._lines.get(line, FairQueue())
            piece = next((one for one in queue if one.future is future), None)
            return piece is not None and queue.remove(party, piece)

    def _make_room(self, line: Hashable) -> None:
        """Starts one more thread if one is allowed and a party is next; it begins when the lock is free. Raises RuntimeError."""
        if self._threads[line] < self._places and self._lines[line].next(self._places):
            self._start(functools.partial(self._work, line))
            self._threads[line] += 1

    def _work(self, line: Hashable) -> None:
        """Thread: does one piece after the other, as long as there is a next one."""
        queue = self._lines[line]
        while True:
            with self._lock:
                taken = queue.take(self._places)
                if taken is None:
                    self._threads[line] -= 1
                    return
                with contextlib.suppress(RuntimeError):  # the piece before may have been the reason why more than one waits
                    self._make_room(line)
            party, piece = taken
            well = _do(piece)
            with self._lock:
                queue.done(party, well=well)


def _do(piece: _Piece) -> bool | None:
    """Does the work. Returns whether it went well; None if it was cancelled before it began."""
    if not piece.future.set_running_or_notify_cancel():
        return None
    try:
        result = piece.work()
        well = piece.went_well(result)
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        piece.future.set_exception(error)
        return False
    piece.future.set_result(result)
    return well
