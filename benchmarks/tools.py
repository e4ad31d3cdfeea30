"""The tools that are compared: how each is started on some files, each with a topic of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.connect_jars import class_path
from copycat_agent.dev_broker import free_port
from copycat_agent.maven import java

CONNECT_JVM = (
    "-server", "-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip
"""What Kafka's own connect-standalone.sh gives its JVM."""


MOST_OPEN = 2000
"""More than any case has files: with fewer (512 by default) they would take turns."""

LOGGING = """status=error
appender.console.type=Console
appender.console.name=console
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
"""
"""log4j2: warnings and errors, to standard output."""


@dataclass(frozen=True)
class Job:
    """Files to ship, or, for latency, to follow; `topics` has one for each of `paths`. `guarantee` is the agent's."""

    paths: tuple[Path, ...]
    topics: tuple[str, ...]
    bootstrap: str
    work: Path
    guarantee: str = "at_least_once"

    @property
    def pairs(self) -> list[tuple[Path, str]]:
        """Each file and its topic."""
        return list(zip(self.paths, self.topics, strict=True))


Process = subprocess.Popen[bytes]
Start = Callable[[Job], list[Process]]
"""Starts a tool; what it starts by itself belongs to the processes that are returned."""


@dataclass(frozen=True)
class Tool:
    """`follows`: it goes on reading a file that grows. `needs`: a command that must be there, "" for none.

    `in_bulk`: it is measured with large files. `is_exact`: it can send exactly once. `takes_patterns`: a path may be a pattern.
    """

    start: Start
    follows: bool
    needs: str = ""
    in_bulk: bool = True
    is_exact: bool = False
    takes_patterns: bool = False


def copycat(job: Job) -> list[Process]:
    """The agent as a user runs it, one connector for each file."""
    return _agent(job, sys.executable)


def previous(job: Job) -> list[Process]:
    """The agent of another checkout, which the environment variable COPYCAT_PREVIOUS names, from its own `.venv`."""
    return _agent(job, os.path.join(os.environ["COPYCAT_PREVIOUS"], ".venv", "bin", "python"))  # noqa: PTH118 - a link, not to be resolved


def _agent(job: Job, python: str) -> list[Process]:
    definitions = job.work / "connectors.d"
    definitions.mkdir(parents=True)
    for path, topic in job.pairs:
        definition = {
            "name": topic,
            "source": {"type": "log_file", "include": [str(path)], "max_open_files": MOST_OPEN},
            "record": {"topic": topic},
            "kafka": {"bootstrap_servers": [job.bootstrap]},
            "delivery": {"guarantee": job.guarantee},
        }
        (definitions / f"{topic}.yaml").write_text(json.dumps(definition))
    command = [python, "-m", "copycat_agent", "run", str(definitions), "--state-dir", str(job.work / "state")]
    cwd = None if python == sys.executable else Path(python).parents[2]
    return [start(job.work, command, cwd, _with_bytecode(os.environ))]


