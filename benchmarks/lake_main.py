"""`benchmarks/run lake`: JSON records of a topic into Parquet files, by the agent and by Spark Structured Streaming, in turn.

Both read the same topic of one broker to its end, from their start to their exit, with as many tasks as there are partitions. Spark has a
checkpoint, and `from_json` to the columns that the agent finds; its connector for Kafka is fetched from Maven.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyarrow import dataset

import copycat_agent
from benchmarks import lake_listing
from benchmarks.measuring import Meter
from benchmarks.report import table
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker
from copycat_agent.maven import fetch_jar

_TOPIC = "orders"
_LIMIT_SECONDS = 1200.0
_SCHEMA = "id BIGINT, customer BIGINT, placed STRING, state STRING, total DOUBLE, paid BOOLEAN, weight DOUBLE, note STRING"
_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:{spark}",
    "org.apache.kafka:kafka-clients:{kafka}",
    "org.apache.commons:commons-pool2:2.12.1",
)
_STREAM = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, date_format, from_json
bootstrap, topic, schema, out, checkpoint, jars, threads = sys.argv[1:]
spark = (SparkSession.builder.master(f"local[{threads}]").config("spark.jars", jars).config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.memory", "2g")
         .config("spark.sql.parquet.compression.codec", "zstd").config("spark.sql.session.timeZone", "UTC").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
frame = read.option("startingOffsets", "earliest").load()
rows = frame.select(from_json(col("value").cast("string"), schema).alias("row"), date_format("timestamp", "yyyy-MM-dd").alias("dt"))
query = (rows.select("row.*", "dt").writeStream.partitionBy("dt").format("parquet").option("path", out)
         .option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
query.awaitTermination()
"""


Begin = Callable[[Path, str, argparse.Namespace], list[str]]
"""From a directory for its own files and the broker to a command."""


class Cost(NamedTuple):
    """Of one run, from start to exit."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    files: int


def main() -> None:
    """Measure; Markdown to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(prog="benchmarks/run lake", description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="of 8 fields")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1, help="how often, in turn; medians are told")
    parser.add_argument("--spark", default="4.2.0", help="version of Spark's connector for Kafka; that of PySpark where it is published")
    parser.add_argument("--kafka", default="4.1.0", help="version of Kafka's client")
    parser.add_argument("--only", choices=("copycat", "spark"))
    parser.add_argument("--listing", type=int, metavar="FILES", help="instead: what it takes to know the files, once so many are written")
    options = parser.parse_args()
    if options.listing:
        lake_listing.measure(options.listing)
        return
    compileall.compile_dir(Path(copycat_agent.__file__).parent, quiet=2)  # as where it is installed
    runs: dict[str, Begin] = {"copycat": _agent, "spark": _spark}
    found: dict[str, list[Cost]] = {what: [] for what in runs if options.only in (None, what)}
    with tempfile.TemporaryDirectory(prefix="copycat-lake-") as name, DevBroker(Path(name) / "broker") as broker:
        _fill(broker.bootstrap, options.records, options.partitions)
        for number in range(options.rounds):
            for what, costs in found.items():
                costs.append(_measured(runs[what], Path(name) / f"{what}-{number}", broker.bootstrap, options))
                _say(f"round {number}: {what}: {costs[-1]}, load {os.getloadavg()[0]:.1f}")
    rows = []
    for what, costs in found.items():
        seconds, cpu = (statistics.median(one[index] for one in costs) for index in (0, 1))
        each = cpu / options.records * 1e6
        rows.append(
            [what, f"{options.records / seconds:,.0f}", f"{each:.1f}", f"{costs[-1].peak_bytes / 2**20:.0f} MiB", str(costs[-1].files)]
        )
    caption = f"{time.strftime('%Y-%m-%d')}, {describe_machine()}, {options.records:,} records, {options.partitions} partitions"
    print(f"{caption}\n\n{table(('what', 'records/s', 'CPU s per million', 'peak memory', 'files'), rows)}")


def _fill(bootstrap: str, records: int, partitions: int) -> None:
    _say(f"sending {records:,} records")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(_TOPIC, partitions, 1)])[_TOPIC].result(30)
    time.sleep(2)  # the partitions have no leader at once
    dice = random.Random(1)
    notes = ["".join(dice.choices("abcdefghij ", k=40)) for _ in range(1000)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "compression.type": "lz4", "queue.buffering.max.kbytes": 2**18})
    begin = 1_790_000_000_000
    for number in range(records):
        row = {
            "id": number, "customer": number * 7919 % 50_000, "placed": f"2026-09-21T14:{number // 60 % 60:02}:{number % 60:02}Z",
            "state": ("new", "packed", "sent")[number % 3], "total": number % 100_000 / 100, "paid": number % 2 == 0,
            "weight": None if number % 10 == 0 else number / 7, "note": notes[number % 1000],
        }  # fmt: skip
        while True:
            try:
                producer.produce(_TOPIC, json.dumps(row).encode(), partition=number % partitions, timestamp=begin + number % 86_400_000)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _measured(
    begin: Callable[[Path, str, argparse.Namespace], list[str]], place: Path, bootstrap: str, options: argparse.Namespace
) -> Cost:
    place.mkdir()
    command = begin(place, bootstrap, options)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.monotonic()
    log = place / "output.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdout=output, stderr=output, env=environ) as process,
        Meter([process.pid]) as meter,
    ):
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > began + _LIMIT_SECONDS:
                process.kill()
            time.sleep(0.05)
        seconds, usage = time.monotonic() - began, meter.usage()
    if process.returncode:
        raise SystemExit(log.read_text("utf-8", "replace")[-3000:])
    written = dataset.dataset(place / "out", partitioning="hive")
    assert written.count_rows() == options.records
    return Cost(seconds, usage.cpu_seconds, usage.peak_bytes, len(written.files))


def _agent(place: Path, bootstrap: str, options: argparse.Namespace) -> list[str]:
    definition = {
        "name": "lake",
        "source": {"type": "kafka", "topics": [_TOPIC]},
        "converters": {"value": "json"},
        "sink": {
            "type": "files",
            "uri": f"file://{place}/out/",
            "path": "dt={@timestamp:%Y-%m-%d}",
            "format": "parquet",
            "compression": "zstd",
        },
        "kafka": {"bootstrap_servers": [bootstrap]},
        "delivery": {"tasks_max": options.partitions},
    }  # fmt: skip
    (place / "connectors.d").mkdir()
    (place / "connectors.d/lake.yaml").write_text(json.dumps(definition))
    return [sys.executable, "-m", "copycat_agent", "run", str(place / "connectors.d"), "--state-dir", str(place / "state"), "--until-idle"]


def _spark(place: Path, bootstrap: str, options: argparse.Namespace) -> list[str]:
    jars = ",".join(str(fetch_jar(one.format(spark=options.spark, kafka=options.kafka))) for one in _JARS)
    (place / "stream.py").write_text(_STREAM)
    where = [bootstrap, _TOPIC, _SCHEMA, str(place / "out"), str(place / "checkpoint"), jars, str(options.partitions)]
    return [sys.executable, str(place / "stream.py"), *where]


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
