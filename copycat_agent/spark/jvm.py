"""Runs the JVM as a child process.

It runs Spark's `PythonGatewayServer` directly: `bin/spark-submit` would first start a shell and a second JVM, and show the configuration on
the command line, which here goes through the gateway. The JVM lives as long as the pipe to its stdin: when this process ends, however it
ends, the JVM exits, and its Python workers with it.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pwd
import re
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from copycat_agent import logs
from copycat_agent.errors import RetriableError

GATEWAY = "org.apache.spark.api.python.PythonGatewayServer"

START_SECONDS = 60.0
"""Time limit until a JVM listens. It takes 0.5-3 s, more on a host that swaps."""

EXIT_SECONDS = 5.0
"""Time limit of Spark's shutdown hooks (0.5 s measured) before the JVM is killed."""

RECORD_SECONDS = 60.0
"""Time limit of the exit of a JVM that writes its archive (2-4 s measured)."""

_POLL_SECONDS = 0.01
_LINE_BYTES = 8192
_TAIL_LINES = 20

# The agent's environment may contain secrets for `${env:...}`, so JVM and workers get only these variables of it.
_PASSED_ON = frozenset(
    (
        "HOME",
        "JAVA_HOME",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_CTYPE",
        "LD_LIBRARY_PATH",
        "LOGNAME",
        "MALLOC_ARENA_MAX",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPATH",
        "PYTHONPYCACHEPREFIX",
        "PYTHONUTF8",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TZ",
        "USER",
    )
)

_COMPLAINT = re.compile(
    r"(FATAL|ERROR) \S+: |\[\S+\[error\]|(Exception in thread \"[^\"]*\" )?java\.lang\.\w*Error|# (A fatal error|There is insufficient)"
)
"""Errors of log4j, of the JVM's own log (-Xlog), and of a JVM that is about to die."""
_OUT_OF_MEMORY = re.compile(r"Exception in thread \"[^\"]*\" java\.lang\.OutOfMemoryError")
"""A thread that ended for want of memory, and is missing from then on. A query that asks for too much memory fails without ending a thread.
With -XX:+ExitOnOutOfMemoryError one record of one query would repeatedly end the work of all connectors."""
_SHOWN_CHARACTERS = 500
"""Most characters of a line that are logged."""

_log = logs.get("spark")


def child_environment(environ: Mapping[str, str], **more: str) -> dict[str, str]:
    """Returns the environment for JVM and workers: a few variables of `environ`, and those that Spark needs."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    return {
        **{name: value for name, value in environ.items() if name in _PASSED_ON},
        "SPARK_USER": user,
        "HADOOP_USER_NAME": user,  # avoids a look-up of the user
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",  # avoids a look-up of the host's name: DNS may be down
        "PYTHONSAFEPATH": "1",  # otherwise `python -m` would put the working directory first on the path
        **more,
    }


class Jvm:
    """One JVM process. One thread at a time may call `close`; any may call the other methods."""

    def __init__(self, command: Sequence[str], run_dir: Path, environ: Mapping[str, str]) -> None:
        """`command` is the launcher with its options, up to the main class. `run_dir` is private (0700)."""
        self._info = run_dir / "gateway"
        self._info.unlink(missing_ok=True)
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [command[0], f"@{_argument_file(run_dir / 'jvm.args', command[1:])}", GATEWAY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=run_dir,
            env={**environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info)},
            start_new_session=True,  # a terminal's Ctrl-C is for the driver, which settles first
        )
        self.pid = self._process.pid
        self._tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        self._pump = threading.Thread(target=self._forward, name="spark-jvm-log", daemon=True)
        self._pump.start()

    def gateway(self) -> tuple[int, str]:
        """Waits until the gateway listens. Returns its port and secret. Raises RetriableError if the JVM ends or takes too long."""
        deadline = self.started + START_SECONDS
        while not self._info.exists():  # Spark renames it into place, so it is complete
            if self._process.poll() is not None:
                self._pump.join(1)
                raise RetriableError(f"the JVM ended at its start ({self.ending()}): {' | '.join(self._tail) or 'it said nothing'}")
            if time.monotonic() > deadline:
                self.kill()
                raise RetriableError(f"the JVM did not listen within {START_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        data = self._info.read_bytes()
        self._info.unlink()
        port, length = struct.unpack_from("!ii", data)
        return port, data[8 : 8 + length].decode()

    def runs(self) -> bool:
        """Returns whether the process is running. Returns at once, also while another thread waits for its end."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def wait(self) -> None:
        """Waits until the process has ended."""
        self._process.wait()

    def ending(self) -> str:
        """Returns how it ended, such as `exit code 1` or `SIGKILL`; `running` if it has not."""
        code = self._process.poll()
        if code is None:
            return "running"
        if code < 0:
            with contextlib.suppress(ValueError):
                return signal.Signals(-code).name
        return f"exit code {code}"

    def kill(self) -> None:
        """Kills the process; its workers end with it."""
        self._process.kill()

    def close(self, seconds: float) -> bool:
        """Asks the process to exit, and kills it after `seconds`. Returns whether it exited cleanly by itself."""
        with contextlib.suppress(OSError):
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pump.join(1)
        return self._process.returncode == 0

    def _forward(self) -> None:
        """Thread: logs the output of the JVM and its workers, and keeps the last lines for `gateway`."""
        stream = self._process.stdout
        if stream is None:
            return
        with stream:
            while line := stream.readline(_LINE_BYTES):
                text = line.decode("utf-8", "backslashreplace").strip()
                if text:
                    self._tail.append(text)
                    (_log.warning if is_complaint(text) else _log.debug)("the JVM says", text=text[:_SHOWN_CHARACTERS])
                    if _OUT_OF_MEMORY.match(text):  # Spark would be stuck with its process alive; a new one is started
                        self.kill()


def is_complaint(text: str) -> bool:
    """Returns whether a line is an error of the JVM or of Spark itself (log4j2.properties), which contain no data of records.

    Tracebacks of Python workers have no level and are logged at debug, because they may show data.
    """
    return _COMPLAINT.match(text) is not None


def _argument_file(path: Path, arguments: Sequence[str]) -> Path:
    """Writes Java's options to a file, because the class path alone has 25 KB. Returns its path."""
    quoted = ('"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"' for argument in arguments)
    path.write_bytes(os.fsencode("\n".join(quoted) + "\n"))
    return path
