"""`benchmarks/run`: copycat beside other tools, one broker, one run, one table."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import latency, lines, rate, report
from benchmarks.tools import TOOLS, Job, describe_machine, present
from copycat_agent.dev_broker import DevBroker


class Trickle(NamedTuple):
    """Logs that trickle: lines a second in all, how many logs take turns, and what the agent guarantees. What is read is committed."""

    per_second: int
    guarantee: str = "at_least_once"
    logs: int = 1

    def __str__(self) -> str:
        lines = "line" if self.per_second == 1 else "lines"
        more = f", {self.logs} files in turn" if self.logs > 1 else ""
        return f"{self.per_second} {lines} a second{more}" + (", exactly once" if self.guarantee == "exactly_once" else "")


TRICKLES = (Trickle(200), Trickle(20), Trickle(1), Trickle(200, "exactly_once"), Trickle(1000, logs=1000))
"""With one line a second each comes after a rest."""


def main() -> None:
    """Measure what the command line asks for; Markdown to standard output, progress to standard error."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="copycat-benchmark-", dir=options.directory) as name:
        work = Path(name)
        # Topics are deleted after each measurement; by default their files stay for a minute.
        with DevBroker(work / "broker", properties={"log.segment.delete.delay.ms": "500"}) as broker:
            bench = _Bench(work, broker.bootstrap, options)
            one, two = bench.rates()
            trickles = {str(one): bench.trickle(one) for one in TRICKLES}
    caption = bench.caption
    print(f"{caption}\n")
    for title, table in (
        ("One file", report.rates(one)),
        ("Two files", report.rates(two)),
        *((title, report.latencies(found)) for title, found in trickles.items()),
    ):
        if table.count("\n") > 1:
            print(f"{title}:\n\n{table}\n")
    if options.json:
        report.write_json(options.json, caption, one, two, trickles)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=3_000_000, help="lines of each large file; 0 leaves them out")
    parser.add_argument("--rounds", type=int, default=3, help="how often each tool ships them, in turn; medians count")
    parser.add_argument("--files", type=int, nargs="*", choices=(1, 2), default=[1, 2], help="how many files at a time")
    parser.add_argument("--trickle-seconds", type=float, default=30, help="how long each log that trickles is followed; 0 leaves them out")
    parser.add_argument("--trickle-rounds", type=int, default=1, help="how often, the tools in turn; medians count")
    parser.add_argument("--idle-seconds", type=float, default=30, help="how long a tool is then watched doing nothing")
    parser.add_argument("--tools", nargs="*", default=present(), choices=list(TOOLS), help="which tools, of those this machine has")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument("--directory", type=Path, help="where to work (needs 4 GB for a few minutes); the system's by default")
    return parser.parse_args()


class _Bench:
    """One run: a broker, the large files, and what is asked for."""

    def __init__(self, work: Path, bootstrap: str, options: argparse.Namespace) -> None:
        self._work = work
        self._bootstrap = bootstrap
        self._options = options
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.caption = (
            f"{time.strftime('%Y-%m-%d')}, {describe_machine()}, broker and tools beside each other, acks=all, lz4, one partition per topic"
        )

    def rates(self) -> tuple[dict[str, rate.Rate], dict[str, rate.Rate]]:
        """One file and two files at a time, tools and both in turn; a first round does not count."""
        options = self._options
        if not (options.lines and options.files):
            return {}, {}
        paths = [self._work / "large-1.log", self._work / "large-2.log"]
        _say(f"writing {options.lines:,} lines")
        lines.write(paths[0], options.lines)
        self.caption += (
            f"; {options.lines:,} lines of {paths[0].stat().st_size / options.lines:.0f} bytes, median of {options.rounds} rounds"
        )
        shutil.copyfile(paths[0], paths[1])
        tools = [tool for tool in options.tools if TOOLS[tool].in_bulk]
        found: dict[tuple[int, str], list[rate.Rate]] = {(count, tool): [] for count in sorted(options.files) for tool in tools}
        for number in range(options.rounds + 1):
            for (count, tool), results in found.items():
                if number == 0 and count == 2:
                    continue
                with self._job(*paths[:count]) as job:
                    result = rate.measure(tool, job, options.lines)
                _say(f"{f'round {number}' if number else 'warm-up'}: {tool}, {count} file(s): {result.lines_per_second:,.0f} lines/s")
                if number:
                    results.append(result)
        for path in paths:
            path.unlink()
        medians = {key: rate.median(rates) for key, rates in found.items() if rates}
        one, two = ({tool: one for (count, tool), one in medians.items() if count == wanted} for wanted in (1, 2))
        return one, two

    def trickle(self, wanted: Trickle) -> dict[str, latency.Latency]:
        """Every tool that follows a file, and gives the guarantee, in turn; the median of each figure."""
        options = self._options
        is_exact = wanted.guarantee == "exactly_once"
        able = [tool for tool in options.tools if TOOLS[tool].follows and TOOLS[tool].is_exact >= is_exact]
        tools = [tool for tool in able if options.trickle_seconds and (wanted.logs == 1 or TOOLS[tool].takes_patterns)]
        found: dict[str, list[latency.Latency]] = {tool: [] for tool in tools}
        for _ in range(options.trickle_rounds):
            for tool in tools:
                with self._logs(wanted.logs) as path, self._job(path, guarantee=wanted.guarantee) as job:
                    _say(f"following {wanted}: {tool}")
                    found[tool].append(latency.measure(tool, job, wanted.per_second, options.trickle_seconds, options.idle_seconds))
        return {tool: latency.median(each) for tool, each in found.items()}

    @contextmanager
    def _logs(self, count: int) -> Iterator[Path]:
        """A log that is not there yet, or a pattern of many that are."""
        directory = self._work / "logs"
        directory.mkdir()
        for number in range(count if count > 1 else 0):
            (directory / f"{number}.log").touch()
        yield directory / ("*.log" if count > 1 else "app.log")
        shutil.rmtree(directory)

    @contextmanager
    def _job(self, *paths: Path, guarantee: str = "at_least_once") -> Iterator[Job]:
        """With new topics, which are deleted afterwards."""
        topics = tuple(f"benchmark-{uuid.uuid4().hex[:8]}" for _ in paths)
        for answer in self._admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            answer.result(30)
        yield Job(paths, topics, self._bootstrap, self._work / topics[0], guarantee)
        for answer in self._admin.delete_topics(list(topics)).values():
            answer.result(30)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
