"""kill -9 of anything, at any time, under load: nothing is lost, little is repeated, no process is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kill.conftest import BATCH_BYTES, TASKS
from tests.kill.killing import SHORT_ROUND, Killer, Victim, schedule

if TYPE_CHECKING:
    import random

    from copycat_agent.dev_broker import DevBroker
    from tests.kill.load import Load, Topic
    from tests.rig.agent import AgentProcess
    from tests.rig.ledger import Ledger, Verdict

LINE_BYTES = 50
"""No line of the ledger is shorter."""


@pytest.fixture
def killer(loaded_agent: AgentProcess, load: Load, target: Topic, rng: random.Random) -> Killer:
    """For a running agent under load."""
    return Killer(loaded_agent, load, target, rng)


def _run(killer: Killer, victims: list[Victim], agent: AgentProcess, load: Load, target: Topic) -> None:
    agent.start()
    with load:
        target.wait_growth()
        for victim in victims:
            killer.strike(victim)


def _assert_all_there(verdict: Verdict, kills: int) -> None:
    assert verdict.is_complete, verdict
    assert verdict.duplicated <= kills * TASKS * BATCH_BYTES / LINE_BYTES, "more than what was not committed is repeated"


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_no_process_is_left_whoever_is_killed(
    killer: Killer, loaded_agent: AgentProcess, load: Load, target: Topic, ledger: Ledger, broker: DevBroker, rng: random.Random
) -> None:
    _run(killer, schedule(rng, 1, SHORT_ROUND), loaded_agent, load, target)
    verdict = ledger.verify_topic(broker.bootstrap, target.name, deadline=150)
    print(killer.report(), verdict, sep="\n")
    _assert_all_there(verdict, killer.kills)
    loaded_agent.stop()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nothing_is_lost_over_many_kills(
    killer: Killer,
    loaded_agent: AgentProcess,
    load: Load,
    target: Topic,
    ledger: Ledger,
    broker: DevBroker,
    rng: random.Random,
    seed: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _run(killer, schedule(rng, 9), loaded_agent, load, target)
    verdict = ledger.verify_topic(broker.bootstrap, target.name, deadline=150)
    loaded_agent.stop()
    with capsys.disabled():
        print(f"\nseed {seed}, {killer.kills} kills, {load.rotations} rotations\n{killer.report()}\n{verdict}")
    _assert_all_there(verdict, killer.kills)
