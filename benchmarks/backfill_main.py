"""`benchmarks/backfill`: gigabytes of packed logs, once, with `copycat backfill`: rate, cost, memory, and the account of every record."""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import lines
from benchmarks.measuring import Arrivals, Meter
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker

_FILE_LINES = 1_600_000
"""Of each file: a little less than 256 MiB."""


@dataclass(frozen=True)
class Found:
    """What came out. Seconds and CPU are those of the whole command, its start included."""

    files: int
    lines: int
    text_bytes: int
    packed_bytes: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    in_kafka: int
    exit_code: int
    account: dict[str, Any]


def main() -> None:
    """Measure what the command line asks for; words to standard output, progress to standard error. Exits with the command's code."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="copycat-backfill-", dir=options.directory) as name:
        work = Path(name)
        text_bytes, paths = _write(work, options.gb)
        retention = {"retention.bytes": "-1", "segment.bytes": str(2**28)}
        with DevBroker(work / "broker") as broker:
            topic = "backfill"
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            admin.create_topics([NewTopic(topic, 1, 1, config=retention)])[topic].result(30)
            found = _measure(work, broker.bootstrap, topic, paths, text_bytes)
    print(_words(found))
    if options.json:
        options.json.write_text(json.dumps(asdict(found), indent=2) + "\n")
    sys.exit(found.exit_code)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="10^9 bytes of text, before packing")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument("--directory", type=Path, help="where to work (needs about as much as --gb says); the system's by default")
    return parser.parse_args()


def _write(work: Path, gb: float) -> tuple[int, list[Path]]:
    """Packed files of that much text. Each begins with a line of its own, else they would be the same file again and again."""
    logs = work / "logs"
    logs.mkdir()
    print(f"writing {gb} GB of text, packed", file=sys.stderr, flush=True)
    text = work / "text"
    lines.write(text, _FILE_LINES)
    size = text.stat().st_size
    subprocess.run(["gzip", "-6", str(text)], check=True)
    packed = text.with_suffix(".gz").read_bytes()
    paths = [logs / f"access.log.{number:04d}.gz" for number in range(max(1, round(gb * 1e9 / size)))]
    for number, path in enumerate(paths):
        path.write_bytes(gzip.compress(b"log %d\n" % number) + packed)
    text.with_suffix(".gz").unlink()
    return size * len(paths), paths


def _measure(work: Path, bootstrap: str, topic: str, paths: list[Path], text_bytes: int) -> Found:
    definition = work / "logs.yaml"
    source = {"type": "log_file", "include": [str(work / "none" / "*")]}
    definition.write_text(json.dumps({"name": "logs", "source": source, "record": {"topic": topic}}))
    command = [
        sys.executable, "-m", "copycat_agent", "backfill", str(definition), str(paths[0].parent), "--format", "json",
        "--state-dir", str(work / "state"), "--bootstrap-servers", bootstrap,
    ]  # fmt: skip
    begin = time.monotonic()
    with (work / "words").open("wb") as words:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words)
        with Meter([process.pid]) as meter:
            answer, _ = process.communicate()
            seconds = time.monotonic() - begin
            usage = meter.usage()
    print((work / "words").read_text()[-2000:], file=sys.stderr)
    summary = json.loads(answer) if answer else {}
    arrivals = Arrivals(bootstrap, [topic])
    in_kafka = arrivals.count()
    arrivals.close()
    packed_bytes = sum(path.stat().st_size for path in paths)
    account = {name: value for name, value in summary.items() if name != "files"}
    count = (_FILE_LINES + 1) * len(paths)
    return Found(
        len(paths), count, text_bytes, packed_bytes, seconds, usage.cpu_seconds, usage.peak_bytes, in_kafka, process.returncode, account
    )


def _words(found: Found) -> str:
    per_second, million = found.lines / found.seconds, found.lines / 1e6
    return (
        f"{describe_machine()}, broker beside it: {found.files} files, {found.packed_bytes / 1e9:.2f} GB packed, "
        f"{found.text_bytes / 1e9:.2f} GB of text, {found.lines:,} lines\n"
        f"{found.seconds:.1f} s, {per_second:,.0f} lines/s, {found.text_bytes / found.seconds / 1e6:.0f} MB/s of text; "
        f"{found.cpu_seconds / million:.2f} CPU s per million lines; {found.peak_bytes / 2**20:.0f} MiB at the most\n"
        f"in Kafka: {found.in_kafka:,}; exit code {found.exit_code}; account: {json.dumps(found.account)}"
    )


if __name__ == "__main__":
    main()
