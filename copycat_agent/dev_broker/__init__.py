"""A real one-node Kafka for experiments and for the tests: no docker, only the Java that Spark needs anyway.

One JVM, broker and controller in one (KRaft), is a child process. Beside the standard library it needs the jars inside PySpark (found,
never imported) and, once, the network.
"""

from __future__ import annotations

import base64
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from copycat_agent.dev_broker.jars import KAFKA_VERSION, fetch_kafka
from copycat_agent.errors import FatalError
from copycat_agent.maven import java, pyspark_jars

__all__ = ["KAFKA_VERSION", "DevBroker", "fetch_kafka", "free_port"]

_PORTS = range(20_000, 32_000)
"""Below the range that Linux uses for the client side of connections (32768 up): a port inside that range can be taken by any outgoing
connection while a broker restarts, and a client that retries it on loopback can even reach itself."""
_ATTEMPTS = 200
_given: set[int] = set()


def is_free(port: int) -> bool:
    """Returns whether a server could bind 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """Returns a port on 127.0.0.1 without a listener, safe to restart a server on. Someone else may still take it first.

    In one process no port is returned twice: an earlier caller may not listen yet.
    """
    numbers = random.SystemRandom()
    for _ in range(_ATTEMPTS):
        port = numbers.choice(_PORTS)
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise OSError("no free port between 20000 and 32000 on 127.0.0.1")


_HOST = "127.0.0.1"
_READY = b"Kafka Server started"
_POLL_SECONDS = 0.02
_FORMAT_SECONDS = 60.0
_FREEZE_SECONDS = 5.0
_JVM_OPTIONS: tuple[str, ...] = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""Small and quick to start; a class data archive would save 0.8 s of 3 s for 50 MB of disk, not worth it."""

_BIND_TO_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Sets PR_SET_PDEATHSIG (1), then becomes the JVM: like `preexec_fn`, without running Python between fork and exec. The check of the parent
closes the race with a parent that died before. On systems other than Linux nothing binds them."""

_LOGGING = """status = error
shutdownHook = disable
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
logger.config.name = org.apache.kafka.common.config.AbstractConfig
logger.config.level = warn
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""
"""Logs to standard output, which is the log file: the JVM's own messages go to the same place. Without the hook, which would stop logging
while Kafka still shuts down."""

_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One replica of everything: there is one node.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Old logs are sent with their old event times: by default, records of 1970 are deleted within minutes.
    "log.retention.ms": "-1",
    # Quick: no wait for further group members, timed-out transactions are looked for each second.
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # A killed broker may only register again when its old session has ended (9 s by default).
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    # Small.
    "num.io.threads": "4",
    "num.network.threads": "2",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "16777216",
}


