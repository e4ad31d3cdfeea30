"""kill -9 of agents that read a bucket: each record once or at least once, and what a replaced object had is in the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kill.killing import kill_worker
from tests.kill.object_load import CONNECTORS, ObjectLoad, object_definitions
from tests.rig.object_store import CREDENTIALS
from tests.rig.verifier import Verifier, is_complete, is_exact
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

RUN = "objects"
FIRST = 300
"""More than are kept as partitions once they are done."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("guarantee", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.long)])
def test_objects_that_come_are_replaced_and_go_survive_kills(
    agent: AgentProcess,
    broker: DevBroker,
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str,
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    topics = {name: make_topic(2) for name in CONNECTORS}
    load = ObjectLoad(tmp_path / "load", RUN, 0, first=FIRST, seed=7)
    with Verifier(broker.bootstrap, list(topics.values()), RUN) as verifier:
        load.watch(verifier)

        def goes_on(count: int) -> None:
            """So many objects more, until something that was put after now has arrived."""
            later = verifier.committed.await_after(load.counts())
            for _ in range(count):
                load.step()
            wait_until(lambda: later.seconds is not None, 120, lambda: f"nothing arrives; the log ends:\n{agent.log[-3000:]}")

        with load:
            for name, definition in object_definitions(load, topics, guarantee).items():
                agent.define(name, definition)
            agent.start()
            wait_until(lambda: verifier.committed.delivered > FIRST // 3, 120, lambda: agent.log[-3000:])
            kill_worker(agent)
            goes_on(30)
            agent.kill()
            for _ in range(10):
                load.step()
            agent.start()
            goes_on(30)
            assert verifier.wait_all(load.counts(), 180, 90), f"{verifier.committed.verdict(load.counts())}"
            wait_until(load.is_cleaned_up, 120, "not all is deleted")
            agent.stop()
            assert load.broken(agent.state_dir, guarantee) == []
            verdict = verifier.finish(load.counts())
    assert is_exact(verdict) if guarantee == "exactly_once" else is_complete(verdict), verdict
