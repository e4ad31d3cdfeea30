"""A mount whose server goes away: whoever looks at it hangs."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Self

import psutil

from tests.rig.waiting import wait_until

SOURCE = Path(__file__).parents[1] / "faults" / "hanging_fs.c"


def why_not() -> str:
    """Why there is none to be had here, "" when there is."""
    tools = [tool for tool in ("cc", "pkg-config", "fusermount3") if not shutil.which(tool)]
    if tools or subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode:
        return f"no {', '.join(tools) or 'libfuse3-dev'}"
    return "" if os.access("/dev/fuse", os.R_OK | os.W_OK) else "/dev/fuse may not be used"


class HangingMount:
    """`path` shows what lies in `behind`, which never hangs. A real file system, by FUSE."""

    def __init__(self, root: Path) -> None:
        """Mounted at once; `close` it, or whoever looks below `root` hangs."""
        self.path, self.behind = root / "mount", root / "behind"
        self.path.mkdir(parents=True)
        self.behind.mkdir()
        self._program = program = root / "hanging_fs"
        self._left: list[subprocess.Popen[bytes]] = []
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True).stdout.split()
        subprocess.run(["cc", "-O1", "-Wall", "-o", program, SOURCE, *flags], check=True, timeout=120)
        self._server = self._mount()

    def _mount(self) -> subprocess.Popen[bytes]:
        server = subprocess.Popen([self._program, "-f", "-s", self.path, self.behind])
        wait_until(self.path.is_mount, 60, "it is mounted")
        return server

    def unmount(self) -> None:
        """Take it away from its path while it hangs. Whoever is in it stays there until `close`."""
        subprocess.run(["fusermount3", "-u", "-z", self.path], check=True, timeout=60)
        self._left.append(self._server)

    def mount_anew(self) -> None:
        """After `unmount`: another one, which does not hang, at the same path."""
        self._server = self._mount()

    def hang(self) -> None:
        """From now on, until `go_on`."""
        self._server.send_signal(signal.SIGSTOP)

    def hang_while_read(self) -> None:
        """As soon as 4 MiB more are asked for: whoever reads them hangs in a read. Only once."""
        self._server.send_signal(signal.SIGUSR1)

    @property
    def hangs(self) -> bool:
        """Whether it does now."""
        return psutil.Process(self._server.pid).status() == psutil.STATUS_STOPPED

    def go_on(self) -> None:
        """Everyone gets an answer."""
        self._server.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Whoever hangs gets an error. For good."""
        for server in {self._server, *self._left}:
            server.kill()
            server.wait()
        if self._server not in self._left:
            subprocess.run(["fusermount3", "-u", "-z", self.path], check=True, timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