class DevBroker:
    """A real broker on 127.0.0.1, for one caller at a time (it is not thread-safe, but any thread may be the caller).

    Everything it writes is in `data_dir`: `server.properties`, `broker.log` (appended to by each start), `data/`, `tmp/`. The same
    directory given again continues with the same cluster and topics. On Linux the broker is killed by the kernel when this process ends in
    any way.

    `port` 0 chooses a free one, kept for the life of this object. `properties` override the defaults. `advertised` (HOST:PORT) is the
    address that clients are told to use instead of the broker's own, for a proxy in front; the broker's traffic with itself never takes it.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        properties: Mapping[str, str] | None = None,
        *,
        advertised: str = "",
        auto_create_topics: bool = True,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.port = port or free_port()
        self.log_path = self.data_dir / "broker.log"
        self._advertised = advertised
        self._overrides = {"auto.create.topics.enable": str(auto_create_topics).lower(), **(properties or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._spawner: ThreadPoolExecutor | None = None

    @property
    def address(self) -> str:
        """HOST:PORT on which the broker itself listens for clients."""
        return f"{_HOST}:{self.port}"

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for clients: the advertised address, which is the broker's own unless it was overridden."""
        return self._advertised or self.address

    @property
    def pid(self) -> int | None:
        """Process id of the JVM; None if it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self, timeout: float = 60.0) -> str:
        """Starts it and waits until clients can connect; returns `bootstrap`. `timeout` does not include fetching the jars.

        Raises FatalError, with the broker's own last message, if it does not come up. Does nothing if it already runs.
        """
        if self.pid is not None:
            return self.bootstrap
        class_path = _class_path(fetch_kafka())
        deadline = time.monotonic() + timeout
        if not is_free(self.port):
            raise FatalError(f"{self.address} is taken by another process", "choose another port; 0 takes any free one")
        self._configure()
        self._format(class_path)
        try:
            self._spawn(class_path)
            self._await_ready(deadline)
        except BaseException:
            self.kill()
            raise
        return self.bootstrap

    def stop(self, timeout: float = 20.0) -> None:
        """Shuts down cleanly: SIGTERM, up to `timeout` seconds, then SIGKILL. Also for a paused or stopped broker."""
        if self._process is not None and self.pid is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Sends SIGKILL: nothing is flushed, as in a power cut. `start` continues with the same data."""
        if self._process is not None and self.pid is not None:
            self._process.kill()
        self._reap()

    def pause(self) -> None:
        """Freezes the broker (SIGSTOP): connections stay open, nothing is answered once this returns."""
        process = self._running()
        process.send_signal(signal.SIGSTOP)
        give_up_at = time.monotonic() + _FREEZE_SECONDS
        while os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG) is None and time.monotonic() < give_up_at:
            time.sleep(0.001)  # on a busy machine its threads run on for a moment

    def resume(self) -> None:
        """Undoes `pause`."""
        self._running().send_signal(signal.SIGCONT)

    def restart(self, timeout: float = 60.0) -> str:
        """Does `stop` and `start`: the same port, the same data."""
        self.stop()
        return self.start(timeout)

    def wait(self, timeout: float | None = None) -> int | None:
        """Blocks until the broker ends by itself; returns its exit code, or None after `timeout` seconds."""
        try:
            return self._running().wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise FatalError("the broker does not run")
        return self._process

    def _configure(self) -> None:
        """Writes the configuration; the inner ports are chosen anew, nothing outside this file knows them."""
        internal, controller = free_port(), free_port()
        listeners = f"INTERNAL://{_HOST}:{internal},CONTROLLER://{_HOST}:{controller}"
        properties = _PROPERTIES | {
            "listeners": f"CLIENT://{self.address},{listeners}",
            "advertised.listeners": f"CLIENT://{self.bootstrap},{listeners}",
            "controller.quorum.voters": f"1@{_HOST}:{controller}",
            "log.dirs": str(self.data_dir / "data"),
        } | self._overrides  # fmt: skip
        (self.data_dir / "tmp").mkdir(parents=True, exist_ok=True)
        (self.data_dir / "log4j2.properties").write_text(_LOGGING, "utf-8")
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (self.data_dir / "server.properties").write_text(text, "utf-8")

    def _java(self, class_path: str, main: str, *arguments: str) -> list[str]:
        """Returns a command. Kafka's native libraries unpack into `java.io.tmpdir`: not /tmp, which may be mounted noexec."""
        logging = f"-Dlog4j2.configurationFile={self.data_dir / 'log4j2.properties'}"
        return [java(), *_JVM_OPTIONS, f"-Djava.io.tmpdir={self.data_dir / 'tmp'}", logging, "-cp", class_path, main, *arguments]

    def _format(self, class_path: str) -> None:
        """Gives an empty data directory its cluster id. A directory that has one is left alone."""
        if (self.data_dir / "data" / "meta.properties").exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        config = str(self.data_dir / "server.properties")
        # "--cluster-id=": an id may begin with a dash
        command = self._java(class_path, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", config)
        with self.log_path.open("ab") as log:
            done = subprocess.run(
                command, cwd=self.data_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=_FORMAT_SECONDS, check=False
            )
        if done.returncode != 0:
            raise self._failure("its storage could not be formatted")

    def _spawn(self, class_path: str) -> None:
        """Starts the JVM from a thread of its own: the kernel's parent-death signal depends on the thread that forked."""
        kafka = self._java(class_path, "kafka.Kafka", str(self.data_dir / "server.properties"))
        command = [sys.executable, "-ISc", _BIND_TO_PARENT, str(os.getpid()), *kafka]
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="dev-broker")
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = self._spawner.submit(
                subprocess.Popen, command, cwd=self.data_dir, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            ).result()

    def _await_ready(self, deadline: float) -> None:
        while not (self._has_said_ready() and self._accepts()):
            if self._running().poll() is not None:
                raise self._failure(f"it ended with exit code {self._running().returncode}")
            if time.monotonic() > deadline:
                raise self._failure("it was not ready in time")
            time.sleep(_POLL_SECONDS)

    def _has_said_ready(self) -> bool:
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return _READY in log.read()

    def _accepts(self) -> bool:
        try:
            socket.create_connection((_HOST, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _failure(self, why: str) -> FatalError:
        """Returns the error to raise, with the first complaint in the log."""
        lines = self.log_path.read_text("utf-8", "replace").splitlines()[-200:]
        complaints = [line for line in lines if " ERROR " in line or "Exception" in line] or lines[-1:]
        said = f": {complaints[0].strip()}" if complaints else ""
        return FatalError(f"Kafka {KAFKA_VERSION} did not start, {why}{said}", f"read {self.log_path}")

    def _reap(self) -> None:
        """Forgets the ended process and ends its thread (only now: its end would kill a running broker)."""
        if self._process is not None:
            self._process.wait()
        if self._spawner is not None:
            self._spawner.shutdown()
        self._process = self._spawner = None


def _class_path(kafka: Path) -> str:
    """Returns Kafka's jars, with PySpark's log4j in place of Kafka's own, whose slf4j has no implementation that writes a log."""
    logging = pyspark_jars("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")
    others = (jar for jar in sorted(kafka.glob("*.jar")) if not jar.name.startswith(("slf4j-", "log4j-")))
    return os.pathsep.join(str(jar) for jar in (*logging, *others))
