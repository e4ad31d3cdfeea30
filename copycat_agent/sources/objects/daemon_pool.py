"""Runs requests in parallel on a few threads, which end once nothing is left to do."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

THREADS = 8

T = TypeVar("T")


class DaemonPool(Generic[T]):
    """Runs jobs on up to `THREADS` daemon threads. Used by one thread. Jobs that have not begun are dropped at the end of the process."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._jobs: deque[Callable[[], T]] = deque()
        self._answers: list[T | Exception] = []
        self._threads = 0

    def add(self, job: Callable[[], T]) -> None:
        """Queues a job. If no thread can be started, `wait` runs it."""
        with self._turn:
            self._jobs.append(job)
            if self._threads >= THREADS:
                return
            self._threads += 1
        try:
            threading.Thread(target=self._run, name="objects-pool", daemon=True).start()
        except RuntimeError:
            with self._turn:
                self._threads -= 1

    def _run(self) -> None:
        while self._do_one():
            pass
        with self._turn:
            self._threads -= 1
            self._turn.notify_all()

    def _do_one(self) -> bool:
        with self._turn:
            if not self._jobs:
                return False
            job = self._jobs.popleft()
        answer: T | Exception
        try:
            answer = job()
        except Exception as error:  # noqa: BLE001 - `answers` raises it
            answer = error
        with self._turn:
            self._answers.append(answer)
        return True

    def wait(self, seconds: float) -> None:
        """Waits until all jobs are done, for `seconds` at most."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            with self._turn:
                if self._threads:
                    self._turn.wait(min(left, threading.TIMEOUT_MAX))
                    continue
            if not self._do_one():
                return

    def answers(self) -> list[T]:
        """Returns the results since the last call. Raises if a job raised."""
        with self._turn:
            answers, self._answers = self._answers, []
        for one in answers:
            if isinstance(one, Exception):
                raise one
        return [one for one in answers if not isinstance(one, Exception)]

    def close(self) -> None:
        """Drops jobs that have not begun."""
        with self._turn:
            self._jobs.clear()
