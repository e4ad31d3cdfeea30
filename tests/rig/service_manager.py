"""The part of systemd that keeps open files for a service, spoken exactly: `sd_notify(3)`, `sd_listen_fds(3)`.

Run as a script it is what systemd does between fork and exec: it takes the kept descriptors, as 3, 4, ..., and becomes the service.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import secrets
import socket
import struct
import sys
import threading
from typing import Self

from tests.rig.waiting import wait_until

_KCMP = {"x86_64": 312, "aarch64": 272}[os.uname().machine]
_PER_MESSAGE = 253
"""SCM_MAX_FD of the kernel."""
_CREDENTIALS = struct.Struct("iII")


class ServiceManager:
    """Keeps what its service hands over until `stop`. `environment` and `command` are for the service's process; one at a time."""

    def __init__(self, limit: int = 1024) -> None:
        """`limit` is FileDescriptorStoreMax=."""
        name = f"copycat-manager-{secrets.token_hex(8)}"
        self.environment = {"NOTIFY_SOCKET": f"@{name}-notify"}
        self.limit = limit
        self._kept: list[tuple[str, int]] = []
        self._main_pid = 0
        self._token = ""
        self._lock = threading.Lock()
        self._heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._heard.bind(f"\0{name}-notify")
        self._starts = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._starts.bind(f"\0{name}-start")
        self._starts.listen()
        self._name = f"{name}-start"
        for work in (self._hear, self._start):
            threading.Thread(target=work, name="service-manager", daemon=True).start()

    def command(self, *command: str) -> list[str]:
        """What to run instead of `command` for it to begin as the service's main process."""
        return [sys.executable, "-m", "tests.rig.service_manager", self._name, *command]

    def serve(self, pid: int) -> None:
        """Hear this process as the service's main one."""
        with self._lock:
            self._main_pid = pid

    def passed(self) -> dict[str, int]:
        """Copies of what is kept, by name, as the service's next process would find them."""
        with self._lock:
            return {name: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for name, fd in self._kept}

    @property
    def names(self) -> list[str]:
        """Of what is kept, in the order it came."""
        with self._lock:
            return [name for name, _ in self._kept]

    def links(self) -> list[str]:
        """Where the kept descriptors lead."""
        with self._lock:
            return [os.readlink(f"/proc/self/fd/{fd}") for _, fd in self._kept]  # noqa: PTH115 - it is no path

    def catch_up(self) -> None:
        """Wait until everything that was sent so far is heard."""
        token = secrets.token_hex(8)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as talk:
            talk.sendto(token.encode(), self._heard.getsockname())
        wait_until(lambda: self._token == token, 60, "the messages before are heard")

    def keep(self, name: str, fd: int) -> None:
        """Keep `fd`, which is this manager's from now on, as if the service had asked."""
        with self._lock:
            self._kept.append((name, fd))

    def stop(self) -> None:
        """`systemctl stop`: what is kept is dropped."""
        with self._lock:
            for _, fd in self._kept:
                os.close(fd)
            self._kept.clear()

    def close(self) -> None:
        """No service runs any more."""
        for one in (self._heard, self._starts):
            one.shutdown(socket.SHUT_RDWR)
            one.close()
        self.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hear(self) -> None:
        room = socket.CMSG_SPACE(_PER_MESSAGE * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
        while True:
            try:
                message, ancillary, _, _ = self._heard.recvmsg(65536, room, socket.MSG_CMSG_CLOEXEC)
            except OSError:
                return
            if not (message or ancillary):
                return
            fds, pid = array.array("i"), 0
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                elif kind == socket.SCM_CREDENTIALS:
                    pid = _CREDENTIALS.unpack(data)[0]
            text = message.decode()
            if "=" not in text:
                self._token = text
            said = dict(line.partition("=")[::2] for line in text.split("\n"))
            with self._lock:
                self._obey(said if pid == self._main_pid else {}, list(fds))  # NotifyAccess=main

    def _obey(self, said: dict[str, str], fds: list[int]) -> None:
        name = said.get("FDNAME", "")
        if said.get("FDSTOREREMOVE") == "1":
            for _, fd in [one for one in self._kept if one[0] == name]:
                os.close(fd)
            self._kept = [one for one in self._kept if one[0] != name]
        for fd in fds:
            is_new = not any(_is_same(fd, other) for _, other in self._kept)
            if said.get("FDSTORE") == "1" and len(self._kept) < self.limit and is_new:
                self._kept.append((name if _is_valid(name) else "stored", fd))
            else:
                os.close(fd)

    def _start(self) -> None:
        while True:
            try:
                asker, _ = self._starts.accept()
            except OSError:
                return
            with asker, self._lock:
                self._main_pid = _CREDENTIALS.unpack(asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
                names, fds = [name for name, _ in self._kept], [fd for _, fd in self._kept]
                asker.sendall(f"{':'.join(names)}\n".encode())
                for begin in range(0, len(fds), _PER_MESSAGE):
                    socket.send_fds(asker, [b"."], fds[begin : begin + _PER_MESSAGE])


def _is_valid(name: str) -> bool:
    """As fdname_is_valid() has it."""
    return 0 < len(name) <= 255 and all(" " <= one < "\x7f" and one != ":" for one in name)


def _is_same(one: int, other: int) -> bool:
    """Whether both are one open file description: systemd drops the second."""
    pid = os.getpid()
    return bool(ctypes.CDLL(None).syscall(_KCMP, pid, pid, 0, one, other) == 0)


def _become(name: str, command: list[str]) -> None:
    """Take what is kept, and run the command in this process."""
    fds: list[int] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as asked:
        asked.connect(f"\0{name}")
        names = b""
        while not names.endswith(b"\n"):
            names += asked.recv(1)
        count = len(names.split(b":")) if names.strip() else 0
        while len(fds) < count:
            fds += socket.recv_fds(asked, 1, _PER_MESSAGE)[1]
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3 + 2 * count) for fd in fds]
    for number, fd in enumerate(high):
        os.dup2(fd, 3 + number, inheritable=True)
    environment = dict(os.environ)
    if count:
        passed = {"LISTEN_FDS": str(count), "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": names.decode().rstrip("\n")}
        environment |= passed
    os.execvpe(command[0], command, environment)  # noqa: S606 - a service manager has no shell


if __name__ == "__main__":
    _become(sys.argv[1], sys.argv[2:])
