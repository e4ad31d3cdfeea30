"""The worker: runs the connectors of a set of definitions, replaces the set on a reload, and performs operations on each connector."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from copycat_agent import logs
from copycat_agent.delivery.exactly_once.opening_attempts import MakeKafkaAccess, kafka_access
from copycat_agent.delivery.guarantees import Deliveries
from copycat_agent.errors import BusyError, CopycatError, UnknownConnectorError
from copycat_agent.worker.connector import STUCK_SECONDS, Connector, Predecessors, any_hangs
from copycat_agent.worker.context import WorkerServices
from copycat_agent.worker.handle import ConnectorHandle, Target, TargetStates
from copycat_agent.worker.poll_loop import PollLoop
from copycat_agent.worker.status import State, Status

if TYPE_CHECKING:
    from copycat_agent.executor import Executor
    from copycat_agent.model import Sample
    from copycat_agent.offsets import OffsetStore
    from copycat_agent.options import Definition
    from copycat_agent.sources import DescriptorStore, FileView, Source
    from copycat_agent.watch import Watcher

STOP_SECONDS = 15.0
"""How long connectors that are stopped may take to have their in-flight records acknowledged."""
LEAVE_SECONDS = 3.0
"""How much longer a connector may take to close its files. One that hangs in a file system is abandoned."""
START_SECONDS = 10.0
"""How long an operation waits for a connector's first look at its directories."""

_log = logs.get("worker")


