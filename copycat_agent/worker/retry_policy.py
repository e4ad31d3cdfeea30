"""How a connector handles errors: what results mean for it as a whole, how long it backs off, and when it is restarted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from copycat_agent.backoff import Backoff
from copycat_agent.errors import BlockedError, CopycatError, FileError, RetriableError, lacking
from copycat_agent.logs import Log
from copycat_agent.model import Results
from copycat_agent.options import Definition, ErrorsOptions
from copycat_agent.worker.context import ConnectorContext
from copycat_agent.worker.status import State

RESTART_SECONDS = (1.0, 60.0)
"""First and longest wait before a connector is started again."""
BUGS_MAX = 3
"""This many unexpected errors within `BUGS_SECONDS` end the connector: records of a file that causes them are sent again at each start."""
BUGS_SECONDS = 3600.0
STEADY_SECONDS = 60.0
"""A connector that has worked for this long starts again with the shortest wait."""


def worst(results: Results) -> CopycatError | None:
    """Returns the error that decides for the connector: a fatal one, else a blocking one, else any retriable one.

    Errors of single files are left out.
    """
    errors = [result.error for result in results if result.error is not None and not isinstance(result.error, FileError)]
    ranked = sorted(errors, key=lambda error: (isinstance(error, RetriableError), not isinstance(error, BlockedError)))
    return ranked[0] if ranked else None


def held_back(results: Results) -> BlockedError | None:
    """Returns why some files cannot be sent while others of the same connector may: the source retries them, the connector goes on.

    None when nothing is blocked, or something else is wrong as well. For topics that depend on the record: a topic that all records share
    concerns the whole connector.
    """
    errors = [result.error for result in results if result.error is not None]
    blocked = [error for error in errors if isinstance(error, BlockedError)]
    own = all(isinstance(error, BlockedError | FileError) for error in errors)
    return blocked[0] if blocked and own else None


def _as_retriable(error: CopycatError | None) -> CopycatError | None:
    return RetriableError(error.message, error.hint) if isinstance(error, BlockedError) else error


class HeldBackFiles:
    """Why and since when a source holds single files back. The source decides when they are tried again."""

    def __init__(self, options: ErrorsOptions, log: Log, clock: Callable[[], float] | None) -> None:
        self.reason = ""
        """Empty when no file is held back."""
        self._since = Backoff(options, clock)
        self._log = log

    def add(self, error: BlockedError) -> None:
        """Notes that files are held back for this reason. Raises FatalError when errors.retry_timeout is over."""
        self._since.failed(error)
        if str(error) != self.reason:
            self._log.warning("files are held back, the others go on", why=error.message, hint=error.hint)
        self.reason = str(error)

    def release(self) -> None:
        """Notes that no file is held back any more."""
        self._since.succeeded()
        self.reason = ""


class RetryPolicy:
    """The retries of one run of a connector, called by its steps. The source handles errors of single files, this class all others."""

    def __init__(
        self, definition: Definition, context: ConnectorContext, *, careful: bool = False, clock: Callable[[], float] | None = None
    ) -> None:
        """`careful`: something went wrong before, so the first batch is small. `clock` replaces `time.monotonic`."""
        self.backoff = Backoff(definition.errors, clock)
        self.save_at = 0.0
        """When saving is tried again after a failure."""
        self.is_well = False
        """Whether nothing is wrong, and nothing was before: then good results need no `judge`, and the state needs no update."""
        self.careful = careful
        """Whether something went wrong before this run, and no batch has succeeded since."""
        self._failed_at = 0.0
        self._clock = clock or time.monotonic
        self._held = HeldBackFiles(definition.errors, context.log, clock)
        # A store of files that blocks does so for all files.
        self._files_block_alone = definition.sink.has_topics and "{" in definition.record.topic
        self._connector_state = context.connector_state
        self._metrics = context.metrics
        self._log = context.log

    def for_source(self, results: Results) -> Results:
        """Returns the results as their source should see them: a `BlockedError` that is not the file's own does not hold that file back."""
        if self._files_block_alone or not any(isinstance(result.error, BlockedError) for result in results):
            return results
        return tuple(replace(result, error=_as_retriable(result.error)) for result in results)

    def judge(self, results: Results, begun: float) -> None:
        """Handles the saved results of a batch that was submitted at `begun`. Raises what ends the connector.

        The success of a batch that was already in flight when another failed does not end the back-off.
        """
        for one in (one for result in results for one in result.rejections):
            where: dict[str, Any] = {"record": one.record} if one.record else {}
            where |= {} if one.by_record else {"start": one.start, "end": one.end}
            self._log.warning("bad record", path=one.path, **where, stage=one.stage, why=one.reason)
        for failed in (one for result in results for one in result.step_failures):
            where = {} if failed.by_record else {"start": failed.start, "end": failed.end}
            became = "kept as it was" if failed.kept else "dropped"
            self._log.warning("a step failed", path=failed.path, record=failed.record, **where, record_is=became, why=failed.reason)
        held = held_back(results) if self._files_block_alone else None
        error = worst(results) if held is None else None
        if isinstance(error, RetriableError):
            self.retry(error)
        elif error is not None:
            raise error
        elif begun >= self._failed_at:
            self.backoff.succeeded()
            self.careful = False
        if held is not None:
            self._metrics.retries += 1
            self.is_well = False
            self._held.add(held)

    def not_saved(self, error: RetriableError) -> None:
        """Notes that offsets could not be saved: nothing is planned until they are. Raises FatalError when errors.retry_timeout is over."""
        self._metrics.count_error("save", type(error).__name__)
        self._connector_state.save_error = str(error)
        self.retry(error)
        self.save_at = self.backoff.retry_at

    def saved(self) -> None:
        """Notes that offsets are saved."""
        if self._connector_state.save_error:
            self._connector_state.save_error = ""
            self.backoff.succeeded()

    def retry(self, error: RetriableError) -> None:
        """Backs off before another attempt. Raises FatalError when errors.retry_timeout is over."""
        self.is_well, self._failed_at = False, self._clock()
        wait = self.backoff.failed(error)
        state = State.BLOCKED if isinstance(error, BlockedError) else State.RETRYING
        if (state, str(error)) != self._connector_state.now[:2]:
            self._log.warning("connector backs off", why=error.message, hint=error.hint, retry_s=round(wait, 1))
            self._connector_state.become(state, str(error))
        self._metrics.retries += 1

    def update_state(self, blocked_files: int, trouble: RetriableError | None = None) -> None:
        """Sets the state: RUNNING, or BLOCKED while the source holds single files back. With `trouble`: BLOCKED or RETRYING."""
        if self.backoff.active:
            return
        if not blocked_files:
            self._held.release()
        self.is_well = not (self.careful or blocked_files or trouble or self._connector_state.save_error)
        if trouble is not None:
            self._connector_state.become(State.BLOCKED if isinstance(trouble, BlockedError) else State.RETRYING, str(trouble))
            return
        self._connector_state.become(State.BLOCKED if self._held.reason else State.RUNNING, self._held.reason)

    def retry_now(self) -> None:
        """Ends all waits, because a person wants another attempt now."""
        self.backoff.retry_at = self.save_at = 0.0

    def begin_anew(self) -> None:
        """Forgets earlier errors, after a pause."""
        self.backoff.succeeded()
        self.save_at, self.is_well = 0.0, False


class Restarts:
    """The restarts of one connector."""

    def __init__(self) -> None:
        self.pause_seconds = 0.0
        """The wait before the next start; 0 before the first one."""
        self._bugs: list[float] = []

    def ended(self, begun: float) -> float:
        """Notes that a run begun at `begun` (`time.monotonic()`) ended by an error that may pass. Returns the wait, which grows."""
        shortest, longest = RESTART_SECONDS
        steady = time.monotonic() - begun > STEADY_SECONDS
        self.pause_seconds = shortest if steady or not self.pause_seconds else min(longest, 2 * self.pause_seconds)
        return self.pause_seconds

    def should_give_up(self, error: Exception, *, has_sent: bool) -> bool:
        """Returns whether to give up after repeated bugs. OSError and shortages, which may pass, count only if something was sent."""
        if has_sent or not (isinstance(error, OSError) or lacking(error)):
            now = time.monotonic()
            self._bugs = [*(at for at in self._bugs if at > now - BUGS_SECONDS), now]
        return len(self._bugs) >= BUGS_MAX
