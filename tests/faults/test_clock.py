"""The wall clock jumps by a day, forwards and back, in every process of the agent: lines flow on, no storm of words, nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from copycat_agent.spark.java import find_java
from tests.faults.scene import Trickle
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.scene import Scene

DAY = 86_400
FEW = 5
"""Lines at WARNING and above that all steps together may cost."""


def make_clock(directory: Path) -> tuple[Path, Path]:
    """The library that makes a wrong clock, and the file that says how wrong."""
    said = directory / "step"
    said.write_text("0")
    library = directory / "wall_clock.so"
    source = Path(__file__).with_name("wall_clock.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", f'-DCLOCK_STEP_FILE="{said}"', "-o", library, source, "-ldl"], check=True)
    return library, said


def set_clock(said: Path, seconds: int) -> None:
    """Atomically: a reader in between must not see an empty file."""
    (said.with_suffix(".new")).write_text(str(seconds))
    said.with_suffix(".new").rename(said)


def java_with(library: Path, directory: Path) -> Path:
    """A JAVA_HOME whose Java, and so every worker below it, gets the library: the agent passes no such variable on."""
    home = Path(find_java(os.environ).path).resolve().parents[1]
    (directory / "bin").mkdir(parents=True)
    (directory / "release").symlink_to(home / "release")
    launcher = directory / "bin" / "java"
    launcher.write_text(f'#!/bin/sh\nexport LD_PRELOAD={library}\nexec {home}/bin/java "$@"\n')
    launcher.chmod(0o755)
    return directory


@pytest.fixture
def clock(make_scene: Callable[..., Scene], tmp_path: Path) -> tuple[Scene, Callable[[int], None]]:
    """A running agent, and what makes its clock wrong by so many seconds."""
    library, said = make_clock(tmp_path)
    scene = make_scene(errors={"retry_max_delay": "1s"})
    java = java_with(library, tmp_path / "java")
    scene.writer("first.log").write(10)
    scene.start({"LD_PRELOAD": str(library), "JAVA_HOME": str(java), "CACHE_DIRECTORY": "/nowhere"})
    return scene, lambda seconds: set_clock(said, seconds)


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_clock_that_is_set_costs_no_line_and_one_too_far_ahead_blocks_until_it_is_right(
    clock: tuple[Scene, Callable[[int], None]],
) -> None:
    """A day ahead, Kafka refuses what is stamped so (message.timestamp.after.max.ms). That is no record's fault."""
    scene, step = clock
    loud = len(scene.events("warning"))
    writers = [scene.writer(f"app{number}.log") for number in range(3)]
    with Trickle(writers, 500):
        for seconds in (-DAY, 0, 1800, 0, 5, 0, -5, 0):
            step(seconds)
            goal = scene.ledger.written + 100
            wait_until(lambda goal=goal: scene.ledger.written > goal, message="lines are written")  # type: ignore[misc]
            scene.wait_arrived()
    assert len(scene.events("warning")) == loud, scene.events("warning")[loud:]
    assert scene.verdict(), "no step repeats or loses anything"
    with Trickle(writers, 500):
        step(DAY)
        wait_until(lambda: scene.state == "blocked", 60, lambda: f"{scene.status}")
        assert "set the clock of this host right" in scene.status["reason"]
        step(0)
        wait_until(lambda: scene.state == "running", 60, lambda: f"{scene.status}")
    scene.wait_arrived()
    assert scene.verdict().is_complete
    assert not scene.events("error")
    assert len(scene.events("warning")) <= loud + FEW, scene.events("warning")
    assert scene.status["losses"] == {}
    stamps = [record.timestamp_ms or 0 for record in consume(scene.bootstrap, scene.topic)]
    assert max(stamps) - min(stamps) > 0.9 * DAY * 1000, "the workers' clock was wrong too"
    scene.agent.stop()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize(("first", "then"), [(1800, 0), (1800, 1800), (0, -DAY)])
def test_a_log_that_is_rotated_twice_out_of_its_patterns_while_the_agent_is_down_is_read_whatever_its_clock_says(
    make_scene: Callable[..., Scene], tmp_path: Path, guarantee: str, first: int, then: int
) -> None:
    """`first` and `then`: by how many seconds the clock is wrong before and after."""
    library, said = make_clock(tmp_path)
    java = java_with(library, tmp_path / "java")
    env = {"LD_PRELOAD": str(library), "JAVA_HOME": str(java), "CACHE_DIRECTORY": "/nowhere"}
    scene = make_scene(source={"include": [f"{tmp_path}/scene/logs/app.log"]}, delivery={"guarantee": guarantee})
    writer = scene.writer("app.log")
    writer.write(10)
    set_clock(said, first)
    scene.start(env)
    scene.settle()
    scene.agent.stop()
    set_clock(said, then)
    for rotated in ("app.log.2", "app.log.1"):
        writer.path.rename(writer.path.with_name(rotated))
        writer.reopen()
        writer.write(10)
    scene.start(env)
    scene.settle()
    assert scene.verdict(), "each line once"
    assert scene.status["losses"] == {}
    scene.agent.stop()
