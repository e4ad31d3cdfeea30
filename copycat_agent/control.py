"""The interface of a running agent for its socket, metrics and health.

`agent.Agent` is the `Control`; `api` serves it over HTTP, `metrics` reads it. Every method is thread-safe and may be called while data
flows. Methods that change something wait until it has happened and return the result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from copycat_agent.errors import Problem
from copycat_agent.model import Loss, LossReason, LossTotal, Sample, SavedRow, SourcePartition
from copycat_agent.offsets import OffsetStore
from copycat_agent.offsets.lanes import SavedLanes
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.sources import FileView
from copycat_agent.transactions.opening import Adopt
from copycat_agent.worker import Status, Worker
from copycat_agent.worker.handle import Target


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The outcome of a reload, connector by connector, by name.

    `changed` maps a name to the dotted options that differ (`record.topic`); `kept` maps a name whose file is broken to the reason why its
    last good version goes on (or, if it never loaded, is not run); `renamed` maps a new name to the old one whose offsets it took.
    `restart` names options of agent.yaml that differ and need a restart of the agent.
    """

    added: tuple[str, ...] = ()
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    restart: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    at: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether every file loads."""
        return not self.kept and not self.problems

    def lines(self) -> list[str]:
        """Returns the diff for people: `+ added`, `~ changed (options)`, `- removed`, `! kept: why`; nothing if nothing changed."""
        return [
            *(f"+ {name}" + (f" (offsets of {self.renamed[name]})" if name in self.renamed else "") for name in self.added),
            *(f"~ {name} ({', '.join(options)})" for name, options in self.changed.items()),
            *(f"- {name}" for name in self.removed),
            *(f"! {name}: {why}" for name, why in self.kept.items()),
            *(f"! agent.yaml: {option} changed; restart the agent" for option in self.restart),
        ]


@dataclass(frozen=True, slots=True)
class AgentView:
    """The agent as a whole. `spark` is the session's state; `offsets_unsaved` why offsets cannot be saved now, "" if they can.

    `reloads` counts reloads since the start by result: `ok` (every file loads) or `problems`. `stuck` names connectors whose loop is
    overdue by more than any of its steps may take: their file system may hang. `hangs`: what all connectors need has not answered for as
    long, and only a restart helps. `agent_file` is the agent.yaml that was read, "" without one; `overridden` names the dotted options that
    the command line set over it. `log_until` is when the log level of the start is restored, in epoch seconds, None if it is not;
    `log_changed` when it last changed. `page` is the address of the page for browsers, "" if it is not served. `master` is that of the
    cluster where tasks run, "" for this host.
    """

    version: str
    pid: int
    uuid: str
    started: float
    state_dir: str
    directory: str
    spark: str
    java_pid: int | None
    offsets_unsaved: str
    last_reload: ReloadResult | None
    stopping: bool = False
    reloads: Mapping[str, int] = field(default_factory=dict)
    stuck: tuple[str, ...] = ()
    hangs: bool = False
    agent_file: str = ""
    overridden: tuple[str, ...] = ()
    log_level: str = "info"
    log_until: float | None = None
    log_changed: float | None = None
    page: str = ""
    master: str = ""


class Control(ABC):
    """A running agent. Methods that take a name raise `UnknownConnectorError` if there is no such connector."""

    worker: Worker
    _store: OffsetStore

    @property
    @abstractmethod
    def options(self) -> AgentOptions:
        """The agent's present options."""

    @abstractmethod
    def view(self) -> AgentView:
        """Returns the agent's present state."""

    def statuses(self) -> tuple[Status, ...]:
        """Returns the status of every connector, by name, including those that are disabled, stopped or failed."""
        return self.worker.statuses()

    def status(self, name: str) -> Status:
        """Returns the status of one connector."""
        return self.worker.status(name)

    def definition(self, name: str) -> Definition:
        """Returns the definition that runs: after a broken change, the last good one."""
        return self.worker.definition(name)

    @abstractmethod
    def path(self, name: str) -> str:
        """Returns the file that holds the definition."""

    def files(self, name: str) -> tuple[FileView, ...]:
        """Returns the files that the connector follows, with its position in each. Empty if it does not run."""
        return self.worker.files(name)

    def tap(self, name: str, limit: int, seconds: float) -> Iterator[Sample]:
        """Yields up to `limit` records as they are sent from now on, for at most `seconds`. Slows nothing down; may skip records."""
        return self.worker.tap(name, limit, seconds)

    @abstractmethod
    def reload(self) -> ReloadResult:
        """Reads the definitions now and makes them run."""

    @abstractmethod
    def change_definition(self, name: str, before: bytes | None, content: bytes | None, target: Target | None = None) -> None:
        """Writes, changes or removes the file that defines a connector, and makes that run.

        `before`: the file's content that the caller has seen, None for a new connector. `content`: its new content, None to remove it; a
        file with comments or tests gets a name ending in `.disabled` instead. `target`: the state of the connector from its beginning on;
        None leaves it unchanged.

        Raises DefinitionError for content that `check` would refuse, BusyError if the file has changed meanwhile, and DataError for a name
        or a file that is not for this. Nothing has happened then.
        """

    @abstractmethod
    def set_log_level(self, level: str, seconds: float | None) -> AgentView:
        """Logs from this level up, for `seconds`; None: until the agent ends. It is not saved."""

    def pause(self, name: str) -> Status:
        """Stops reading, settles what is in flight, keeps files open. Persists over restarts of the agent."""
        return self.worker.pause(name)

    def resume(self, name: str) -> Status:
        """Ends a pause or a stop. A connector that failed is started again."""
        return self.worker.resume(name)

    def stop(self, name: str) -> Status:
        """Settles what is in flight and closes everything. Persists over restarts of the agent."""
        return self.worker.halt(name)

    def restart(self, name: str) -> Status:
        """Stops and starts again, also after a failure."""
        return self.worker.restart(name)

    def offset_connectors(self) -> tuple[str, ...]:
        """Returns the names with saved offsets, running or not."""
        return self._store.connectors()

    def offsets(self, name: str) -> Mapping[SourcePartition, SavedRow]:
        """Returns the saved offsets of a connector, and its state, running or not, known or not."""
        return self._store.saved(name)

    def set_offsets(self, name: str, offsets: Mapping[SourcePartition, SavedRow], *, force: bool = False) -> None:
        """Saves these over existing ones; others stay. Raises `BusyError` unless the connector is stopped.

        With `force` a running connector is stopped for it and continues afterwards.
        """
        assert all(partition.connector == name for partition in offsets), "offsets of another connector"
        with self.worker.at_rest(name, force=force):
            self._store.reset(offsets)

    def forget_offsets(self, name: str, partitions: Collection[SourcePartition] | None, *, force: bool = False) -> int:
        """Deletes these offsets, all of the connector's if None; returns how many. Otherwise as `set_offsets`.

        With None, Kafka's positions of the connector do not count any more either. `adopt_offsets` says what that means for a copied host.
        """
        if partitions is None:
            with self.worker.at_rest(*self._sharing_identity(name), force=force):
                return self._store.begin_anew(name)
        with self.worker.at_rest(name, force=force):
            chosen = self._store.saved(name).keys() & set(partitions)
            self._store.forget(chosen)
            return len(chosen)

    def offset_lanes(self, name: str) -> SavedLanes:
        """Returns the exactly-once lanes of a connector, running or not, known or not."""
        return self._store.lanes(name)

    def adopt_offsets(self, name: str, which: Adopt, *, agent: str = "", force: bool = False) -> str:
        """Decides which positions it continues from at its next start: "local" or "topic". Otherwise as `set_offsets`.

        `agent`: also those of the agent with that uuid, which is gone. On a host that is a copy, or was copied, "local" gives the agent an
        identity of its own and makes all its exactly-once connectors continue from their positions here, so none of them may run. Returns
        its uuid then, else "".
        """
        if agent:
            with self.worker.at_rest(name, force=force):
                self._store.take_over(name, agent)
            return ""
        with self.worker.at_rest(*(self._sharing_identity(name) if which == "local" else (name,)), force=force):
            return self._store.adopt(name, which)

    def rename_offsets(self, old: str, new: str, *, force: bool = False) -> int:
        """Gives the offsets of `old` to `new`; returns how many moved. Otherwise as `set_offsets`."""
        return self.worker.rename_offsets(old, new, force=force)

    def losses(self, name: str | None, limit: int) -> tuple[Loss, ...]:
        """Returns the latest entries of the loss ledger, newest first; of all connectors if None."""
        return self._store.losses(name, limit)

    def loss_totals(self) -> Mapping[tuple[str, LossReason], LossTotal]:
        """Returns the totals of everything ever lost, by connector and reason."""
        return self._store.loss_totals()

    def _sharing_identity(self, name: str) -> tuple[str, ...]:
        """Returns who must be stopped before this one abandons its positions in Kafka: all lanes, if the identity changes."""
        if not self._store.lanes(name).copied:
            return (name,)
        lanes = {one.name for one in self.worker.definitions().values() if one.delivery.guarantee == "exactly_once"}
        return tuple({name, *lanes})
