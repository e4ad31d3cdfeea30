"""Functions that run on an executor of a cluster: they check that it can run batches, then run one, or stay and serve many.

Imported before anything is known of the executor's Python, so other packages are imported late, once they are known to be there.
Exceptions reach Spark only where the driver has to see a failed job.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import pickle
import pkgutil
import platform
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import TYPE_CHECKING, NamedTuple, cast

import copycat_agent
from copycat_agent import tls_channel
from copycat_agent.delivery.batch_outcomes import completed
from copycat_agent.errors import CopycatError, FatalError, FileError
from copycat_agent.model import Batch, Results, Split, SplitResult

if TYPE_CHECKING:
    from copycat_agent.producer import ProducerPool


NEEDED = ("cramjam", "confluent_kafka", "fastavro", "lz4", "orjson", "pyarrow", "pydantic")
"""Modules that batches import, beside one for zstd; a test checks them."""

QUERIES_NEED = ("numpy",)
"""Further modules that definitions with a query need: pyarrow uses it to make columns of records. Not pandas: no row goes through that."""

_CONNECT_SECONDS = 5.0
_LARGEST_END = 2**61
_PR_SET_PDEATHSIG = 1
_HINT = (
    "install the requirements of copycat-agent for that Python on every worker, name another one with spark.pyspark.python, or send one "
    "along with spark.archives"
)


class BatchMessage(NamedTuple):
    """A batch as it is sent. `run` names the function that runs it, `version` is the agent's; `line` is host, port and token, or None."""

    batch: Batch
    run: str
    version: str
    line: tuple[str, int, bytes] | None


RUN = "copycat_agent.executor:run_batch"
"""Name of the function that runs a batch: the executor imports it once its Python has been checked."""


class ResidentTask(NamedTuple):
    """The input of a resident task. `run` and `version` as of `BatchMessage`; `level` of its log; `listener`: what it connects to."""

    runner: int
    run: str
    version: str
    level: int
    listener: tuple[str, int, bytes, bytes]


class ExecutorPython(NamedTuple):
    """An executor's Python, as it describes itself. `trouble` is why it cannot run batches, "" when it can."""

    host: str
    python: str
    version: str
    trouble: str


def look(version: str, partition: Iterable[object]) -> Iterator[bytes]:
    """Function over any partition: returns one pickled `ExecutorPython`."""
    list(partition)
    return iter([pickle.dumps(describe_python(version))])


def describe_python(version: str, more: tuple[str, ...] = ()) -> ExecutorPython:
    """Returns this process's `ExecutorPython`. `more` are modules that its batches need beside `NEEDED`."""
    zstd = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    missing = [name for name in (*NEEDED, *more, zstd) if not _is_there(name)]
    host, own = socket.gethostname(), copycat_agent.__version__
    trouble = f"its Python lacks {', '.join(missing)}" if missing else ""
    if own != version:
        trouble = f"it has copycat-agent {own} of its own, before the agent's {version} on its path"
    return ExecutorPython(host, platform.python_version(), own, trouble)


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # the package it should be in is not there
        return False


def unfit(found: ExecutorPython) -> FatalError:
    """Returns the error for an executor that cannot run batches."""
    return FatalError(f"executor on {found.host} (Python {found.python}) cannot run batches: {found.trouble}", _HINT)


def stay(partition: Iterable[ResidentTask]) -> Iterator[bytes]:
    """Function over the partition of a resident task, which holds a `ResidentTask`: serves the driver's batches until it disconnects.

    Yields nothing, or a pickled `ExecutorPython` that says why it cannot.
    """
    (task,) = partition
    _die_with_parent()
    found = describe_python(task.version)
    if found.trouble:
        return iter([pickle.dumps(found)])
    from copycat_agent import runner  # noqa: PLC0415 - see above

    host, port, key, certificate = task.listener
    try:
        channel = tls_channel.connect(host, port, certificate)
        answer_challenge(cast("Connection", channel), key)
        deliver_challenge(cast("Connection", channel), key)
        channel.trust()
    except (OSError, EOFError, AuthenticationError) as error:
        why = f"it cannot reach the agent at {host}:{port}: {getattr(error, 'strerror', None) or str(error) or type(error).__name__}"
        return iter([pickle.dumps(found._replace(trouble=why))])
    hello = runner.Hello(task.runner, os.getpid(), found.host)
    run = functools.partial(checked, pkgutil.resolve_name(task.run), again=False)
    if not runner.serve_over(channel, hello, run, task.level, beats=True):
        os._exit(0)  # Spark would use this process again, with a batch still at work in it
    return iter(())


