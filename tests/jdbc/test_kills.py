"""kill -9 of a worker and of an agent that read tables of a PostgreSQL in which much goes wrong: each row once, or at least once."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.kill.jdbc_load import CONNECTORS, JdbcLoad, jdbc_definitions
from tests.kill.killing import kill_worker
from tests.rig.kafka import consume
from tests.rig.verifier import Verifier, is_complete, is_exact
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

RUN = "tables"
PER_SECOND = 60
INITIAL, TOTAL = 2000, 2100
DEADLINE_SECONDS = 300


class InitialLoad:
    """A table that is full before anybody reads it, and is read in parts. The load is paused while something is said to the server."""

    def __init__(self, agent: AgentProcess, load: JdbcLoad, topic: str, guarantee: str) -> None:
        """Its first rows have arrived."""
        self._load, self._topic, self._bootstrap = load, topic, agent.bootstrap
        self._execute(f"CREATE TABLE initial (id bigserial PRIMARY KEY, v int); {_add(1, INITIAL)}")
        server = load.postgres
        source = {"type": "jdbc", "url": server.url, "user": server.user, "password": server.password, "tables": ["public.initial"]}
        options = {**source, "mode": "incrementing", "partitions": 3, "batch_rows": 200}
        agent.define("initial", {"source": options, "record": {"topic": topic}, "delivery": {"guarantee": guarantee}})
        self.numbers(1)

    def goes_on_meanwhile(self) -> None:
        """More rows are written."""
        self._execute(_add(INITIAL + 1, TOTAL))

    def numbers(self, count: int | None = None) -> list[int]:
        """What has arrived."""
        return [
            json.loads(one.value or b"")["v"] for one in consume(self._bootstrap, self._topic, "read_committed", count, DEADLINE_SECONDS)
        ]

    def _execute(self, statements: str) -> None:
        self._load.pause()
        self._load.postgres.execute(statements)
        self._load.resume()


def _add(first: int, last: int) -> str:
    return f"INSERT INTO initial (v) SELECT generate_series({first}, {last})"


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
            initial = InitialLoad(agent, load, make_topic(), guarantee)
            agent.kill()
            initial.goes_on_meanwhile()
            agent.start()
            goes_on()
            load.pause()
            assert verifier.wait_all(load.counts(), DEADLINE_SECONDS, 180), f"{verifier.committed.verdict(load.counts())}"
            wait_until(load.is_cleaned_up, DEADLINE_SECONDS, "not all last versions have arrived")
            wait_until(
                lambda: set(initial.numbers()) == set(range(1, TOTAL + 1)), DEADLINE_SECONDS, lambda: f"{len(initial.numbers())} rows"
            )
            agent.stop()
            assert load.broken(agent.state_dir, guarantee) == []
            verdict = verifier.finish(load.counts())
    assert guarantee == "at_least_once" or len(initial.numbers()) == TOTAL
    assert is_exact(verdict) if guarantee == "exactly_once" else is_complete(verdict), verdict
