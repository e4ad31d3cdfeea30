"""Orders and questions to a connector's steps, from people, the worker and other threads.

Taps let people see records as they are sent; they never delay them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from copycat_agent.model import Sample
from copycat_agent.sources import Source
from copycat_agent.wake import Wake
from copycat_agent.worker.poll_loop import Wait

MOST_PER_BATCH = 100
"""The most samples that one batch is asked for."""
MOST_TAPS = 16
"""The most taps of one connector at a time; a new one replaces the oldest."""
_LOOK_SECONDS = 0.2

Question = Callable[["Source"], Any]


class ConnectorCommands:
    """Holds what other threads ask of a connector, whose steps carry it out. `wake` also receives file-system events."""

    def __init__(self, *, paused: bool = False) -> None:
        self.wake = Wake()
        self.paused = paused
        """Whether nothing new may be read."""
        self.stop_at: float | None = None
        """The deadline for settling what is in flight (`time.monotonic()`); None while no stop is requested."""
        self.is_final = False
        """Whether the process ends after that stop."""
        self.at_once = False
        """Whether waits are to end now. Reset by the step that follows it."""
        self.is_asked = False
        """Whether a thread waits for `answer`."""
        self._lock = threading.Lock()
        self._closed = False
        self._questions: queue.SimpleQueue[tuple[Question, Future[Any]]] = queue.SimpleQueue()

    def stop(self, deadline: float, *, final: bool = True) -> None:
        """Tells the connector to read nothing more and settle by `deadline`. The earliest of several deadlines holds."""
        with self._lock:
            self.is_final |= final
            self.stop_at = deadline if self.stop_at is None else min(self.stop_at, deadline)
        self.wake.wakeup()

    def pause(self) -> None:
        """Tells the connector to read nothing more and keep everything open."""
        self.paused = True
        self.wake.wakeup()

    def resume(self) -> None:
        """Tells the connector to read on, without waiting for the end of a back-off."""
        self.paused = False
        self.at_once = True
        self.wake.wakeup()

    def ask(self, question: Question) -> Future[Any]:
        """Calls `question` with the source between two of the connector's steps. The result is None when there is no source."""
        answer: Future[Any] = Future()
        with self._lock:
            if not self._closed:
                self._questions.put((question, answer))
                self.is_asked = True
                self.wake.wakeup()
                return answer
        answer.set_result(None)
        return answer

    def answer(self, source: Source | None) -> None:
        """Answers all pending questions. Called by the connector's steps."""
        self.is_asked = False
        while not self._questions.empty():
            question, answer = self._questions.get()
            try:
                answer.set_result(None if source is None else question(source))
            except Exception as error:  # noqa: BLE001 - the asker's trouble, not the connector's
                answer.set_exception(error)

    def close(self) -> None:
        """Answers all pending and later questions with None, because the connector ends."""
        with self._lock:
            self._closed = True
        self.answer(None)

    def rest(self, seconds: float) -> Generator[Wait, None, bool]:
        """Waits. Returns False when a stop was requested, True when it is time to go on: also when a pause ends or begins.

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


class _TapQueue:
    def __init__(self, limit: int, seconds: float) -> None:
        self.left = limit
        self.until = time.monotonic() + seconds
        self.samples: queue.Queue[Sample] = queue.Queue(limit)
        self.closed = False

    @property
    def open(self) -> bool:
        return not self.closed and self.left > 0 and time.monotonic() < self.until


class Taps:
    """The taps of one connector, kept over changes of its definition. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taps: list[_TapQueue] = []
        self.is_used = False
        """Whether there is a tap, or was one a moment ago."""

    def open(self, limit: int, seconds: float) -> Iterator[Sample]:
        """Yields up to `limit` samples from now on, for at most `seconds`; ends early when the connector is removed."""
        tap = _TapQueue(max(1, limit), seconds)
        with self._lock:
            self._taps = [*self._taps, tap][-MOST_TAPS:]
            self.is_used = True
        return self._flow(tap)

    def wanted(self) -> int:
        """Returns how many samples the next batch should return."""
        with self._lock:
            self._taps = [tap for tap in self._taps if tap.open]
            self.is_used = bool(self._taps)
            return min(MOST_PER_BATCH, max((tap.left for tap in self._taps), default=0))

    def give(self, samples: Iterable[Sample]) -> None:
        """Passes the samples of a batch to all taps."""
        with self._lock:
            for sample in samples:
                for tap in self._taps:
                    if tap.open:
                        tap.left -= 1
                        tap.samples.put_nowait(sample)

    def close(self) -> None:
        """Closes all taps: the connector is gone."""
        with self._lock:
            for tap in self._taps:
                tap.closed = True
            self._taps = []

    def _flow(self, tap: _TapQueue) -> Iterator[Sample]:
        try:
            while tap.open or not tap.samples.empty():
                try:
                    yield tap.samples.get(timeout=_LOOK_SECONDS)
                except queue.Empty:
                    continue
        finally:
            tap.closed = True