def _with_bytecode(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment in which the agent finds its modules compiled, as where it is installed; the first round writes them."""
    kept = {name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {"PYTHONPYCACHEPREFIX": str(Path.home() / ".cache" / "copycat" / "bytecode"), **kept}


def kcat(job: Job) -> list[Process]:
    """kcat -P -l: what librdkafka alone can do; one process for each file. It reads once and ends."""
    common = ["kcat", "-P", "-b", job.bootstrap, "-z", "lz4", "-X", "acks=all"]
    return [start(job.work, [*common, "-t", topic, "-l", str(path)]) for path, topic in job.pairs]


def filestream(job: Job) -> list[Process]:
    """Kafka Connect standalone with one FileStreamSource for each file."""
    connectors = {
        topic: {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "file": str(path), "topic": topic}
        for path, topic in job.pairs
    }
    return connect(job.work, job.bootstrap, connectors)


_RSYSLOG = """global(workDirectory="{work}" maxMessageSize="64k" parser.escapeControlCharactersOnReceive="off")
module(load="imfile" mode="inotify")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
"""
_RSYSLOG_LOG = """input(type="imfile" File="{log}" Tag="{topic}:" ruleset="{topic}")
ruleset(name="{topic}") {{
  action(type="omkafka" broker=["{bootstrap}"] topic="{topic}" template="line" partitions.auto="on"
         confParam=["acks=all", "compression.codec=lz4"])
}}
"""


def rsyslog(job: Job) -> list[Process]:
    """rsyslog, imfile and omkafka with their defaults: what it holds is in memory."""
    job.work.mkdir(parents=True)
    parts = [_RSYSLOG_LOG.format(log=path, topic=topic, bootstrap=job.bootstrap) for path, topic in job.pairs]
    configuration = job.work / "rsyslog.conf"
    configuration.write_text(_RSYSLOG.format(work=job.work) + "".join(parts))
    return [start(job.work, ["rsyslogd", "-n", "-f", str(configuration), "-i", str(job.work / "rsyslogd.pid")])]


def connect(
    work: Path, bootstrap: str, connectors: Mapping[str, Mapping[str, str]], plugin: str = "", more: Mapping[str, str] | None = None
) -> list[Process]:
    """Kafka Connect standalone, as Kafka's own script starts it. `plugin`: its `plugin.path`; `more`: settings of the worker."""
    work.mkdir(parents=True, exist_ok=True)
    string = "org.apache.kafka.connect.storage.StringConverter"
    worker = write_properties(work / "worker.properties", {
        "bootstrap.servers": bootstrap, "key.converter": string, "value.converter": string,
        "offset.storage.file.filename": str(work / "connect.offsets"), "listeners": f"http://127.0.0.1:{free_port()}",
        "producer.acks": "all", "producer.compression.type": "lz4", **({"plugin.path": plugin} if plugin else {}), **(more or {}),
    })  # fmt: skip
    files = [
        write_properties(work / f"{name}.properties", {"name": name, "tasks.max": "1", **settings}) for name, settings in connectors.items()
    ]
    (work / "log4j2.properties").write_text(LOGGING)
    options = (*CONNECT_JVM, f"-Dlog4j2.configurationFile={work / 'log4j2.properties'}", "-cp", class_path())
    return [start(work, [java(), *options, "org.apache.kafka.connect.cli.ConnectStandalone", worker, *files])]


TOOLS: dict[str, Tool] = {
    "copycat": Tool(copycat, follows=True, is_exact=True, takes_patterns=True),
    "previous": Tool(previous, follows=True, is_exact=True, takes_patterns=True),
    "kcat": Tool(kcat, follows=False, needs="kcat"),
    "rsyslog": Tool(rsyslog, follows=True, needs="rsyslogd", in_bulk=False, takes_patterns=True),
    "filestream": Tool(filestream, follows=True),
}


def present() -> list[str]:
    """Tools that this machine has; `previous` where COPYCAT_PREVIOUS names a checkout."""
    known = [name for name, tool in TOOLS.items() if not tool.needs or shutil.which(tool.needs)]
    return [name for name in known if name != "previous" or "COPYCAT_PREVIOUS" in os.environ]


def end(processes: Sequence[Process]) -> None:
    """Stop a tool as its user would; SIGKILL when it takes longer than a minute: Kafka Connect's web server sometimes does not end."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            print(f"{process.args!s:.60}... does not stop and is killed", file=sys.stderr, flush=True)
            process.kill()
            process.wait(60)


def describe_machine() -> str:
    """Cores, memory and Python, for the tables' caption."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB, Python {sys.version.split()[0]}"


def start(work: Path, command: Sequence[str], directory: Path | None = None, environ: Mapping[str, str] | None = None) -> Process:
    """A process that runs in `directory` and with `environ`, this one's by default; its output goes to `output.log` in `work`."""
    work.mkdir(parents=True, exist_ok=True)
    with (work / "output.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, env=environ)


def write_properties(path: Path, values: Mapping[str, str]) -> str:
    """A file that Java's Properties read; returns its path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return str(path)