class Worker:
    """Owns the connectors. Every method is thread-safe; operations run one after the other, queries wait for none of them."""

    def __init__(  # noqa: PLR0913 - the tools of all connectors
        self,
        store: OffsetStore,
        executor: Executor,
        watcher: Watcher,
        *,
        until_idle: bool = False,
        accounts: bool = False,
        make_source: Callable[..., Source] | None = None,
        tracked: bool = False,
        make_access: MakeKafkaAccess = kafka_access,
        keeper: DescriptorStore | None = None,
    ) -> None:
        """`until_idle`: connectors end when everything that is there is read; those that were paused or stopped are left out.

        `accounts`, `make_source`, `tracked`, `keeper`: see `context.WorkerServices`; `make_access`: see `Deliveries`.
        """
        deliveries = Deliveries(store, keeps_accounts=accounts, make_access=make_access)
        self._tools = WorkerServices(
            store=store,
            executor=executor,
            watcher=watcher,
            deliveries=deliveries,
            loop=PollLoop(),
            accounts=accounts,
            make_source=make_source,
            tracked=tracked,
            keeper=keeper,
            until_idle=until_idle,
        )
        self._store = store
        self._handles: dict[str, ConnectorHandle] = {}  # replaced, never changed: read without the lock
        self._leaving: list[Connector] = []  # replaced, never changed: `hung` reads it without the lock
        self._targets = TargetStates(store)
        self._operation = threading.RLock()
        self._changed = threading.Condition()
        self._stopping = False
        self._told_stuck: set[str] = set()

    def apply(
        self,
        definitions: Iterable[Definition],
        renames: Mapping[str, Sequence[str]] | None = None,
        earlier: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Runs exactly these definitions: equal ones go on untouched, others are drained and replaced, those not named are drained.

        All of this runs in parallel: no connector waits for another one's drain. `renames`: by new name, the names (not among the
        definitions) whose offsets it takes over before it begins. `earlier`: names that only Kafka may still know (`LaneOpener`).
        """
        renames, earlier = renames or {}, earlier or {}
        with self._operation:
            if self._stopping:
                return
            wanted = {definition.name: definition for definition in definitions}
            before = self._handles
            leaving = {name: handle for name, handle in before.items() if wanted.get(name) != handle.definition or name in renames}
            self._ask_to_stop(leaving.values(), time.monotonic() + STOP_SECONDS)
            handles = {name: handle for name, handle in before.items() if name not in leaving}
            new = {
                name: self._handle(definition, before.get(name), tuple(renames.get(name, ())), tuple(earlier.get(name, ())))
                for name, definition in wanted.items()
                if name not in handles
            }
            self._handles = dict(sorted((handles | new).items()))
            for name, handle in new.items():
                if self._tools.accounts and handle.definition.enabled:
                    self._store.open_accounts(name)
                self._begin(handle)
            for name in leaving.keys() - wanted.keys():
                leaving[name].taps.close()
            self._drain(leaving.values(), STOP_SECONDS)
            self._take_over_now(new.values())

    def expect(self, name: str, target: Target) -> None:
        """Sets the target of a connector that will be defined; it replaces the target of a former connector of this name."""
        with self._operation:
            self._targets.set(name, target)

    def statuses(self) -> tuple[Status, ...]:
        """Returns the status of every connector, by name."""
        return tuple(handle.status for handle in self._handles.values())

    def states(self) -> Counter[State]:
        """Counts enabled connectors by state. Called twice a second: making a thousand statuses each time would cost noticeably."""
        return Counter(handle.state for handle in self._handles.values() if handle.definition.enabled)

    def status(self, name: str) -> Status:
        """Returns the status of one connector. Raises UnknownConnectorError."""
        return self._find(name).status

    def definitions(self) -> dict[str, Definition]:
        """Returns the definitions of all connectors, also of stopped ones, by name."""
        return {name: handle.definition for name, handle in self._handles.items()}

    def definition(self, name: str) -> Definition:
        """Returns one definition. Raises UnknownConnectorError."""
        return self._find(name).definition

    def files(self, name: str) -> tuple[FileView, ...]:
        """Returns its source's files, empty when it does not run. Raises UnknownConnectorError, and BusyError without an answer."""
        connector = self._find(name).connector
        return (connector.ask(lambda source: source.files()) if connector else None) or ()

    def tap(self, name: str, limit: int, seconds: float) -> Iterator[Sample]:
        """Yields up to `limit` records as they are sent from now on, for at most `seconds`. Raises UnknownConnectorError."""
        return self._find(name).taps.open(limit, seconds)

    @property
    def offsets_unsaved(self) -> str:
        """Returns why offsets cannot be saved at the moment, "" when they can."""
        running = (handle.connector for handle in self._handles.values() if handle.runs)
        return next((one.offsets_unsaved for one in running if one and one.offsets_unsaved), "")

    @property
    def stuck(self) -> tuple[str, ...]:
        """Returns the names of the connectors that hang, mostly in a file system."""
        if not any_hangs(self._tools.loop):  # asked every second: to ask each of a thousand connectors would cost 0.2 % of a core
            return ()
        return tuple(name for name, handle in self._handles.items() if handle.connector and handle.connector.hangs)

    def hung(self, names: Collection[str]) -> set[str]:
        """Returns which of these connectors touch a mount that does not answer. Has the mounts of the others asked, for the next call."""
        mounts = self._tools.loop.mounts
        running = [handle.connector for name in names if (handle := self._handles.get(name)) and handle.connector]
        connectors = [*running, *(one for one in self._leaving if one.definition.name in names)]
        found = {one.definition.name for one in connectors if mounts.hung_seconds(one.mount_user)}
        if others := [one.mount_user for one in connectors if one.definition.name not in found]:
            mounts.ask(others)
        return found

    def tell_of_hangs(self) -> None:
        """Logs once of each connector that it hangs, and when it no longer does. Called by one thread, every now and then."""
        self._tools.loop.look_at_slow_steps()
        stuck = set(self.stuck)
        for name in stuck - self._told_stuck:
            hint = "a file system that it reads from may hang; the other connectors go on"
            _log.warning("connector hangs", connector=name, why=f"its present step has taken more than {STUCK_SECONDS:.0f} s", hint=hint)
        for name in self._told_stuck - stuck:
            _log.info("connector no longer hangs", connector=name)
        self._told_stuck = stuck

    def started(self) -> bool:
        """Returns whether every connector has looked at its directories once, or does not run."""
        return all(handle.state is not State.STARTING for handle in self._handles.values())

    def pause(self, name: str) -> Status:
        """Reads nothing new, settles what is in flight, keeps files open. Starts a stopped connector as paused; a failed one stays so."""
        with self._operating(name) as handle:
            self._aim(handle, "paused")
            if handle.runs and handle.connector:
                handle.connector.pause()
            elif handle.state is not State.FAILED:
                self._begin(handle)
            self._await(lambda: handle.state in {State.PAUSED, State.FAILED, State.STOPPED}, STOP_SECONDS)
            return handle.status

    def resume(self, name: str) -> Status:
        """Resumes a connector, also one that was stopped or failed; one that waits before a retry tries now."""
        with self._operating(name) as handle:
            self._aim(handle, "running")
            if handle.runs and handle.connector:
                handle.connector.resume()
            else:
                self._begin(handle)
            self._await(lambda: handle.state not in {State.STARTING, State.PAUSED}, START_SECONDS)
            return handle.status

    def halt(self, name: str) -> Status:
        """Stops a connector: settles what is in flight and closes everything. Also allowed when it is disabled or failed."""
        with self._operating(name, disabled_too=True) as handle:
            if handle.definition.enabled:
                self._aim(handle, "stopped")
                self._stop_all([handle])
            return handle.status

    def restart(self, name: str) -> Status:
        """Stops and starts a connector, also when it failed or was stopped; a paused one is paused again afterwards."""
        with self._operating(name) as handle:
            self._stop_all([handle])
            if handle.target == "stopped":
                self._aim(handle, "running")
            self._begin(handle)
            self._await(lambda: handle.state is not State.STARTING, START_SECONDS)
            return handle.status

    @contextmanager
    def at_rest(self, *names: str, force: bool) -> Iterator[None]:
        """Keeps these connectors stopped, and reloads out, while the context lasts. The names need not be known.

        Raises BusyError if one of them runs; with `force` it is stopped, and started again afterwards.
        """
        with self._operation:
            self._refuse_when_stopping()
            running = [handle for name in names if (handle := self._handles.get(name)) and handle.runs]
            if running and not force:
                name = running[0].definition.name
                raise BusyError(f"connector {name} is {running[0].state}", f"stop it first: copycat ctl stop {name}, or use --force")
            self._stop_all(running)
            try:
                self._refuse_those_left_behind(names)
                yield
            finally:
                for handle in running:
                    self._begin(handle)

    def rename_offsets(self, old: str, new: str, *, force: bool) -> int:
        """Moves everything that is saved for `old` to `new`, its target included; returns how many offsets moved.

        See `OffsetStore.rename` and `at_rest`. A connector `old` that is still defined keeps its target: without its offsets it would read
        everything again.
        """
        with self.at_rest(old, new, force=force):
            count = self._store.rename(old, new)
            self._targets.rename(old, new)
            if new in self._handles:
                self._handles[new].target = self._targets.of((new,))
            if old in self._handles and self._handles[old].target != "running":
                self._targets.set(old, self._handles[old].target)
            return count

    def wait(self, seconds: float) -> bool:
        """Waits until all connectors have ended by themselves, at most `seconds`. Returns whether they have."""
        return self._await(lambda: not any(handle.runs for handle in self._handles.values()), seconds)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Stops reading, settles what is in flight within `seconds`, commits, ends all threads. It is final: no operation follows."""
        self._stopping = True
        deadline = time.monotonic() + seconds
        for one in [*self._leaving, *(handle.connector for handle in self._handles.values() if handle.connector)]:
            one.stop(deadline)  # before the lock, so that an operation under way ends sooner
        with self._changed:
            self._changed.notify_all()
        with self._operation:
            handles = self._handles.values()
            self._ask_to_stop(handles, deadline)
            self._drain(handles, seconds)
            for one in (one for one in self._leaving if not one.definition.sink.has_topics):
                one.join(deadline - time.monotonic())
            for handle in handles:
                handle.taps.close()
            self._tools.loop.close()

    def _find(self, name: str) -> ConnectorHandle:
        handle = self._handles.get(name)
        if handle is None:
            known = ", ".join(self._handles) or "none"
            raise UnknownConnectorError(f"there is no connector {name}", f"connectors of this agent: {known}")
        return handle

    @contextmanager
    def _operating(self, name: str, *, disabled_too: bool = False) -> Iterator[ConnectorHandle]:
        with self._operation:
            self._refuse_when_stopping()
            handle = self._find(name)
            if not handle.definition.enabled and not disabled_too:
                raise BusyError(f"connector {name} is disabled by its definition", "set enabled: true there, then: copycat ctl reload")
            yield handle

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise BusyError("the agent is stopping")

    def _refuse_those_left_behind(self, names: Sequence[str]) -> None:
        hanging = [one for one in self._leaving if not one.ended and one.definition.name in names]
        if hanging:
            hint = "it still writes files, or its files lie on a file system that hangs; try again, or restart the agent"
            raise BusyError(f"connector {hanging[0].definition.name} has not ended yet", hint)

    def _handle(
        self, definition: Definition, before: ConnectorHandle | None, inherit: tuple[str, ...], earlier: tuple[str, ...]
    ) -> ConnectorHandle:
        handle = ConnectorHandle(definition, self._targets.of((definition.name, *inherit)), inherit, earlier)
        if before is not None:
            handle.metrics, handle.taps = before.metrics, before.taps
            handle.inherit = inherit or before.inherit
        return handle

    def _aim(self, handle: ConnectorHandle, target: Target) -> None:
        """Sets and saves the target of a connector."""
        if handle.target != target:
            handle.target = target
            self._targets.set(handle.definition.name, target)

    def _begin(self, handle: ConnectorHandle) -> None:
        """Starts a connector, unless it is disabled or its target is stopped. What ran before under its name ends first."""
        if self._stopping or not handle.definition.enabled or handle.target == "stopped":
            return
        if self._tools.until_idle and handle.target == "paused":
            return
        names = {handle.definition.name, *handle.inherit, *handle.earlier}
        mounts = self._tools.loop.mounts  # while one hangs, `hung` has to know whose batches may be in it
        self._leaving = [one for one in self._leaving if not one.ended or mounts.hung_seconds(one.mount_user)]
        still_running = tuple(one for one in self._leaving if not one.ended and one.definition.name in names)
        connector = Connector(
            handle.definition,
            self._tools,
            handle.metrics,
            handle.taps,
            Predecessors(still_running, lambda: self._take_over(handle), handle.earlier),
            paused=handle.target == "paused",
            on_change=self._tell,
        )
        connector.start()  # first: one that cannot be started would count as running
        handle.connector = connector

    def _take_over(self, handle: ConnectorHandle) -> None:
        """Takes over the offsets of its earlier names. Called before it begins; raises what the store raises."""
        name = handle.definition.name
        for old in handle.inherit:
            count = self._store.rename(old, name)
            _log.info("offsets taken over", connector=name, renamed_from=old, partitions=count)
            self._targets.rename(old, name)
            if self._tools.keeper is not None:
                self._tools.keeper.rename(old, name)
        handle.inherit = ()

    def _take_over_now(self, handles: Iterable[ConnectorHandle]) -> None:
        """Takes over offsets for connectors that do not begin now, too."""
        for handle in handles:
            if handle.inherit and handle.connector is None:
                try:
                    self._take_over(handle)
                except CopycatError as error:
                    _log.warning("offsets could not be taken over yet", connector=handle.definition.name, why=str(error))

    def _ask_to_stop(self, handles: Iterable[ConnectorHandle], deadline: float) -> None:
        """Asks running connectors to stop. Called under the lock of operations."""
        for handle in handles:
            if handle.connector and handle.runs:
                handle.connector.stop(deadline, final=self._stopping)
                if handle.connector not in self._leaving:
                    self._leaving = [*self._leaving, handle.connector]

    def _drain(self, handles: Iterable[ConnectorHandle], seconds: float) -> None:
        """Waits for the end of connectors that were asked to stop."""
        deadline = time.monotonic() + seconds + LEAVE_SECONDS
        for handle in handles:
            if not handle.connector or handle.connector.join(deadline - time.monotonic()):
                continue
            name, hint = handle.definition.name, "its files may lie on a file system that hangs"
            if handle.definition.sink.has_topics or self._stopping:
                _log.error("connector did not end in time and is abandoned", connector=name, hint=hint)
            else:
                _log.warning("connector still writes files; what replaces it waits for that", connector=name)

    def _stop_all(self, handles: Sequence[ConnectorHandle]) -> None:
        self._ask_to_stop(handles, time.monotonic() + STOP_SECONDS)
        self._drain(handles, STOP_SECONDS)

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._stopping, seconds)
        return condition()

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
