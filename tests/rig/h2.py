"""Databases of H2 in files, which Spark's JVM opens by itself; SQL from here runs in a Java process of its own."""

from __future__ import annotations

import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from copycat_agent.maven import java
from copycat_agent.sources.jdbc.drivers import driver_jars, driver_of

_URL = "jdbc:h2:file:"
_IN_USE = "Database may be already in use"
_JUST_CLOSED = "Connection refused"
"""With AUTO_SERVER: the process that had the file open has just ended, and its port is still in the lock file."""
_CLOSING = "SessionRemote.initTransfer"
"""As above, a moment earlier: the port is closed before the session begins."""
_DEADLINE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class H2Database:
    """A file that one process at a time has open: another one's session keeps everybody else out until it is closed.

    With `;AUTO_SERVER=TRUE` behind the url several may, through a port that the first one opens.
    """

    url: str
    user: str = "sa"
    password: str = "sa"

    def execute(self, *statements: str) -> str:
        """Runs all of them in one session, each committed by itself, and returns the rows as a person would see them (about 0.5 s).

        Waits for as long as another process has the file open. AssertionError with H2's words at the deadline, or when a statement fails;
        those behind it are run all the same.
        """
        command = self._shell()
        end = time.monotonic() + _DEADLINE_SECONDS
        while True:
            answer = subprocess.run(
                [*command, "-sql", ";".join(statements)], capture_output=True, text=True, timeout=_DEADLINE_SECONDS, check=False
            )
            if answer.returncode == 0:
                assert "\nError: " not in f"\n{answer.stdout}", answer.stdout
                return answer.stdout
            assert any(one in answer.stderr for one in (_IN_USE, _JUST_CLOSED, _CLOSING)), answer.stderr
            assert time.monotonic() < end, answer.stderr
            time.sleep(_PAUSE_SECONDS)

    @contextmanager
    def session(self) -> Iterator[Callable[[str], None]]:
        """A session of another process that commits when it is told to: the function runs a statement, and returns once it is done.

        The url has to be one with AUTO_SERVER.
        """
        with subprocess.Popen(self._shell(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as shell:
            assert shell.stdin is not None
            assert shell.stdout is not None
            told = iter(shell.stdout.readline, "")

            def run(statement: str) -> None:
                assert shell.stdin is not None
                shell.stdin.write(f"{statement};\nSELECT 'done' || 'so';\n")
                shell.stdin.flush()
                said: list[str] = []
                for line in told:
                    said.append(line)
                    if line.startswith("doneso"):
                        break
                assert said, "the session has ended"
                assert "doneso" in said[-1], said
                assert not any("Error: " in line for line in said), said

            try:
                shell.stdin.write("autocommit false\n")
                yield run
            finally:
                shell.kill()

    def _shell(self) -> list[str]:
        login = ["-url", self.url, "-user", self.user, "-password", self.password]
        return [java(), "-Xmx64m", "-Dh2.bindAddress=127.0.0.1", "-cp", str(h2_jar()), "org.h2.tools.Shell", *login]


def h2_jar() -> Path:
    """The driver, which is the database as well."""
    known = driver_of(_URL)
    assert known is not None
    return driver_jars(known.coordinates)[0]


def fresh_h2(directory: Path) -> H2Database:
    """A database of its own in a directory; whoever opens it first makes it."""
    return H2Database(f"{_URL}{directory}/{uuid.uuid4().hex}")
