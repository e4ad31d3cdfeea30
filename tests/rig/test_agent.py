"""The agent harness sees every process of an agent and leaves none behind (with a stand-in for the agent)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import psutil
import pytest
import yaml

from tests.rig.agent import AgentProcess, is_alive
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Starts a child, which starts a grandchild in its own process group, as Spark's daemon does. `clean` ends them on SIGTERM.
_STAND_IN = """
import os, signal, subprocess, sys, time
grandchild = "import time; time.sleep(600)"
child = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {grandchild!r}], process_group=0); time.sleep(600)"
started = subprocess.Popen([sys.executable, "-c", child])
def end(*_):
    if "clean" in sys.argv:
        os.system(f"kill -9 $(ps -o pid= --ppid {started.pid}) {started.pid}")
        started.wait()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("arguments", sys.argv[1:], file=sys.stderr, flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[AgentProcess]:
    """Not started."""
    with AgentProcess(tmp_path / "agent", "127.0.0.1:1", [sys.executable, "-c", _STAND_IN]) as agent:
        yield agent


def _started(agent: AgentProcess, *options: str) -> list[psutil.Process]:
    agent.start(*options)
    wait_until(lambda: len(agent.descendants()) == 2 and "arguments" in agent.log, 60, lambda: f"{agent.descendants()} {agent.log}")
    return agent.descendants()


def test_descendants_are_found_over_generations_and_process_groups(stand_in: AgentProcess) -> None:
    started = _started(stand_in)
    assert stand_in.pid not in {process.pid for process in started}
    assert stand_in.python_processes() == sorted(started, key=lambda process: process.create_time())


def test_the_agent_gets_state_directory_and_brokers(stand_in: AgentProcess) -> None:
    _started(stand_in, "--until-idle")
    expected = ["--state-dir", str(stand_in.state_dir), "--bootstrap-servers", "127.0.0.1:1", "--until-idle"]
    assert f"arguments {expected}" in stand_in.log


def test_stop_is_content_with_an_agent_that_cleans_up(stand_in: AgentProcess) -> None:
    _started(stand_in, "clean")
    stand_in.stop()
    assert not stand_in.is_running


def test_stop_complains_of_what_is_left_behind(stand_in: AgentProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    _started(stand_in)
    with monkeypatch.context() as patched:
        patched.setattr("tests.rig.agent.wait_until", lambda condition, _, message: wait_until(condition, 0.5, message))
        with pytest.raises(AssertionError, match="left behind"):
            stand_in.stop()


def test_close_leaves_nothing_behind_even_when_the_driver_is_gone(stand_in: AgentProcess) -> None:
    started = _started(stand_in)
    psutil.Process(stand_in.pid).kill()
    stand_in.wait()
    stand_in.close()
    assert not [process for process in started if is_alive(process)]


def test_it_can_be_started_again_and_keeps_its_logs(stand_in: AgentProcess) -> None:
    for _ in range(2):
        _started(stand_in, "clean")
        stand_in.stop()
    assert stand_in.log.count("arguments") == 2


def test_definitions_are_written_as_yaml_and_nothing_else_stays(stand_in: AgentProcess) -> None:
    stand_in.define("a", {"record": {"topic": "t"}})
    stand_in.define("b", "name: b\n")
    stand_in.undefine("b")
    (path,) = stand_in.connectors_dir.iterdir()
    assert yaml.safe_load(path.read_text("utf-8")) == {"name": "a", "record": {"topic": "t"}}
