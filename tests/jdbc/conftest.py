"""What these tests work with: databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rig.postgres import Database, Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator


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
