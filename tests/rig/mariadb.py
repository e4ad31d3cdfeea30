"""A real MariaDB on loopback, from Debian's package: to write to, to lock up, to crash."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from copycat_agent.dev_broker import free_port
from tests.rig.server_process import DEADLINE_SECONDS, ServerProcess

if TYPE_CHECKING:
    from types import TracebackType

_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"
_UNPRIVILEGED = "nobody"
_SETTINGS = """
bind-address = 127.0.0.1
skip-name-resolve
skip-log-bin
character-set-server = utf8mb4
innodb-flush-log-at-trx-commit = 0
innodb-buffer-pool-size = 32M
innodb-log-file-size = 16M
key-buffer-size = 1M
max-allowed-packet = 64M
performance-schema = OFF
default-time-zone = +02:00
log-warnings = 1
"""


def has_mariadb() -> bool:
    """Whether the server and its client are installed."""
    return all(shutil.which(one, path=_PATH) for one in ("mariadbd", "mariadb-install-db", "mariadb"))


class MariaDatabase:
    """One database of a server; its user may do everything."""

    def __init__(self, port: int, name: str, user: str, password: str, host: str = "127.0.0.1") -> None:
        self.port, self.name, self.user, self.password, self.host = port, name, user, password, host
        self.url = f"jdbc:mariadb://{host}:{port}/{name}"

    def execute(self, sql: str) -> list[list[str]]:
        """Runs statements, separated by semicolons, each committed by itself: the rows of all of them, values as texts, NULL as `NULL`."""
        done = subprocess.run(self._client(), input=sql.encode(), capture_output=True, timeout=DEADLINE_SECONDS, check=False)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
        return [line.split("\t") for line in done.stdout.decode().splitlines()]

    @contextmanager
    def transaction(self) -> Iterator[Callable[[str], None]]:
        """A session with a transaction that ends when it is told to: the function runs a statement, and returns once it is done."""
        with subprocess.Popen(self._client(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            told = iter(client.stdout.readline, b"")

            def run(statement: str) -> None:
                assert client.stdin is not None
                client.stdin.write(f"{statement};\nSELECT 'it is done';\n".encode())
                client.stdin.flush()
                said = []
                for line in told:
                    said.append(line)
                    if line.strip() == b"it is done":
                        return
                raise AssertionError(b"".join(said).decode("utf-8", "replace"))

            try:
                run("START TRANSACTION")
                yield run
            finally:
                client.kill()

    def _client(self) -> list[str]:
        login = [f"--host={self.host}", f"--port={self.port}", f"--user={self.user}", f"--password={self.password}"]
        form = ["--batch", "--skip-column-names", "--unbuffered", "--default-character-set=utf8mb4", "--max-allowed-packet=64M"]
        return [_program("mariadb"), "--no-defaults", "--protocol=tcp", *login, *form, self.name]


class MariaDB(ServerProcess, MariaDatabase):
    """A server of its own, and its database `mysql`. It keeps its port and its data from `start` to `start`."""

    def __init__(self) -> None:
        super().__init__(free_port(), "mysql", "copycat", secrets.token_hex(8))

    def __enter__(self) -> Self:
        """Make the data directory, and start."""
        self._directory = Path(tempfile.mkdtemp(prefix="copycat-mariadb-"))
        try:
            self._make_data_directory()
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop, whatever sessions there are; nothing is left."""
        try:
            self.stop(signal.SIGKILL)
        finally:
            shutil.rmtree(self._directory)

    def _server(self) -> list[str]:
        return [*self._as_user("SIGTERM"), _program("mariadbd"), f"--defaults-file={self._directory}/my.cnf"]

    def _answers(self) -> bool:
        command = [*self._client()[:-1], "--execute=SELECT 1"]
        return subprocess.run(command, capture_output=True, timeout=DEADLINE_SECONDS, check=False).returncode == 0

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """SIGTERM: sessions are ended, what is open is rolled back. SIGKILL: a crash, from which the next start recovers."""
        self._end(how)

    @contextmanager
    def database(self, name: str = "") -> Iterator[MariaDatabase]:
        """A fresh one, dropped in the end."""
        name = name or f"t_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE `{name}`")
        try:
            yield MariaDatabase(self.port, name, self.user, self.password)
        finally:
            if self._process is not None:
                self.execute(f"DROP DATABASE `{name}`")

    def _make_data_directory(self) -> None:
        first = self._directory / "first.sql"
        first.write_text(
            "FLUSH PRIVILEGES;\n"  # without which the server that makes the directory knows no users
            f"CREATE USER {self.user}@'127.0.0.1' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO {self.user}@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        (self._directory / "tmp").mkdir()  # a server that starts removes what others have in one that they share
        named = {"tmpdir": "tmp", "datadir": "data", "socket": "socket", "pid-file": "pid"}
        places = "".join(f"{option} = {self._directory}/{name}\n" for option, name in named.items())
        (self._directory / "my.cnf").write_text(f"[mariadbd]\nport = {self.port}\n{places}{_SETTINGS}")
        self._as_user = self._unprivileged()
        answer = subprocess.run(
            [*self._as_user("SIGKILL"), _program("mariadb-install-db"), f"--defaults-file={self._directory}/my.cnf",
             "--auth-root-authentication-method=normal", "--skip-test-db", f"--extra-file={first}"],
            cwd=self._directory, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout + answer.stderr

    def _unprivileged(self) -> Callable[[str], list[str]]:
        """It refuses root."""
        who: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam(_UNPRIVILEGED)
            for path in (self._directory, *self._directory.iterdir()):
                os.chown(path, user.pw_uid, user.pw_gid)
            who = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return lambda dies_by: ["setpriv", f"--pdeathsig={dies_by}", *who]


def _program(name: str) -> str:
    path = shutil.which(name, path=_PATH)
    assert path is not None, f"{name} is not installed: apt-get install mariadb-server"
    return path
