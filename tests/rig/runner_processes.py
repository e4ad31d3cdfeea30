"""Runners as on executors of a cluster, without Spark: processes that come in by a `ClusterListener`."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import copycat_agent
from copycat_agent.runner import Work
from copycat_agent.spark.cluster_listener import ClusterListener
from copycat_agent.spark.cluster_task import ResidentTask

if TYPE_CHECKING:
    from copycat_agent.model import Batch
    from copycat_agent.spark.cluster_listener import RemoteRunnerConnection
    from copycat_agent.spark.runner_pool import RunnerEvents

_RUNNER = """
import pickle, sys
from copycat_agent.spark.cluster_task import stay
print(*[pickle.loads(one).trouble for one in stay([pickle.load(sys.stdin.buffer)])])
"""


class ProcessRunnerPool:
    """A `runner_pool.RunnerPool` of `count` processes. None is started again; `dismissed` are those that the executor had ended."""

    reason = "nobody has come"

    def __init__(self, count: int) -> None:
        self.listener = ClusterListener("127.0.0.1", "127.0.0.1")
        self.key = self.listener.address.key
        self.dismissed: list[int] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self._count = count

    def start(self, events: RunnerEvents) -> None:
        """Start the processes."""
        del events
        for _ in range(self._count):
            self.add()

    def add(self, **listener: object) -> subprocess.Popen[bytes]:
        """Start one more; `listener` is what it knows otherwise of the listener."""
        address = self.listener.address._replace(**listener)  # type: ignore[arg-type]
        post = ResidentTask(len(self.processes), "tests.spark.batches:run", copycat_agent.__version__, 30, address)
        process = subprocess.Popen([sys.executable, "-c", _RUNNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(post))
        process.stdin.close()
        self.processes.append(process)
        return process

    def said_by(self, process: subprocess.Popen[bytes]) -> str:
        """What a process has said when it has ended."""
        assert process.stdout is not None
        return process.stdout.read().decode()

    def accept(self) -> RemoteRunnerConnection | None:
        """Whoever comes."""
        return self.listener.accept()

    def work(self, number: int, batch: Batch) -> Work:
        """Nothing but the batch."""
        return Work(number, batch)

    def dismiss(self, index: int) -> None:
        """Note it: the process is left as it is, as one on a host that cannot be reached."""
        self.dismissed.append(index)

    def close(self) -> None:
        """Let nobody in."""
        self.listener.close()

    def wait(self, seconds: float) -> None:
        """End all processes, also those that are stopped."""
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0 if self.dismissed else seconds)
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
