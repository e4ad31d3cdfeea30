"""Fair scheduling of many participants on a few slots, so that failing ones never hold all of them.

`FairQueue` is the rule, `FairExecutor` applies it to threads. A dead broker keeps each batch that waits for it in a slot for half a minute;
without the rule a few connectors of such a broker leave none to the others.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from copycat_agent.errors import RetriableError

if TYPE_CHECKING:
    from copycat_agent.model import Batch, SplitResult

T = TypeVar("T")
RESERVED_SHARE = 8
"""One slot in this many, and at least one of two, is reserved: not for failing participants, and not for any one group alone."""


class Participant(NamedTuple):
    """One that takes turns. `group` names what participants share and what may be dead, such as a Kafka cluster."""

    group: str
    name: str


def participant_of(batch: Batch) -> Participant:
    """Returns the participant of a batch: turns are by connector, those of one Kafka cluster form a group."""
    return Participant(batch.cluster, batch.task.connector)


def is_success(results: Iterable[SplitResult]) -> bool:
    """Returns whether nothing of a batch has to be tried again."""
    return not any(isinstance(result.error, RetriableError) for result in results)


@dataclass(slots=True)
class _ParticipantState(Generic[T]):
    """The state of a participant. `served`: the number of its latest turn. `well`: whether its latest work went well; False before any."""

    waiting: deque[T] = field(default_factory=deque)
    running: int = 0
    served: int = 0
    well: bool = False


class FairQueue(Generic[T]):
    """Items that wait, by participant. Not thread-safe.

    Next is the group with the fewest slots, in it the participant with the fewest, of several the one whose turn is the longest ago.
    Neither one group alone nor all participants together whose latest work failed, or that have done none, get the last slots.
    """

    def __init__(self) -> None:
        self._states: dict[Participant, _ParticipantState[T]] = {}
        self._waiting: dict[bool, dict[Participant, None]] = {True: {}, False: {}}  # by `well`: those with waiting items, in order
        self._groups: Counter[str] = Counter()
        self._running: Counter[bool] = Counter()  # by `well`
        self._numbers = itertools.count(1)

    def __iter__(self) -> Iterator[T]:
        """Yields everything that waits."""
        participants = [*self._waiting[True], *self._waiting[False]]
        return itertools.chain.from_iterable(self._states[participant].waiting for participant in participants)

    def __bool__(self) -> bool:
        """Returns whether anything waits."""
        return any(self._waiting.values())

    @property
    def busy(self) -> int:
        """The number of slots that are taken."""
        return self._running.total()

    def add(self, participant: Participant, item: T) -> None:
        """Adds an item that waits for its turn."""
        state = self._states.setdefault(participant, _ParticipantState())
        state.waiting.append(item)
        self._waiting[state.well][participant] = None

    def remove(self, participant: Participant, item: T) -> bool:
        """Removes an item that waits; returns False if it did not wait."""
        state = self._states.get(participant)
        if state is None or item not in state.waiting:
            return False
        state.waiting.remove(item)
        self._leave_if_idle(participant, state)
        return True

    def next(self, slots: int) -> Participant | None:
        """Returns the participant whose turn it is with `slots` in all; None if there is no slot for any waiting participant."""
        if self.busy >= slots:
            return None
        most = max(1, slots - max(1, slots // RESERVED_SHARE))
        may = [True] if self._running[False] >= most else [True, False]
        able = [participant for well in may for participant in self._waiting[well] if self._groups[participant.group] < most]
        return min(
            able,
            key=lambda participant: (self._groups[participant.group], self._states[participant].running, self._states[participant].served),
            default=None,
        )

    def take(self, slots: int) -> tuple[Participant, T] | None:
        """Returns the next item, which has a slot from now on, until `done`; None as `next`."""
        participant = self.next(slots)
        if participant is None:
            return None
        state = self._states[participant]
        item = state.waiting.popleft()
        self._leave_if_idle(participant, state)
        state.running += 1
        state.served = next(self._numbers)
        self._groups[participant.group] += 1
        self._running[state.well] += 1
        return participant, item

    def done(self, participant: Participant, *, well: bool | None) -> None:
        """Frees the slot of one of its items. `well`: how its work went; None if that is not known."""
        state = self._states[participant]
        state.running -= 1
        self._groups[participant.group] -= 1
        self._running[state.well] -= 1
        if well is None or well is state.well:
            return
        self._running[state.well] -= state.running
        self._waiting[state.well].pop(participant, None)
        state.well = well
        self._running[well] += state.running
        if state.waiting:
            self._waiting[well][participant] = None

    def _leave_if_idle(self, participant: Participant, state: _ParticipantState[T]) -> None:
        if not state.waiting:
            self._waiting[state.well].pop(participant, None)


class _QueuedWork(NamedTuple):
    """Work that waits, and the future for its result."""

    future: Future[Any]
    work: Callable[[], Any]
    is_success: Callable[[Any], bool]


def _on_a_daemon(work: Callable[[], None]) -> None:
    """Starts a thread that does not delay the end of the process. Raises RuntimeError if no thread is available."""
    threading.Thread(target=work, name="fair-executor", daemon=True).start()


class FairExecutor:
    """Work on threads, a limited number in each line, in turns. Thread-safe."""

    def __init__(self, slots: int, start: Callable[[Callable[[], None]], object] = _on_a_daemon) -> None:
        """`slots`: threads of a line; with one there are none to reserve. `start` calls its argument on a thread."""
        self._slots = slots
        self._start = start
        self._lock = threading.Lock()
        self._threads: Counter[Hashable] = Counter()
        self._lines: dict[Hashable, FairQueue[_QueuedWork]] = {}

    def take(
        self, line: Hashable, participant: Participant, work: Callable[[], T], is_success: Callable[[T], bool] = lambda _: True
    ) -> Future[T]:
        """Does `work` on a thread when it is its turn in the line. The future runs from then on; until then it can be cancelled.

        Work that raises has not gone well. Raises RetriableError if no thread is available: then nothing is queued.
        """
        queued = _QueuedWork(Future(), work, is_success)
        with self._lock:
            queue = self._lines.setdefault(line, FairQueue())
            queue.add(participant, queued)
            try:
                self._make_room(line)
            except RuntimeError as error:  # then the line works with the threads that it has
                if not self._threads[line]:
                    queue.remove(participant, queued)
                    hint = "see how many threads this user and service may have: ulimit -u, TasksMax= of the unit"
                    raise RetriableError(f"no thread to work with: {error}", hint) from None
        return queued.future

    def withdraw(self, line: Hashable, participant: Participant, future: Future[Any]) -> bool:
        """Removes waiting work; the caller resolves its future. Returns False if it has begun."""
        with self._lock:
            queue = self._lines.get(line, FairQueue())
            queued = next((one for one in queue if one.future is future), None)
            return queued is not None and queue.remove(participant, queued)

    def _make_room(self, line: Hashable) -> None:
        """Starts one more thread if one is allowed and a participant is next; it begins when the lock is free. Raises RuntimeError."""
        if self._threads[line] < self._slots and self._lines[line].next(self._slots):
            self._start(functools.partial(self._work, line))
            self._threads[line] += 1

    def _work(self, line: Hashable) -> None:
        """Thread: does one item of work after the other, as long as there is a next one."""
        queue = self._lines[line]
        while True:
            with self._lock:
                taken = queue.take(self._slots)
                if taken is None:
                    self._threads[line] -= 1
                    return
                with contextlib.suppress(RuntimeError):  # the work before may have been the reason why more than one waits
                    self._make_room(line)
            participant, queued = taken
            well = _do(queued)
            with self._lock:
                queue.done(participant, well=well)


def _do(queued: _QueuedWork) -> bool | None:
    """Does the work. Returns whether it went well; None if it was cancelled before it began."""
    if not queued.future.set_running_or_notify_cancel():
        return None
    try:
        result = queued.work()
        well = queued.is_success(result)
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        queued.future.set_exception(error)
        return False
    queued.future.set_result(result)
    return well
