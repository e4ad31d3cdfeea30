"""`benchmarks/run connectors`: many connectors on one host: until they run, what they cost idle, and what a reload of one takes.

Each connector follows a log file of its own, of which it has read one line. CPU is a share of one core; memory is the proportional set
size of the driver, the JVM and all workers; threads are those of the driver.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.measuring import Arrivals, Meter, pss
from benchmarks.report import table
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker
from tests.rig.agent import AgentProcess

_TOPIC = "connectors"
_START_SECONDS = 300.0
_RELOADS = 5
_QUIET_SECONDS = 10.0
"""After the start, before the agent counts as idle: longer than a file is looked at often because it has just grown."""


def main() -> None:
    """A table to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connectors", type=int, default=1000)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--guarantee", default="at_least_once", choices=("at_least_once", "exactly_once"))
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copycat-connectors-") as name:
        work = Path(name)
        with DevBroker(work / "broker") as broker, AgentProcess(work / "agent", broker.bootstrap) as agent:
            found = _measure(agent, broker.bootstrap, work, options)
    caption = f"{time.strftime('%Y-%m-%d')}, {describe_machine()}"
    print(f"{caption}\n\n{table((f'{options.connectors} connectors', options.guarantee), ([key, value] for key, value in found.items()))}")
    if options.json:
        options.json.write_text(json.dumps({"caption": caption, **found}, indent=2) + "\n")


def _measure(agent: AgentProcess, bootstrap: str, work: Path, options: argparse.Namespace) -> dict[str, str]:
    count = options.connectors
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(30)
    (work / "logs").mkdir()
    for number in range(count):
        (work / "logs" / f"{number}.log").write_text("a line\n")
        agent.define(f"c{number}", _definition(work, number, options.guarantee))
    check_seconds = _timed("check", str(agent.connectors_dir))
    begin = time.monotonic()
    agent.start()
    spark_seconds, running_seconds = _await_running(agent, count, begin)
    arrivals = Arrivals(bootstrap, [_TOPIC])
    arrived_seconds = arrivals.wait_for(count, _START_SECONDS) - begin
    arrivals.close()
    _say(f"all have read their line after {arrived_seconds:.1f} s")
    time.sleep(_QUIET_SECONDS)
    with Meter([agent.pid], memory=False) as meter:
        before, since = meter.usage(), time.monotonic()
        time.sleep(options.idle_seconds)
        share = (meter.usage().cpu_seconds - before.cpu_seconds) / (time.monotonic() - since)
    driver = psutil.Process(agent.pid)
    memory = sum(pss(one.pid) for one in (driver, *driver.children(recursive=True)))
    threads = driver.num_threads()
    reloads = [_reload(agent, work, number, options.guarantee) for number in range(_RELOADS)]
    return {
        "first answer of status after": f"{spark_seconds:.1f} s",
        "all RUNNING after": f"{running_seconds:.1f} s",
        "all first lines in Kafka after": f"{arrived_seconds:.1f} s",
        "idle CPU, of one core": f"{share:.2%}",
        "memory": f"{memory / 2**20:.0f} MiB",
        "threads": f"{threads:,}",
        f"reload of one, median of {_RELOADS}": f"{statistics.median(reloads):.2f} s",
        "check": f"{check_seconds:.1f} s",
    }


def _definition(work: Path, number: int, guarantee: str, linger: str = "50ms") -> dict[str, Any]:
    return {
        "source": {"type": "log_file", "include": [str(work / "logs" / f"{number}.log")]},
        "record": {"topic": _TOPIC},
        "delivery": {"guarantee": guarantee, "linger": linger},
    }


def _await_running(agent: AgentProcess, count: int, begin: float) -> tuple[float, float]:
    first = 0.0
    while time.monotonic() - begin < _START_SECONDS:
        found = _status(agent)
        first = first or (time.monotonic() - begin if found else 0.0)
        if sum(one["state"].upper() == "RUNNING" for one in found) == count:
            return first, time.monotonic() - begin
        time.sleep(0.2)
    raise TimeoutError(f"not all are RUNNING after {_START_SECONDS:g} s")


def _status(agent: AgentProcess) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "copycat_agent", "status", "--format", "json", "--state-dir", str(agent.state_dir)]
    answer = subprocess.run(command, capture_output=True, check=False)
    return json.loads(answer.stdout)["connectors"] if answer.stdout.strip() else []


def _reload(agent: AgentProcess, work: Path, number: int, guarantee: str) -> float:
    """Seconds from the change of one file until the agent has said what became of it."""
    agent.define(f"c{number}", _definition(work, number, guarantee, linger="60ms"))
    return _timed("ctl", "reload", "--state-dir", str(agent.state_dir))


def _timed(*words: str) -> float:
    begin = time.monotonic()
    subprocess.run([sys.executable, "-m", "copycat_agent", *words], capture_output=True, check=True)
    return time.monotonic() - begin


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