def carry(partition: Iterable[BatchMessage]) -> Iterator[bytes]:
    """Function over the partition of a task, which holds a `BatchMessage`: runs it and yields its pickled results."""
    (message,) = partition
    _die_with_parent()
    if refusal := refused(message):
        return iter([refusal])
    with settle_requested(message.line) as stopping:
        return iter([run_batch_message(message, stopping, pkgutil.resolve_name(message.run))])


def refused(message: BatchMessage, more: tuple[str, ...] = ()) -> bytes | None:
    """Returns pickled results that say why this process cannot run the batch, None when it can; `more` as for `describe_python`."""
    found = describe_python(message.version, more)
    return pickle.dumps(_all(message.batch, unfit(found))) if found.trouble else None


def _all(batch: Batch, error: CopycatError) -> Results:
    results = tuple(SplitResult(split, split.offset, error=error) for split in batch.splits)
    return completed(batch, results, str(error), again=_is_second_try())


def _is_second_try() -> bool:
    """Returns whether Spark gave this task to another executor before, and lost it."""
    from pyspark import TaskContext  # noqa: PLC0415 - see above

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def run_batch_message(message: BatchMessage, stopping: Callable[[], bool], run: Callable[..., Results]) -> bytes:
    """Runs the batch with `run`, which is `run_batch` or a replacement. Returns the results of `checked`, packed."""
    from copycat_agent import runner  # noqa: PLC0415 - see above

    batch = message.batch
    return runner.packed(batch, checked(run, batch, runner.shared_producers(), stopping, again=_is_second_try()))


def checked(run: Callable[..., Results], batch: Batch, producers: ProducerPool, stopping: Callable[[], bool], *, again: bool) -> Results:
    """Returns the results of the batch, with an error for each file that differs from what the driver saw.

    `again`: another executor may have begun with it.
    """
    from copycat_agent import runner  # noqa: PLC0415 - see above

    troubles = {index: error for index, split in enumerate(batch.splits) if (error := _unlike(split))}
    good = replace(batch, splits=tuple(split for index, split in enumerate(batch.splits) if index not in troubles))
    ran = runner.run_safely(good, producers, stopping, run) if good.splits else ()
    rest = iter(map(_with_host, ran))
    results = tuple(
        SplitResult(split, split.offset, error=troubles[index]) if index in troubles else next(rest)
        for index, split in enumerate(batch.splits)
    )
    return completed(batch, results, "no file of it looks here as it does on the driver", again=again)


def _unlike(split: Split) -> FileError | None:
    """Returns why a file cannot be the one that the driver saw, None without a reason.

    A network file system may show this host less of it, for a while or for good.
    """
    if split.offset.compression or split.end >= _LARGEST_END or not split.open_path.startswith("/"):
        return None
    try:
        size = os.stat(split.open_path).st_size  # noqa: PTH116 - a path that need not be UTF-8
    except OSError:
        return None  # the batch will say so
    if size >= split.end:
        return None
    msg = f"{split.path!r} has {size} bytes on {socket.gethostname()}, of {split.end} that the driver sees"
    return FileError(msg, "the agent tries again; if it stays so, the two do not see the same directory")


def _with_host(result: SplitResult) -> SplitResult:
    """Returns the result with this host's name in a file's error."""
    if not isinstance(result.error, FileError):
        return result
    path, hint = result.split.open_path, result.error.hint
    if path.startswith("/") and not os.path.exists(path):  # noqa: PTH110 - as above
        hint = "mount its directory at the same path on every worker"
    return replace(result, error=FileError(f"{result.error.message} (on {socket.gethostname()})", hint))


@functools.cache
def _die_with_parent() -> None:
    """Asks the kernel to kill this process when Spark's daemon ends, however it ends. On Linux only; elsewhere it is up to Spark."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


@contextlib.contextmanager
def settle_requested(line: tuple[str, int, bytes] | None) -> Iterator[Callable[[], bool]]:
    """Yields a function that returns whether the batch has to settle: the driver asked for it, or is gone."""
    stopping = threading.Event()
    peer = None
    if line is not None:
        with contextlib.suppress(OSError):
            peer = socket.create_connection(line[:2], _CONNECT_SECONDS)
            peer.sendall(line[2])
            peer.settimeout(None)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            threading.Thread(target=_listen, args=(peer, stopping), name="line", daemon=True).start()
    try:
        yield stopping.is_set
    finally:
        if peer is not None:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)  # wakes the thread
            peer.close()


def _listen(peer: socket.socket, stopping: threading.Event) -> None:
    with contextlib.suppress(OSError):
        peer.recv(1)
    stopping.set()
