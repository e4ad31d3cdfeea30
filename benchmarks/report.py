"""What was measured, as Markdown tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.latency import Latency
from benchmarks.rate import Rate

NAMES = {
    "copycat": "copycat",
    "previous": "copycat, the version before",
    "kcat": "`kcat -P -l`",
    "rsyslog": "rsyslog, imfile and omkafka",
    "filestream": "Kafka Connect standalone, FileStreamSource",
}


def rates(found: Mapping[str, Rate]) -> str:
    """A table; ratios are to kcat and to FileStreamSource in the same run."""
    head = (
        "tool",
        "lines/s",
        "of kcat",
        "of FileStreamSource",
        "CPU s per million",
        "first record after",
        "CPU s until then",
        "peak memory",
    )
    return table(head, (_rate_row(tool, one, found) for tool, one in found.items()))


def _rate_row(tool: str, one: Rate, found: Mapping[str, Rate]) -> list[str]:
    return [
        NAMES[tool],
        f"{one.lines_per_second:,.0f}",
        *(f"{one.lines_per_second / found[base].lines_per_second:.2f}" if base in found else "-" for base in ("kcat", "filestream")),
        f"{one.cpu_seconds_per_million:.2f}",
        f"{one.first_record_seconds:.1f} s",
        f"{one.start_cpu_seconds:.1f}",
        f"{one.peak_bytes / 2**20:.0f} MiB",
    ]


def latencies(found: Mapping[str, Latency]) -> str:
    """A table of tools that follow a file."""
    head = ("tool", "p50", "p99", "longest", "CPU of one core", "CPU when idle")
    rows = (
        [
            NAMES[tool],
            f"{one.p50_ms:.1f} ms",
            f"{one.p99_ms:.1f} ms",
            f"{one.max_ms:.0f} ms",
            f"{one.cpu_share:.1%}",
            f"{one.idle_cpu_share:.2%}",
        ]
        for tool, one in found.items()
    )
    return table(head, rows)


def write_json(
    path: Path, caption: str, one: Mapping[str, Rate], two: Mapping[str, Rate], trickles: Mapping[str, Mapping[str, Latency]]
) -> None:
    """Everything, with the units in the names; trickles by what trickles."""
    tables: dict[str, Mapping[str, Rate] | Mapping[str, Latency]] = {"one_file": one, "two_files": two, **trickles}
    whole = {"caption": caption, **{name: {tool: asdict(row) for tool, row in table.items()} for name, table in tables.items()}}
    path.write_text(json.dumps(whole, indent=2) + "\n")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """In Markdown."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
