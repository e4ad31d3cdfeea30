"""What tests of reloads work with: a directory of definitions, a real store, a worker whose batches a script answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from copycat_agent.agent.definition_files import DefinitionFiles
from copycat_agent.agent.reloading import Reloader
from copycat_agent.offsets import OffsetStore
from copycat_agent.watch import Watcher
from copycat_agent.worker import Worker
from copycat_agent.worker import worker as worker_module
from tests.unit.worker.doubles import ScriptedExecutor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from copycat_agent.control import ReloadResult
    from copycat_agent.worker.connector import Connector


class Host:
    """An agent without Spark: `define` files below `connectors.d`, then `reload`. Logs are in `NAME-logs`."""

    def __init__(self, root: Path, watcher: Watcher, only: Collection[str] = ()) -> None:
        self.root = root
        self.directory = root / "connectors.d"
        self.directory.mkdir(exist_ok=True)
        self.files = DefinitionFiles(self.directory, None, {"kafka.bootstrap_servers": ("127.0.0.1:1",)}, only)
        self.store = OffsetStore.open(root / "state")
        self.executor = ScriptedExecutor()
        self.worker = Worker(self.store, self.executor, watcher)
        self.watcher = watcher
        self.reloader: Reloader | None = None

    def define(self, name: str, file: str = "", **sections: Any) -> Path:
        """Write `connectors.d/NAME.yaml`, or another file."""
        logs = self.root / f"{name}-logs"
        logs.mkdir(exist_ok=True)
        source = {"type": "log_file", "include": [f"{logs}/*"], "scan_interval": "100ms"}
        path = self.directory / (file or f"{name}.yaml")
        path.write_text(yaml.safe_dump({"name": name, "source": source, "record": {"topic": "t"}, **sections}, sort_keys=False))
        return path

    def reload(self) -> ReloadResult:
        """Load and run what the files say."""
        if self.reloader is None:
            first = self.files.load()
            self.reloader = Reloader(self.files, self.worker, self.store, first.options)
            return self.reloader.reload(first)
        return self.reloader.reload()

    def connector(self, name: str) -> Connector:
        """The one that runs under this name: another object means that it was replaced."""
        connector = self.worker._handles[name].connector
        assert connector is not None
        return connector

    @property
    def names(self) -> list[str]:
        """Of all connectors."""
        return [status.name for status in self.worker.statuses()]

    def close(self) -> None:
        self.worker.stop(0.5)
        self.store.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connector that is replaced takes its time on a busy machine, and is not abandoned for it."""
    for name in ("STOP_SECONDS", "LEAVE_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(worker_module, name, 60.0)


@pytest.fixture(scope="package")
def watcher() -> Iterator[Watcher]:
    """Real file-system events."""
    watcher = Watcher()
    yield watcher
    watcher.close()


@pytest.fixture
def host(tmp_path: Path, watcher: Watcher) -> Iterator[Host]:
    """A host over `tmp_path`."""
    host = Host(tmp_path, watcher)
    yield host
    host.close()
