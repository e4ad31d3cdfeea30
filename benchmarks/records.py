"""What a definition costs per record: `run_batch` in this process on one file, definitions with transforms beside one without.

`python -m benchmarks.records`; `--profile CASE` shows where the time of one goes. Another case is an entry of `CASES`.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pickle
import pstats
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import lines
from benchmarks.tools import describe_machine
from copycat_agent.definitions import load_file
from copycat_agent.dev_broker import DevBroker
from copycat_agent.executor import run_batch
from copycat_agent.model import Batch, SourceOffset, SourcePartition, Split, TaskId
from copycat_agent.options import AgentOptions, Definition, KafkaOptions, TopicOptions
from copycat_agent.producer import ProducerPool

NGINX = r'^(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<ts>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<bytes>\d+|-)'
_PARSED = [
    {"regex": NGINX},
    {"timestamp": {"field": "ts", "format": "%d/%b/%Y:%H:%M:%S %z"}, "on_error": "keep"},
    {"convert": {"status": "int", "bytes": "int"}, "on_error": "keep"},
]
_JSON = [{"json": {}}, {"set": {"env": "prod", "host": "{@host}"}}]


@dataclass(frozen=True)
class Case:
    """Lines of one kind and what a definition does to them."""

    kind: str
    transforms: Sequence[Mapping[str, Any]] = ()
    record: Mapping[str, Any] = field(default_factory=dict)


CASES: dict[str, Case] = {
    "plain": Case("access"),
    "drop_if": Case("access", [{"drop_if": {"message": {"matches": " 404 "}}}]),
    "nginx": Case("access", _PARSED),
    "nginx, section 5": Case(
        "access",
        [*_PARSED, {"drop_if": {"path": {"matches": "^/healthz"}}}],
        {"key": "{client}", "timestamp": "event", "headers": {"host": "{@host}"}},
    ),
    "json, as lines": Case("json"),
    "json": Case("json", _JSON),
}


def main() -> None:
    """A table of lines per second and microseconds of CPU per line; Markdown."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="copycat-records-", dir=options.directory) as name:
        work = Path(name)
        with DevBroker(work / "broker", properties={"log.segment.delete.delay.ms": "500"}) as broker:
            bench = _Bench(work, broker.bootstrap, options.lines)
            if options.profile:
                bench.profile(options.profile)
            else:
                bench.compare(options.cases, options.rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=500_000, help="lines of a file")
    parser.add_argument("--rounds", type=int, default=5, help="how often each case ships its file, in turn; medians count")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES), help="which cases")
    parser.add_argument("--profile", choices=list(CASES), help="profile one case instead")
    parser.add_argument("--directory", type=Path, help="where to work; the system's by default")
    return parser.parse_args()


@dataclass(frozen=True)
class _Rate:
    wall: float
    thread: float
    process: float


class _Bench:
    """One broker, one file for each kind of lines, one process's producers."""

    def __init__(self, work: Path, bootstrap: str, count: int) -> None:
        self._work, self._bootstrap, self._count = work, bootstrap, count
        self._files: dict[str, Path] = {}
        self._producers = ProducerPool()

    def compare(self, cases: Sequence[str], rounds: int) -> None:
        """Every case in turn; the first round does not count."""
        known = {name: definition for name in cases if (definition := self._definition(name)) is not None}
        rates: dict[str, list[_Rate]] = {name: [] for name in known}
        for number in range(rounds + 1):
            for name, definition in known.items():
                rate = self._ship(name, definition)
                if number:
                    rates[name].append(rate)
        self._producers.close()
        print(f"{describe_machine()}; {self._count:,} lines of one file, in process, median of {rounds} rounds\n")
        print("| definition | lines/s | CPU µs per line, the task's thread | with the client's threads |\n|---|---|---|---|")
        for name, found in rates.items():
            wall, thread, process = (statistics.median(getattr(one, part) for one in found) for part in ("wall", "thread", "process"))
            print(f"| {name} | {self._count / wall:,.0f} | {thread / self._count * 1e6:.2f} | {process / self._count * 1e6:.2f} |")

    def profile(self, name: str) -> None:
        """Where the time of one case goes, the 25 dearest functions."""
        definition = self._definition(name)
        if definition is None:
            return
        self._ship(name, definition)
        profiler = cProfile.Profile()
        profiler.enable()
        self._ship(name, definition)
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)

    def _definition(self, name: str) -> Definition | None:
        """The case's definition through the real loader; None, with words, when it does not load."""
        case = CASES[name]
        document = {
            "name": "bench",
            "source": {"type": "log_file", "include": [str(self._file(case.kind))]},
            "transforms": list(case.transforms),
            "record": {"topic": f"records-{list(CASES).index(name)}", **case.record},
        }
        path = self._work / "bench.yaml"
        path.write_text(json.dumps(document))
        kafka = KafkaOptions(bootstrap_servers=(self._bootstrap,), create_topics=TopicOptions())
        loaded = load_file(path, AgentOptions(kafka=kafka))
        if loaded.definition is None:
            print(f"{name}: left out: {'; '.join(problem.text for problem in loaded.problems)}")
        return loaded.definition

    def _file(self, kind: str) -> Path:
        path = self._files.get(kind)
        if path is None:
            path = self._files[kind] = self._work / f"{kind}.log"
            _WRITERS[kind](path, self._count)
        return path

    def _ship(self, name: str, definition: Definition) -> _Rate:
        """The whole file in batches of the usual size, as the agent cuts them."""
        path = self._file(CASES[name].kind)
        split = Split(SourcePartition("bench", "f"), str(path), str(path), SourceOffset(0), path.stat().st_size)
        pickled = pickle.dumps(definition)
        wall, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
        while True:
            (result,) = run_batch(Batch(TaskId("bench", 0), pickled, (split,), 64 * 2**20, 60.0), self._producers, lambda: False)
            assert result.error is None, result.error
            if result.at_end:
                return _Rate(time.perf_counter() - wall, time.thread_time() - thread, time.process_time() - process)
            split = replace(split, offset=result.offset)


def _write_json(path: Path, count: int) -> None:
    chance = random.Random(1)
    with path.open("w") as file:
        for number in range(count):
            one = {
                "ts": f"2026-11-21T05:{number // 60 % 60:02d}:{number % 60:02d}.000Z", "level": chance.choice(("INFO", "WARN", "DEBUG")),
                "order_id": f"{chance.randrange(10**8):08x}", "amount": chance.randrange(10**6) / 100, "items": [1, 2, number % 9],
                "message": "the order was taken and is on its way",
            }  # fmt: skip
            file.write(json.dumps(one) + "\n")


_WRITERS: dict[str, Callable[[Path, int], None]] = {"access": lines.write, "json": _write_json}


if __name__ == "__main__":
    main()
