"""What the tests let runners run instead of `run_batch`: the batch's definition says what shall happen.

Imported by name in Spark workers.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import copycat_agent
from copycat_agent.batch.following import BatchChannel
from copycat_agent.errors import RetriableError
from copycat_agent.model import Batch, Counts, SourceOffset, SourcePartition, Split, SplitResult, TaskId

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.producer import ProducerPool

    Results = tuple[SplitResult, ...]


BEGUN_SECONDS = 8.0
"""Long enough for a batch to have begun on a busy machine, of one that then hangs."""


class Act(NamedTuple):
    """What a batch shall do: a name in `ACTS` and its argument."""

    name: str
    argument: str = ""
    secret: str = ""


def batch(
    act: str,
    argument: str = "",
    *,
    task: int = 0,
    connector: str = "app",
    splits: int = 1,
    max_seconds: float = 300.0,
    secret: str = "",
    cluster: str = "",
    follow_seconds: float = 0.0,
) -> Batch:
    """A batch of a task that acts like this."""
    cut = tuple(
        Split(SourcePartition(connector, f"key-{number}"), f"/log/{number}", f"/log/{number}", SourceOffset(100 * number), 10_000)
        for number in range(splits)
    )
    definition = pickle.dumps(Act(act, argument, secret))
    return Batch(TaskId(connector, task), definition, cut, 2**20, max_seconds, cluster=cluster, follow_seconds=follow_seconds)


def run(batch: Batch, producers: ProducerPool, stopping: Callable[[], bool]) -> Results:
    """In place of `batch.run_batch`."""
    act = pickle.loads(batch.definition)
    return ACTS[act.name](batch, act.argument, stopping)


def done(batch: Batch, note: str = "") -> Results:
    """Every split read to its end; `note` comes back as the offset's path."""
    return tuple(
        SplitResult(split, SourceOffset(split.end, records=7, path=note), Counts(read=7, acknowledged=7), at_end=True)
        for split in batch.splits
    )


def _answer(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    return done(batch, str(os.getpid()))


def _echo(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    return done(batch)


def _where(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    """The package that runs it, and the process."""
    return done(batch, f"{copycat_agent.__file__} {os.getpid()}")


def _told(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    return done(batch, str(stopping()))


def _until_told(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    """Says so in a file when it has begun, and runs until it is told to settle."""
    _say_begun(argument)
    while not stopping():
        time.sleep(0.005)
    return done(batch, "settled")


def _report(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    """Tells that it has read ten bytes of each split, and stays until it is told to settle."""
    results = _tell_ten_bytes(batch, stopping)
    _say_begun(argument)
    while not stopping():
        time.sleep(0.005)
    return tuple(SplitResult(replace(one.split, offset=one.offset), one.offset, at_end=True) for one in results)


def _report_and_join(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    """As `report`, until something joins it; that it reads to the end."""
    assert isinstance(stopping, BatchChannel), "a batch that may stay"
    told = _tell_ten_bytes(batch, stopping)
    _say_begun(argument)
    while not (joined := stopping.joined()):
        time.sleep(0.005)
    return (*told, *(SplitResult(one, SourceOffset(one.end), at_end=True) for one in joined))


def _report_and_die(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    _tell_ten_bytes(batch, stopping)
    return _die(batch, argument, stopping)


def _tell_ten_bytes(batch: Batch, stopping: Callable[[], bool]) -> Results:
    assert isinstance(stopping, BatchChannel), "a batch that may stay"
    offsets = [replace(split.offset, position=split.offset.position + 10) for split in batch.splits]
    results = tuple(SplitResult(split, offset, Counts(read=1, acknowledged=1)) for split, offset in zip(batch.splits, offsets, strict=True))
    stopping.report(results)
    return results


def _say_begun(path: str) -> None:
    """All at once: who sees the file can read in it which process it is."""
    beside = Path(f"{path}.new")
    beside.write_text(str(os.getpid()))
    beside.rename(path)


def _hang(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    _say_begun(argument)
    while True:
        time.sleep(60)


def _stop_process(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    """The whole worker stands still."""
    _say_begun(argument)
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:  # the signal stops all threads, this one not necessarily first
        time.sleep(60)


def _die(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    os.kill(os.getpid(), signal.SIGKILL)
    return done(batch)


def _raise(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    kinds = {kind.__name__: kind for kind in (OSError, KeyError, SystemExit, RetriableError)}
    raise kinds[argument]("secret-text")


def _unpicklable(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    return (SplitResult(batch.splits[0], batch.splits[0].offset, error=RetriableError(lambda: None)),)  # type: ignore[arg-type]


class _Unreadable:
    """What a process of another version may send: it cannot be made again here."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("secret-text",)


def _unreadable(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    return (SplitResult(batch.splits[0], batch.splits[0].offset, error=_Unreadable()),)  # type: ignore[arg-type]


def _too_few(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    return ()


def _log(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    logging.getLogger("copycat_agent.test").warning("a word from the worker")
    return done(batch)


def _burn(batch: Batch, argument: str, stopping: Callable[[], bool]) -> Results:
    end = time.monotonic() + float(argument)
    while time.monotonic() < end:
        pass
    return done(batch)


ACTS: dict[str, Callable[[Batch, str, Callable[[], bool]], Results]] = {
    "answer": _answer,
    "burn": _burn,
    "die": _die,
    "echo": _echo,
    "hang": _hang,
    "log": _log,
    "raise": _raise,
    "report": _report,
    "report-and-die": _report_and_die,
    "report-and-join": _report_and_join,
    "stop-process": _stop_process,
    "told": _told,
    "too-few": _too_few,
    "unpicklable": _unpicklable,
    "unreadable": _unreadable,
    "until-told": _until_told,
    "where": _where,
}
