"""Runs copycat commands as child processes, for views that read files, topics, and definitions that somebody pastes.

A child is limited in time (`SECONDS`), output (`OUTPUT_BYTES`) and priority, and few run at a time. If something hangs or takes all memory,
it is the child, not the agent. A page shows the child's output as a terminal would.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NamedTuple

from copycat_agent.errors import BusyError

CHILDREN_MAX = 2
"""Most children at a time."""
WAIT_SECONDS = 5.0
"""How long a further child waits for its turn."""
SECONDS = 30.0
OUTPUT_BYTES = 4 * 2**20
SHOWN_BYTES = 64 * 1024
"""Most bytes of an output that are shown."""
_END_SECONDS = 5.0
_NICE = 5


class CommandOutput(NamedTuple):
    """A command's output, stdout before stderr. `code` is its exit code, None if it took too long."""

    text: str
    code: int | None


class ChildCommands:
    """Runs commands for the agent at `socket_path`. Thread-safe."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path
        self._places = threading.BoundedSemaphore(CHILDREN_MAX)

    def of_agent(self, *arguments: str) -> CommandOutput:
        """Runs a command that asks this agent, with the agent's environment. Raises BusyError if too many are running."""
        return self._run((*arguments, "--socket", str(self.socket_path)), None, dict(os.environ), 0)

    def apart(self, *arguments: str, files: Mapping[str, str], memory_bytes: int) -> CommandOutput:
        """Runs a command in a directory with only these files, by name, without the agent's environment. Raises BusyError."""
        kept = {name: os.environ[name] for name in ("PYTHONPATH", "LANG", "LC_ALL") if name in os.environ}
        with tempfile.TemporaryDirectory(prefix="copycat-page-") as directory:
            for name, text in files.items():
                (Path(directory) / name).write_text(text, "utf-8")
            return self._run(arguments, directory, kept | {"PATH": ""}, memory_bytes)

    def _run(self, arguments: tuple[str, ...], directory: str | None, environ: Mapping[str, str], memory_bytes: int) -> CommandOutput:
        if not self._places.acquire(timeout=WAIT_SECONDS):
            raise BusyError("others look into files and topics now", "try again in a minute")
        try:
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as beside:
                code = _finished(arguments, directory, {**environ, "NO_COLOR": "1"}, memory_bytes, (out, beside))
                return CommandOutput("\n".join(text for text in map(_read, (out, beside)) if text), code)
        finally:
            self._places.release()


def _finished(
    arguments: tuple[str, ...], directory: str | None, environ: Mapping[str, str], memory_bytes: int, outputs: tuple[IO[bytes], IO[bytes]]
) -> int | None:
    """Runs a command. Returns its exit code; None if it took too long and was interrupted, or killed."""
    command = [sys.executable, "-m", "copycat_agent", *arguments]
    child = subprocess.Popen(command, cwd=directory, env=environ, stdin=subprocess.DEVNULL, stdout=outputs[0], stderr=outputs[1])
    try:
        _bound(child.pid, memory_bytes)
        return child.wait(SECONDS)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_END_SECONDS)
        return None
    finally:
        child.kill()
        child.wait()


def _bound(pid: int, memory_bytes: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICE)
        resource.prlimit(pid, resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS)))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
        if memory_bytes:
            resource.prlimit(pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _read(output: IO[bytes]) -> str:
    output.seek(0)
    content = output.read(SHOWN_BYTES + 1)
    more = "\n... there is more: the command shows all of it" if len(content) > SHOWN_BYTES else ""
    return content[:SHOWN_BYTES].decode("utf-8", "replace").strip("\n") + more
