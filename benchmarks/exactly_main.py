"""`benchmarks/run exactly`: what delivery.guarantee: exactly_once costs beside at_least_once, the real agent, one broker, one run.

Large files in batches of one second (rounds in turn, the same files), then a log that trickles, read with read_committed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import exactly_measure, exactly_report, latency, lines, rate
from benchmarks.exactly_measure import Beside, Trickle
from benchmarks.exactly_report import Volume
from benchmarks.tools import Job, Process, describe_machine, start
from copycat_agent.dev_broker import DevBroker
from tests.rig.kafka import consume

GUARANTEES = ("at_least_once", "exactly_once")
_ROOM = "1GiB"
"""max_batch_bytes: more than a task reads in one batch, so that its time ends it."""


def main() -> None:
    """Markdown to standard output, progress to standard error."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="copycat-exactly-", dir=options.directory) as name:
        work = Path(name)
        with DevBroker(work / "broker", properties={"log.segment.delete.delay.ms": "500"}) as broker:
            bench = _Bench(work, broker, options)
            volumes, trickles = bench.volumes(), bench.trickles()
    caption = _caption(options)
    print(f"{caption}\n")
    if volumes:
        print(f"{options.files} file(s) of {options.lines:,} lines, batches of {options.batch:g} s:\n\n{exactly_report.volumes(volumes)}\n")
    if trickles:
        print(f"{options.rate} lines a second, linger 50 ms, read_committed:\n\n{exactly_report.trickles(trickles)}\n")
    if options.json:
        parts = {
            "volumes": {name: asdict(one) for name, one in volumes.items()},
            "trickles": {name: one.values() for name, one in trickles.items()},
        }
        options.json.write_text(json.dumps({"caption": caption, **parts}, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run exactly", description=__doc__)
    parser.add_argument("--lines", type=int, default=5_000_000, help="lines of each large file; 0 leaves them out")
    parser.add_argument("--files", type=int, default=1, help="how many large files at a time")
    parser.add_argument("--batch", type=float, default=1.0, help="seconds of a batch of the large files")
    parser.add_argument("--rounds", type=int, default=3, help="how often each guarantee does both, in turn; medians count")
    parser.add_argument("--rate", type=int, default=200, help="lines a second of the log that trickles")
    parser.add_argument("--trickle-seconds", type=float, default=30, help="how long it is followed; 0 leaves it out")
    parser.add_argument("--idle-seconds", type=float, default=20, help="how long the agent is then watched doing nothing")
    parser.add_argument("--guarantees", nargs="*", choices=GUARANTEES, default=GUARANTEES, help="which; one twice shows the noise")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument("--directory", type=Path, help="where to work (needs 4 GB); the system's by default")
    return parser.parse_args()


class _Bench:
    """One broker, one large file, one round after the other."""

    def __init__(self, work: Path, broker: DevBroker, options: argparse.Namespace) -> None:
        assert broker.pid is not None
        self._work = work
        self._bootstrap = broker.bootstrap
        self._broker_pid = broker.pid
        self._options = options
        self._names = _names(options.guarantees)
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def volumes(self) -> dict[str, Volume]:
        """Guarantees in turn; the first round does not count."""
        options = self._options
        if not options.lines:
            return {}
        paths = [self._work / f"large-{number}.log" for number in range(options.files)]
        _say(f"writing {options.lines:,} lines")
        lines.write(paths[0], options.lines)
        for path in paths[1:]:
            shutil.copyfile(paths[0], path)
        found: dict[str, list[Volume]] = {name: [] for name in self._names}
        for number in range(options.rounds + 1):
            for name, guarantee in self._in_turn(number):
                one = self._volume(guarantee, paths)
                _say(f"{f'round {number}' if number else 'warm-up'}: {name}: {one.rate.lines_per_second:,.0f} lines/s, load {_load()}")
                if number:
                    found[name].append(one)
        for path in paths:
            path.unlink()
        return {
            name: Volume(rate.median([one.rate for one in some]), statistics.median(one.broker_cpu_per_million for one in some))
            for name, some in found.items()
        }

    def trickles(self) -> dict[str, Trickle]:
        """Guarantees in turn."""
        options = self._options
        found: dict[str, list[Trickle]] = {name: [] for name in self._names}
        for number in range(options.rounds if options.trickle_seconds else 0):
            for name, guarantee in self._in_turn(number):
                one = self._trickle(guarantee)
                _say(f"{name}: p50 {one.latency.p50_ms:.0f} ms, p99 {one.latency.p99_ms:.0f} ms, load {_load()}")
                found[name].append(one)
        return {name: exactly_measure.median(some) for name, some in found.items() if some}

    def _in_turn(self, number: int) -> list[tuple[str, str]]:
        """The one that goes first changes from round to round."""
        order = list(self._names.items())
        return order if number % 2 else order[::-1]

    def _volume(self, guarantee: str, paths: list[Path]) -> Volume:
        delivery = {"guarantee": guarantee, "max_batch_time": f"{self._options.batch:g}s", "max_batch_bytes": _ROOM}
        beside = Beside(self._broker_pid)
        with self._job(*paths) as job:
            before = beside.cpu_seconds()
            count = self._options.lines * len(paths)
            one = rate.measured(lambda: _agent(job, delivery), self._bootstrap, job.topics, count)
            used = beside.cpu_seconds() - before
        return Volume(one, used / count * 1e6)

    def _trickle(self, guarantee: str) -> Trickle:
        options = self._options
        beside = Beside(self._broker_pid)
        with self._job(self._work / "trickle.log") as job:
            found = latency.measured(
                lambda: _agent(job, {"guarantee": guarantee}), job, options.rate, options.trickle_seconds, options.idle_seconds, beside.look
            )
            transactions = exactly_measure.transactions_per_second(consume(self._bootstrap, job.topics[0])[1:])
        return Trickle(found, beside.share("busy", "settling"), beside.share("idle", "end"), transactions)

    @contextmanager
    def _job(self, *paths: Path) -> Iterator[Job]:
        """With new topics, which are deleted afterwards."""
        topics = tuple(f"exactly-{uuid.uuid4().hex[:8]}" for _ in paths)
        for answer in self._admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            answer.result(30)
        job = Job(paths, topics, self._bootstrap, self._work / topics[0])
        try:
            yield job
        except TimeoutError as error:
            error.add_note(f"the agent's last words:\n{(job.work / 'output.log').read_text()[-3000:]}")
            raise
        for answer in self._admin.delete_topics(list(topics)).values():
            answer.result(30)


def _names(guarantees: list[str]) -> dict[str, str]:
    """Name in the tables -> guarantee; a guarantee that is there twice has a number the second time."""
    names: dict[str, str] = {}
    for guarantee in guarantees:
        names[guarantee if guarantee not in names else f"{guarantee} ({len(names) + 1})"] = guarantee
    return names


def _agent(job: Job, delivery: Mapping[str, str]) -> list[Process]:
    """`copycat run` with one connector for each file."""
    definitions = job.work / "connectors.d"
    definitions.mkdir(parents=True)
    for path, topic in job.pairs:
        definition = {
            "name": topic,
            "source": {"type": "log_file", "include": [str(path)]},
            "record": {"topic": topic},
            "delivery": dict(delivery),
            "kafka": {"bootstrap_servers": [job.bootstrap]},
        }
        (definitions / f"{topic}.yaml").write_text(json.dumps(definition))
    command = [sys.executable, "-m", "copycat_agent", "run", str(definitions), "--state-dir", str(job.work / "state")]
    return [start(job.work, command)]


def _caption(options: argparse.Namespace) -> str:
    return (
        f"{time.strftime('%Y-%m-%d')}, {describe_machine()}, broker and agent beside each other, acks=all, lz4, one partition per topic; "
        f"median of {options.rounds} rounds in turn; load average at the end {_load()}"
    )


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
