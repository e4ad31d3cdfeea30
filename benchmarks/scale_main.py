"""`benchmarks/scale`: how the agent does with many files, many active files, and a backlog beside a quiet file."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.report import table
from benchmarks.scale_experiments import EXPERIMENTS
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker

_PROPERTIES = {"log.segment.delete.delay.ms": "500", "log.retention.check.interval.ms": "5000"}
"""A backlog's records are not kept: they would need half its size again."""


def main() -> None:
    """Tables to standard output, progress to standard error."""
    options = _options()
    results: dict[str, Any] = {"caption": f"{time.strftime('%Y-%m-%d')}, {describe_machine()}"}
    with tempfile.TemporaryDirectory(prefix="copycat-scale-", dir=options.directory) as name:
        work = Path(name)
        with DevBroker(work / "broker", properties=_PROPERTIES) as broker:
            for experiment in options.experiments:
                print(f"{experiment} ...", file=sys.stderr, flush=True)
                results[experiment] = EXPERIMENTS[experiment](work, broker.bootstrap, options)
                print(json.dumps(results[experiment]), file=sys.stderr, flush=True)
    print(results["caption"])
    for experiment in options.experiments:
        rows = ([name.replace("_", " "), _number(name, value)] for name, value in results[experiment].items())
        print(f"\n{(EXPERIMENTS[experiment].__doc__ or '').strip()}\n\n{table((experiment, ''), rows)}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def _number(name: str, value: float) -> str:
    return f"{value:.2%}" if name.endswith("share") else f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiments", nargs="*", default=list(EXPERIMENTS), help=f"which: {', '.join(EXPERIMENTS)}; all by default")
    parser.add_argument("--files", type=int, default=100_000, help="files: how many")
    parser.add_argument("--active", type=int, default=1000, help="active: how many files get a line every second")
    parser.add_argument("--seconds", type=float, default=30, help="active: for how long")
    parser.add_argument("--gb", type=float, default=5, help="backlog: its size, GB of real lines on the disk; 50 needs 55 GB of room")
    parser.add_argument("--most-seconds", type=float, default=1200, help="backlog: followed no longer than this")
    parser.add_argument("--idle-seconds", type=float, default=60, help="files, idle: how long the agent is watched doing nothing")
    parser.add_argument("--cycles", type=int, default=10_000, help="cycles: files made, read and deleted, a hundred at a time")
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument("--directory", type=Path, help="where to work; the system's by default")
    options = parser.parse_args()
    if unknown := set(options.experiments) - set(EXPERIMENTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(EXPERIMENTS)}")
    return options


if __name__ == "__main__":
    main()
