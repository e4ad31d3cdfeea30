"""What tests of the worker work with: real files, a real store, and an executor that answers from a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from copycat_agent.offsets import OffsetStore
from copycat_agent.watch import Watcher
from copycat_agent.worker import Worker
from copycat_agent.worker import worker as worker_module
from copycat_agent.worker.connector import Connector
from tests.unit.worker.doubles import MoodyStore, ScriptedExecutor, definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that takes seconds is one of a busy machine: an operation gives up on those alone that a test lets hang."""
    for name in ("STOP_SECONDS", "LEAVE_SECONDS", "START_SECONDS"):
        monkeypatch.setattr(worker_module, name, 60.0)
    monkeypatch.setattr(Connector.ask, "__defaults__", (60.0,))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MoodyStore]:
    """A real store in a directory of its own."""
    store = OffsetStore.open(tmp_path / "state")
    yield MoodyStore(store)
    store.close()


@pytest.fixture(scope="module")
def watcher() -> Iterator[Watcher]:
    """Real file-system events."""
    watcher = Watcher()
    yield watcher
    watcher.close()


@pytest.fixture
def run(tmp_path: Path, store: MoodyStore, watcher: Watcher) -> Iterator[Callable[..., Worker]]:
    """`run(executor, ...)` starts a worker with one connector named app over `tmp_path / "logs"`."""
    workers: list[Worker] = []
    (tmp_path / "logs").mkdir()

    def start(executor: ScriptedExecutor, *names: str, until_idle: bool = False, **sections: Any) -> Worker:
        worker = Worker(cast("OffsetStore", store), executor, watcher, until_idle=until_idle)
        workers.append(worker)
        worker.apply([definition(tmp_path, name, **sections) for name in names or ("app",)])
        return worker

    yield start
    store.fails = None
    for worker in workers:
        worker.stop(0.5)
