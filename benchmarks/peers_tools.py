"""The shippers that are killed: how each is set up, with what its documentation advises against losing and repeating."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.connect_jars import class_path
from benchmarks.tools import CONNECT_JVM, LOGGING, write_properties
from copycat_agent import __version__
from copycat_agent.dev_broker import free_port
from copycat_agent.dev_broker.jars import KAFKA_VERSION
from copycat_agent.maven import java, pyspark_jars

_FILESTREAM = "org.apache.kafka.connect.file.FileStreamSourceConnector"
_REST_SECONDS = 60.0


@dataclass(frozen=True)
class Route:
    """Logs to follow, each with its topic, and a directory for the tool's own files. `flume`: the directory with Flume's jars."""

    logs: Mapping[Path, str]
    bootstrap: str
    work: Path
    flume: Path | None = None


@dataclass(frozen=True)
class Peer:
    """`prepare` writes the configuration once and returns the command, which is then started again and again.

    `ready` is called after the first start, for what a tool is told while it runs. `settings`: what differs from its defaults.
    """

    title: str
    settings: str
    version: Callable[[], str]
    prepare: Callable[[Route], list[str]]
    ready: Callable[[Route], None] = lambda _: None


def _copycat(guarantee: str) -> Callable[[Route], list[str]]:
    def prepare(route: Route) -> list[str]:
        definitions = route.work / "connectors.d"
        definitions.mkdir()
        for log, topic in route.logs.items():
            definition = {
                "name": topic,
                "source": {"type": "log_file", "include": [str(log)]},
                "record": {"topic": topic},
                "delivery": {"guarantee": guarantee},
                "kafka": {"bootstrap_servers": [route.bootstrap]},
            }
            (definitions / f"{topic}.yaml").write_text(json.dumps(definition))
        return [sys.executable, "-m", "copycat_agent", "run", str(definitions), "--state-dir", str(route.work / "state")]

    return prepare


_STRING = "org.apache.kafka.connect.storage.StringConverter"
_WORKER = {"key.converter": _STRING, "value.converter": _STRING, "producer.acks": "all", "producer.compression.type": "lz4"}


def _connect(work: Path, main: str, *arguments: str) -> list[str]:
    (work / "log4j2.properties").write_text(LOGGING)
    options = (*CONNECT_JVM, f"-Dlog4j2.configurationFile={work / 'log4j2.properties'}", "-cp", class_path())
    return [java(), *options, f"org.apache.kafka.connect.cli.{main}", *arguments]


def _filestream(log: Path, topic: str) -> dict[str, str]:
    return {"connector.class": _FILESTREAM, "tasks.max": "1", "file": str(log), "topic": topic}


def _standalone(route: Route) -> list[str]:
    worker = write_properties(route.work / "worker.properties", {
        "bootstrap.servers": route.bootstrap, "listeners": f"http://127.0.0.1:{free_port()}", **_WORKER,
        "offset.storage.file.filename": str(route.work / "connect.offsets"), "offset.flush.interval.ms": "100",
        "producer.enable.idempotence": "true",
    })  # fmt: skip
    files = [
        write_properties(route.work / f"{topic}.properties", {"name": topic, **_filestream(log, topic)})
        for log, topic in route.logs.items()
    ]
    return _connect(route.work, "ConnectStandalone", worker, *files)


def _distributed(route: Route) -> list[str]:
    group = route.work.name
    topics = {f"{kind}.storage.topic": f"{group}-{kind}" for kind in ("config", "offset", "status")}
    factors = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    port = free_port()
    worker = write_properties(route.work / "worker.properties", {
        "bootstrap.servers": route.bootstrap, "listeners": f"http://127.0.0.1:{port}", **_WORKER, "group.id": group, **topics, **factors,
        "offset.storage.partitions": "1", "status.storage.partitions": "1", "exactly.once.source.support": "enabled",
        "scheduled.rebalance.max.delay.ms": "0", "session.timeout.ms": "6000", "heartbeat.interval.ms": "2000",
    })  # fmt: skip
    (route.work / "port").write_text(str(port))
    return _connect(route.work, "ConnectDistributed", worker)


def _create_connectors(route: Route) -> None:
    """Through Connect's REST interface, as distributed workers want it; they remember it."""
    port = (route.work / "port").read_text()
    for log, topic in route.logs.items():
        body = json.dumps({**_filestream(log, topic), "exactly.once.support": "required"}).encode()
        _put(f"http://127.0.0.1:{port}/connectors/{topic}/config", body)


def _put(url: str, body: bytes) -> None:
    end = time.monotonic() + _REST_SECONDS
    while True:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            if error.code not in {404, 409, 500, 503} or time.monotonic() > end:
                raise RuntimeError(f"Kafka Connect answers {error.code}: {error.read().decode(errors='replace')}") from None
        except OSError:
            if time.monotonic() > end:
                raise
        else:
            return
        time.sleep(0.3)


