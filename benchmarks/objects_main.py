"""`benchmarks/run objects`: a bucket followed for ever, behind a real S3 gateway over a directory (versitygw).

Many old objects, then new ones while it runs, some under names before those that were read; what a poll costs while nothing is new; one
large object beside the same file in a spool directory. CPU is a share of one core; memory is the proportional set size of the driver, the
JVM and all workers. When a record came is what the broker says (LogAppendTime), read once all are there: a consumer in Python takes
longer for 7 million records than the agent. The gateway comes from Go's module proxy:
`go install github.com/versity/versitygw/cmd/versitygw@v1.0.14`.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import boto3
import psutil
from botocore.config import Config
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.measuring import Arrivals, Meter, pss
from benchmarks.report import table
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker, free_port
from tests.rig.agent import AgentProcess

_SECRETS = {"AWS_ACCESS_KEY_ID": "copycat", "AWS_SECRET_ACCESS_KEY": "benchmark-only", "AWS_REGION": "us-east-1"}
_BUCKET = "logs"
_LINE = b"%012d " + b"x" * 126 + b"\n"
_WRITERS = 8
_DEADLINE_SECONDS = 1800.0
_POLL_SECONDS = 1.0


class Gateway:
    """versitygw over a directory, with one bucket."""

    def __init__(self, root: Path, program: str) -> None:
        self._port = free_port()
        self._log = root / "requests.log"
        (root / "objects").mkdir()
        command = [program, "--port", f"127.0.0.1:{self._port}", "--access", _SECRETS["AWS_ACCESS_KEY_ID"]]
        command += ["--secret", _SECRETS["AWS_SECRET_ACCESS_KEY"], "--keep-alive", "--quiet"]
        command += ["--access-log", str(self._log)]
        self._process = subprocess.Popen([*command, "posix", str(root / "objects")], stdout=subprocess.DEVNULL)
        self.client: Any = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self._port}",
            region_name="us-east-1",
            aws_access_key_id=_SECRETS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_SECRETS["AWS_SECRET_ACCESS_KEY"],
            config=Config(max_pool_connections=_WRITERS, retries={"total_max_attempts": 20, "mode": "standard"}),
        )
        self.client.create_bucket(Bucket=_BUCKET)

    def uri(self, directory: str) -> str:
        """What a definition says."""
        return f"s3://{_BUCKET}/{directory}/?endpoint_override=http://127.0.0.1:{self._port}&scheme=http&region=us-east-1"

    def put(self, objects: dict[str, bytes]) -> None:
        """Several at a time."""
        with ThreadPoolExecutor(_WRITERS) as threads:
            list(threads.map(lambda name: self.client.put_object(Bucket=_BUCKET, Key=name, Body=objects[name]), objects))

    def requests(self) -> collections.Counter[str]:
        """How many of each kind it has answered."""
        lines = self._log.read_text("utf-8", "replace").splitlines() if self._log.exists() else []
        return collections.Counter("list" if "list-type=2" in line else "other" for line in lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    """A table to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", default=shutil.which("versitygw") or str(Path("~/go/bin/versitygw").expanduser()))
    parser.add_argument("--old", type=int, default=100_000, help="objects of one line that are there before")
    parser.add_argument("--new", type=int, default=1000, help="objects of 1 MiB that come while it runs")
    parser.add_argument("--large-mib", type=int, default=500)
    parser.add_argument("--idle-seconds", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copycat-objects-") as name:
        work = Path(name)
        with DevBroker(work / "broker") as broker, Gateway(work, options.gateway) as gateway:
            found = _large(work, broker.bootstrap, gateway, options) | _many(work, broker.bootstrap, gateway, options)
    print(f"{time.strftime('%Y-%m-%d')}, {describe_machine()}\n\n{table(('objects', 'measured'), map(list, found.items()))}")


def _large(work: Path, bootstrap: str, gateway: Gateway, options: argparse.Namespace) -> dict[str, str]:
    """One large object, four of a quarter each, and the same file in a spool directory, in turns."""
    count = options.large_mib * 2**20 // len(_LINE % 0)
    data = b"".join(_LINE % number for number in range(count))
    quarter = len(data) // len(_LINE % 0) // 4 * len(_LINE % 0)
    gateway.put({"large/one": data} | {f"quarters/{number}": data[:quarter] for number in range(4)})
    sources: dict[str, dict[str, Any]] = {
        "object": {"type": "objects", "uri": gateway.uri("large")},
        "file": {"type": "spool_dir", "dir": str(work / "spool"), "ready": {"min_age": "0s"}},
        "four objects": {"type": "objects", "uri": gateway.uri("quarters")},
    }
    (work / "spool").mkdir()
    (work / "spool" / "one").write_bytes(data)
    del data
    rates: dict[str, list[float]] = {name: [] for name in sources}
    for turn in range(3):
        for name, source in sources.items():
            topic, records = f"large-{name.replace(' ', '-')}-{turn}", count // 4 * 4 if "four" in name else count
            rates[name].append(_rate(work / f"{name}-{turn}", bootstrap, topic, source, records) * len(_LINE % 0) / 1e6)
            _say(f"{name}: {rates[name][-1]:.0f} MB/s")
    median = {name: sorted(found)[1] for name, found in rates.items()}
    return {
        "one object, of the rate of the same file": f"{median['object'] / median['file']:.2f} ({median['object']:.0f} MB/s)",
        "four objects": f"{median['four objects']:.0f} MB/s",
    }


def _rate(root: Path, bootstrap: str, topic: str, source: dict[str, Any], records: int) -> float:
    """Records per second, from the first to the last that arrived."""
    _create(bootstrap, topic)
    with AgentProcess(root, bootstrap) as agent:
        agent.define("x", {"source": source, "record": {"topic": topic}, "delivery": {"tasks_max": 4}})
        agent.start(env=_SECRETS)
        arrivals = Arrivals(bootstrap, [topic])
        begin = arrivals.wait_for(1, 120)
        first = arrivals.count()
        end = arrivals.wait_for(records, _DEADLINE_SECONDS)
        arrivals.close()
    return (records - first) / (end - begin)


def _many(work: Path, bootstrap: str, gateway: Gateway, options: argparse.Namespace) -> dict[str, str]:
    topic, per_object = "many", 2**20 // len(_LINE % 0)
    _create(bootstrap, topic, {"message.timestamp.type": "LogAppendTime"})
    gateway.put({f"many/{number:08}": _LINE % number for number in range(0, options.old * 2, 2)})
    _say(f"{options.old} old objects are there")
    with AgentProcess(work / "agent", bootstrap) as agent:
        source = {"type": "objects", "uri": gateway.uri("many"), "poll_interval": f"{_POLL_SECONDS:g}s", "relist": "60s"}
        agent.define("x", {"source": source, "record": {"topic": topic, "key": "{@file.name}"}})
        begin = time.monotonic()
        agent.start(env=_SECRETS)
        arrivals = Arrivals(bootstrap, [topic])
        old_seconds = arrivals.wait_for(options.old, _DEADLINE_SECONDS) - begin
        _say(f"all old ones have arrived after {old_seconds:.0f} s")
        time.sleep(15)
        idle_bytes = _memory(agent)
        lists = gateway.requests()["list"]
        with Meter([agent.pid], memory=False) as meter:
            before, since = meter.usage().cpu_seconds, time.monotonic()
            time.sleep(options.idle_seconds)
            share = (meter.usage().cpu_seconds - before) / (time.monotonic() - since)
        polls = options.idle_seconds / _POLL_SECONDS
        lists = gateway.requests()["list"] - lists
        seed = random.randrange(2**32)
        _say(f"seed {seed}")
        chosen = random.Random(seed)
        late = set(chosen.sample(range(options.new), options.new // 20))
        lows = iter(chosen.sample(range(1, options.old * 2, 2), len(late)))
        body = _LINE % 7 * per_object
        wanted = options.old + options.new * per_object
        put: dict[str, float] = {}
        with Meter([agent.pid]) as meter:
            for number in range(options.new):
                name = f"many/{next(lows):08}" if number in late else f"many/{options.old * 2 + number:08}"
                gateway.client.put_object(Bucket=_BUCKET, Key=name, Body=body)
                put[name.rpartition("/")[2]] = time.time()
            put_seconds = max(put.values()) - min(put.values())
            arrivals.wait_for(wanted, _DEADLINE_SECONDS)
            peak = meter.usage().peak_bytes
        time.sleep(5)
        total = arrivals.count()
        arrivals.close()
    waits = {name: at - put[name] for name, at in _first_records(bootstrap, topic, options.old, total).items()}
    in_order = sorted(seconds for name, seconds in waits.items() if int(name) >= options.old * 2)
    late_waits = sorted(seconds for name, seconds in waits.items() if int(name) < options.old * 2)
    return {
        f"{options.old:,} old objects of one line": f"{options.old / old_seconds:,.0f} a second",
        "idle: LIST calls a poll": f"{lists / polls:.1f}",
        "idle: CPU, of one core": f"{share:.1%}",
        f"{options.new:,} new ones of 1 MiB, put within": f"{put_seconds:.0f} s",
        "the first record of each after: median, most": _middle_and_most(in_order),
        "the same of late names": _middle_and_most(late_waits),
        "records, wanted": f"{total:,}, {wanted:,}",
        "memory idle, most": f"{idle_bytes / 2**20:.0f}, {peak / 2**20:.0f} MiB",
    }


def _middle_and_most(seconds: list[float]) -> str:
    return f"{seconds[len(seconds) // 2]:.1f}, {seconds[-1]:.1f} s" if seconds else "none"


def _first_records(bootstrap: str, topic: str, begin: int, end: int) -> dict[str, float]:
    """When the broker took the first record of each object, in epoch seconds, by name; of the offsets from `begin` up to `end`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watch"})
    consumer.assign([TopicPartition(topic, 0, begin)])
    firsts: dict[bytes, float] = {}
    while begin < end:
        for message in consumer.consume(10_000, 1.0):
            firsts.setdefault(message.key(), message.timestamp()[1] / 1000)
            begin = message.offset() + 1
    consumer.close()
    return {name.decode(): at for name, at in firsts.items()}


def _memory(agent: AgentProcess) -> int:
    driver = psutil.Process(agent.pid)
    return sum(pss(one.pid) for one in (driver, *driver.children(recursive=True)))


def _create(bootstrap: str, topic: str, settings: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings or {})])[topic].result(30)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.update(_SECRETS)
    main()
