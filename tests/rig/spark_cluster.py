"""A real standalone Spark cluster on this machine: a master and workers, each a JVM of its own, on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from copycat_agent.dev_broker import free_port
from copycat_agent.spark import java
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from types import TracebackType

_HOST = "127.0.0.1"
_START_SECONDS = 240.0
_OPTIONS = (*java.MODULE_OPTIONS, "-Dspark.master.rest.enabled=false", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx192m")
_BIND_TO_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""PR_SET_PDEATHSIG (1), then become the JVM: the kernel ends it with the tests, in whatever way these end."""


class SparkCluster:
    """`workers` of `cores` each. What executors find on their path is `python_path`, and what travels with the jobs."""

    def __init__(
        self, directory: Path, workers: int = 2, python_path: str = "", environ: dict[str, str] | None = None, cores: int = 2,
        conf: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.directory = directory
        self._cores = cores
        self._conf = [f"-D{name}={value}" for name, value in (conf or {}).items()]
        self._port = free_port()
        self._count = workers
        self._environ = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ},
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_HOSTNAME": _HOST,
            "SPARK_HOME": str(java.spark_home()),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_USER": "copycat",
            "PYTHONPATH": python_path,
            "PYTHONSAFEPATH": "1",
            **(environ or {}),
        }
        self.master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """For `--master`."""
        return f"spark://{_HOST}:{self._port}"

    def __enter__(self) -> Self:
        """Start, and wait until every worker has registered."""
        try:
            self.start_master()
            for number in range(self._count):
                self.start_worker(number)
            wait_until(self._is_up, _START_SECONDS, lambda: self._log("master")[-2000:])
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop."""
        self.stop()

    def stop(self) -> None:
        """Kill all of it, executors included."""
        for process in (*self.workers, self.master):
            if process is not None:
                family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
                process.kill()
                process.wait()
                for child in family:
                    if child.is_running():
                        child.kill()
                psutil.wait_procs(family, 10)

    def start_master(self) -> None:
        """On the same port each time."""
        self.master = self._java("master", "org.apache.spark.deploy.master.Master", "--host", _HOST, "--port", str(self._port))

    def start_worker(self, number: int) -> None:
        """With two cores, unless it was said otherwise, so that two sessions have room, and a directory of its own for executors."""
        work = self.directory / f"work-{number}"
        options = ("--host", _HOST, "--cores", str(self._cores), "--memory", "2g", "--work-dir", str(work), self.url)
        self.workers.append(self._java(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *options))

    def _is_up(self) -> bool:
        said = self._log("master")
        return "I have been elected leader" in said and said.count("Registering worker") >= self._count

    def executors(self) -> list[psutil.Process]:
        """JVMs that workers have started."""
        return [one for worker in self.workers if worker.poll() is None for one in _children(psutil.Process(worker.pid))]

    def pythons(self) -> list[psutil.Process]:
        """Python workers under executors, without the daemons they are forks of."""
        return [one for executor in self.executors() for daemon in _children(executor) for one in _children(daemon)]

    def executor_words(self) -> str:
        """All that executors have logged."""
        return "".join(path.read_text("utf-8", "replace") for path in self.directory.glob("work-*/*/*/std*"))

    def _java(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        classes = java.class_path(java.spark_home() / "jars")
        bound = [sys.executable, "-c", _BIND_TO_PARENT, str(os.getpid())]
        command = [*bound, java.find_java(os.environ).path, *_OPTIONS, *self._conf, "-cp", classes, main, "--webui-port", "0", *arguments]
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=self._environ, cwd=self.directory, stdout=log, stderr=subprocess.STDOUT)

    def _log(self, name: str) -> str:
        path = self.directory / f"{name}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""


def _children(process: psutil.Process) -> list[psutil.Process]:
    """None of one that has just ended."""
    with suppress(psutil.NoSuchProcess):
        return process.children()
    return []


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait for its end, which may have come by itself."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs([process], 10)


PROJECT = str(Path(__file__).parents[2])
"""To be put on executors' path by tests that let them run functions of tests."""
