"""`benchmarks/run`: copycat beside other tools, one broker, one run, one table."""

from __future__ import annotations

import argparse
import tempfile
import uuid
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks import latency, lines, rate
from benchmarks.tools import Job, describe_machine, present
from copycat_agent.dev_broker import DevBroker

console = Console()


def main() -> None:
    """Measure what the command line asks for and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=3_000_000, help="lines of the large file")
    parser.add_argument("--rounds", type=int, default=3, help="how often each tool ships it, in turn; the median counts")
    parser.add_argument("--trickle-seconds", type=float, default=20, help="how long 200 lines a second are followed; 0 leaves it out")
    parser.add_argument("--tools", nargs="*", default=present(), help="which tools, of those this machine has")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copycat-benchmark-") as directory:
        work = Path(directory)
        with DevBroker(work / "broker") as broker:
            if options.lines:
                _rates(options, work, broker.bootstrap)
            if options.trickle_seconds and "copycat" in options.tools:
                _trickle(options, work, broker.bootstrap)


def _rates(options: argparse.Namespace, work: Path, bootstrap: str) -> None:
    path = work / "large.log"
    lines.write(path, options.lines)
    size = path.stat().st_size
    caption = f"{options.lines:,} lines of {size / options.lines:.0f} bytes, one file, one partition, acks=all, lz4; {describe_machine()}"
    console.print(f"warming up: one run of each that does not count\n{caption}")
    results: dict[str, list[rate.Rate]] = {tool: [] for tool in options.tools}
    for number in range(options.rounds + 1):
        for tool in options.tools:
            result = rate.measure(tool, _job(work, bootstrap, path), options.lines)
            if number:
                results[tool].append(result)
    medians = {tool: _median(found) for tool, found in results.items()}
    table = Table("tool", "lines/s", "of kcat", "CPU s per million", "first record s", "CPU s until then", "peak MiB", title=caption)
    base = medians["kcat"].lines_per_second if "kcat" in medians else 0.0
    for tool, one in medians.items():
        table.add_row(
            tool,
            f"{one.lines_per_second:,.0f}",
            f"{one.lines_per_second / base:.2f}" if base else "-",
            f"{one.cpu_seconds_per_million:.2f}",
            f"{one.first_record_seconds:.2f}",
            f"{one.start_cpu_seconds:.1f}",
            f"{one.peak_bytes / 2**20:.0f}",
        )
    console.print(table)


def _trickle(options: argparse.Namespace, work: Path, bootstrap: str) -> None:
    found = latency.measure("copycat", _job(work, bootstrap, work / "trickle.log"), 200, options.trickle_seconds)
    table = Table("tool", "p50 ms", "p99 ms", "max ms", "CPU of one core", "idle", title="200 lines/s, from append to consumer")
    table.add_row(
        found.tool,
        f"{found.p50_ms:.0f}",
        f"{found.p99_ms:.0f}",
        f"{found.max_ms:.0f}",
        f"{found.cpu_share:.1%}",
        f"{found.idle_cpu_share:.1%}",
    )
    console.print(table)


def _job(work: Path, bootstrap: str, path: Path) -> Job:
    topic = f"benchmark-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a name: a client that is collected ends its calls
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    return Job(path, topic, bootstrap, work / topic)


def _median(found: list[rate.Rate]) -> rate.Rate:
    return sorted(found, key=lambda one: one.lines_per_second)[len(found) // 2]


if __name__ == "__main__":
    main()
