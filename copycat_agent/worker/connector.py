"""One connector from start to end: it is started, restarted after non-fatal errors, and stopped on request or when it has failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeVar

from copycat_agent import logs
from copycat_agent.definitions.source_rules import places_of
from copycat_agent.delivery.base import Callbacks, Delivery, Opening
from copycat_agent.errors import BusyError, CopycatError, RetriableError, bug_words
from copycat_agent.model import Counts
from copycat_agent.options import Definition
from copycat_agent.sources import Source
from copycat_agent.worker.connector_io import ConnectorIO
from copycat_agent.worker.context import ConnectorContext, RestartKeeper, WorkerServices
from copycat_agent.worker.machine import ConnectorMachine
from copycat_agent.worker.mounts import ConnectorMounts
from copycat_agent.worker.orders import ConnectorCommands, Taps
from copycat_agent.worker.poll_loop import PollLoop, ScheduledConnector, Steps, Wait
from copycat_agent.worker.retry_policy import BUGS_MAX, Restarts, RetryPolicy
from copycat_agent.worker.status import ConnectorMetrics, ConnectorState, CurrentState, State, Status

T = TypeVar("T")
TELL_SECONDS = 1.0
"""A wait for the predecessor is reported once it takes longer."""
AFTER = "waits until the previous run under this name has ended"
"""The reason of a connector that waits for its predecessor."""
OPENING_SECONDS = 0.2
"""Time between two checks of a delivery that is being opened."""
STUCK_SECONDS = 120.0
"""Longer than any step of a connector may take: a step that takes this long hangs, mostly in a file system."""
HANGS = "it has hung for a while, probably in a file system that it reads from; it resumes by itself once that answers"
"""The reason of a connector that hangs."""
NO_ANSWER = "the file system at {} does not answer: it goes on by itself when that does"
"""The reason of a connector whose mount hangs, whether its step hangs there or is held back."""
ANSWER_SECONDS = 2.0
"""How long a connector that works may take to answer a question."""


class Predecessors(NamedTuple):
    """The preparation of a connector: it waits until those in `still_running` have ended.

    Then `prepare` is called, again while it raises. `earlier` are names under which Kafka may know the connector when the store does not.
    """

    still_running: tuple[Connector, ...] = ()
    prepare: Callable[[], None] = lambda: None
    earlier: Sequence[str] = ()


class Connector:
    """A definition and its runs, step by step, in the poll loop. Public methods are thread-safe.

    After a bug it is restarted with growing pauses (`Restarts`); a bug while offsets are saved fails it at once, and a FatalError waits for
    a person. One that hangs is abandoned: its successor begins when it has ended, never beside it.
    """

    def __init__(
        self,
        definition: Definition,
        tools: WorkerServices,
        metrics: ConnectorMetrics,
        taps: Taps,
        before: Predecessors | None = None,
        *,
        paused: bool = False,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when the state changes and when it has ended."""
        self.definition = definition
        self._tools = tools
        self._metrics = metrics
        self._taps = taps
        self._before = before or Predecessors()
        self._on_change = on_change
        self._log = logs.get("connector").bind(connector=definition.name)
        self._orders = ConnectorCommands(paused=paused)
        self._connector_state = ConnectorState(self._log, on_change)
        self._machine: ConnectorMachine | None = None
        self._restarts = Restarts()
        self._keeper = RestartKeeper(tools.keeper, lambda: self._orders.stop_at is not None)
        self._running: ScheduledConnector | None = None
        self.mount_user = ConnectorMounts((*places_of(definition.source), *definition.sink.places))
        self._ended = threading.Event()

    @property
    def status(self) -> Status:
        """Returns its present status."""
        now, metrics, machine = self._now, self._metrics, self._machine
        return Status(
            self.definition.name,
            state=now.state,
            reason=now.reason,
            since=now.since,
            counts=metrics.counts,
            lag=metrics.lag,
            retries=metrics.retries,
            acknowledged_at=metrics.acknowledged_at,
            unsaved=self._connector_state.left_unsaved,
            tasks=machine.tasks if machine else 0,
            commit_seconds=metrics.commit_seconds,
            delivery_seconds=metrics.delivery_seconds,
            clients=metrics.clients,
            errors=metrics.errors,
            guarantee=self.definition.promise,
            sink=self.definition.sink.type,
            delivery_outcomes=metrics.delivery_outcomes,
            **(machine.delivery_view._asdict() if machine else {}),
        )

    @property
    def state(self) -> State:
        """Returns the state alone."""
        return self._now.state

    @property
    def _now(self) -> CurrentState:
        """Returns the state that it has set, or BLOCKED while it hangs and cannot set any."""
        if not self.ended and (seconds := self._tools.loop.mounts.hung_seconds(self.mount_user)):
            return CurrentState(State.BLOCKED, NO_ANSWER.format(self.mount_user.mount), time.time() - seconds)
        if self.hangs:
            return CurrentState(State.BLOCKED, HANGS, time.time() - self.busy_seconds)
        return self._connector_state.now

    @property
    def offsets_unsaved(self) -> str:
        """Returns why offsets cannot be saved at the moment, "" when they can."""
        return self._connector_state.save_error

    @property
    def busy_seconds(self) -> float:
        """Returns how long its present step has been under way; while it waits for its predecessor, also that one's."""
        since = self._running.busy_since if self._running else None
        own = 0.0 if since is None else time.monotonic() - since
        return max([own, *(one.busy_seconds for one in self._before.still_running if not one.ended)])

    @property
    def hangs(self) -> bool:
        """Returns whether its present step has taken longer than any may."""
        return not self.ended and self.busy_seconds > STUCK_SECONDS

    @property
    def ended(self) -> bool:
        """Returns whether it has ended."""
        return self._ended.is_set()

    def start(self) -> None:
        """Starts the connector. Called once."""
        self._running = self._tools.loop.start(self._run(), self._orders.wake, self.mount_user)

    def stop(self, deadline: float, *, final: bool = True) -> None:
        """Stops reading now; settles what is in flight until `deadline` (`time.monotonic()`). Returns at once.

        Unless the stop is `final`, one that writes files ends only after its batches, which the executor bounds: a successor with another
        name or address would write what they claim later once more.
        """
        self._orders.stop(deadline, final=final)

    def join(self, seconds: float) -> bool:
        """Waits for the end of the connector, after `stop` or by itself. Returns whether it has ended."""
        return self._ended.wait(max(0.0, seconds))

    def pause(self) -> None:
        """Reads nothing new, settles what is in flight, keeps files open. Returns at once."""
        self._orders.pause()

    def resume(self) -> None:
        """Ends a pause, and any back-off. Returns at once."""
        self._orders.resume()

    def ask(self, question: Callable[[Source], T], seconds: float = ANSWER_SECONDS) -> T | None:
        """Returns the answer of `question`, called with the source between two steps; None when there is no source now.

        Raises BusyError when there is no answer within `seconds`.
        """
        answer = self._orders.ask(question)
        try:
            return answer.result(seconds)  # type: ignore[no-any-return]
        except TimeoutError:
            raise BusyError(f"connector {self.definition.name} is busy and did not answer within {seconds:g} s", "try again") from None

    def _run(self) -> Steps:
        try:
            if (yield from self._wait_for_those_before()):
                self._connector_state.become(State.STARTING)
                while (yield from self._run_once()) and (yield from self._rest()):
                    pass
            if self._connector_state.state is not State.FAILED:
                self._connector_state.become(State.STOPPED)
        finally:
            try:
                self._tools.watcher.unwatch(self._orders.wake)
            finally:  # whatever happened: its successor waits for this
                self._orders.close()
                self._keeper.close()
                self._ended.set()
                self._on_change()

    def _wait_for_those_before(self) -> Generator[Wait, None, bool]:
        """Waits for the predecessors: two must not plan from the same offsets. Returns False when a stop was requested meanwhile."""
        begun = time.monotonic()
        while self._orders.stop_at is None:
            self._before = self._before._replace(still_running=tuple(one for one in self._before.still_running if not one.ended))
            if not self._before.still_running:
                return True
            if time.monotonic() - begun > TELL_SECONDS:
                self._connector_state.become(State.STARTING, AFTER)
            yield from self._orders.rest(0.05)
        return False

    def _run_once(self) -> Generator[Wait, None, bool]:
        """Runs once, from opening to closing. Returns whether to start it again."""
        begun = time.monotonic()
        try:
            self._before.prepare()
            context = ConnectorContext(self._orders, self._connector_state, self._metrics, self._taps, self._log, self._keeper)
            delivery = yield from self._open(context)
            if delivery is None:
                return False
            careful = self._restarts.pause_seconds > 0
            try:
                connector_io = ConnectorIO(self.definition, self._tools, context, delivery)
            except BaseException:
                delivery.close()
                raise
            self._machine = ConnectorMachine(
                self.definition, connector_io.source, delivery, context, begun, until_idle=self._tools.until_idle, careful=careful
            )
            yield from connector_io.carry_out(self._machine.run())
        except RetriableError as error:
            self._restart_after(begun, str(error))
        except CopycatError as error:
            if self._tools.store.failure is None:
                self._remember(error)
            self._fail(error.message, error.hint)
            return False
        except Exception as error:  # noqa: BLE001 - a bug in one connector must not take the others with it
            self._log.debug("unexpected error", error=error)
            self._metrics.count_error("connector", type(error).__name__)
            words = bug_words(error)
            if self._tools.until_idle:
                self._fail(words, "please report it")
                return False
            has_sent = self._machine is not None and self._machine.has_results
            if self._restarts.should_give_up(error, has_sent=has_sent):
                hint = f"please report it; to try again: copycat ctl restart {self.definition.name}"
                self._fail(f"{words}; so it ended {BUGS_MAX} times within an hour", hint)
                return False
            self._restart_after(begun, f"{words}; please report it")
        else:
            return False
        finally:
            self._machine = None
        return True

    def _open(self, context: ConnectorContext) -> Generator[Wait, None, Delivery | None]:
        """Returns the connector's open delivery; None when a stop was requested meanwhile. Raises what ends the connector.

        The state is STARTING meanwhile, or RETRYING or BLOCKED while Kafka prevents it.
        """
        orders, connector_state = self._orders, self._connector_state
        callbacks = Callbacks(self._metrics.count_outcome, self._count_recovered, orders.wake.wakeup, self._log)
        retry_policy = RetryPolicy(self.definition, context)
        opening: Opening | None = None
        delivery: Delivery | None = None
        try:
            while orders.stop_at is None:
                try:
                    opening = opening or self._tools.deliveries.open(self.definition, callbacks, self._before.earlier)
                    delivery = opening.advance()
                except RetriableError as error:
                    self._metrics.count_error("open", type(error).__name__)
                    retry_policy.retry(error)
                    yield from orders.rest(max(retry_policy.backoff.seconds_left(), opening.seconds_left() if opening else 0.0))
                    continue
                if delivery is not None:
                    return delivery
                orders.answer(None)
                if opening.doing and connector_state.state is State.STARTING:
                    connector_state.become(State.STARTING, opening.doing)
                yield Wait(time.monotonic() + OPENING_SECONDS)
        finally:
            if opening is not None and delivery is None:
                opening.cancel()
        return None

    def _count_recovered(self, counts: Counts) -> None:
        """Counts records of batches of this process whose outcome was unknown. Those that earlier processes sent do not count here."""
        if self._metrics.delivery_outcomes["openings"]:
            self._metrics.counts += counts

    def _remember(self, error: CopycatError) -> None:
        try:
            self._tools.deliveries.ended(self.definition, error)
        except CopycatError as unsaved:
            self._log.warning("the reason for the failure could not be saved; commands about positions will not show it", why=str(unsaved))

    def _restart_after(self, begun: float, reason: str) -> None:
        seconds = self._restarts.ended(begun)
        self._log.warning("connector ended and is started again", why=reason, retry_s=seconds)
        self._connector_state.become(State.RETRYING, f"{reason}; it is started again within {seconds:g} s")

    def _rest(self) -> Generator[Wait, None, bool]:
        """Waits for the next start. Returns False when a stop was requested."""
        go_on = yield from self._orders.rest(self._restarts.pause_seconds)
        if go_on:
            self._connector_state.become(State.STARTING, self._connector_state.now.reason)
        return go_on

    def _fail(self, message: str, hint: str) -> None:
        if self._tools.store.failure is None:  # otherwise nothing goes on, which the agent reports
            self._log.error("connector failed; the others go on", why=message, hint=hint)
        self._connector_state.become(State.FAILED, f"{message}; {hint}" if hint else message)


def any_hangs(loop: PollLoop) -> bool:
    """Returns whether any connector in the loop hangs."""
    return loop.longest_step() > STUCK_SECONDS
