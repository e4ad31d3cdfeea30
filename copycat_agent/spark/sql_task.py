"""The two functions of one Spark task that run a batch with a query: `front` before the query, `back` after it.

`back` runs the batch. It sends the query's rows over a private unix socket to `front`, which passes them into Spark. The query's result
comes to `back` as its input. So a single process has the files, the producer and the account, on this host as on a cluster.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import os
import pickle
import queue
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import pyarrow as pa

from copycat_agent.batch.sql_run import SqlRun
from copycat_agent.delivery.base import MakeRun
from copycat_agent.errors import RetriableError
from copycat_agent.executor import run_batch
from copycat_agent.model import Batch
from copycat_agent.runner import packed, run_safely, shared_producers
from copycat_agent.sources.contract_frames import FrameRows
from copycat_agent.spark import cluster_task

Run = Callable[[Any, "MakeRun"], bytes]
"""Runs the item of a message: `here` or `there`, pickled by reference. Returns packed results."""

MEET_SECONDS = 60.0
"""How long the two functions wait for each other: a worker may have to be started first."""

_LOOK_SECONDS = 0.005
_SIZE_BYTES = 8
_MOST_BYTES = 64  # longest path of a directory: a unix socket's path has at most 107 bytes
_READ_BYTES = 2**20
_ROWS, _END = b"r", b"e"
"""Signs on the socket: rows follow; there are no more."""
_ANSWERS_WAITING = 16
"""Most batches of a query's result in memory. Spark waits beyond that, but `put` does not."""


class SqlBatchMessage(NamedTuple):
    """The message to `back`, which calls `run(item)`. `condemned` and `why` are those of `batch.sql_answers.QueryChannel`.

    `has_rows`: the rows of a frame follow.
    """

    run: Run
    item: Any
    condemned: str
    why: str
    has_rows: bool = False


