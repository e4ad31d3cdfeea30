"""`benchmarks/run journal`: entries of a journal through the agent into Kafka, beside `journalctl --output=export > /dev/null`, in turn."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import rate
from benchmarks.report import table
from benchmarks.tools import Process, describe_machine, start
from copycat_agent.dev_broker import DevBroker
from tests.rig.journals import MISSING, write_journal


def main() -> None:
    """Measure; Markdown to standard output, progress to standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=600_000, help="entries of the journal, of 23 fields and 0.9 kB each")
    parser.add_argument("--rounds", type=int, default=3, help="how often, in turn, after a round that does not count; medians are told")
    parser.add_argument("--guarantee", choices=["at_least_once", "exactly_once"], default="at_least_once")
    options = parser.parse_args()
    if MISSING:
        sys.exit(MISSING)
    with tempfile.TemporaryDirectory(prefix="copycat-journal-") as name, DevBroker(Path(name) / "broker") as broker:
        work = Path(name)
        _say(f"writing {options.entries:,} entries")
        write_journal(work / "journal", entries(options.entries))
        alone: list[float] = []
        agent: list[rate.Rate] = []
        for number in range(options.rounds + 1):
            alone.append(_alone(work / "journal", options.entries))
            agent.append(_agent(work, broker.bootstrap, options))
            ratio = agent[-1].lines_per_second / alone[-1]
            _say(f"round {number}: journalctl {alone[-1]:,.0f}/s, agent {agent[-1].lines_per_second:,.0f}/s, {ratio:.2f} of it")
    base, found = statistics.median(alone[1:]), rate.median(agent[1:])
    rows = [
        ["journalctl --output=export > /dev/null", f"{base:,.0f}", "1.00", "-", "-"],
        [
            f"copycat, {options.guarantee}",
            f"{found.lines_per_second:,.0f}",
            f"{found.lines_per_second / base:.2f}",
            f"{found.cpu_seconds_per_million:.1f}",
            f"{found.peak_bytes / 2**20:.0f} MiB",
        ],
    ]
    what = f"{options.entries:,} entries of 23 fields; median of {options.rounds}"
    caption = f"{time.strftime('%Y-%m-%d')}, {describe_machine()}, broker beside it, {what}"
    print(f"{caption}\n\n{table(('what', 'entries/s', 'of journalctl', 'CPU s per million', 'peak memory'), rows)}")


def entries(count: int) -> Iterator[dict[str, Any]]:
    """As journald writes them of a web server."""
    same = {
        "SYSLOG_FACILITY": "3", "SYSLOG_IDENTIFIER": "nginx", "_UID": "0", "_GID": "0", "_COMM": "nginx", "_EXE": "/usr/sbin/nginx",
        "_CMDLINE": "nginx: master process /usr/sbin/nginx -g daemon on; master_process on;", "_CAP_EFFECTIVE": "1ffffffffff",
        "_SELINUX_CONTEXT": "unconfined", "_SYSTEMD_CGROUP": "/system.slice/nginx.service", "_SYSTEMD_UNIT": "nginx.service",
        "_SYSTEMD_SLICE": "system.slice", "_SYSTEMD_INVOCATION_ID": "2b1c1a7c5dd94ae1b8bd2f4be0eb43c6", "_TRANSPORT": "journal",
        "_MACHINE_ID": "4b1c1a7c5dd94ae1b8bd2f4be0eb43c6", "_HOSTNAME": "web1",
    }  # fmt: skip
    for number in range(count):
        line = f'10.0.0.{number % 250} - - [10/Oct/2023:13:55:36 +0000] "GET /{number} HTTP/1.1" 200 {number % 9999} "-" "Mozilla/5.0"'
        yield {
            "PRIORITY": str(number % 8), **same, "_PID": str(number % 100), "_SOURCE_REALTIME_TIMESTAMP": str(number), "MESSAGE": line,
        }  # fmt: skip


def _alone(journal: Path, count: int) -> float:
    begin = time.monotonic()
    subprocess.run(["journalctl", f"--directory={journal}", "--output=export"], stdout=subprocess.DEVNULL, check=True)
    return count / (time.monotonic() - begin)


def _agent(work: Path, bootstrap: str, options: argparse.Namespace) -> rate.Rate:
    topic = f"journal-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    time.sleep(2)  # the partition has no leader at once
    definition = {
        "name": "journal",
        "source": {"type": "journald", "directory": str(work / "journal")},
        "record": {"topic": topic},
        "kafka": {"bootstrap_servers": [bootstrap]},
        "delivery": {"guarantee": options.guarantee},
    }
    place = work / topic
    (place / "connectors.d").mkdir(parents=True)
    (place / "connectors.d/journal.yaml").write_text(json.dumps(definition))
    command = [sys.executable, "-m", "copycat_agent", "run", str(place / "connectors.d"), "--state-dir", str(place / "state")]

    def begin() -> list[Process]:
        return [start(place, command, None, dict(os.environ))]

    try:
        return rate.measured(begin, bootstrap, [topic], options.entries)
    except TimeoutError as error:
        error.add_note((place / "output.log").read_text()[-3000:])
        raise
    finally:
        admin.delete_topics([topic])[topic].result(30)


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