def _flume(route: Route) -> list[str]:
    assert route.flume is not None
    names = [f"l{number}" for number in range(len(route.logs))]
    values = {"a.sources": " ".join(names), "a.channels": " ".join(names), "a.sinks": " ".join(names)}
    for name, (log, topic) in zip(names, route.logs.items(), strict=True):
        state = route.work / name
        source = {
            "type": "TAILDIR", "channels": name, "positionFile": str(state / "positions.json"), "filegroups": "f",
            "filegroups.f": f"{log.parent}/{re.escape(log.name)}", "writePosInterval": "100",
        }  # fmt: skip
        channel = {"type": "file", "checkpointDir": str(state / "checkpoint"), "dataDirs": str(state / "data")}
        sink = {
            "type": "org.apache.flume.sink.kafka.KafkaSink", "channel": name, "kafka.topic": topic,
            "kafka.bootstrap.servers": route.bootstrap, "kafka.producer.acks": "all",
            "kafka.producer.enable.idempotence": "true", "kafka.producer.compression.type": "lz4",
        }  # fmt: skip
        for kind, of in (("sources", source), ("channels", channel), ("sinks", sink)):
            values |= {f"a.{kind}.{name}.{key}": value for key, value in of.items()}
    configuration = write_properties(route.work / "flume.properties", values)
    (route.work / "log4j2.properties").write_text(LOGGING)
    jars = [*pyspark_jars("slf4j-api-*.jar", "log4j-slf4j2-impl-*.jar", "log4j-api-*.jar", "log4j-core-*.jar")]
    jars += [jar for jar in sorted(route.flume.glob("*.jar")) if not jar.name.startswith(("slf4j-", "log4j-"))]
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "java.lang")]
    return [
        java(), "-Xms100m", "-Xmx1g", *opened, f"-Dlog4j2.configurationFile={route.work / 'log4j2.properties'}",
        "-cp", os.pathsep.join(map(str, jars)), "org.apache.flume.node.Application", "-n", "a", "-f", configuration,
    ]  # fmt: skip


_RSYSLOG = """global(workDirectory="{work}" maxMessageSize="64k" parser.escapeControlCharactersOnReceive="off")
module(load="imfile" mode="inotify")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
"""
_RSYSLOG_LOG = """input(type="imfile" File="{log}" Tag="{topic}:" ruleset="{topic}"
      PersistStateInterval="100" persistStateAfterSubmission="on")
ruleset(name="{topic}" queue.type="Disk" queue.filename="{topic}" queue.maxDiskSpace="1g" queue.checkpointInterval="1"
        queue.syncQueueFiles="on" queue.saveOnShutdown="on") {{
  action(type="omkafka" broker=["{bootstrap}"] topic="{topic}" template="line" partitions.auto="on" action.resumeRetryCount="-1"
         resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{work}/{topic}.failed"
         confParam=["acks=all", "enable.idempotence=true", "compression.codec=lz4", "queue.buffering.max.ms=5"])
}}
"""


def _rsyslog(route: Route) -> list[str]:
    parts = [_RSYSLOG_LOG.format(work=route.work, log=log, topic=topic, bootstrap=route.bootstrap) for log, topic in route.logs.items()]
    path = route.work / "rsyslog.conf"
    path.write_text(_RSYSLOG.format(work=route.work) + "".join(parts))
    return ["rsyslogd", "-n", "-f", str(path), "-i", str(route.work / "rsyslogd.pid")]


def _rsyslog_version() -> str:
    answer = subprocess.run(["rsyslogd", "-v"], capture_output=True, text=True, check=True).stdout
    return answer.split()[1]


PEERS: dict[str, Peer] = {
    "at_least_once": Peer("copycat-agent, at_least_once", "defaults", lambda: __version__, _copycat("at_least_once")),
    "exactly_once": Peer("copycat-agent, exactly_once", "delivery.guarantee: exactly_once", lambda: __version__, _copycat("exactly_once")),
    "filestream": Peer(
        "Kafka Connect standalone, FileStreamSource",
        "producer acks=all, idempotent; offset.flush.interval.ms=100 (default 60,000)",
        lambda: KAFKA_VERSION,
        _standalone,
    ),
    "filestream_eos": Peer(
        "Kafka Connect distributed, FileStreamSource, exactly once",
        "exactly.once.source.support=enabled, exactly.once.support=required, scheduled.rebalance.max.delay.ms=0, session.timeout.ms=6000",
        lambda: KAFKA_VERSION,
        _distributed,
        _create_connectors,
    ),
    "flume": Peer(
        "Apache Flume, taildir, file channel, Kafka sink",
        "file channel; writePosInterval=100 ms (default 3,000); producer acks=all, idempotent",
        lambda: "1.11.0",
        _flume,
    ),
    "rsyslog": Peer(
        "rsyslog, imfile, disk queue, omkafka",
        "state written every 100 lines (PersistStateInterval=100, persistStateAfterSubmission); disk queue, synced, with a checkpoint for "
        "each line; resubmitOnFailure, keepFailedMessages; acks=all, idempotent",
        _rsyslog_version,
        _rsyslog,
    ),
}


class Shipper:
    """A peer's process: started, killed with SIGKILL, started again with the same files."""

    def __init__(self, peer: Peer, route: Route) -> None:
        self._peer = peer
        self._route = route
        self._command = peer.prepare(route)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_told = False

    def start(self) -> None:
        """Start it; the first time, tell it what it is told while it runs."""
        with (self._route.work / "output.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        if not self._is_told:
            self._is_told = True
            self._peer.ready(self._route)

    def kill(self) -> None:
        """SIGKILL to the process that was started, and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)

    @property
    def is_running(self) -> bool:
        """Whether it lives. A tool that ended by itself is started again by the next kill."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """As its user would; SIGKILL when it takes longer than a minute."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def words(self) -> str:
        """The end of what it has printed."""
        path = self._route.work / "output.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""
