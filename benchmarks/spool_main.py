"""`benchmarks/spool`: files dropped into a directory, copycat beside the spooldir plugin, one broker, one run, one table."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import rate, spool_files
from benchmarks.report import table
from benchmarks.spool_tools import NAMES, TOOLS, Drop, can
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker

Key = tuple[str, int, str]
"""Kind of file ("csv.gz"), number of files, tool."""


def main() -> None:
    """Measure what the command line asks for; Markdown to standard output, progress to standard error."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="copycat-spool-", dir=options.directory) as name:
        work = Path(name)
        with DevBroker(work / "broker", properties={"log.segment.delete.delay.ms": "500"}) as broker:
            bench = _Bench(work, broker.bootstrap, options)
            found = bench.run()
    caption = (
        f"{time.strftime('%Y-%m-%d')}, {describe_machine()}, broker and tools beside each other, acks=all, lz4, one partition; "
        f"{options.rows:,} records, in one file or cut into four; median of {options.rounds} rounds after one that does not count"
    )
    print(f"{caption}\n\n{_table(found)}")
    if options.json:
        rows = [{"kind": kind, "files": files, "tool": tool, **asdict(one)} for (kind, files, tool), one in found.items()]
        options.json.write_text(json.dumps({"caption": caption, "rows": rows}, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = [kind + packing for kind in spool_files.KINDS for packing in ("", ".gz")]
    parser.add_argument("--rows", type=int, default=1_000_000, help="records of each measurement, over all its files")
    parser.add_argument("--rounds", type=int, default=3, help="how often each tool does it, in turn; medians count")
    parser.add_argument("--files", type=int, nargs="*", default=[1, 4], help="how many files at a time")
    parser.add_argument("--kinds", nargs="*", choices=kinds, default=kinds, help="which files")
    parser.add_argument("--tools", nargs="*", choices=list(TOOLS), default=list(TOOLS), help="which tools")
    parser.add_argument("--spooldir", type=Path, help="Connect's plugin.path for the plugin; without it the plugin is left out")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument("--directory", type=Path, help="where to work (needs 3 GB); the system's by default")
    return parser.parse_args()


class _Bench:
    """One run: a broker, and one drop after the other."""

    def __init__(self, work: Path, bootstrap: str, options: argparse.Namespace) -> None:
        self._work = work
        self._bootstrap = bootstrap
        self._options = options
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def run(self) -> dict[Key, rate.Rate]:
        """All that was asked for; tools take turns."""
        found: dict[Key, rate.Rate] = {}
        for kind in self._options.kinds:
            for files in self._options.files:
                store = self._write(kind, files)
                rates: dict[str, list[rate.Rate]] = {}
                for number in range(self._options.rounds + 1):
                    for tool in self._options.tools:
                        one = self._one(tool, kind, files, store)
                        if one is not None and number:
                            rates.setdefault(tool, []).append(one)
                shutil.rmtree(store)
                found |= {(kind, files, tool): rate.median(some) for tool, some in rates.items()}
        return found

    def _write(self, kind: str, files: int) -> Path:
        _say(f"writing {files} {kind}")
        store = self._work / "store"
        store.mkdir()
        share = self._options.rows // files
        for number in range(files):
            spool_files.write(store / f"orders-{number}.{kind}", kind.removesuffix(".gz"), share, first=number * share)
        return store

    def _one(self, tool: str, kind: str, files: int, store: Path) -> rate.Rate | None:
        """One measurement, None when this tool cannot do that."""
        topic = f"spool-{uuid.uuid4().hex[:8]}"
        work = self._work / topic
        drop = Drop(kind.removesuffix(".gz"), work / "in", files, topic, self._bootstrap, work, self._options.spooldir)
        if not can(tool, drop, packed=kind.endswith(".gz")):
            return None
        shutil.copytree(store, drop.directory)
        self._admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        count = self._options.rows // files * files
        try:
            found = rate.measured(lambda: TOOLS[tool](drop), self._bootstrap, [topic], count)
        except TimeoutError as error:
            error.add_note(f"{tool}, {files} x {kind}; its last words:\n{(work / 'output.log').read_text()[-3000:]}")
            raise
        self._admin.delete_topics([topic])[topic].result(30)
        shutil.rmtree(work)
        _say(f"{tool}, {files} x {kind}: {found.lines_per_second:,.0f} records/s, {found.cpu_seconds_per_million:.1f} CPU s per million")
        return found


def _table(found: Mapping[Key, rate.Rate]) -> str:
    head = ("files", "tool", "records/s", "of spooldir", "CPU s per million", "of spooldir's", "first record after", "peak memory")
    return table(head, _rows(found))


def _rows(found: Mapping[Key, rate.Rate]) -> Iterable[list[str]]:
    for (kind, files, tool), one in found.items():
        base = found.get((kind, files, "spooldir"))
        yield [
            f"{files} {kind}",
            NAMES[tool],
            f"{one.lines_per_second:,.0f}",
            f"{one.lines_per_second / base.lines_per_second:.1f}" if base else "-",
            f"{one.cpu_seconds_per_million:.1f}",
            f"{one.cpu_seconds_per_million / base.cpu_seconds_per_million:.2f}" if base else "-",
            f"{one.first_record_seconds:.1f} s",
            f"{one.peak_bytes / 2**20:.0f} MiB",
        ]


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
