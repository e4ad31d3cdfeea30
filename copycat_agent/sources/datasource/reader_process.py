"""Starts the process in which a reader plans, sends it requests, and kills it if it takes too long."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from copycat_agent.display import SecretMask
from copycat_agent.errors import FatalError, RetriableError

MODULE = "copycat_agent.sources.datasource.process"
_SHOWN_MOST = 500
"""Most characters of an exception's text that are shown."""


class ReaderAnswer(NamedTuple):
    """An answer: JSON values, and bytes for a task."""

    values: dict[str, Any]
    work: bytes


class ReaderFaultError(RetriableError):
    """The reader raised an exception. `text` is that exception's text, which may contain secrets: show it with `shown` only."""

    def __init__(self, message: str, hint: str = "", text: str = "") -> None:
        super().__init__(message, hint)
        self.text = text

    def shown(self, mask: SecretMask) -> str:
        """Returns the beginning of `text`. Secrets are hidden before it is cut."""
        return mask.text(self.text)[:_SHOWN_MOST]


class UnusableReaderError(FatalError):
    """The reader of the definition cannot be created. `option` is the source's wrong option, "" for none."""

    def __init__(self, message: str, hint: str = "", option: str = "") -> None:
        super().__init__(message, hint)
        self.option = option


class ReaderProcess:
    """One process. One thread calls `ask`; any may call `kill`."""

    def __init__(self, name: str, options: dict[str, str], timeout: float) -> None:
        """Starts the process and creates the reader, which `made` then describes. Raises what `ask` raises."""
        self._name = name
        self._timeout = timeout
        self._lock = threading.Lock()
        try:
            ours, self._process = _started()
        except OSError as error:
            words = f"the process of the reader cannot be started: {error.strerror or error}"
            raise RetriableError(
                words, "raise the limits of processes and open files (ulimit -u -n, TasksMax); it is tried again"
            ) from None
        for direction in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # a process that hangs reads no question, and may answer in part
            ours.setsockopt(socket.SOL_SOCKET, direction, struct.pack("ll", int(timeout), int(timeout % 1 * 1_000_000)))
        self._connection = Connection(ours.detach())
        try:
            self.made = self.ask("open", **{"class": name, "options": options, "path": sys.path}).values
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self, what: str, **values: Any) -> ReaderAnswer:  # noqa: ANN401 - JSON values
        """Sends one request and returns the answer.

        Raises UnusableReaderError if the reader cannot be used, ReaderFaultError if it raises, and RetriableError if the process has ended,
        or was killed because it took longer than the timeout.
        """
        try:
            self._connection.send_bytes(json.dumps({"ask": what, **values}).encode())
            answer = json.loads(self._connection.recv_bytes())
            work = self._connection.recv_bytes() if answer.pop("work") else b""
        except BlockingIOError:
            self.kill()
            words = f"the reader {self._name} has not answered ({what}) within {self._timeout:g} s: its process was killed"
            raise RetriableError(words, "it is started again; source.timeout is how long it may take") from None
        except (EOFError, OSError):
            self.kill()
            why = f"ended with {self._process.returncode}"
            raise RetriableError(f"the process of the reader {self._name} {why} ({what})", "it is started again") from None
        if "error" in answer:
            raise self._error(what, answer)
        return ReaderAnswer(answer, work)

    def _error(self, what: str, answer: dict[str, Any]) -> Exception:
        if answer["is_fatal"]:
            return UnusableReaderError(answer["error"], answer["hint"], answer["option"])
        return ReaderFaultError(f"the reader {self._name} failed ({what}): {answer['error']}", answer["hint"], answer.get("text", ""))

    @property
    def is_gone(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kills the process. An `ask` under way raises RetriableError."""
        with self._lock:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Kills the process and closes the socket. Called by the thread that calls `ask`."""
        self.kill()
        with contextlib.suppress(OSError):
            self._connection.close()


def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Starts a process. Returns this end of its connection too. Raises OSError."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", MODULE, str(theirs.fileno())]
    nowhere = subprocess.DEVNULL
    with theirs, contextlib.ExitStack() as at_failure:
        at_failure.callback(ours.close)
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], close_fds=True, stdin=nowhere, stdout=nowhere, stderr=nowhere)
        at_failure.pop_all()
    return ours, process
