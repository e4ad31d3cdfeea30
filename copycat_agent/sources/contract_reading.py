"""Reads of an author's source on threads of their own, so that one that hangs can be given up.

A process runs batches of many connectors. Without this, one `read` that never returns would have the process killed, and with it the
batches of the others.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

from copycat_agent.errors import RetriableError
from copycat_agent.sources.contract import Position, Record

RUN_RECORDS = 1000
RUN_BYTES = 2**20
"""Records, and about how many bytes of them, that are handed on at once."""
SILENT_SECONDS = 45.0
"""A read that gives no record for so long is given up. A process is killed when a batch is 60 s late."""
WHOLE_SECONDS = 300.0
"""The same for a read whose records go together, from its beginning to its end. Such batches have as much time (`ContractSource.plan`)."""
GIVEN_UP_MOST = 8
"""Threads of one source that were given up and have not ended, in one process: with so many, nothing more is read."""
LEAVE_SECONDS = 2.0
"""How long a read that is needed no more is waited for."""
_LOOK_SECONDS = 1.0
_LEAF_BYTES = 8

Pair = tuple[Record, Position]


class ReadThreads:
    """The reads of one source in one process. Thread-safe."""

    def __init__(self, silent_seconds: float = SILENT_SECONDS, whole_seconds: float = WHOLE_SECONDS) -> None:
        self._silent_seconds = silent_seconds
        self._whole_seconds = whole_seconds
        self._given_up: list[_ReadThread] = []

    def runs(self, pairs: Iterator[Pair], name: str, *, whole: bool) -> Iterator[list[Pair]]:
        """What `pairs` gives, some at a time. Raises what it raises, and RetriableError when it is given up. `name` is for people."""
        self._given_up = [one for one in self._given_up if one.is_alive()]
        if len(self._given_up) >= GIVEN_UP_MOST:
            words = f"{name}: {len(self._given_up)} calls of read() have never returned in process {os.getpid()}, and none is made there"
            raise RetriableError(words, "start copycat again; what the reader reads from needs a time limit")
        thread = _ReadThread(pairs)
        try:
            thread.start()
        except RuntimeError:
            raise RetriableError(f"{name}: no thread is to be had for read()", "raise the limit of threads (ulimit -u, TasksMax)") from None
        begun = time.monotonic()
        try:
            while (run := thread.take(_LOOK_SECONDS)) != []:
                if run is not None:
                    yield run
                elif whole and time.monotonic() - begun > self._whole_seconds:
                    words = f"{name}: read() of what goes as one has not ended within {self._whole_seconds:g} s, and is given up"
                    raise RetriableError(words, "it is tried again; what the reader reads from may hang, or it may give less at once")
                elif not whole and time.monotonic() - thread.moved_at > self._silent_seconds:
                    words = f"{name}: read() has given nothing for {self._silent_seconds:g} s, and is given up"
                    raise RetriableError(words, "it is tried again; what the reader reads from may hang")
        finally:
            if not thread.leave():
                self._given_up.append(thread)


class _ReadThread(threading.Thread):
    """Reads one run ahead of who takes them."""

    def __init__(self, pairs: Iterator[Pair]) -> None:
        super().__init__(name="read", daemon=True)
        self.moved_at = time.monotonic()
        self._pairs = pairs
        self._answers: queue.Queue[list[Pair] | BaseException] = queue.Queue(1)
        self._is_left = threading.Event()

    def run(self) -> None:
        """Read until the end, which an empty run tells, or until nobody wants more."""
        answer: list[Pair] | BaseException = [(b"", None)]
        while answer and not isinstance(answer, BaseException) and not self._is_left.is_set():
            try:
                answer = self._run()
            except BaseException as error:  # noqa: BLE001 - for the thread that takes
                answer = error
            self._answers.put(answer)
            self.moved_at = time.monotonic()
        if close := getattr(self._pairs, "close", None):
            close()

    def _run(self) -> list[Pair]:
        run: list[Pair] = []
        size_bytes = 0
        for pair in itertools.islice(self._pairs, RUN_RECORDS):
            run.append(pair)
            self.moved_at = time.monotonic()
            size_bytes += weight(pair[0])
            if size_bytes >= RUN_BYTES or self._is_left.is_set():
                break
        return run

    def take(self, seconds: float) -> list[Pair] | None:
        """The next run, [] at the end; None when there is none after so long. Raises what the read raised."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def leave(self) -> bool:
        """Nobody takes any more. Returns whether the read has ended."""
        self._is_left.set()
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.is_alive() and time.monotonic() < deadline:
            try:
                self._answers.get_nowait()
            except queue.Empty:
                self.join(0.001)
        return not self.is_alive()


def weight(record: Record) -> int:
    """About how many bytes a record has: what budgets and rates count where nothing was read from a file."""
    return len(record) if isinstance(record, bytes) else _weigh(record)


def _weigh(value: Any) -> int:  # noqa: ANN401 - whatever fields hold
    if isinstance(value, str | bytes):
        return len(value) + 2
    if isinstance(value, dict):
        return sum(len(name) + 4 + _weigh(one) for name, one in value.items()) + 2 if value else 2
    return sum(map(_weigh, value)) + 2 if isinstance(value, list | tuple) else _LEAF_BYTES
