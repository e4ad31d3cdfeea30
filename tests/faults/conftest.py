"""What fault tests work with: an agent in a place where things go wrong."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.faults.scene import Scene
from tests.rig.agent import AgentProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.conftest import ProxiedBroker

_RIGHTS = "-dac_override,-dac_read_search"
LIKE_ANYONE = ("setpriv", f"--bounding-set={_RIGHTS}", f"--inh-caps={_RIGHTS}") if os.geteuid() == 0 and shutil.which("setpriv") else ()
"""Root without what lets root read everything: permissions count."""


@pytest.fixture(scope="package")
def enduring_agent(shared_proxied_broker: ProxiedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentProcess]:
    """One agent for all faults that it has to survive, behind a network to break. It has to end well, too."""
    shared_proxied_broker.proxy.reset()
    with AgentProcess(tmp_path_factory.mktemp("enduring"), shared_proxied_broker.bootstrap) as agent:
        agent._command[:0] = LIKE_ANYONE
        yield agent.start()
        agent.stop()


@pytest.fixture
def scene(enduring_agent: AgentProcess, proxied_broker: ProxiedBroker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A connector of its own on the agent that all share."""
    name = "".join(char if char.isalnum() else "-" for char in request.node.name.lower())[-60:].strip("-")
    with Scene(tmp_path / "scene", proxied_broker.bootstrap, agent=enduring_agent, name=name) as scene:
        scene.writer("first.log").write(1)
        scene.wait_arrived()
        yield scene


@pytest.fixture
def make_scene(tmp_path: Path, broker: DevBroker) -> Iterator[Callable[..., Scene]]:
    """`make_scene(name="scene", bootstrap=None, **as_for_Scene)`: not started, and nothing of it survives the test."""
    made: list[Scene] = []

    def make(name: str = "scene", bootstrap: str = "", **more: object) -> Scene:
        made.append(Scene(tmp_path / name, bootstrap or broker.bootstrap, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for scene in made:
        scene.close()
