"""The exception tree, by what the caller does.

::

    CopycatError
      DefinitionError   this YAML is wrong: keep the previous version running
      DataError         this record is bad: apply the connector's error policy, go on with the next
        TimestampError  Kafka does not take its timestamp: the record's fault only if the record has one of its own
      RetriableError    the world is unwell: the same split again, with back-off
        BlockedError    a person has to change something outside (topic, permission): retry slowly, say what
        FileError       one file cannot be read now: only that file backs off
        FencedError     somebody else has taken over a lane: read the truth before anything else
        RefusedError    Kafka refused something in a transaction, all of which is undone: look for the record
        SentInPartError records that go together were sent in part: nothing of them counts
      UnknownConnectorError  a command names a connector that is not there
      BusyError         a command cannot be done now: the connector runs, or the agent stops
      FatalError        retrying cannot help: mark the connector FAILED, the others go on
        PositionsError  positions in Kafka and here do not belong together: a person decides which to keep
          BehindError   Kafka knows less than this host: so does a broker that is cut off from the others, for a while
          CopiedError   two state directories have one identity: one of them is a copy

Errors cross processes inside a `SplitResult`: every class pickles with all that it carries.
"""

from __future__ import annotations

import errno
import os
import traceback
from dataclasses import dataclass
from pathlib import Path


class CopycatError(Exception):
    """Base of everything this package raises on purpose.

    `message` says what happened, in words for the operator; `hint` is the next step, or "" when there is none to name.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in one definition file, with its position.

    `line` and `column` count from 1; 0 means the file as a whole. `source_line` is the text of the line, secrets masked.
    """

    path: str
    line: int
    column: int
    code: str
    text: str
    hint: str = ""
    source_line: str = ""


class DefinitionError(CopycatError):
    """A definition or agent file cannot be used. Carries every problem found, not only the first."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{first.path}:{first.line}:{first.column}: {first.text}{more}", first.hint)
        self.problems = problems

    def __reduce__(self) -> tuple[type[DefinitionError], tuple[tuple[Problem, ...]]]:
        """Pickles by problems: the message is derived from them."""
        return type(self), (self.problems,)


class DataError(CopycatError):
    """One record cannot be made or sent. The connector's `errors` section decides about it."""


class TimestampError(DataError):
    """Kafka refuses a record for its timestamp. If the agent set it at sending, this host's clock is wrong."""


class DamageError(CopycatError):
    """The rest of one file cannot be read by anyone: it is damaged, or not what its format says. Everything before it is good."""


class RetriableError(CopycatError):
    """Not the record's fault and not permanent: the same split is planned again after a back-off."""


class BlockedError(RetriableError):
    """Retried like its parent, but slowly: someone has to create, permit or repair something outside the agent."""


class FileError(RetriableError):
    """One file cannot be opened or read now. Only its own partition backs off; its siblings go on."""


class FencedError(RetriableError):
    """A lane has been taken over, or is not where it was planned to be. Nothing is planned for it before its true state is read."""


class RenamedError(RetriableError):
    """Kafka knows a connector's id by another name: the saved rows here are older than a rename."""


class RefusedError(RetriableError):
    """Kafka refused a record somewhere in a transaction, which is undone. `reason` is that refusal."""

    def __init__(self, reason: DataError) -> None:
        super().__init__(reason.message, reason.hint)
        self.reason = reason

    def __reduce__(self) -> tuple[type[RefusedError], tuple[DataError]]:
        """Pickles by the reason."""
        return type(self), (self.reason,)


class SentInPartError(RetriableError):
    """Records that go together were sent only in part. None of them counts as settled: all are sent again."""


class FatalError(CopycatError):
    """Retrying cannot help. The connector stops as FAILED with this message; other connectors go on."""


class PositionsError(FatalError):
    """Going on would lose records or send them twice. The hint names the commands between which a person has to choose."""


class BehindError(PositionsError):
    """Kafka lacks commits that this host has seen. Believed only if a later, new query finds the same."""


class CopiedError(PositionsError):
    """Another state directory has this agent's identity, and has moved a lane.

    `positions` (`model.Position`s in their order) are what this start has committed itself and SQLite does not have, as far as Kafka still
    has them: this host must not continue from before them. `place` is where they are.
    """

    def __init__(self, message: str, hint: str = "", positions: tuple[object, ...] = (), place: object = None) -> None:
        super().__init__(message, hint)
        self.positions = positions
        self.place = place

    def __reduce__(self) -> tuple[type[CopiedError], tuple[object, ...]]:
        """Pickles with all that it carries."""
        return type(self), (self.message, self.hint, self.positions, self.place)


class UnknownConnectorError(CopycatError):
    """A command names a connector that the agent does not have."""


class BusyError(CopycatError):
    """A command cannot be done in the present state; the hint says which state it needs."""


_LACKING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EAGAIN, errno.ENOBUFS})
_NO_THREAD = "can't start new thread"


def lacking(error: BaseException) -> RetriableError | None:
    """Returns the error for an exception that says what this host lacks for now: memory, descriptors, disk or threads; None for others."""
    if isinstance(error, MemoryError):
        return RetriableError("this host has too little memory for the agent", "give it more (ulimit -v, MemoryMax=), or run fewer tasks")
    if isinstance(error, OSError) and error.errno in _LACKING:
        hint = "see the disk, and what this user and service may have: ulimit -a, LimitNOFILE= of the unit"
        return RetriableError(f"this host lacks what the agent needs: {os.strerror(error.errno)}", hint)
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return RetriableError("this host gives the agent no more threads", "raise the limit (ulimit -u, TasksMax=), or run fewer tasks")
    return None


def bug_words(error: BaseException) -> str:
    """Returns an unexpected exception by type and place only: its text may hold data or secrets."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"unexpected {type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
