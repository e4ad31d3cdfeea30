"""Kills of the agent, of its workers and of journalctl, with exactly_once: nothing is lost, and nothing is sent twice."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.journald.conftest import needs_journals
from tests.kill.journal_load import CONNECTOR, JournalLoad, journal_definition
from tests.rig.agent import killed
from tests.rig.kafka import consume
from tests.rig.ledger import parse_line
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.rig.agent import AgentProcess

pytestmark = needs_journals


def journalctls(agent: AgentProcess) -> list[psutil.Process]:
    return [one for one in agent.descendants() if _name(one) == "journalctl"]


def workers(agent: AgentProcess) -> list[psutil.Process]:
    return [one for one in agent.python_processes() if "copycat_agent.spark.daemon" in _line(one) or "pyspark.daemon" in _line(one)]


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.mark.timeout(420)
def test_journalctl_a_worker_and_the_agent_are_killed_and_each_entry_is_there_once(
    agent: AgentProcess, broker: DevBroker, topic: str, tmp_path: Path
) -> None:
    load = JournalLoad(tmp_path, "run", 200)

    def numbers(until: int | None = None) -> list[int]:
        lines = [parse_line(one.value or b"") for one in consume(broker.bootstrap, topic, "read_committed", until, 120)]
        assert None not in lines
        return [line[2] for line in lines if line is not None]

    def goes_on() -> None:
        numbers(load.counts()[CONNECTOR] + 1)

    with load:
        wait_until(lambda: load.counts()[CONNECTOR] > 0, 30)
        agent.define(CONNECTOR, journal_definition(load, topic, "exactly_once"))
        agent.start()
        goes_on()
        kinds: tuple[Callable[[AgentProcess], list[psutil.Process]], ...] = (journalctls, workers)
        for of_kind in kinds:
            deadline = time.monotonic() + 120
            while not any(map(killed, of_kind(agent))):
                assert time.monotonic() < deadline, of_kind
                time.sleep(0.005)
            goes_on()
        agent.kill()
        wait_until(lambda: not journalctls(agent), 60, "journalctl ends with whoever started it")
        agent.start()
        goes_on()
    written = load.counts()[CONNECTOR]
    numbers(written)
    agent.stop()
    assert numbers() == list(range(written)), "each entry once, in its order"
