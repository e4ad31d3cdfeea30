"""`benchmarks/run cluster`: an agent with its tasks on a real standalone cluster, all on this machine.

The rate with one and with two executors of one core, over a definition whose steps keep a core busy; what the agent itself (driver and JVM)
costs while nothing is there to do, by partitions of a topic, and for each batch under load. Broker, cluster and agent share the machine:
only ratios mean something.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measuring import Arrivals, Meter, pss
from benchmarks.report import table
from benchmarks.tools import describe_machine
from copycat_agent.api import AgentClient
from copycat_agent.dev_broker import DevBroker
from copycat_agent.probe import SOCKET_NAME
from tests.rig.agent import AgentProcess
from tests.rig.kafka import create_topic
from tests.rig.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINES = 2000
_LINE = b'192.0.2.7 - - [29/Nov/2026:11:00:00 +0000] "GET /a/b/c HTTP/1.1" 200 1234 "-" "Mozilla/5.0"\n'
_STEPS = [{"grok": "%{COMBINEDAPACHELOG}"}]
_DEADLINE_SECONDS = 600.0
_SETTLE_SECONDS = 10.0


def main() -> None:
    """A table to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=500, help=f"of {_LINES} records each")
    parser.add_argument("--partitions", type=int, default=64, help="of the topic that nothing comes into")
    parser.add_argument("--idle-seconds", type=float, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copycat-cluster-") as name:
        work = Path(name)
        _fill(work / "objects", options.objects)
        with DevBroker(work / "broker") as broker:
            found = _rates(work, broker.bootstrap, options) | _idle(work, broker.bootstrap, options)
    print(f"{time.strftime('%Y-%m-%d')}, {describe_machine()}\n\n{table(('cluster', 'measured'), map(list, found.items()))}")


def _fill(directory: Path, count: int) -> None:
    directory.mkdir()
    for number in range(count):
        (directory / f"{number:06}.log").write_bytes(_LINE * _LINES)


@contextmanager
def _agent(root: Path, bootstrap: str, workers: int, definition: dict[str, Any] | None) -> Iterator[AgentProcess]:
    """An agent whose runners have come up."""
    (root / "cluster").mkdir(parents=True)
    with SparkCluster(root / "cluster", workers, cores=1) as cluster, AgentProcess(root / "agent", bootstrap) as agent:
        (root / "none").mkdir()
        nothing = {"type": "objects", "uri": f"file://{root}/none/"}
        agent.define("nothing", {"source": nothing, "record": {"topic": "n"}, "enabled": definition is None})
        if definition:
            agent.define("x", definition)
        agent.start("--master", cluster.url)
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while len(cluster.pythons()) < workers and time.monotonic() < deadline:
            time.sleep(0.2)
        yield agent


def _rates(work: Path, bootstrap: str, options: argparse.Namespace) -> dict[str, str]:
    rates, per_batch = [], []
    for workers in (1, 2):
        root, topic = work / f"rate-{workers}", create_topic(bootstrap, f"rate-{workers}")
        source = {"type": "objects", "uri": f"file://{work}/objects/"}
        delivery = {"tasks_max": 4, "max_batch_bytes": "256KiB"}
        definition = {"source": source, "record": {"topic": topic}, "transforms": _STEPS, "delivery": delivery}
        with _agent(root, bootstrap, workers, definition) as agent, Meter([agent.pid], memory=False) as meter:
            arrivals = Arrivals(bootstrap, [topic])
            begin = arrivals.wait_for(options.objects * _LINES // 10, _DEADLINE_SECONDS)
            first, batches, before = arrivals.count(), _batches(agent), meter.usage().cpu_seconds
            end = arrivals.wait_for(options.objects * _LINES, _DEADLINE_SECONDS)
            rates.append((options.objects * _LINES - first) / (end - begin))
            per_batch.append((meter.usage().cpu_seconds - before) / (_batches(agent) - batches))
            arrivals.close()
        _say(f"{workers} executors: {rates[-1]:,.0f} records/s, {per_batch[-1] * 1000:.1f} ms of the agent per batch")
    return {
        "one executor of one core": f"{rates[0]:,.0f} records/s",
        "two, of the rate of one": f"{rates[1] / rates[0]:.2f}",
        "CPU of agent and JVM per batch, one and two executors": " and ".join(f"{one * 1000:.1f} ms" for one in per_batch),
    }


def _batches(agent: AgentProcess) -> int:
    """How many have been answered."""
    text = AgentClient(agent.state_dir / SOCKET_NAME).text("/metrics")
    return sum(int(float(one)) for one in re.findall(r"^copycat_delivery_seconds_count.* (\S+)$", text, re.MULTILINE))


def _idle(work: Path, bootstrap: str, options: argparse.Namespace) -> dict[str, str]:
    topic = create_topic(bootstrap, "idle", options.partitions)
    reading = {"source": {"type": "kafka", "topics": [topic]}, "record": {"topic": "mirror"}, "delivery": {"tasks_max": 16}}
    shares, memory = [], []
    for number, definition in enumerate((None, reading)):
        with _agent(work / f"idle-{number}", bootstrap, 1, definition) as agent, Meter([agent.pid], memory=False) as meter:
            time.sleep(_SETTLE_SECONDS)
            before, since = meter.usage().cpu_seconds, time.monotonic()
            time.sleep(options.idle_seconds)
            shares.append((meter.usage().cpu_seconds - before) / (time.monotonic() - since))
            memory.append(pss(agent.pid))
        _say(f"idle: {shares[-1]:.2%} of a core")
    return {
        "idle without partitions, of one core": f"{shares[0]:.1%}",
        f"idle with {options.partitions} partitions, of one core": f"{shares[1]:.1%}",
        "memory of the agent's Python, without and with them": " and ".join(f"{one / 2**20:.0f} MiB" for one in memory),
    }


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
