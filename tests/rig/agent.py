"""The agent as a user runs it: a process of its own, with all that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import yaml

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PROJECT = Path(__file__).parents[2]
_ENDED_SECONDS = 240.0
"""A JVM writes down, as it ends, what it had loaded, if none has before: seconds, and more where much else is done."""
_DROPPED_VARIABLES = ("STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET")


class AgentProcess:
    """`python -m copycat_agent run DIR --state-dir S --bootstrap-servers B` in a directory of its own.

    Below `root`: `connectors.d/`, `state/`, `stdout.log`, `agent.log` (stderr); each start appends to the logs. One process
    at a time; `start` after `stop` or `kill` continues with the same state. `command` replaces everything up to the options.
    """

    def __init__(self, root: Path, bootstrap: str, command: Sequence[str] = ()) -> None:
        self.root = root
        self.bootstrap = bootstrap
        self.connectors_dir = root / "connectors.d"
        self.state_dir = root / "state"
        self.log_path = root / "agent.log"
        self.stdout_path = root / "stdout.log"
        self.connectors_dir.mkdir(parents=True, exist_ok=True)
        self._command = list(command) or [sys.executable, "-m", "copycat_agent", "run", str(self.connectors_dir)]
        self._process: subprocess.Popen[bytes] | None = None
        self._recorded: dict[int, psutil.Process] = {}

    def define(self, name: str, definition: str | Mapping[str, Any]) -> Path:
        """Write (or replace, atomically) `connectors.d/NAME.yaml`, from YAML text or from values; returns its path."""
        text = definition if isinstance(definition, str) else yaml.safe_dump({"name": name, **definition}, sort_keys=False)
        path = self.connectors_dir / f"{name}.yaml"
        beside = self.connectors_dir / f".{name}.tmp"
        beside.write_text(text, "utf-8")
        beside.rename(path)
        return path

    def undefine(self, name: str) -> None:
        """Remove `connectors.d/NAME.yaml`."""
        (self.connectors_dir / f"{name}.yaml").unlink()

    def start(self, *options: str, env: Mapping[str, str] | None = None) -> Self:
        """Start it, in its own session, and return at once. `env` is added to this process's environment."""
        assert not self.is_running, "it already runs"
        arguments = ["--state-dir", str(self.state_dir), "--bootstrap-servers", self.bootstrap, *options]
        environment = {key: value for key, value in os.environ.items() if key not in _DROPPED_VARIABLES} | dict(env or {})
        with self.stdout_path.open("ab") as out, self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                cwd=_PROJECT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self

    @property
    def pid(self) -> int:
        """Process id of the driver, also after it ended."""
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the driver lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All it has written to stderr."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    @property
    def stdout(self) -> str:
        """All it has written to stdout."""
        return self.stdout_path.read_text("utf-8", "replace") if self.stdout_path.exists() else ""

    def descendants(self) -> list[psutil.Process]:
        """Everything alive that this agent started, the driver not included: JVM, Spark's Python daemon, workers.

        Found through the session, and through the state directory, where the JVM (in a session of its own) and all below it
        work: so orphans count too. Those seen once are remembered.
        """
        for process in psutil.process_iter():
            try:
                is_ours = os.getsid(process.pid) == self.pid or Path(f"/proc/{process.pid}/cwd").readlink().is_relative_to(self.state_dir)
                if process.pid != self.pid and is_ours:
                    self._recorded[process.pid] = process
            except OSError:  # it ended in between
                continue
        return [process for process in self._recorded.values() if is_alive(process)]

    def jvm(self) -> psutil.Process | None:
        """Spark's JVM, None when it is not up."""
        return next((process for process in self.descendants() if _name(process) == "java"), None)

    def python_processes(self) -> list[psutil.Process]:
        """Spark's Python daemon first, then its workers, oldest first."""
        return sorted((p for p in self.descendants() if _name(p).startswith("python")), key=lambda p: (p.create_time(), p.pid))

    def wait(self, deadline: float = _ENDED_SECONDS) -> int:
        """Wait until it ends by itself; returns its exit code. AssertionError with the log's end at the deadline."""
        assert self._process is not None, "it was never started"
        try:
            return self._process.wait(deadline)
        except subprocess.TimeoutExpired:
            msg = f"the agent still runs after {deadline} s; its log ends:\n{self.log[-4000:]}"
            raise AssertionError(msg) from None

    def stop(self, deadline: float = _ENDED_SECONDS) -> None:
        """SIGTERM; AssertionError unless it ends with exit 0 and leaves no process behind within the deadline."""
        self.descendants()
        self.signal(signal.SIGTERM)
        code = self.wait(deadline)
        assert code == 0, f"exit {code} after SIGTERM; the log ends:\n{self.log[-4000:]}"
        wait_until(lambda: not self.descendants(), deadline, lambda: f"left behind: {self.descendants()}")

    def kill(self) -> None:
        """Do what kill -9 of the driver does, and wait until what it had started is gone too (AssertionError when something stays)."""
        self.descendants()
        self.signal(signal.SIGKILL)
        self.wait()
        wait_until(lambda: not self.descendants(), _ENDED_SECONDS, lambda: f"survived the driver: {self.descendants()}")

    def signal(self, number: int) -> None:
        """Send a signal to the driver."""
        assert self.is_running, f"the agent is gone; its log ends:\n{self.log[-4000:]}"
        os.kill(self.pid, number)

    def close(self) -> None:
        """Leave nothing behind, whatever state it is in: SIGKILL to the driver and to every process seen, by its pid."""
        if self._process is None:
            return
        left = self.descendants()
        if self.is_running:
            self._process.kill()
        self._process.wait()
        for process in [*left, *self.descendants()]:
            _kill(process)
        wait_until(lambda: not self.descendants(), _ENDED_SECONDS, lambda: f"cannot be killed: {self.descendants()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_alive(process: psutil.Process) -> bool:
    """Alive, the same process (not a reused pid), and not a zombie that only waits to be reaped."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def killed(process: psutil.Process) -> bool:
    """Kill it; whether it was still there for that."""
    try:
        os.kill(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
