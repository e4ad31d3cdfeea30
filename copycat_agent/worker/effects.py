"""The effects that `ConnectorMachine` yields, and the events that it receives.

`ConnectorIO` performs effects. Each is answered by the event `Performed`: its `value` is the answer that the effect's docstring names, its
`error` is the exception if it failed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Any, NamedTuple

from copycat_agent.delivery.base import Unsaved
from copycat_agent.model import Split, TaskId
from copycat_agent.sources import Changes
from copycat_agent.worker.poll_loop import Wait


class CollectEvents(NamedTuple):
    """Take in what has happened. Answer: `CollectedEvents`. Raises FatalError once it is known that a query cannot be run."""


class CollectedEvents(NamedTuple):
    """Events since the last `CollectEvents`, and requests by people. All times are of `time.monotonic()`."""

    grown: Collection[str] = ()
    """Paths of files that were written to."""
    other: bool = False
    """Whether something else happened in the source's directories, which requires a `Scan`."""
    asked: bool = False
    """Whether other threads wait for `AnswerQuestions`."""
    reported: tuple[TaskId, ...] = ()
    """Tasks whose batch goes on and has reported what it settled, see `CollectReport`."""
    ended: tuple[TaskId, ...] = ()
    """Tasks whose batch has ended, see `CollectResults`."""
    paused: bool = False
    """Whether nothing new may be read."""
    at_once: bool = False
    """Whether a person wants waits cut short."""
    stop_at: float | None = None
    """The deadline for settling what is in flight, None while no stop is requested."""
    examining: bool = False
    """Whether it is still unknown if the connector's query can be run."""
    is_final: bool = False
    """Whether the process ends after the stop, so that batches cannot be waited for beyond its deadline."""


class Scan(NamedTuple):
    """Scan the source. Answer: `ScanResult`. Raises RetriableError if the source's present content cannot be determined."""


class ScanResult(NamedTuple):
    """The changes that the source found, to be saved, and how long the scan took."""

    changes: Changes
    seconds: float


class WaitForChange(NamedTuple):
    """Wait while there is nothing to do, until something happens or has changed.

    At `until`, and every `seconds` from then on, the source is asked whether everything is as it was, which costs little; the wait ends
    when it is not, when anything happens, and at `latest`. Answer: when the next scan is due. All times are of `time.monotonic()`.
    """

    until: float
    seconds: float
    latest: float


class AnswerQuestions(NamedTuple):
    """Answer the questions that other threads have asked about the source."""


class AdvanceDelivery(NamedTuple):
    """Continue the delivery's pending work. Raises what ends the connector.

    Answer: results of splits that were held back and come back unread, to be planned again.
    """


class CollectResults(NamedTuple):
    """Take in the ended batch of `task`. Answer: its results; None if Kafka has to be asked first, then the batch comes back once more.

    Raises what ends the connector.
    """

    task: TaskId


class CollectReport(NamedTuple):
    """Take in what the batch of `task`, which goes on, has settled since its last report. Answer: its results."""

    task: TaskId


class Save(NamedTuple):
    """Save changes and the results of their batch. Answer: how many seconds it took, None when there was nothing to save.

    Raises RetriableError when it has to be tried again.
    """

    unsaved: Unsaved


class SaveLast(NamedTuple):
    """Save `changes` as the connector ends; they include the offsets of what was left `unsaved`. Raises CopycatError if that fails."""

    changes: Changes
    unsaved: tuple[Unsaved, ...]


class PublishIfDue(NamedTuple):
    """Let the delivery publish offsets that Kafka lacks, if that is due. Yielded when no batch is in flight and everything is saved."""


class Submit(NamedTuple):
    """Submit a batch of `splits` to an idle task. `max_bytes`, `max_records` (0: any) and `max_seconds` limit it.

    With `follow_seconds` it may stay, see `Batch`.
    """

    task: TaskId
    splits: tuple[Split, ...]
    max_bytes: int
    max_seconds: float
    max_records: int
    follow_seconds: float = 0.0


class Join(NamedTuple):
    """Add splits to the batch of `task`, which stays and has reported. Splits that come too late for it are left unread."""

    task: TaskId
    splits: tuple[Split, ...]


class RequestSettle(NamedTuple):
    """Ask the batch of `task` to settle what it has in flight and end early."""

    task: TaskId


class Close(NamedTuple):
    """Close the connector's files and its delivery, because it has ended."""


Effect = (
    CollectEvents
    | Scan
    | AnswerQuestions
    | AdvanceDelivery
    | CollectResults
    | CollectReport
    | Save
    | SaveLast
    | PublishIfDue
    | Submit
    | Join
    | RequestSettle
    | Close
    | Wait
    | WaitForChange
)


class Performed(NamedTuple):
    """The answer to an effect, at `now` (`time.monotonic()`). For `Wait` it only means that the wait is over."""

    now: float
    value: Any = None
    error: Exception | None = None


Effects = Generator[Effect, Performed, None]
