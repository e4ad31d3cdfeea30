"""The tools that are compared: how each is started on one file and one topic."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """A file to ship, or, for latency, to follow."""

    path: Path
    topic: str
    bootstrap: str
    work: Path


def copycat(job: Job) -> subprocess.Popen[bytes]:
    """The agent as a user runs it."""
    definitions = job.work / "connectors.d"
    definitions.mkdir(parents=True)
    definition = {
        "name": "benchmark",
        "source": {"type": "log_file", "include": [str(job.path)]},
        "record": {"topic": job.topic},
        "kafka": {"bootstrap_servers": [job.bootstrap]},
    }
    (definitions / "benchmark.yaml").write_text(json.dumps(definition))
    log = (job.work / "agent.log").open("wb")
    command = [sys.executable, "-m", "copycat_agent", "run", str(definitions), "--state-dir", str(job.work / "state")]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def kcat(job: Job) -> subprocess.Popen[bytes]:
    """kcat -P -l: what librdkafka alone can do. It reads once and ends."""
    command = ["kcat", "-P", "-b", job.bootstrap, "-t", job.topic, "-l", "-z", "lz4", "-X", "acks=all", str(job.path)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


TOOLS: dict[str, Callable[[Job], subprocess.Popen[bytes]]] = {"copycat": copycat, "kcat": kcat}


def present() -> list[str]:
    """Tools that this machine has."""
    return [name for name in TOOLS if name == "copycat" or shutil.which(name)]


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a tool as its user would."""
    if process.poll() is None:
        process.terminate()
    process.wait(60)


def describe_machine() -> str:
    """Cores and memory, for the table's caption."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB, Python {sys.version.split()[0]}"
