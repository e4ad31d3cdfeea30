"""kill -9 while the agent starts, again and again: the next start is as good as the first. `test_kills.py` has one of these kills."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.kill.load import Topic
    from tests.rig.agent import AgentProcess
    from tests.rig.ledger import Ledger

START_SECONDS = 3.0
"""An agent takes about so long until it ships."""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_start_after_many_killed_starts_is_as_good_as_the_first(
    loaded_agent: AgentProcess, logs_dir: Path, ledger: Ledger, target: Topic, broker: DevBroker, rng: random.Random
) -> None:
    ledger.writer(logs_dir / "app.log").write_block(200_000)
    for _ in range(40):
        loaded_agent.start()
        time.sleep(rng.uniform(0, START_SECONDS))  # the moment is what is drawn: nothing is waited for
        loaded_agent.kill()
    loaded_agent.start()
    verdict = ledger.verify_topic(broker.bootstrap, target.name)
    assert verdict.is_complete, verdict
    loaded_agent.stop()
