"""What a query costs beside the same thing in steps: whole batches as Spark jobs on one session, one at a time, to a real broker.

`python -m benchmarks.sql_cost`. Both ways run as bounded jobs, as in `backfill`; processor time is that of the JVM and its Python workers.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from benchmarks import records
from benchmarks.tools import describe_machine
from copycat_agent.definitions import load_file
from copycat_agent.dev_broker import DevBroker
from copycat_agent.model import Batch, SourceOffset, SourcePartition, Split, TaskId
from copycat_agent.options import AgentOptions, Definition, KafkaOptions, SparkOptions, TopicOptions
from copycat_agent.spark.host import SparkHost
from copycat_agent.spark.jobs import JobExecutor

SCHEMA = "ts string, level string, order_id string, amount double, items array<int>, message string"
_SELECT = "SELECT *, concat(level, '-', order_id) AS route, 'prod' AS env FROM {} WHERE level <> 'DEBUG'"
_IN_SPARK = f"(SELECT r.* FROM (SELECT from_json(message, '{SCHEMA}') AS r FROM records))"

CASES: dict[str, list[dict[str, Any]]] = {
    "steps: json, drop_if, set with two fields": [
        {"json": {}}, {"drop_if": {"level": "DEBUG"}}, {"set": {"route": "{level}-{order_id}", "env": "prod"}},
    ],
    "json, then sql with WHERE and two expressions": [{"json": {}}, {"sql": {"query": _SELECT.format("records"), "schema": SCHEMA}}],
    "sql with from_json, WHERE and two expressions": [{"sql": {"query": _SELECT.format(_IN_SPARK)}}],
}  # fmt: skip


@dataclass(frozen=True)
class _Cost:
    wall: float
    cpu: float


def main() -> None:
    """A table of lines per second and microseconds of processor time per line; Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=400_000, help="lines of the file")
    parser.add_argument("--rounds", type=int, default=5, help="how often each case ships the file, in turn; medians count")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copycat-sql-") as name, DevBroker(Path(name) / "broker") as broker:
        work = Path(name)
        path = work / "json.log"
        records._write_json(path, options.lines)  # noqa: SLF001 - the same lines as there
        host = SparkHost(SparkOptions(), work / "run", 1)
        host.start()
        executor = JobExecutor(host)
        try:
            compare(executor, {case: _definition(work, path, broker.bootstrap, case) for case in CASES}, path, options)
        finally:
            executor.close()
            host.close()


def compare(executor: JobExecutor, definitions: dict[str, Definition], path: Path, options: argparse.Namespace) -> None:
    """Every case in turn; the first round does not count."""
    costs: dict[str, list[_Cost]] = {name: [] for name in definitions}
    for number in range(options.rounds + 1):
        for name, definition in definitions.items():
            cost = _ship(executor, definition, path)
            if number:
                costs[name].append(cost)
    print(f"{describe_machine()}; {options.lines:,} lines of {path.stat().st_size // options.lines} B, median of {options.rounds} rounds\n")
    print("| definition | lines/s, one task | CPU µs per line, JVM and workers |\n|---|---|---|")
    for name, found in costs.items():
        wall, cpu = (statistics.median(getattr(one, part) for one in found) for part in ("wall", "cpu"))
        print(f"| {name} | {options.lines / wall:,.0f} | {cpu / options.lines * 1e6:.2f} |")


def _definition(work: Path, path: Path, bootstrap: str, case: str) -> Definition:
    document = {
        "name": "bench",
        "source": {"type": "log_file", "include": [str(path)]},
        "transforms": CASES[case],
        "record": {"topic": f"sql-{list(CASES).index(case)}"},
    }
    file = work / "bench.yaml"
    file.write_text(json.dumps(document))
    loaded = load_file(file, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(bootstrap,), create_topics=TopicOptions())))
    assert loaded.definition is not None, loaded.problems
    return loaded.definition


def _ship(executor: JobExecutor, definition: Definition, path: Path) -> _Cost:
    """The whole file, in batches as the agent cuts them."""
    split = Split(SourcePartition("bench", "f"), str(path), str(path), SourceOffset(0), path.stat().st_size)
    pickled, begun, used = pickle.dumps(definition), time.perf_counter(), _cpu_seconds()
    while True:
        (result,) = executor.submit(Batch(TaskId("bench", 0), pickled, (split,), 64 * 2**20, 60.0)).result()
        assert result.error is None, result.error
        if result.at_end:
            return _Cost(time.perf_counter() - begun, _cpu_seconds() - used)
        split = replace(split, offset=result.offset)


def _cpu_seconds() -> float:
    """Of the JVM and what it started, without the broker; those that have ended included."""
    jvms = [one for one in psutil.Process().children() if "kafka.Kafka" not in one.cmdline()]
    family = [*jvms, *(child for jvm in jvms for child in jvm.children(recursive=True))]
    return sum(sum(process.cpu_times()[:4]) for process in family)


if __name__ == "__main__":
    main()
