"""Turns: work that takes a broker's time and a thread, so many pieces at a time for each Kafka cluster; the others wait in line."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
AT_ONCE = 4
"""Connectors of one cluster that open their lanes at a time: each holds two producers per lane, and asks the coordinator for them."""


class Turns:
    """Thread-safe. The threads are daemons: a broker that does not answer holds up no exit."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._lock = threading.Lock()
        self._busy: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[tuple[Future[Any], Callable[[], Any]]]] = {}

    def take(self, line: Hashable, work: Callable[[], T]) -> Future[T]:
        """Do `work` on a thread as soon as there is room in its line. The future runs from then on; until then it can be cancelled."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(line, deque()).append((future, work))
            more = self._busy.get(line, 0) < self._at_once
            if more:
                self._busy[line] = self._busy.get(line, 0) + 1
        if more:
            threading.Thread(target=self._work, args=(line,), name="lanes", daemon=True).start()
        return future

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
