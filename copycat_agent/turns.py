"""Turns: work that takes a broker's time and a thread, so many pieces at a time for each Kafka cluster; the others wait in line."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

from copycat_agent.errors import RetriableError

T = TypeVar("T")


class Turns:
    """Thread-safe. The threads are daemons: a broker that does not answer holds up no exit."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._lock = threading.Lock()
        self._busy: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    def take(self, line: Hashable, work: Callable[[], T]) -> Future[T]:
        """Do `work` on a thread as soon as there is room in its line. The future runs from then on; until then it can be cancelled.

        Raises RetriableError when no thread can be had: then nothing of it waits, and nothing is taken.
        """
        future: Future[T] = Future()
        with self._lock:
            self._make_room(line)
            self._waiting.setdefault(line, deque()).append((future, work))
        return future

    def _make_room(self, line: Hashable) -> None:
        """One more thread, where there may be more; it begins when the lock is free. The line may do with those it has."""
        busy = self._busy.get(line, 0)
        if busy >= self._at_once:
            return
        try:
            threading.Thread(target=self._work, args=(line,), name="lanes", daemon=True).start()
        except RuntimeError as error:
            if not busy:
                hint = "see how many threads this user and service may have: ulimit -u, TasksMax= of the unit"
                raise RetriableError(f"no thread to open lanes with: {error}", hint) from None
        else:
            self._busy[line] = busy + 1

    def _work(self, line: Hashable) -> None:
        """Thread: one piece after the other, as long as there are any."""
        while True:
            with self._lock:
                waiting = self._waiting.get(line)
                if not waiting:
                    self._leave(line)
                    return
                future, work = waiting.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 - whoever asked hears of it
                    future.set_exception(error)

    def _leave(self, line: Hashable) -> None:
        self._waiting.pop(line, None)
        self._busy[line] -= 1
        if not self._busy[line]:
            del self._busy[line]
