"""What scenario tests work with: connectors of the real worker, on a real Spark session and a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.executor import InlineExecutor
from copycat_agent.options import SparkOptions
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.runner_pool import LocalRunnerPool
from copycat_agent.spark.runners import RunnerExecutor
from copycat_agent.watch import Watcher
from tests.rig.shipping import Shipping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker


@pytest.fixture(scope="package")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunnerExecutor]:
    """Resident runners on a Spark session that all scenarios share."""
    host = SparkHost(SparkOptions(), tmp_path_factory.mktemp("spark") / "run", 2)
    host.start()
    executor = RunnerExecutor(LocalRunnerPool(host))
    yield executor
    executor.close()
    host.close()


@pytest.fixture(scope="package")
def inline() -> Iterator[InlineExecutor]:
    """Batches run in this process, for scenarios in which nothing depends on Spark."""
    executor = InlineExecutor()
    yield executor
    executor.close()


@pytest.fixture(scope="package")
def watcher() -> Iterator[Watcher]:
    """File-system events for all scenarios."""
    watcher = Watcher()
    yield watcher
    watcher.close()


@pytest.fixture
def make_shipping(
    tmp_path: Path, broker: DevBroker, executor: RunnerExecutor, watcher: Watcher, make_topic: Callable[..., str]
) -> Iterator[Callable[..., Shipping]]:
    """`make_shipping(name="app", bootstrap=None)` gives an agent's inside with a state directory of its own; see `Shipping`."""
    made: list[Shipping] = []

    def make(name: str = "app", bootstrap: str | None = None, topic: str | None = None) -> Shipping:
        made.append(Shipping(tmp_path, name, bootstrap or broker.bootstrap, topic or make_topic(), executor, watcher))
        return made[-1]

    yield make
    for shipping in made:
        shipping.close()


@pytest.fixture
def shipping(make_shipping: Callable[..., Shipping]) -> Shipping:
    """One connector named app over `tmp_path / "logs"`, not started."""
    return make_shipping()


@pytest.fixture
def logs_dir(tmp_path: Path) -> Path:
    """The directory the connectors read."""
    directory = tmp_path / "logs"
    directory.mkdir(exist_ok=True)
    return directory
