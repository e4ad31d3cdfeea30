"""The process of a database server that a test has to itself: started, asked whether it answers, ended as one wants."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from pathlib import Path

DEADLINE_SECONDS = 60.0
"""For a server to start, to end, or to answer."""


class ServerProcess(ABC):
    """`_directory` is its own, and where it runs."""

    _directory: Path
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The server's process, None when it does not run."""
        return self._process.pid if self._process else None

    @property
    def log(self) -> str:
        """What the server has said."""
        path = self._directory / "log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def start(self) -> None:
        """Returns once it answers."""
        assert self._process is None, "it runs"
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._server(), cwd=self._directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._serves, DEADLINE_SECONDS, lambda: self.log[-2000:])

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log[-2000:]
        return self._answers()

    @abstractmethod
    def _server(self) -> Sequence[str]:
        """The command that is the server."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it takes statements."""

    def _end(self, how: signal.Signals) -> None:
        """Waits for it. Without effect when it does not run."""
        if self._process is not None:
            try:
                self._process.send_signal(how)
                self._process.wait(DEADLINE_SECONDS)
            finally:
                self._process.kill()
                self._process.wait()
                self._process = None
