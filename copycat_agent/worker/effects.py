"""What a connector asks for, and what it hears: the effects and events of `ConnectorMachine`.

`ConnectorIO` performs effects. Each is answered by the event `Performed`: its `value` is the answer that the effect's docstring names,
its `error` what went wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from copycat_agent.worker.poll_loop import Wait

if TYPE_CHECKING:
    from copycat_agent.delivery.base import Unsaved
    from copycat_agent.model import Split, TaskId
    from copycat_agent.sources import Changes


class Hear(NamedTuple):
    """Take in what has happened. Answer: `News`. Raises FatalError for a query that cannot be run, once that is known."""


class News(NamedTuple):
    """What has happened since the last `Hear`, and what people want. `stop_at` and all times are of `time.monotonic()`."""

    grown: Collection[str] = ()
    """Paths of files that were written to."""
    other: bool = False
    """Whether something else happened in the source's directories, that only a look can sort out."""
    asked: bool = False
    """Whether others wait for `AnswerQuestions`."""
    reported: tuple[TaskId, ...] = ()
    """Tasks whose batch goes on and has told how far it came, see `TakeReport`."""
    ended: tuple[TaskId, ...] = ()
    """Tasks whose batch has come back, see `TakeIn`."""
    paused: bool = False
    """Whether nothing new is to be read."""
    at_once: bool = False
    """Whether a person wants what waits for its time to be tried now."""
    stop_at: float | None = None
    """By when what is in flight has to be settled, None while no stop is asked for."""
    examining: bool = False
    """Whether it is not known yet if the connector's query can be run."""


class Look(NamedTuple):
    """Look at everything that is there. Answer: `LookResult`. Raises RetriableError where nothing can be told of what is there now."""


class LookResult(NamedTuple):
    """What the source found, as changes to save, and how long it took."""

    changes: Changes
    seconds: float


class WaitForChange(NamedTuple):
    """Wait while nothing is to be done, until something happens or something has changed.

    At `until`, and every `seconds` from then on, the source is asked whether everything is as it was, which costs little; the wait ends
    when it is not, when anything happens, and at `latest`. Answer: when the next look is due. All times are of `time.monotonic()`.
    """

    until: float
    seconds: float
    latest: float


class AnswerQuestions(NamedTuple):
    """Answer what other threads have asked of the source."""


class Tend(NamedTuple):
    """Go on with what the delivery waits for. Raises what ends the connector.

    Answer: results of splits that were held back and come back unread, to be planned again.
    """


class TakeIn(NamedTuple):
    """Take in the batch of `task`, which has come back. Answer: its results; None where Kafka is asked first, then it comes back once more.

    Raises what ends the connector.
    """

    task: TaskId


class TakeReport(NamedTuple):
    """Take in what the batch of `task`, which goes on, has settled since it was last heard of. Answer: its results."""

    task: TaskId


class Save(NamedTuple):
    """Save changes and what became of their batch. Answer: how many seconds it took, None when there was nothing to save.

    RetriableError: try again.
    """

    unsaved: Unsaved


class SaveLast(NamedTuple):
    """The connector ends: save `changes`, which hold once more what was left `unsaved`. Raises CopycatError where it cannot be done."""

    changes: Changes
    unsaved: tuple[Unsaved, ...]


class PublishIfDue(NamedTuple):
    """No batch is under way and everything is saved: the delivery publishes offsets that Kafka lacks, if it is time for that."""


class Submit(NamedTuple):
    """Hand a batch of `splits` to an idle task. `max_bytes` and `max_records` (0: any) bound what it brings, `max_seconds` its time.

    With `follow_seconds` it may stay, see `Batch`.
    """

    task: TaskId
    splits: tuple[Split, ...]
    max_bytes: int
    max_seconds: float
    max_records: int
    follow_seconds: float = 0.0


class Join(NamedTuple):
    """Have the batch of `task`, which stays and has reported, take on further splits. Those that come too late for it are unread."""

    task: TaskId
    splits: tuple[Split, ...]


class AskToSettle(NamedTuple):
    """Ask the batch of `task` to settle what it has in flight and come back early."""

    task: TaskId


class Close(NamedTuple):
    """The connector has ended: close its files, and the delivery."""


Effect = (
    Hear
    | Look
    | AnswerQuestions
    | Tend
    | TakeIn
    | TakeReport
    | Save
    | SaveLast
    | PublishIfDue
    | Submit
    | Join
    | AskToSettle
    | Close
    | Wait
    | WaitForChange
)


class Performed(NamedTuple):
    """The answer to an effect, at `now` (`time.monotonic()`); to `Wait`, that the wait is over."""

    now: float
    value: Any = None
    error: Exception | None = None


Effects = Generator[Effect, Performed, None]
