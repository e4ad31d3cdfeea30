"""Calls an author's source on threads of its own, so that a call that hangs does not block another connector.

`LookThread` serves the agent, `ReadThreads` the tasks. A task process runs batches of many connectors: without these threads a `read` that
never returns would get the process killed, together with the batches of the others.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from copycat_agent.errors import RetriableError
from copycat_agent.formats.arrow_rows import ArrowRows
from copycat_agent.sources.contract import AuthorSource, EnvelopedRun, FileSource, Finding, Position, Record

if TYPE_CHECKING:
    from pyarrow import RecordBatch


RUN_RECORDS = 1000
RUN_BYTES = 2**17
"""The most records, and about how many bytes, of one run. With 1 MiB records leave the core's cache before they are encoded, and everything
takes half as long again."""
SILENT_SECONDS = 45.0
"""A read that yields nothing for this long is given up. A process is killed when its batch is 60 s late."""
WHOLE_SECONDS = 300.0
"""Limit of a whole read whose records must go together. Its batch gets as much time (`ContractSource.plan`)."""
GIVEN_UP_MOST = 8
"""With this many given-up reads of one source that have not ended, a process reads no more of it."""
LEAVE_SECONDS = 2.0
"""How long the end of a read that is no longer needed is waited for."""
SLOW_SECONDS = 120.0
"""A call of `look` or `committed` that takes longer is reported as trouble; it is waited for all the same."""
CLOSE_SECONDS = 1.0
"""How long the end of a connector waits for `committed`. The next start calls it again."""
_LOOK_SECONDS = 1.0
_LEAF_BYTES = 8
NAME_BYTES = 16
"""About how many bytes a field has besides its value."""
_MANY = frozenset({ArrowRows, EnvelopedRun})
"""Types that stand for many records. A run ends with each of them."""
_LEAVES = frozenset({int, float, bool, type(None), Decimal, datetime, date})
"""Types that weigh `_LEAF_BYTES`."""

Pair = tuple[Record, Position]
Weigh = Callable[[Record], int]
"""Returns about how many bytes a record has."""


class ReadRun(list[Pair]):
    """Records that are passed on together. `size_bytes` is about how large they are."""

    size_bytes = 0


def weight(record: Record) -> int:
    """Returns about how many bytes a record has, for budgets and rates of sources without files."""
    if isinstance(record, ArrowRows):
        return rows_weight(record.batch) * len(record)
    return len(record) if isinstance(record, bytes) else _weigh(record)


def rows_weight(batch: RecordBatch) -> int:
    """Returns about how many bytes each row of a batch has, without checking values."""
    return int(batch.nbytes // max(1, batch.num_rows) + NAME_BYTES * batch.num_columns)


def _weigh(value: Any) -> int:  # noqa: ANN401 - whatever fields hold
    if isinstance(value, str | bytes):
        return len(value) + 2
    if isinstance(value, dict):
        with contextlib.suppress(TypeError):  # if all values are texts, this takes a sixth of the time
            return len("".join(value.values())) + NAME_BYTES * len(value) + 2
        total = len("".join(value)) + 4 * len(value) + 2
        for one in value.values():  # common types without a call for each
            kind = type(one)
            total += len(one) + 2 if kind is str else _LEAF_BYTES if kind in _LEAVES else _weigh(one)
        return total
    return sum(map(_weigh, value)) + 2 if isinstance(value, list | tuple) else _LEAF_BYTES


class ReadThreads:
    """The reads of one source in one process. Thread-safe."""

    def __init__(self, silent_seconds: float = SILENT_SECONDS, whole_seconds: float = WHOLE_SECONDS) -> None:
        self._silent_seconds = silent_seconds
        self._whole_seconds = whole_seconds
        self._given_up: list[_ReadThread] = []

    def runs(self, pairs: Iterator[Pair], name: str, weigh: Weigh = weight, *, whole: bool) -> Iterator[ReadRun]:
        """Yields the pairs in runs. Raises what `pairs` raises, and RetriableError if it gives up. `name` is for messages."""
        self._given_up = [one for one in self._given_up if one.is_alive()]
        if len(self._given_up) >= GIVEN_UP_MOST:
            words = f"{name}: {len(self._given_up)} calls of read() have never returned in process {os.getpid()}, and none is made there"
            raise RetriableError(words, "start copycat again; what the reader reads from needs a time limit")
        thread = _ReadThread(pairs, weigh)
        try:
            thread.start()
        except RuntimeError:
            raise RetriableError(
                f"{name}: no thread could be started for read()", "raise the limit of threads (ulimit -u, TasksMax)"
            ) from None
        begun = time.monotonic()
        try:
            while (run := thread.take(_LOOK_SECONDS)) is None or run:
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
    """Reads one run ahead of its consumer."""

    def __init__(self, pairs: Iterator[Pair], weigh: Weigh) -> None:
        super().__init__(name="read", daemon=True)
        self.moved_at = time.monotonic()
        self._pairs = pairs
        self._weigh = weigh
        self._answers: queue.Queue[ReadRun | BaseException] = queue.Queue(1)
        self._is_left = threading.Event()

    def run(self) -> None:
        """Reads until the end, which an empty run marks, or until `leave`."""
        answer: ReadRun | BaseException = ReadRun([(b"", None)])
        while answer and not isinstance(answer, BaseException) and not self._is_left.is_set():
            try:
                answer = self._run()
            except BaseException as error:  # noqa: BLE001 - `take` raises it
                answer = error
            self._answers.put(answer)
            self.moved_at = time.monotonic()
        if close := getattr(self._pairs, "close", None):
            close()

    def _run(self) -> ReadRun:
        run = ReadRun()
        size_bytes, weigh, now, is_left = 0, self._weigh, time.monotonic, self._is_left.is_set
        for pair in itertools.islice(self._pairs, RUN_RECORDS):
            run.append(pair)
            self.moved_at = now()
            size_bytes += weigh(pair[0])
            if size_bytes >= RUN_BYTES or type(pair[0]) in _MANY or is_left():
                break
        run.size_bytes = size_bytes
        return run

    def take(self, seconds: float) -> ReadRun | None:
        """Returns the next run, an empty one at the end; None if there is none within `seconds`. Raises what the read raised."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def leave(self) -> bool:
        """Ends the read. Returns False if it has not ended within `LEAVE_SECONDS`."""
        self._is_left.set()
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.is_alive() and time.monotonic() < deadline:
            try:
                self._answers.get_nowait()
            except queue.Empty:
                self.join(0.001)
        return not self.is_alive()


