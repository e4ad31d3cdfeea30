"""What a connector makes of trouble: how long it waits, what it says meanwhile, and when all is well again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from copycat_agent.backoff import Backoff
from copycat_agent.errors import BlockedError, RetriableError
from copycat_agent.worker.held_files import HeldFiles
from copycat_agent.worker.status import State
from copycat_agent.worker.verdict import for_source, held_back, worst

if TYPE_CHECKING:
    from copycat_agent.logs import Log
    from copycat_agent.options import Definition
    from copycat_agent.worker.connector_metrics import ConnectorMetrics
    from copycat_agent.worker.connector_state import ConnectorState
    from copycat_agent.worker.verdict import Results


class RetryPolicy:
    """For one run of a connector, from its thread. Trouble of single files is the source's; what is left here is everyone's."""

    def __init__(
        self, definition: Definition, connector_state: ConnectorState, metrics: ConnectorMetrics, log: Log, *, careful: bool = False
    ) -> None:
        """`careful`: something has gone wrong before, so begin with a small batch."""
        self.backoff = Backoff(definition.errors)
        self.save_at = 0.0
        """When what could not be saved is tried again."""
        self._held = HeldFiles(definition.errors, log)
        self._files_block_alone = "{" in definition.record.topic
        self._connector_state = connector_state
        self._metrics = metrics
        self._log = log
        self._careful = careful

    @property
    def careful(self) -> bool:
        """Whether the next batch is an attempt: small, and one at a time."""
        return self._careful or self.backoff.active

    @property
    def retry_at(self) -> float:
        """When the next batch may be planned."""
        return self.backoff.retry_at

    def for_source(self, results: Results) -> Results:
        """The results as the source should see them, see `verdict.for_source`."""
        return for_source(results, files_block_alone=self._files_block_alone)

    def judge(self, results: Results) -> None:
        """A batch is over and saved. Raises what ends the connector."""
        for one in (one for result in results for one in result.rejections):
            where: dict[str, Any] = {} if one.by_record else {"start": one.start, "end": one.end}
            self._log.warning("bad record", path=one.path, record=one.record, **where, stage=one.stage, why=one.reason)
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
        else:
            self.backoff.succeeded()
            self._careful = False
        if held is not None:
            self._metrics.retries += 1
            self._held.add(held)

    def not_saved(self, error: RetriableError) -> None:
        """Offsets could not be saved: nothing is planned until they are. Raises FatalError when errors.retry_timeout is over."""
        self._metrics.count_error("save", type(error).__name__)
        self._connector_state.unsaved = str(error)
        self.retry(error)
        self.save_at = self.backoff.retry_at

    def saved(self) -> None:
        """Offsets are saved."""
        if self._connector_state.unsaved:
            self._connector_state.unsaved = ""
            self.backoff.succeeded()

    def retry(self, error: RetriableError) -> None:
        """It has to be tried again. Raises FatalError when errors.retry_timeout is over."""
        wait = self.backoff.failed(error)
        state = State.BLOCKED if isinstance(error, BlockedError) else State.RETRYING
        if (state, str(error)) != self._connector_state.now[:2]:
            self._log.warning("connector backs off", why=error.message, hint=error.hint, retry_s=round(wait, 1))
            self._connector_state.become(state, str(error))
        self._metrics.retries += 1

    def go_on(self, blocked_files: int, trouble: RetriableError | None = None) -> None:
        """The connector works: RUNNING, or BLOCKED as long as the source holds single files back. `trouble` holds up some of its tasks."""
        if self.backoff.active:
            return
        if not blocked_files:
            self._held.release()
        if trouble is not None:
            self._connector_state.become(State.BLOCKED if isinstance(trouble, BlockedError) else State.RETRYING, str(trouble))
            return
        self._connector_state.become(State.BLOCKED if self._held.reason else State.RUNNING, self._held.reason)

    def end(self) -> None:
        """Do not wait: a person wants it tried now."""
        self.backoff.retry_at = self.save_at = 0.0

    def begin_anew(self) -> None:
        """A pause is over: what was wrong before it is forgotten."""
        self.backoff.succeeded()
        self.save_at = 0.0
