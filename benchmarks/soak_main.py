"""`benchmarks/soak`: logs under load, rotated by the real logrotate, read by the real agent into a real broker. Is it exact?"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import soak_curves, soak_report
from benchmarks.soak_account import Account, still_there
from benchmarks.soak_families import FAMILIES, Family, configuration, definition
from benchmarks.soak_report import Outcome
from benchmarks.soak_writer import line_of
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker
from tests.rig.agent import AgentProcess
from tests.rig.background import Background

_PROJECT = Path(__file__).parents[1]
_SAMPLE_SECONDS = 10.0
_QUIET_SECONDS = 10.0
"""After the last line was written, so long nothing may arrive before what is missing counts as lost."""
_DRAIN_SECONDS = 600.0


def main() -> None:
    """Tables to standard output, progress to standard error. Exits 1 when a promise was broken."""
    options = _options()
    if shutil.which("logrotate") is None:
        sys.exit("logrotate is missing: install it (apt-get install logrotate), then run this again")
    families = [family for family in FAMILIES if family.name in options.families]
    with tempfile.TemporaryDirectory(prefix="copycat-soak-", dir=options.directory) as name:
        work = Path(name)
        with DevBroker(work / "broker") as broker, AgentProcess(work / "agent", broker.bootstrap) as agent:
            try:
                result = _Soak(work, broker.bootstrap, agent, families, options).run()
            finally:
                if options.log:
                    options.log.write_text(agent.log)
    result["caption"] = f"{time.strftime('%Y-%m-%d')}, {describe_machine()}"
    print(soak_report.text(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    sys.exit(0 if result["exact"] else 1)


def _options() -> argparse.Namespace:
    names = [family.name for family in FAMILIES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long lines are written")
    parser.add_argument("--rate", type=int, default=20_000, help="lines a second, over all logs")
    parser.add_argument("--every", type=float, default=5, help="seconds between two rotations of all logs")
    parser.add_argument("--kill", type=float, default=0, help="seconds, more or less, between two kill -9 of the agent; 0: none")
    parser.add_argument("--seed", type=int, default=None, help="of when it is killed")
    parser.add_argument("--families", nargs="*", default=names, choices=names, metavar="NAME", help=f"which logs: {', '.join(names)}")
    parser.add_argument("--json", type=Path, help="a file to write all figures to")
    parser.add_argument("--log", type=Path, help="a file to keep the agent's log in")
    parser.add_argument("--directory", type=Path, help="where to work (9 GB for 30 minutes at 20,000 lines/s); the system's by default")
    return parser.parse_args()


class _Every(Background):
    """A thread that calls `action` each `seconds`. What it raises is raised at the end."""

    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        self._seconds = seconds
        self._action = action
        super().__init__("every")

    def _work(self) -> None:
        while not self._stop.wait(self._seconds):
            self._action()


class _Soak:
    """One run."""

    def __init__(self, work: Path, bootstrap: str, agent: AgentProcess, families: Sequence[Family], options: argparse.Namespace) -> None:
        self._work = work
        self._bootstrap = bootstrap
        self._agent = agent
        self._families = families
        self._options = options
        self._seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
        self._dice = random.Random(self._seed)
        self._run = uuid.uuid4().hex[:8]
        self._root, self._control = work / "logs", work / "control"
        self._topics = {family.name: f"soak.{family.name}" for family in families}
        self._rotations = self._kills = 0
        self._looks: list[soak_curves.Look] = []

    def run(self) -> dict[str, Any]:
        """Everything, and what came out."""
        self._prepare()
        self._agent.start()
        with Account(self._bootstrap, self._run, self._topics) as account:
            writer = self._start_writer()
            try:
                with _Every(self._options.every, self._rotate):
                    self._watch(account)
            finally:
                writer.terminate()
            output, _ = writer.communicate(timeout=60)
            written: dict[str, int] = json.loads(output)
            drain_seconds = self._drain(account, written)
            self._agent.stop(120)
            totals = self._losses()
            outcomes = [self._outcome(family, account, written[family.name], totals.get(family.name, {})) for family in self._families]
        return self._result(outcomes, drain_seconds)

    def _prepare(self) -> None:
        self._control.mkdir()
        for family in self._families:
            family.path(self._root).parent.mkdir(parents=True)
            if family.olddir:
                family.old(self._root).mkdir()
            self._agent.define(family.name, definition(family, self._root, self._topics[family.name]))
        keep = int(self._options.minutes * 60 / self._options.every) + 10
        config = self._work / "logrotate.conf"
        config.write_text(configuration(self._families, self._root, self._control, keep))
        config.chmod(0o600)
        admin = AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})
        for answer in admin.create_topics([NewTopic(topic, 1, 1) for topic in self._topics.values()]).values():
            answer.result(30)

    def _start_writer(self) -> subprocess.Popen[bytes]:
        logs = [
            {"name": one.name, "path": str(one.path(self._root)), "notices": one.notices, "whole": not one.gapless or one.notices}
            for one in self._families
        ]
        config = self._work / "writer.json"
        config.write_text(json.dumps({"run": self._run, "rate": self._options.rate, "control": str(self._control), "logs": logs}))
        return subprocess.Popen([sys.executable, "-m", "benchmarks.soak_writer", str(config)], cwd=_PROJECT, stdout=subprocess.PIPE)

    def _rotate(self) -> None:
        command = ["logrotate", "-f", "-s", str(self._work / "logrotate.state"), str(self._work / "logrotate.conf")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(f"logrotate failed: {done.stderr}")
        self._rotations += 1

    def _watch(self, account: Account) -> None:
        """Until the time is over: look at the agent, and kill it now and then."""
        begin = time.monotonic()
        next_look, next_kill = begin + _SAMPLE_SECONDS, begin + self._pause()
        end = begin + self._options.minutes * 60
        while (now := time.monotonic()) < end:
            if not self._agent.is_running:
                raise RuntimeError(f"the agent ended; its log ends:\n{self._agent.log[-4000:]}")
            if now >= next_look:
                next_look += _SAMPLE_SECONDS
                self._looks.append(soak_curves.look(self._agent.pid, begin))
                _say(f"{now - begin:5.0f} s  {self._rotations} rotations  {account.records:,} records  {_words(self._looks[-1])}")
            if now >= next_kill:
                self._agent.kill()
                self._agent.start()
                self._kills += 1
                next_kill = time.monotonic() + self._pause()
            time.sleep(0.1)

    def _pause(self) -> float:
        return self._options.kill * self._dice.uniform(0.5, 1.5) or float("inf")

    def _drain(self, account: Account, written: dict[str, int]) -> float:
        """Wait until all has arrived, or nothing does any more. Returns how long the last record took."""
        begin = moved = time.monotonic()
        records = account.records
        while time.monotonic() - begin < _DRAIN_SECONDS:
            time.sleep(0.1)
            if account.records != records:
                records, moved = account.records, time.monotonic()
            if time.monotonic() - moved > _QUIET_SECONDS:
                break
        _say(f"{records:,} records of {sum(written.values()):,} lines, the last after {moved - begin:.1f} s")
        return moved - begin

    def _losses(self) -> dict[str, dict[str, int]]:
        """What `copycat losses` tells: connector -> reason -> bytes."""
        command = [sys.executable, "-m", "copycat_agent", "losses", "--format", "json", "--state-dir", str(self._agent.state_dir)]
        told = json.loads(subprocess.run(command, cwd=_PROJECT, capture_output=True, check=True).stdout)
        sums: dict[str, dict[str, int]] = {}
        for total in told["totals"]:
            sums.setdefault(total["connector"], {})[total["reason"]] = total["size_bytes"]
        return sums

    def _outcome(self, family: Family, account: Account, written: int, ledger: dict[str, int]) -> Outcome:
        arrived = account.logs[family.name]
        missing = arrived.missing(written)
        files = family.generations(self._root)
        kept = still_there(self._run, family.name, files, missing) if missing else []
        return Outcome(
            name=family.name,
            gapless=family.gapless,
            files=len(files),
            written=written,
            arrived=written - len(missing),
            lost=len(missing),
            lost_though_kept=len(kept),
            lost_bytes=sum(len(line_of(self._run, family.name, number)) for number in missing),
            repeated=arrived.repeated(),
            out_of_order=arrived.out_of_order,
            fragments=arrived.fragments,
            alien=arrived.alien + arrived.beyond(written),
            ledger=ledger,
            examples=[*arrived.examples, *(f"line {number} is lost" for number in missing[:3])],
        )

    def _result(self, outcomes: list[Outcome], drain_seconds: float) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "minutes": self._options.minutes,
            "rate": self._options.rate,
            "every_seconds": self._options.every,
            "rotations": self._rotations,
            "kills": self._kills,
            "drain_seconds": drain_seconds,
            "exact": all(one.is_exact(killed=bool(self._kills)) for one in outcomes),
            "families": [one.values(killed=bool(self._kills)) for one in outcomes],
            "cpu_share": soak_curves.cpu_share(self._looks),
            "curves": soak_curves.curves(self._looks),
            "looks": soak_curves.plain(self._looks),
        }


def _words(look: soak_curves.Look) -> str:
    return f"{look.pss_bytes / 2**20:.0f} MiB  {look.descriptors} descriptors"


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
