"""What a connector's steps are asked to do: by people, by the worker, by whoever wants to know something only they can tell.

People who look at records as they are sent have taps: they get what passes, and hold nothing up.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from copycat_agent.wake import Wake
from copycat_agent.worker.poll_loop import Wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from copycat_agent.model import Sample
    from copycat_agent.sources import Source

MOST_PER_BATCH = 100
"""Samples that one batch is asked for."""
MOST_TAPS = 16
"""Taps of one connector at a time; the oldest makes room."""
_LOOK_SECONDS = 0.2

Question = Callable[["Source"], Any]


class Orders:
    """Given by any thread, obeyed by the connector's steps. `wake` also carries file-system events."""

    def __init__(self, *, paused: bool = False) -> None:
        self.wake = Wake()
        self.paused = paused
        """Whether nothing new is to be read."""
        self.stop_at: float | None = None
        """By when what is in flight has to be settled (`time.monotonic()`); None: go on."""
        self.at_once = False
        """Whether waiting is to end now. Who obeys takes it back."""
        self.is_asked = False
        """Whether somebody waits for `answer`."""
        self._lock = threading.Lock()
        self._closed = False
        self._questions: queue.SimpleQueue[tuple[Question, Future[Any]]] = queue.SimpleQueue()

    def stop(self, deadline: float) -> None:
        """Read nothing more; settle by `deadline`. Of several deadlines the earliest holds."""
        with self._lock:
            self.stop_at = deadline if self.stop_at is None else min(self.stop_at, deadline)
        self.wake.nudge()

    def pause(self) -> None:
        """Read nothing more, keep everything open."""
        self.paused = True
        self.wake.nudge()

    def resume(self) -> None:
        """Read on, and do not wait out a back-off."""
        self.paused = False
        self.at_once = True
        self.wake.nudge()

    def ask(self, question: Question) -> Future[Any]:
        """Have `question` called with the source, between two of the connector's steps. Yields None when there is no source."""
        answer: Future[Any] = Future()
        with self._lock:
            if not self._closed:
                self._questions.put((question, answer))
                self.is_asked = True
                self.wake.nudge()
                return answer
        answer.set_result(None)
        return answer

    def answer(self, source: Source | None) -> None:
        """Answer what has been asked. For the connector's steps."""
        self.is_asked = False
        while not self._questions.empty():
            question, answer = self._questions.get()
            try:
                answer.set_result(None if source is None else question(source))
            except Exception as error:  # noqa: BLE001 - the asker's trouble, not the connector's
                answer.set_exception(error)

    def close(self) -> None:
        """The connector ends: whoever still waits gets None."""
        with self._lock:
            self._closed = True
        self.answer(None)

    def rest(self, seconds: float) -> Generator[Wait, None, bool]:
        """Wait; False when a stop was asked for, True when it is time to go on: also when a pause ends or begins.

        Questions are answered meanwhile.
        """
        until, paused = time.monotonic() + seconds, self.paused
        while self.stop_at is None and self.paused is paused and not self.at_once:
            self.answer(None)
            if time.monotonic() >= until:
                break
            yield Wait(until)
        if self.paused is paused:
            self.at_once = False
        return self.stop_at is None


class _Tap:
    def __init__(self, limit: int, seconds: float) -> None:
        self.left = limit
        self.until = time.monotonic() + seconds
        self.samples: queue.Queue[Sample] = queue.Queue(limit)
        self.closed = False

    @property
    def open(self) -> bool:
        return not self.closed and self.left > 0 and time.monotonic() < self.until


class Taps:
    """One connector's taps, kept over changes of its definition. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taps: list[_Tap] = []
        self.is_used = False
        """Whether anybody looks, or did a moment ago."""

    def open(self, limit: int, seconds: float) -> Iterator[Sample]:
        """From now on up to `limit` samples, for at most `seconds`; ends early when the connector is removed."""
        tap = _Tap(max(1, limit), seconds)
        with self._lock:
            self._taps = [*self._taps, tap][-MOST_TAPS:]
            self.is_used = True
        return self._flow(tap)

    def wanted(self) -> int:
        """How many samples the next batch should bring."""
        with self._lock:
            self._taps = [tap for tap in self._taps if tap.open]
            self.is_used = bool(self._taps)
            return min(MOST_PER_BATCH, max((tap.left for tap in self._taps), default=0))

    def give(self, samples: Iterable[Sample]) -> None:
        """What a batch brought."""
        with self._lock:
            for sample in samples:
                for tap in self._taps:
                    if tap.open:
                        tap.left -= 1
                        tap.samples.put_nowait(sample)

    def close(self) -> None:
        """No more samples: the connector is gone."""
        with self._lock:
            for tap in self._taps:
                tap.closed = True
            self._taps = []

    def _flow(self, tap: _Tap) -> Iterator[Sample]:
        try:
            while tap.open or not tap.samples.empty():
                try:
                    yield tap.samples.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    continue
        finally:
            tap.closed = True
