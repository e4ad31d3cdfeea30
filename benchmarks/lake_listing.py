"""`benchmarks/run lake --listing N`: what it takes to know where to go on, and which files there are, once N files are written.

Ours: `Claims.resume` of one partition, which a task does before its first range. The files are there by their names, the last claims by
the real protocol. Spark's: the table of its file sink, N files and a `_spark_metadata` log as 2 files a batch leave it, compacted every
tenth batch. In one JVM: `FileStreamSinkLog.getLatestBatchId` (where a query goes on), `.allFiles` (the log is read, as by every reader and
with every tenth batch), and a DataFrame made of each directory with a schema, whose files are then told. The first and the median of all.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from benchmarks.report import table
from benchmarks.tools import describe_machine
from copycat_agent.sinks.claims import KEPT, Claims, LocalFile, Range
from copycat_agent.sinks.directory_store import DirectoryStore
from copycat_agent.sinks.file_names import final_keys

_TOPIC = "orders"
_PER_BATCH, _COMPACTED_EVERY = 2, 10
_ROUNDS = 9
_SPARK = """
import json, sys, time
from pyspark.sql import SparkSession
ours, theirs, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
         .config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
jvm = spark.sparkContext._jvm
Log = jvm.org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog
def log():
    return Log(1, spark._jsparkSession, theirs + "/_spark_metadata", jvm.scala.Option.empty())
calls = {
    "Spark: the last batch of its log": lambda: log().getLatestBatchId().get(),
    "Spark: all files by its log": lambda: len(log().allFiles()),
    "Spark: reads its own table": lambda: len(spark.read.schema("n BIGINT").parquet(theirs).inputFiles()),
    "Spark: reads the agent's directory": lambda: len(spark.read.schema("n BIGINT").parquet(ours).inputFiles()),
}
for what, call in calls.items():
    times = []
    for _ in range(rounds):
        began = time.monotonic()
        found = call()
        times.append((time.monotonic() - began) * 1000)
    print(json.dumps([what, found, times]), flush=True)
"""


def measure(files: int) -> None:
    """Markdown to standard output."""
    with tempfile.TemporaryDirectory(prefix="copycat-listing-") as name:
        ours, theirs, one = Path(name, "ours"), Path(name, "theirs"), Path(name, "one.parquet")
        parquet.write_table(pa.table({"n": [1]}), one)
        claimed = _ours(ours, one, files)
        _theirs(theirs, one, files)
        found: list[tuple[str, int, list[float]]] = [("copycat: where to go on", claimed, [])]
        for _ in range(_ROUNDS):
            began = time.monotonic()
            end = Claims(DirectoryStore(ours), "lake").resume(_TOPIC, 0, 0, files)
            found[0][2].append((time.monotonic() - began) * 1000)
            assert end == files
        command = [sys.executable, "-c", _SPARK, str(ours), str(theirs), str(_ROUNDS)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    rows = [[what, f"{count:,}", f"{times[0]:.1f} ms", f"{statistics.median(times):.1f} ms"] for what, count, times in found]
    print(f"{time.strftime('%Y-%m-%d')}, {describe_machine()}, {files:,} files\n\n{table(('what', 'found', 'first', 'median'), rows)}")


def _ours(root: Path, one: Path, files: int) -> int:
    """Files of one record, a claim for each of the last ones. Returns how many claims there are: the most that stay, nearly."""
    claims = 2 * KEPT - 1
    for offset in range(files - claims):
        (key,) = final_keys(Range(_TOPIC, 0, offset, offset), ["dt=2026-09-21"], "parquet")
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(one, root / key)
    chain = Claims(DirectoryStore(root), "lake")
    chain.resume(_TOPIC, 0, files - claims)
    for offset in range(files - claims, files):
        shutil.copy(one, local := one.with_name("local"))
        chain.commit(Range(_TOPIC, 0, offset, offset), [LocalFile(local, "dt=2026-09-21", 1)], "parquet")
    return claims


def _theirs(root: Path, one: Path, files: int) -> None:
    log = root / "_spark_metadata"
    log.mkdir(parents=True)
    entries = []
    for number in range(files):
        path = root / f"dt=2026-09-21/part-{number % _PER_BATCH:05}-{number:08x}-5b1c-4f0e-9d55-2f6f3f6a7c10.c000.snappy.parquet"
        path.parent.mkdir(exist_ok=True)
        shutil.copy(one, path)
        entry = {"path": path.as_uri(), "size": path.stat().st_size, "isDir": False, "modificationTime": 1_790_000_000_000 + number}
        entries.append(json.dumps(entry | {"blockReplication": 1, "blockSize": 33_554_432, "action": "add"}, separators=(",", ":")))
    batches = -(-files // _PER_BATCH)
    compacted = batches // _COMPACTED_EVERY * _COMPACTED_EVERY - 1
    (log / f"{compacted}.compact").write_text("\n".join(["v1", *entries[: (compacted + 1) * _PER_BATCH]]))
    for batch in range(compacted + 1, batches):
        (log / str(batch)).write_text("\n".join(["v1", *entries[batch * _PER_BATCH : (batch + 1) * _PER_BATCH]]))