def front(meeting: str, partition: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sends a pickled message, the only row of its partition, to `back`, and yields the rows that `back` sends.

    `meeting` is the path of the socket, or a word from which both derive the same private directory.
    """
    yield from _served(meeting, _only(partition).column(0)[0].as_py(), None)


def front_of_rows(meeting: str, message: bytes, names: Sequence[str], partition: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As `front`, over the rows of a frame, which follow the pickled message to `back`. `names` are the columns' names (`named`)."""
    yield from _served(meeting, message, named(names, partition))


def named(names: Sequence[str], rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields rows with their columns' names in place of the numbers of `frame_jobs.numbered`."""
    for batch in rows:
        yield batch.rename_columns(list(names))


def _served(meeting: str, message: bytes, rows: Iterable[pa.RecordBatch] | None) -> Iterator[pa.RecordBatch]:
    with _listening(_path(meeting)) as listener:
        listener.settimeout(MEET_SECONDS)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(None)
            connection.sendall(len(message).to_bytes(_SIZE_BYTES, "big") + message)
            if rows is not None:
                threading.Thread(target=_send_rows, args=(connection, rows), name="frame-rows", daemon=True).start()
            with pa.ipc.open_stream(io.BufferedReader(_PrefetchingStream(connection), _READ_BYTES)) as stream:
                yield from stream


def back(meeting: str, schema: pa.Schema, partition: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs the batch with the query's result as its input. Yields one row with packed results. `schema` is that of the query's table."""
    with _connected(_path(meeting)) as connection, connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(_SIZE_BYTES), "big")
        message: SqlBatchMessage = pickle.loads(stream.read(size))  # noqa: S301 - from our own driver
        query = SocketQuery(connection, schema, partition, message.condemned, message.why)
        rows = FrameRows(_received(stream)) if message.has_rows else None
        results = message.run(message.item, functools.partial(SqlRun, query=query, rows=rows))
        for _ in query.results():  # a batch that used no query must still consume its input
            pass
    yield pa.RecordBatch.from_arrays([pa.array([results], pa.binary())], names=["results"])


def _send_rows(connection: socket.socket, rows: Iterable[pa.RecordBatch]) -> None:
    """Thread: sends a frame's rows. The other end sees an error as an early end; Spark reports the reason."""
    with contextlib.suppress(Exception), connection.makefile("wb", buffering=_READ_BYTES) as sink:
        batches = iter(rows)
        if (first := next(batches, None)) is not None:
            sink.write(_ROWS)
            with pa.ipc.new_stream(sink, first.schema) as writer:
                for batch in itertools.chain([first], batches):
                    writer.write_batch(batch)
        sink.write(_END)


def _received(stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Yields what `_send_rows` sends. Raises RetriableError for an early end, which Arrow does not notice."""
    with _gone():
        sign = stream.read(1)
        if sign == _ROWS:
            with pa.ipc.open_stream(stream) as batches:
                yield from batches
            sign = stream.read(1)
    if sign != _END:
        raise RetriableError("Spark broke off the reading of rows")


def here(item: tuple[str, Batch, dict[str, str]], make_run: MakeRun) -> bytes:
    """Runs a batch on this host, like `runner.bounded`. `item` is the file that says when to settle, a batch, and its environment."""
    stop_file, batch, environ = item
    os.environ.update(environ)
    run = functools.partial(run_batch, make_run=make_run)
    return packed(batch, run_safely(batch, shared_producers(), functools.partial(os.path.exists, stop_file), run))


def there(item: cluster_task.BatchMessage, make_run: MakeRun) -> bytes:
    """Runs a batch on an executor of a cluster, like `cluster_task.carry`."""
    if refusal := cluster_task.refused(item, cluster_task.QUERIES_NEED):
        return refusal
    run = functools.partial(run_batch, make_run=make_run)
    with cluster_task.settle_requested(item.line) as stopping:
        return cluster_task.run_batch_message(item, stopping, run)


def feed(partition: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the batches of an Arrow stream, the only row of its partition."""
    data = _only(partition).column(0)[0].as_buffer()
    with pa.ipc.open_stream(data) as stream:
        yield from stream


def _only(partition: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Returns the batch with the only row of a partition. Reads the partition to its end: otherwise Spark does not reuse the worker."""
    (batch,) = [batch for batch in partition if batch.num_rows]
    return batch


class SocketQuery:
    """A `batch.sql_answers.QueryChannel`."""

    def __init__(self, connection: socket.socket, schema: pa.Schema, answers: Iterable[pa.RecordBatch], condemned: str, why: str) -> None:
        self.condemned = condemned
        self.why = why
        self._connection = connection
        self._arrived: queue.Queue[pa.RecordBatch | Exception | None] = queue.Queue(_ANSWERS_WAITING)
        self._sink = connection.makefile("wb", buffering=_READ_BYTES)
        self._writer: Any = pa.ipc.new_stream(self._sink, schema)
        threading.Thread(target=self._take, args=(answers,), name="sql-answers", daemon=True).start()

    def put(self, batch: pa.RecordBatch) -> None:
        with _gone():
            self._writer.write_batch(batch)

    def results(self) -> Iterator[pa.RecordBatch]:
        """Yields nothing when called again."""
        with _gone():
            if self._writer is not None:
                self._writer.close()
                self._writer = None
                self._sink.close()
                self._connection.shutdown(socket.SHUT_WR)
            while (answer := self._arrived.get()) is not None:
                if isinstance(answer, Exception):
                    raise answer
                yield answer
            self._arrived.put(None)

    def _take(self, answers: Iterable[pa.RecordBatch]) -> None:
        """Thread: takes results while rows are put, so that Spark can work meanwhile."""
        try:
            for answer in answers:
                self._arrived.put(answer)
        except Exception as error:  # noqa: BLE001 - `results` raises it
            self._arrived.put(error)
        else:
            self._arrived.put(None)


@contextlib.contextmanager
def _gone() -> Iterator[None]:
    """Raises RetriableError if the other end has gone, because Spark ends this job."""
    try:
        yield
    except (OSError, EOFError, pa.ArrowException) as error:
        raise RetriableError(f"Spark broke the query off ({type(error).__name__})") from None


def _path(meeting: str) -> str:
    if meeting.startswith("/"):
        return meeting
    temporary = tempfile.gettempdir()
    return f"{temporary if len(os.fsencode(temporary)) <= _MOST_BYTES else '/tmp'}/copycat-{meeting}/q"  # noqa: S108 - what is made in it is private


@contextlib.contextmanager
def _listening(path: str) -> Iterator[socket.socket]:
    directory = os.path.dirname(path)  # noqa: PTH120 - a path that need not be UTF-8
    is_own = not os.path.isdir(directory)  # noqa: PTH112 - as above
    if is_own:
        os.mkdir(directory, 0o700)  # noqa: PTH102 - raises if another process was faster
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(1)
            yield listener
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108 - as above
        if is_own:
            shutil.rmtree(directory, ignore_errors=True)


def _connected(path: str) -> socket.socket:
    """Connects to `front`. Raises RetriableError if it is not there in time, or the directory is not private to this user."""
    deadline = time.monotonic() + MEET_SECONDS
    connection = socket.socket(socket.AF_UNIX)
    while True:
        with contextlib.suppress(OSError):
            _look_at(os.path.dirname(path))  # noqa: PTH120 - as above
            connection.connect(path)
            return connection
        if time.monotonic() > deadline:
            connection.close()
            raise RetriableError("the two ends of a query did not meet in time")
        time.sleep(_LOOK_SECONDS)


def _look_at(directory: str) -> None:
    """Raises OSError if other users could have created the socket."""
    status = os.stat(directory)  # noqa: PTH116 - as above
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError


class _PrefetchingStream(io.RawIOBase):
    """A stream that reads its connection ahead without limit, so that the sender never waits for the reader.

    Otherwise `back`, which sends rows, and Spark, which sends results, could wait for each other for ever.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._parts: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._part = memoryview(b"")
        self._connection = connection
        threading.Thread(target=self._take, name="sql-rows", daemon=True).start()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        """A broken connection counts as an end: Spark notices it at the other side."""
        if not self._part:
            self._part = memoryview(self._parts.get())
            if not self._part:
                self._parts.put(b"")
        size = min(len(buffer), len(self._part))
        buffer[:size], self._part = self._part[:size], self._part[size:]
        return size

    def _take(self) -> None:
        """Thread: reads the connection."""
        data = b" "
        while data:
            try:
                data = self._connection.recv(_READ_BYTES)
            except OSError:
                data = b""
            self._parts.put(data)
