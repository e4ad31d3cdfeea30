"""`benchmarks/run kill_loop`: kill -9 of everything, over and over, under load, with a count of every line. Was the promise kept?"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks import kill_loop_report
from benchmarks.kill_loop_findings import Findings, restored, values
from benchmarks.kill_loop_run import Asked, Loop
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker
from tests.kill.both import Load, definitions
from tests.rig.agent import AgentProcess
from tests.rig.kafka import create_topic
from tests.rig.verifier import Verifier

_TOPICS = {"logs": "kills.logs", "drops": "kills.drops"}
_PARTITIONS = 2


def main() -> None:
    """Tables to standard output, progress to standard error. Exits 1 when the promise was broken."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave nothing running
    work = (options.directory or Path(tempfile.mkdtemp(prefix="copycat-kills-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    told = _run(work, options)
    print(kill_loop_report.text(told))
    if options.json:
        options.json.write_text(json.dumps(told, indent=2) + "\n")
    if told["kept"] and not options.directory:
        shutil.rmtree(work)
    else:
        print(f"\nfiles, topics and the agent's log are in {work}", file=sys.stderr)
    sys.exit(0 if told["kept"] else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run kill_loop", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="how many")
    parser.add_argument("--minutes", type=float, default=90, help="end after so many, whatever was done by then")
    parser.add_argument("--guarantee", choices=("exactly_once", "at_least_once"), default="exactly_once", help="of both connectors")
    parser.add_argument("--seed", type=int, default=None, help="of who is killed, and when")
    parser.add_argument("--rate", type=int, default=300, help="lines a second")
    parser.add_argument("--json", type=Path, help="a file to write all figures to")
    parser.add_argument("--directory", type=Path, help="where to work; one that an earlier run has left is gone on with")
    return parser.parse_args()


def _run(work: Path, options: argparse.Namespace) -> dict[str, Any]:
    _end_left_over(work)
    saved, findings = _resume(work / "progress.json", options)
    began = time.monotonic()
    load = Load(work / "files", saved["run"], options.rate)
    with DevBroker(work / "broker") as broker, AgentProcess(work / "agent", broker.bootstrap) as agent:
        for name, definition in definitions(load, _TOPICS, saved["guarantee"]).items():
            agent.define(name, definition)
        if not saved["topics"]:
            for topic in _TOPICS.values():
                create_topic(broker.bootstrap, topic, _PARTITIONS)
            saved["topics"] = True

        def note() -> None:
            _write(work / "progress.json", {**saved, "findings": values(findings)})

        note()
        with Verifier(broker.bootstrap, list(_TOPICS.values()), saved["run"]) as verifier:
            with load:
                loop = Loop(agent, broker, load, verifier, findings, Asked(saved["seed"], saved["guarantee"], note))
                loop.begin()
                loop.strike_all(options.kills, began + options.minutes * 60)
                loop.settle()
            verdict = verifier.finish(load.counts())
        note()
    verdict["written_bytes"] = load.written_bytes
    asked = {
        "caption": f"{time.strftime('%Y-%m-%d')}, {describe_machine()}",
        "guarantee": saved["guarantee"],
        "seed": saved["seed"],
        "rate": options.rate,
        "minutes_taken": (time.monotonic() - began) / 60,
        "rotations": load.rotations,
    }
    return kill_loop_report.result(verdict, findings, asked, verifier.committed.repeated_ms)


def _end_left_over(work: Path) -> None:
    """A loop that was itself killed leaves its agent behind: it is known by the directory in its command line."""
    state = str(work / "agent" / "state")
    left = [one for one in psutil.process_iter(["cmdline"]) if one.pid != os.getpid() and state in (one.info["cmdline"] or [])]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=20)


def _resume(path: Path, options: argparse.Namespace) -> tuple[dict[str, Any], Findings]:
    """What an earlier run has saved in this directory, or a beginning."""
    if path.exists():
        saved = json.loads(path.read_text())
        return saved, restored(saved.pop("findings"))
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    return {"run": uuid.uuid4().hex[:8], "seed": seed, "guarantee": options.guarantee, "topics": False}, Findings()


def _write(path: Path, told: dict[str, Any]) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(told))
    beside.rename(path)


if __name__ == "__main__":
    main()
