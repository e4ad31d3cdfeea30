"""A permission is taken away and given back while the agent runs: it is told once, the others go on, nothing is lost or repeated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.faults.conftest import LIKE_ANYONE
from tests.faults.scene import Topics
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from tests.faults.scene import Scene


pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""


@pytest.mark.skipif(os.geteuid() == 0 and not LIKE_ANYONE, reason="no setpriv, and root may read everything")
def test_files_and_directories_that_may_not_be_read_for_a_while_cost_nothing(scene: Scene) -> None:
    (scene.logs / "closed").mkdir()
    scene.define(source={"include": [f"{scene.logs}/*.log", f"{scene.logs}/closed/*.log"]})
    held, other, inside = scene.writer("held.log"), scene.writer("other.log"), scene.writer("closed/inside.log")
    for writer in (held, other, inside):
        writer.write(10)
    scene.wait_arrived()
    for path in (held.path, scene.logs / "closed"):
        path.chmod(0)
    mask = os.umask(0o777)  # it may be read at no moment
    secret = scene.writer("secret.log")
    os.umask(mask)
    for writer in (held, other, inside):
        writer.write(10)
    with Topics(scene.bootstrap, scene.topic) as topic:
        wait_until(lambda: topic.size() >= 41, 60, lambda: f"the others go on: {topic.size()}")
    secret.write(10)
    wait_until(lambda: told(scene, "secret.log") and told(scene, "closed"), 60, lambda: scene.agent.log)
    wait_until(lambda: scene.state == "running", 60, lambda: f"{scene.status}")
    for path, mode in ((held.path, 0o644), (scene.logs / "closed", 0o755), (secret.path, 0o644)):
        path.chmod(mode)
    scene.writer("closed/new.log").write(10)
    for writer in (held, other, inside):
        writer.write(10)
    scene.wait_arrived()
    verdict = scene.verdict()
    assert verdict, verdict
    assert told(scene, "secret.log") == told(scene, "closed") == 1


def told(scene: Scene, name: str) -> int:
    """How often it was said that this cannot be read."""
    return sum(line["event"] == "path passed over" and line["path"].endswith(f"/{name}") for line in scene.events("warning"))
