"""What these tests work with: databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rig.agent import AgentProcess
from tests.rig.postgres import Database, Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.dev_broker import DevBroker


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL that all tests share (about a second to make and start)."""
    with Postgres() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    """A fresh database for one test on the shared server."""
    with postgres.database() as fresh:
        yield fresh


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL for one test that stops it, or changes its transaction ids."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def reader(broker: DevBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """An agent that many tests share, not started; see `Running`. Spark and the first row of a table cost half a minute of a core."""
    with AgentProcess(tmp_path_factory.mktemp("agent"), broker.bootstrap) as agent:
        yield agent
