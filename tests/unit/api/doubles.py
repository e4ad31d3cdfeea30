"""An agent in memory: what `api` serves in these tests. Keeps the rules of `Control`: unknown names, and who is busy."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from copycat_agent.control import AgentView, Control, ReloadResult
from copycat_agent.definitions import load_content, load_directory
from copycat_agent.errors import BusyError, CopycatError, DefinitionError, UnknownConnectorError
from copycat_agent.model import BrokerView, ClientView, Counts, Loss, LossReason, LossTotal, Sample, SavedRow, SourcePartition
from copycat_agent.offsets.lanes import SavedLanes
from copycat_agent.options import AgentOptions, Definition
from copycat_agent.sources import FileView, Lag
from copycat_agent.transactions.opening import Adopt
from copycat_agent.worker import State, Status
from copycat_agent.worker.handle import Target

NOW = 1_763_776_800.0
CLIENT = ClientView(NOW, (BrokerView("k1:9092/1", "UP", 1.25),), 12, 3_400, 2)
SAMPLES = (
    Sample("logs.app", b"10.0.0.1", "größe".encode(), (("host", b"h1"), ("odd", b"\xff")), 1_763_776_800_000, "/var/log/app.log", 0, 7),
    Sample("logs.app", None, b"\xfe\x00", (), None, "/var/log/\udcff.log", 7, 9),
)


class MemoryControl(Control):
    """A `Control` over the definitions of a directory. `fail` is raised by the next question; `hold` delays changes until it is set."""

    options = AgentOptions()

    def __init__(self, directory: Path, agent: AgentOptions | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.options = agent or AgentOptions()
        self.directory = directory
        loaded = load_directory(directory, self.options, environ=environ)
        self.definitions, self.paths = loaded.definitions, loaded.paths
        self.states = {name: Status(name, State.RUNNING, since=NOW, counts=Counts(9, 900, 7, 1, 1), lag=Lag(50, 1, 2, 2), clients=(CLIENT,))
                       for name in self.definitions}  # fmt: skip
        self.saved: dict[SourcePartition, SavedRow] = {}
        self.lanes: dict[str, SavedLanes] = {}
        self.adopted: list[tuple[str, Adopt, str]] = []
        self.gate: dict[str, threading.Event] = {}
        self.fail: Exception | None = None
        self.tapped = 0
        self.hold = threading.Event()
        self.hold.set()
        self.under_way = 0
        self.samples: tuple[Sample, ...] = SAMPLES
        self.agent_file = ""
        self.page = ""
        self.log: tuple[str, float | None] = ("info", None)
        self.log_changed: float | None = None

    def view(self) -> AgentView:
        if self.fail:
            raise self.fail
        seen = {"agent_file": self.agent_file, "page": self.page, "log_changed": self.log_changed}
        return AgentView("0", 7, "u", NOW, "/state", str(self.directory), "up", 8, "", None, **seen)  # type: ignore[arg-type]

    def statuses(self) -> tuple[Status, ...]:
        return tuple(self.states[name] for name in sorted(self.states))

    def status(self, name: str) -> Status:
        if name not in self.states:
            raise UnknownConnectorError(f"there is no connector {name}", "see: copycat ls")
        return self.states[name]

    def definition(self, name: str) -> Definition:
        self.status(name)
        return self.definitions[name]

    def path(self, name: str) -> str:
        self.status(name)
        return str(self.paths[name])

    def files(self, name: str) -> tuple[FileView, ...]:
        self.status(name)
        return tuple(FileView(f"/var/log/{number}.log", str(number), 5, 10, 1, "following", True) for number in range(3))

    def tap(self, name: str, limit: int, seconds: float) -> Iterator[Sample]:
        self.status(name)
        self.tapped += 1
        if not self.samples:
            self.hold.wait(seconds)
        yield from self.samples[:limit]
        if self.fail:
            raise self.fail

    def reload(self) -> ReloadResult:
        self._change()
        return ReloadResult(added=("new",), changed={"app": ("record.topic",)}, kept={"bad": "a tab"}, at=NOW)

    def change_definition(self, name: str, before: bytes | None, content: bytes | None, target: Target | None = None) -> None:
        """As the agent does it, without its checks across files."""
        self._change()
        path = Path(self.paths[name]) if before is not None else self.directory / f"{name}.yaml"
        if content is None:
            path.unlink()
            del self.definitions[name], self.paths[name], self.states[name]
            return
        loaded = load_content(path, content, self.options)
        if loaded.definition is None:
            raise DefinitionError(loaded.problems)
        path.write_bytes(content)
        self.definitions[name], self.paths[name] = loaded.definition, path
        state = {"running": State.RUNNING, "paused": State.PAUSED, "stopped": State.STOPPED}.get(target or "")
        self.states[name] = Status(name, state, since=NOW) if state else self.states[name]

    def set_log_level(self, level: str, seconds: float | None) -> AgentView:
        self.log, self.log_changed = (level, seconds), NOW
        return dataclasses.replace(self.view(), log_level=level, log_until=None if seconds is None else NOW + seconds)

    def pause(self, name: str) -> Status:
        return self._become(name, State.PAUSED)

    def resume(self, name: str) -> Status:
        return self._become(name, State.RUNNING)

    def stop(self, name: str) -> Status:
        return self._become(name, State.STOPPED)

    def restart(self, name: str) -> Status:
        return self._become(name, State.RUNNING)

    def _become(self, name: str, state: State) -> Status:
        self._change()
        self.states[name] = dataclasses.replace(self.status(name), state=state, since=time.time())
        return self.states[name]

    def _change(self) -> None:
        self.under_way += 1
        assert self.hold.wait(30)
        self.under_way -= 1

    def offset_connectors(self) -> tuple[str, ...]:
        return tuple(sorted({partition.connector for partition in self.saved}))

    def offsets(self, name: str) -> Mapping[SourcePartition, SavedRow]:
        return {partition: offset for partition, offset in self.saved.items() if partition.connector == name}

    def set_offsets(self, name: str, offsets: Mapping[SourcePartition, SavedRow], *, force: bool = False) -> None:
        self._free(name, force=force)
        self.saved.update(offsets)

    def forget_offsets(self, name: str, partitions: Collection[SourcePartition] | None, *, force: bool = False) -> int:
        self._free(name, force=force)
        gone = [one for one in self.offsets(name) if partitions is None or one in partitions]
        for one in gone:
            del self.saved[one]
        return len(gone)

    def offset_lanes(self, name: str) -> SavedLanes:
        return self.lanes.get(name, SavedLanes())

    def adopt_offsets(self, name: str, which: Adopt, *, agent: str = "", force: bool = False) -> str:
        self._free(name, force=force)
        self.adopted.append((name, which, agent))
        return "new" if self.offset_lanes(name).copied else ""

    def rename_offsets(self, old: str, new: str, *, force: bool = False) -> int:
        self._free(old, force=force)
        moved = {SourcePartition(new, one.key): self.saved.pop(one) for one in list(self.offsets(old))}
        self.saved.update(moved)
        return len(moved)

    def _free(self, name: str, *, force: bool) -> None:
        if not force and name in self.states and self.states[name].state is not State.STOPPED:
            raise BusyError(f"{name} is running", f"stop it first: copycat ctl stop {name}, or use --force")

    def losses(self, name: str | None, limit: int) -> tuple[Loss, ...]:
        entry = Loss(SourcePartition("app", "k"), "/var/log/app.log", 0, 10, 10, 0, "destroyed", "deleted", int(NOW * 1000))
        return (entry,)[:limit] if name in {None, "app"} else ()

    def loss_totals(self) -> Mapping[tuple[str, LossReason], LossTotal]:
        return {("app", "destroyed"): LossTotal(10, 0, 1)}


CANARY = "c4n4ry-Zq7"


class LoudError(CopycatError):
    """An error whose class nobody has told the server about."""
