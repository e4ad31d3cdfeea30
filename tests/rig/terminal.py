"""A command on a terminal of its own: a real pty with a size, keys that are pressed, and the picture that is to be seen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

_HOME = b"\x1b[H"
_SEQUENCES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])")
_SECONDS = 60.0


class Terminal:
    """A context manager: nothing of the command is left behind. Its session has the pty as its terminal, so Ctrl-C is a signal."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], rows: int = 24, columns: int = 80) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self._slave)
        self._bytes = b""
        on_it = ["setsid", "--ctty", *command]  # not a process of its own: it becomes the command
        environ = {**environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(on_it, stdin=self._slave, stdout=self._slave, stderr=self._slave, env=environ)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def resize(self, rows: int, columns: int) -> None:
        """Give it another size."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        """Keys as the terminal sends them."""
        os.write(self._master, keys.encode())

    @property
    def modes(self) -> list[Any]:
        """As `tcgetattr` has them now."""
        return termios.tcgetattr(self._slave)

    @property
    def said(self) -> str:
        """Everything that was written."""
        return self._bytes.decode("utf-8", "replace")

    @property
    def screen(self) -> list[str]:
        """The latest picture, line by line, without colours: what was drawn since the cursor went home. It may be half drawn."""
        return [line.rstrip() for line in _SEQUENCES.sub("", self._bytes.rpartition(_HOME)[2].decode("utf-8", "replace")).splitlines()]

    def wait(self) -> int:
        """The exit code, once it has ended."""
        return self.process.wait(_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._slave)
        self._reader.join(_SECONDS)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                came = os.read(self._master, 65536)
            except OSError:  # EIO: nobody has the other end open any more
                return
            if not came:
                return
            self._bytes += came
