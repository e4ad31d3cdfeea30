"""What a query costs beside the same thing in steps: whole batches as Spark jobs on one session, one at a time, to a real broker.

`python -m benchmarks.sql_cost`. Both ways run as bounded jobs, as in `backfill`; processor time is that of the JVM and its Python workers.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import pickle
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

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

_WARM_UP = 2
"""The JVM compiles what it runs often, and workers are started."""


@dataclass(frozen=True)
class _Cost:
    wall: float
    cpu: float


def main() -> None:
    """A table of lines per second and microseconds of processor time per line; Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines of the file")
    parser.add_argument("--rounds", type=int, default=5, help="how often each case ships the file, in turn; medians count")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copycat-sql-") as name, DevBroker(Path(name) / "broker") as broker:
        work = Path(name)
        path = work / "json.log"
        records._write_json(path, options.lines)  # noqa: SLF001 - the same lines as there
        host = SparkHost(SparkOptions(), work / "run", 1)
        host.start(queries=True)
        executor = JobExecutor(host)
        try:
            compare(executor, {case: _definition(work, path, broker.bootstrap, case) for case in CASES}, path, options)
        finally:
            executor.close()
            host.close()


def compare(executor: JobExecutor, definitions: dict[str, Definition], path: Path, options: argparse.Namespace) -> None:
    """Every case in turn; the first rounds do not count. Raises AssertionError unless all make the same records."""
    costs: dict[str, list[_Cost]] = {name: [] for name in definitions}
    for number in range(options.rounds + _WARM_UP):
        for name, definition in definitions.items():
            cost = _ship(executor, definition, path)
            if number >= _WARM_UP:
                costs[name].append(cost)
        if not number:
            _look_for_the_same(definitions.values())
    print(f"{describe_machine()}; {options.lines:,} lines of {path.stat().st_size // options.lines} B, median of {options.rounds} rounds\n")
    print("| definition | µs per line, one task | relative | CPU µs per line, JVM and workers | relative |\n|---|---|---|---|---|")
    first = next(iter(costs.values()))
    for name, found in costs.items():
        parts = (f"{_median(found, part) / options.lines * 1e6:.2f} | {_ratio(found, first, part):.2f}" for part in ("wall", "cpu"))
        print(f"| {name} | {' | '.join(parts)} |")


def _median(costs: list[_Cost], part: str) -> float:
    return statistics.median(getattr(one, part) for one in costs)


def _ratio(costs: list[_Cost], others: list[_Cost], part: str) -> float:
    """Of rounds that ran one after the other: what else the machine does meanwhile is in both."""
    return statistics.median(getattr(one, part) / getattr(other, part) for one, other in zip(costs, others, strict=True))


def _look_for_the_same(definitions: Iterable[Definition]) -> None:
    """The topics hold the same records, field by field, in the same order."""
    digests = {_digest(one) for one in definitions}
    assert len({digest for digest, _ in digests}) == 1, f"not the same records: {digests}"


def _digest(definition: Definition) -> tuple[str, int]:
    """Of all records in a definition's topic, which has one partition; and how many there are."""
    client = Consumer({"bootstrap.servers": definition.kafka.bootstrap_servers[0], "group.id": "digest", "enable.partition.eof": True})
    client.assign([TopicPartition(definition.record.topic, 0, OFFSET_BEGINNING)])
    digest, total = hashlib.sha256(), 0
    while True:
        for message in client.consume(10_000, 1.0):
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()  # noqa: SLF001 - its spelling
                client.close()
                return digest.hexdigest(), total
            digest.update(orjson.dumps(orjson.loads(message.value() or b""), option=orjson.OPT_SORT_KEYS))
            total += 1


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
    """Of the JVM and what it started, without the broker.

    Workers stay for all rounds; one that ended would be in its parent's time once that has heard of it.
    """
    jvms = [one for one in psutil.Process().children() if "kafka.Kafka" not in one.cmdline()]
    seconds = 0.0
    for process in [*jvms, *(child for jvm in jvms for child in jvm.children(recursive=True))]:
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])
    return seconds


if __name__ == "__main__":
    main()
