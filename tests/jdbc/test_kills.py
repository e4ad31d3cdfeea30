"""kill -9 of a worker and of an agent that read tables of a PostgreSQL in which much goes wrong: each row once, or at least once."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.kill.jdbc_load import CONNECTORS, JdbcLoad, jdbc_definitions
from tests.kill.killing import kill_worker
from tests.rig.verifier import Verifier, is_complete, is_exact
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

RUN = "tables"
PER_SECOND = 200
DEADLINE_SECONDS = 300


@pytest.fixture
def load(tmp_path: Path) -> Iterator[JdbcLoad]:
    root = tmp_path / "load"
    yield JdbcLoad(root, RUN, PER_SECOND)
    shutil.rmtree((root / "postgres").resolve(), ignore_errors=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("guarantee", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.long)])
def test_rows_of_late_and_of_undone_transactions_survive_kills(
    agent: AgentProcess, broker: DevBroker, make_topic: Callable[..., str], load: JdbcLoad, guarantee: str
) -> None:
    topics = {name: make_topic(2) for name in CONNECTORS}
    with Verifier(broker.bootstrap, list(topics.values()), RUN, ordered=False) as verifier:
        load.watch(verifier)

        def goes_on() -> None:
            """Until a row has arrived that was committed after now."""
            later = verifier.committed.await_after(load.counts())
            wait_until(lambda: later.seconds is not None, DEADLINE_SECONDS, lambda: f"nothing arrives; the log ends:\n{agent.log[-3000:]}")

        with load:
            for name, definition in jdbc_definitions(load, topics, guarantee).items():
                agent.define(name, definition)
            agent.start()
            goes_on()
            kill_worker(agent)
            goes_on()
            agent.kill()
            agent.start()
            goes_on()
            load.pause()
            assert verifier.wait_all(load.counts(), DEADLINE_SECONDS, 180), f"{verifier.committed.verdict(load.counts())}"
            wait_until(load.is_cleaned_up, DEADLINE_SECONDS, "not all last versions have arrived")
            agent.stop()
            assert load.broken(agent.state_dir, guarantee) == []
            verdict = verifier.finish(load.counts())
    assert is_exact(verdict) if guarantee == "exactly_once" else is_complete(verdict), verdict
