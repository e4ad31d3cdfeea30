"""`benchmarks/run kill_loop`: kill -9 of everything, over and over, under load, with a count of every line. Was the promise kept?"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks import kill_loop_report, kill_loop_totals
from benchmarks.kill_loop_end import LoopEnd
from benchmarks.kill_loop_findings import Findings, restored, values
from benchmarks.kill_loop_run import Asked, Loop
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker
from tests.kill.both import ROWS, Load, definitions, row_definitions, source_of
from tests.kill.jdbc_load import CONNECTORS as TABLES
from tests.kill.jdbc_load import JdbcLoad, jdbc_definitions
from tests.kill.journal_load import CONNECTOR, JournalLoad, journal_definition
from tests.kill.lake_load import CONNECTOR as LAKE
from tests.kill.lake_load import BucketLoad, FilesVerifier, HdfsLoad, LakeLoad, lake_definition
from tests.kill.object_load import CONNECTORS, ObjectLoad, object_definitions
from tests.kill.topic_load import MIRROR, PARTITIONS, TopicLoad, mirror_definition
from tests.rig.agent import AgentProcess
from tests.rig.kafka import create_topic
from tests.rig.object_store import CREDENTIALS
from tests.rig.verifier import Verifier

_SOURCES = {
    "files": ("logs", "drops", *ROWS),
    "journald": (CONNECTOR,),
    "objects": CONNECTORS,
    "jdbc": TABLES,
    "kafka": (MIRROR,),
    "lake": (LAKE,),
    "lake-s3": (LAKE,),
    "lake-hdfs": (LAKE,),
}
"""What is read -> the connectors."""
_SOURCES_HELP = (
    "files: logs, drops and rows; kafka: a topic into a topic; lake: a topic into files; lake-s3: into a bucket whose server fails; "
    "lake-hdfs: into HDFS"
)
AnyLoad = Load | JournalLoad | TopicLoad | ObjectLoad | JdbcLoad
_OF_ONE_KIND: dict[str, Callable[[Path, str, int], AnyLoad]] = {
    "journald": JournalLoad,
    "jdbc": JdbcLoad,
    "kafka": TopicLoad,
    "lake": LakeLoad,
    "lake-hdfs": HdfsLoad,
}
_FIRST_OBJECTS = 2200
"""More than those of which all are listed at each poll."""


def main() -> None:
    """Tables to standard output, progress to standard error. Exits 1 when the promise was broken."""
    options = _options()
    end = LoopEnd(options.minutes)
    work = (options.directory or Path(tempfile.mkdtemp(prefix="copycat-kills-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    told = _run(work, options, end)
    print(kill_loop_report.text(told))
    print(f"\n{told['totals']}")
    if options.json:
        options.json.write_text(json.dumps(told, indent=2) + "\n")
    if told["kept"] and not options.directory:
        if (server := work / "files" / "postgres").is_symlink():
            shutil.rmtree(server.resolve())
        shutil.rmtree(work)
    else:
        print(f"\nfiles, topics and the agent's log are in {work}", file=sys.stderr)
    sys.exit(0 if told["kept"] else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run kill_loop", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="how many more")
    parser.add_argument("--minutes", type=float, default=90, help="end after so many, whatever was done by then")
    parser.add_argument("--source", choices=_SOURCES, default="files", help=_SOURCES_HELP)
    parser.add_argument("--guarantee", choices=("exactly_once", "at_least_once"), default="exactly_once", help="of both connectors")
    parser.add_argument("--seed", type=int, default=None, help="of who is killed, and when")
    parser.add_argument("--rate", type=int, default=300, help="lines a second")
    parser.add_argument("--json", type=Path, help="a file to write all figures to")
    parser.add_argument("--totals", type=Path, default=kill_loop_totals.DIRECTORY, help="directory of the totals over all calls")
    parser.add_argument("--directory", type=Path, help="where to work; one that an earlier run has left is gone on with")
    return parser.parse_args()


def _run(work: Path, options: argparse.Namespace, end: LoopEnd) -> dict[str, Any]:
    _end_left_over(work)
    code = kill_loop_totals.code_hash()
    saved, findings = _resume(work / "progress.json", options, code)
    began = time.monotonic()
    topics = {name: f"kills.{name}" for name in _SOURCES[saved["source"]]}
    load = _load(work / "files", saved, options.rate)
    totals = kill_loop_totals.Totals(options.totals.resolve(), code)
    with DevBroker(work / "broker") as broker, AgentProcess(work / "agent", broker.bootstrap) as agent:
        if not saved["topics"]:
            for topic in (*topics.values(), TopicLoad.topic):
                create_topic(broker.bootstrap, topic, PARTITIONS)
            saved["topics"] = True
        if isinstance(load, TopicLoad):
            load.begin(broker.bootstrap)
        for name, definition in _connectors(load, topics, saved["guarantee"]).items():
            agent.define(name, definition)

        with _verifier(load, broker.bootstrap, list(topics.values()), saved) as verifier:

            def note(lost: Mapping[str, int] | None = None) -> dict[str, Any]:
                """Save what is known, and add it to the totals; what is `lost` is known at the end."""
                _write(work / "progress.json", {**saved, "findings": values(findings)})
                sources = verifier.committed.by_source(source_of)
                for name, one in sources.items():
                    one["lost"] = (lost or {}).get(name, 0)
                    one["lines"] += one["lost"]
                kills = Counter(one.victim for one in findings.struck)
                run = f"{saved['run']} {code}"
                runs = totals.put(
                    run, kill_loop_totals.snapshot(saved["guarantee"], kills, sources, findings.broken, ended=lost is not None)
                )
                print(f"{time.strftime('%H:%M:%S')} all runs: {kill_loop_totals.line(runs)}", file=sys.stderr, flush=True)
                return runs

            if isinstance(load, ObjectLoad | JdbcLoad) and isinstance(verifier, Verifier):
                load.watch(verifier)
            with load:
                loop = Loop(agent, broker, load, verifier, findings, Asked(saved["seed"], saved["guarantee"], note))
                loop.begin()
                loop.strike_all(len(findings.struck) + options.kills, end)
                loop.settle()
                if isinstance(load, ObjectLoad | JdbcLoad):
                    findings.broken += load.broken(agent.state_dir, saved["guarantee"])
                    print(f"{saved['source']}: {dict(load.done)}", file=sys.stderr, flush=True)
            verdict = verifier.finish(load.counts())
            told = kill_loop_totals.text(note(verifier.committed.lost_by_source(load.counts(), source_of)), code)
    verdict["written_bytes"] = load.written_bytes
    asked = {
        "caption": f"{time.strftime('%Y-%m-%d')}, {describe_machine()}",
        "guarantee": saved["guarantee"],
        "seed": saved["seed"],
        "rate": options.rate,
        "minutes_taken": (time.monotonic() - began) / 60,
        "rotations": load.rotations,
        "totals": told,
    }
    return kill_loop_report.result(verdict, findings, asked, verifier.committed.repeated_ms)


def _verifier(load: AnyLoad, bootstrap: str, topics: list[str], saved: dict[str, Any]) -> Verifier | FilesVerifier:
    if isinstance(load, LakeLoad):
        return FilesVerifier(load, saved["run"])
    return Verifier(bootstrap, topics, saved["run"], ordered=saved["source"] != "jdbc")


def _load(files: Path, saved: dict[str, Any], rate: int) -> AnyLoad:
    if saved["source"] in _OF_ONE_KIND:
        return _OF_ONE_KIND[saved["source"]](files, saved["run"], rate)
    if saved["source"] == "files":
        return Load(files, saved["run"], rate, rows=True)
    os.environ.update(CREDENTIALS)
    if saved["source"] == "lake-s3":
        return BucketLoad(files, saved["run"], rate, random.Random(saved["seed"]))
    return ObjectLoad(files, saved["run"], rate, first=_FIRST_OBJECTS)


def _connectors(load: AnyLoad, topics: dict[str, str], guarantee: str) -> dict[str, dict[str, object]]:
    if isinstance(load, LakeLoad):
        return {LAKE: lake_definition(load)}
    if isinstance(load, TopicLoad):
        return {MIRROR: mirror_definition(load, topics[MIRROR], guarantee)}
    if isinstance(load, JournalLoad):
        return {CONNECTOR: journal_definition(load, topics[CONNECTOR], guarantee)}
    if isinstance(load, ObjectLoad):
        return object_definitions(load, topics, guarantee)
    if isinstance(load, JdbcLoad):
        return jdbc_definitions(load, topics, guarantee)
    return definitions(load, topics, guarantee) | row_definitions(load, topics, guarantee)


def _end_left_over(work: Path) -> None:
    """A loop that was itself killed leaves its agent behind: it is known by the directory in its command line."""
    state = str(work / "agent" / "state")
    left = [one for one in psutil.process_iter(["cmdline"]) if one.pid != os.getpid() and state in (one.info["cmdline"] or [])]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=20)


def _resume(path: Path, options: argparse.Namespace, code: str) -> tuple[dict[str, Any], Findings]:
    """What an earlier run has saved in this directory, or a beginning. Exits where it was a run of other code: totals are of one."""
    if path.exists():
        saved = json.loads(path.read_text())
        if saved["code"] != code:
            sys.exit(f"{path.parent} is of a run of other code ({saved['code']}, now {code}): take another directory")
        if saved["source"] == "lake-s3":
            sys.exit("the bucket of that run ended with it: take another directory")
        return saved, restored(saved.pop("findings"))
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    begun = {"run": uuid.uuid4().hex[:8], "seed": seed, "guarantee": options.guarantee, "source": options.source}
    return {**begun, "topics": False, "code": code}, Findings()


def _write(path: Path, told: dict[str, Any]) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(told))
    beside.rename(path)


if __name__ == "__main__":
    main()
