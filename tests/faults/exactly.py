"""Both sources under load with exactly_once, one agent that things happen to, and the count of every line for two kinds of readers."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from copycat_agent.failpoints import ONCE, VARIABLE
from copycat_agent.spark.java import find_java
from tests.kill.both import Load, definitions
from tests.rig.agent import AgentProcess, is_alive
from tests.rig.kafka import create_topic, unique_topic
from tests.rig.verifier import Verifier, is_exact
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import psutil

PER_SECOND = 300
PARTITIONS = 2
HAS_COMPILER = shutil.which("cc") is not None


class Exact:
    """Use it as a context manager: then files are written, and read back. `start` starts the agent."""

    def __init__(self, root: Path, bootstrap: str, guarantee: str = "exactly_once", name: str = "") -> None:
        """`name` makes the connectors' names those of this scene alone."""
        root.mkdir(parents=True)
        run = uuid.uuid4().hex[:8]
        self.root = root
        self.topics = {source: create_topic(bootstrap, unique_topic(source), PARTITIONS) for source in ("logs", "drops")}
        self.load = Load(root / "files", run, PER_SECOND)
        self.verifier = Verifier(bootstrap, list(self.topics.values()), run)
        self.agent = AgentProcess(root / "agent", bootstrap)
        self._shim: dict[str, str] = {}
        self._outlives = False
        for source, definition in definitions(self.load, self.topics, guarantee).items():
            self.agent.define(f"{source}{name}", definition)

    def start(self, env: Mapping[str, str] | None = None) -> Self:
        """Start the agent, without any failpoint unless `env` has one."""
        self._outlives = False
        self.agent.start(env={VARIABLE: "", **(env or {})})
        return self

    def outlive(self) -> None:
        """See that an agent runs, and ships, whose workers outlive their parents."""
        if self._outlives and self.agent.is_running:
            return
        if self.agent.is_running:
            self.kill_driver()
        self._shim = self._shim or without_parent_death(self.root / "shim")
        self.start(self._shim)
        self._outlives = True
        self.flows()

    def start_at(self, place: str, nth: int = 1, action: str = "kill") -> Path:
        """Start the agent so that one of its processes, once, dies or hangs at a failpoint; returns the file that then has its pid."""
        once = self.agent.root / f"failpoint-{uuid.uuid4().hex[:8]}"
        self.start({VARIABLE: f"{place}:{nth}:{action}", ONCE: str(once)})
        return once

    def flows(self, deadline: float = 180.0) -> None:
        """Return when both sources have delivered something that is written later than now."""
        counts = self.load.counts()
        logs = {name: count for name, count in counts.items() if name.startswith("app")}
        later = self.verifier.committed.await_after(logs)
        wait_until(lambda: later.seconds is not None, deadline, lambda: f"nothing arrives; the log ends:\n{self.agent.log[-4000:]}")

    def settled(self, deadline: float = 150.0) -> dict[str, Any]:
        """Write nothing until everything has arrived; then the verdict, which has to be exact."""
        self.load.pause()
        counts = self.load.counts()
        whole = self.verifier.wait_all(counts, deadline, quiet=deadline)
        verdict = self.verifier.finish(counts)
        self.load.resume()
        assert whole, f"{verdict}; the log ends:\n{self.agent.log[-4000:]}"
        assert is_exact(verdict), verdict
        return verdict

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, at least one, waited for."""
        return wait_until(lambda: self.agent.python_processes()[1:], 60, lambda: f"no worker:\n{self.agent.log[-2000:]}")

    def process(self, name: str) -> psutil.Process:
        """`jvm`, `daemon` or `worker`, waited for."""
        finders: dict[str, Callable[[], psutil.Process | None]] = {
            "jvm": self.agent.jvm,
            "daemon": lambda: next(iter(self.agent.python_processes()), None),
            "worker": lambda: self.workers()[0],
        }
        found = wait_until(finders[name], 60, lambda: f"no {name}:\n{self.agent.log[-2000:]}")
        assert found is not None
        return found

    def jvm_seconds(self) -> float:
        """How long the JVM lives."""
        return time.time() - self.process("jvm").create_time()

    def kill_driver(self) -> None:
        """Send kill -9, after which nothing that it had started may stay."""
        self.agent.kill()

    def __enter__(self) -> Self:
        self.verifier.__enter__()
        self.load.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.agent.close()
        try:
            self.load.__exit__()
        finally:
            self.verifier.__exit__()


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait until it is dead."""
    process.kill()
    wait_until(lambda: not is_alive(process), 60, lambda: f"{process} does not die")


def suspend(processes: list[psutil.Process]) -> None:
    """SIGSTOP to each that is still there."""
    for process in processes:
        if is_alive(process):
            process.suspend()


def resume(processes: list[psutil.Process]) -> None:
    """SIGCONT."""
    for process in processes:
        if is_alive(process):
            process.resume()


def without_parent_death(directory: Path) -> dict[str, str]:
    """Environment of an agent whose workers outlive their parents: the kernel is not asked to kill them.

    The agent passes no LD_PRELOAD on, so it is a Java of its own that does.
    """
    directory.mkdir(parents=True)
    library = directory / "no_parent_death.so"
    source = Path(__file__).with_name("no_parent_death.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    home = Path(find_java(os.environ).path).resolve().parents[1]
    (directory / "java" / "bin").mkdir(parents=True)
    (directory / "java" / "release").symlink_to(home / "release")
    launcher = directory / "java" / "bin" / "java"
    launcher.write_text(f'#!/bin/sh\nexport LD_PRELOAD={library}\nexec {home}/bin/java "$@"\n')
    launcher.chmod(0o755)
    return {"JAVA_HOME": str(directory / "java")}