class LookThread:
    """Calls `look` and `committed` of a source on a thread of its own, one call at a time. Used by one caller at a time."""

    def __init__(self, source: AuthorSource | FileSource, name: str) -> None:
        self._source = source
        self._turn = threading.Condition()
        self._wanted: tuple[dict[str, Position], bool] | None = None
        self._answer: list[Finding] | Exception | None = None
        self._saved: dict[str, Position] = {}
        self._since: float | None = None
        self._ended = self._failed = False
        self._thread = threading.Thread(target=self._run, name=f"look-{name}", daemon=True)
        self._has_begun = False

    @property
    def is_done(self) -> bool:
        """Whether `take` has an answer, or an exception."""
        return self._answer is not None

    @property
    def is_busy(self) -> bool:
        """Whether a call of `look` or `committed` is due or under way."""
        with self._turn:
            return self._wanted is not None or self._since is not None or (bool(self._saved) and not self._failed)

    def look(self, saved: Mapping[str, Position], *, to_the_end: bool) -> None:
        """Starts a look; `take` returns its findings later."""
        with self._turn:
            self._wanted = dict(saved), to_the_end
            self._begin()

    def committed(self, positions: Mapping[str, Position]) -> None:
        """Schedules a call of `committed` with these positions, before the next look."""
        with self._turn:
            self._saved.update(positions)
            self._begin()

    def take(self) -> list[Finding] | None:
        """Returns the findings, or None while there are none. Raises what the source raised, and RetriableError if it is too slow."""
        with self._turn:
            answer, self._answer = self._answer, None
            self._turn.notify_all()
        if isinstance(answer, Exception):
            raise answer
        since = self._since
        if answer is None and since is not None and time.monotonic() - since > SLOW_SECONDS:
            words = f"the source has not answered for {time.monotonic() - since:.0f} s"
            raise RetriableError(words, "it is waited for; what it reads from may hang")
        return answer

    def close(self) -> None:
        """Waits up to `CLOSE_SECONDS` for `committed`, then closes the source, also during a call, which sources may end by that.

        The thread ends once its present call returns.
        """
        deadline = time.monotonic() + CLOSE_SECONDS
        with self._turn:
            while self._has_begun and self._saved and self._answer is None and (left := deadline - time.monotonic()) > 0:
                self._turn.wait(left)
            self._ended = True
            self._turn.notify_all()
        self._source.close()

    def _begin(self) -> None:
        self._failed = False
        if not self._has_begun:
            self._has_begun = True
            self._thread.start()
        self._turn.notify_all()

    def _run(self) -> None:
        while True:
            with self._turn:
                while not self._ended and not self._has_work():
                    self._turn.wait()
                if self._ended:
                    return
                wanted, saved = self._wanted, dict(self._saved)
                self._since = time.monotonic()
            answer = self._ask(wanted, saved)
            with self._turn:
                if not isinstance(answer, Exception):
                    self._saved = {key: value for key, value in self._saved.items() if key not in saved or value != saved[key]}
                self._failed = isinstance(answer, Exception)
                self._wanted = None if wanted is self._wanted else self._wanted
                self._since, self._answer = None, answer
                self._turn.notify_all()

    def _has_work(self) -> bool:
        """Returns whether there is a call to make, and room for its answer. A failed `committed` is repeated with the next look."""
        return self._answer is None and (self._wanted is not None or (bool(self._saved) and not self._failed))

    def _ask(self, wanted: tuple[dict[str, Position], bool] | None, saved: dict[str, Position]) -> list[Finding] | Exception | None:
        try:
            if saved:
                self._source.committed(saved)
            return None if wanted is None else list(self._source.look(wanted[0], to_the_end=wanted[1]))
        except Exception as error:  # noqa: BLE001 - `take` raises it
            return error
