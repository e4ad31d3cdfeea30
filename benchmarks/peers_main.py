"""`benchmarks/run peers`: the same lines and the same kills -9 for copycat-agent and for other shippers, and what each loses and repeats.

Each tool follows two logs at once, one that is rotated (renamed, made anew) and one that is not, and is killed and started again, in part
while it works and in part while it starts, as the seed decides; the verdict is that of the tests' ledger. Tools run one after the other,
each on a new broker.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.peers_plan import WORKING_SECONDS, Kill, kills, rotation_pauses
from benchmarks.peers_report import Told, tables
from benchmarks.peers_tools import PEERS, Route, Shipper
from benchmarks.peers_watch import Arrived, watch
from benchmarks.tools import describe_machine
from copycat_agent.dev_broker import DevBroker
from tests.rig.background import Background
from tests.rig.kafka import consume, create_topic
from tests.rig.ledger import Ledger, LedgerWriter
from tests.rig.waiting import wait_until

_TICK_SECONDS = 0.02
_FIRST_SECONDS = 120.0
_QUIET_SECONDS = 45.0
"""After the last line was written, so long nothing may arrive before what is missing counts as lost."""
_DRAIN_SECONDS = 900.0
"""A tool that still sends after so long is stopped; the table says so."""
_LATE_SECONDS = 0.1
"""A writer goes on so long in the renamed file before it opens the new one, as with a rotation by rename and a signal."""
_RECOVER_SECONDS = 90.0
"""A tool that ships nothing for so long after a kill is killed again."""
_NEVER = float("inf")
_LOGS = ("not rotated", "rotated")


def main() -> None:
    """A table to standard output, progress to standard error."""
    options = _options()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    _say(f"seed {seed}: {options.kills} kills of each tool")
    found: list[Told] = []
    for tool in options.tools:
        found += _killed(tool, seed, options)
        if options.json:
            options.json.write_text(json.dumps(_document(found, seed, options), indent=2) + "\n")
    print(_caption(seed, options))
    print(f"\n{tables(found, {name: peer.title for name, peer in PEERS.items()})}\n")
    for tool in options.tools:
        print(f"- {PEERS[tool].title} {PEERS[tool].version()}: {PEERS[tool].settings}.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run peers", description=__doc__)
    parser.add_argument("--kills", type=int, default=22, help="of each tool")
    parser.add_argument("--rate", type=int, default=200, help="lines a second of each of the two logs")
    parser.add_argument("--rotate", type=float, default=12, help="seconds, more or less, between two rotations of the one; 0: never")
    parser.add_argument("--seed", type=int, default=None, help="of the moments and the lines")
    parser.add_argument("--tools", nargs="*", choices=list(PEERS), default=[name for name in PEERS if name not in _EXTRA], help="which")
    parser.add_argument("--flume", type=Path, help="the directory with Flume's jars, for flume")
    parser.add_argument("--json", type=Path, help="a file to write everything to")
    parser.add_argument("--directory", type=Path, help="where to work; the system's by default")
    options = parser.parse_args()
    if "flume" in options.tools and options.flume is None:
        parser.error("flume wants --flume DIR: mvn -f benchmarks/flume/pom.xml -Djars=DIR package")
    return options


_EXTRA = {"flume", "rsyslog"}
"""What must be installed first."""


def _killed(tool: str, seed: int, options: argparse.Namespace) -> list[Told]:
    """One tool through all of it."""
    with tempfile.TemporaryDirectory(prefix="copycat-peers-", dir=options.directory) as name, DevBroker(Path(name, "broker")) as broker:
        run = _Run(tool, Path(name), broker.bootstrap, options, seed)
        try:
            return run.follow(kills(seed, options.kills), rotation_pauses(seed, options.rotate))
        except Exception as error:
            error.add_note(f"{tool}; its last words:\n{run.shipper.words}")
            raise


class _Run:
    """Two logs, their ledgers, one tool."""

    def __init__(self, tool: str, work: Path, bootstrap: str, options: argparse.Namespace, seed: int) -> None:
        self._tool = tool
        self._bootstrap = bootstrap
        self._rate = options.rate
        logs = [work / "logs" / name.replace(" ", "-") / "app.log" for name in _LOGS]
        self._topics = [f"peers-{tool}-{number}".replace("_", "-") for number in range(len(logs))]
        for log, topic in zip(logs, self._topics, strict=True):
            log.parent.mkdir(parents=True)
            log.touch()
            create_topic(bootstrap, topic)
        (work / "tool").mkdir()
        self.shipper = Shipper(PEERS[tool], Route(dict(zip(logs, self._topics, strict=True)), bootstrap, work / "tool", options.flume))
        self._ledgers = [Ledger(seed + number) for number in range(len(logs))]
        self._writers = [ledger.writer(log) for ledger, log in zip(self._ledgers, logs, strict=True)]
        self._kills: list[tuple[float, list[int]]] = []
        self._rotations = self._ends = 0
        self._is_settled = True

    def follow(self, planned: Iterable[Kill], pauses: Iterator[float]) -> list[Told]:
        """Start, write, kill, rotate, wait for what is left, and look at what there is."""
        with watch(self._bootstrap, self._topics) as arrived:
            try:
                self.shipper.start()
                for writer in self._writers:
                    writer.write(1)
                wait_until(lambda: all(one.seen for one in arrived.values()), _FIRST_SECONDS, "the first line")
                with _Writing(self._writers, self._rate, pauses) as writing:
                    for kill in planned:
                        self._strike(kill, arrived[self._topics[0]])
                    self._recovered(arrived[self._topics[0]])
                    self._wait(time.monotonic() + WORKING_SECONDS)
                self._rotations = writing.rotations
                self._drain(arrived)
            finally:
                self.shipper.stop()
        for ledger in self._ledgers:
            ledger.close()
        return [self._told(index, arrived[topic]) for index, topic in enumerate(self._topics)]

    def _strike(self, kill: Kill, shown: Arrived) -> None:
        if kill.moment == "working":
            self._recovered(shown)
        self._wait(time.monotonic() + kill.delay_seconds)
        self.shipper.kill()
        self._kills.append((time.monotonic(), [ledger.written for ledger in self._ledgers]))
        self.shipper.start()

    def _recovered(self, shown: Arrived) -> None:
        """Until a line was read that was written after the last kill, or for as long as is waited for that."""
        end = time.monotonic() + _RECOVER_SECONDS
        while self._kills and shown.latest < self._kills[-1][1][0] and time.monotonic() < end:
            self._wait(time.monotonic() + 0.05)

    def _wait(self, until: float) -> None:
        """Start the tool again should it end by itself meanwhile, as a supervisor would."""
        while (pause := until - time.monotonic()) > 0:
            if not self.shipper.is_running:
                self._ends += 1
                self.shipper.start()
            time.sleep(min(pause, 0.2))

    def _drain(self, arrived: dict[str, Arrived]) -> None:
        begin = time.monotonic()
        written = [ledger.written for ledger in self._ledgers]
        while time.monotonic() - begin < _DRAIN_SECONDS:
            self._wait(time.monotonic() + 0.2)
            if [len(arrived[topic].seen) for topic in self._topics] == written:
                break
            if time.monotonic() - max(begin, *(one.last for one in arrived.values())) > _QUIET_SECONDS:
                break
        else:
            self._is_settled = False
        self._wait(time.monotonic() + 1)

    def _told(self, index: int, arrived: Arrived) -> Told:
        ledger, topic = self._ledgers[index], self._topics[index]
        kills = [(moment, written[index]) for moment, written in self._kills]
        one = Told(
            tool=self._tool,
            log=_LOGS[index],
            kills=len(kills),
            rotations=self._rotations if index else 0,
            ended_by_itself=self._ends,
            is_settled=self._is_settled,
            committed=ledger.verify(consume(self._bootstrap, topic, "read_committed")),
            uncommitted=ledger.verify(consume(self._bootstrap, topic, "read_uncommitted")),
            repeats=arrived.repeats_per_kill(kills),
            recoveries=arrived.recoveries(kills),
            load=os.getloadavg()[1],
        )
        _say(f"{self._tool}, {one.log}: {one.committed}; recovered from {len(one.recoveries)} kills in a pause")
        return one


class _Writing(Background):
    """A thread that writes to all logs evenly and rotates the last of them after each pause. What it raises is raised at the end."""

    def __init__(self, writers: list[LedgerWriter], rate: int, pauses: Iterator[float]) -> None:
        self.rotations = 0
        self._writers = writers
        self._rate = rate
        self._pauses = pauses
        super().__init__("writing")

    def _work(self) -> None:
        begin, done = time.monotonic(), 0
        rotate_at, reopen_at = begin + next(self._pauses, _NEVER), _NEVER
        while not self._stop.wait(_TICK_SECONDS):
            now = time.monotonic()
            if now >= rotate_at:
                self._rename(self._writers[-1].path)
                rotate_at, reopen_at = now + next(self._pauses, _NEVER), now + _LATE_SECONDS
            elif now >= reopen_at:
                self._writers[-1].reopen()
                reopen_at = _NEVER
            due = int((now - begin) * self._rate)
            for writer in self._writers:
                writer.write(due - done)
            done = due

    def _rename(self, path: Path) -> None:
        self.rotations += 1
        path.rename(path.with_name(f"{path.name}.{self.rotations}"))


def _document(found: list[Told], seed: int, options: argparse.Namespace) -> dict[str, object]:
    tools = {one.tool for one in found}
    return {
        "caption": _caption(seed, options),
        "seed": seed,
        "tools": {
            name: {"title": peer.title, "version": peer.version(), "settings": peer.settings}
            for name, peer in PEERS.items()
            if name in tools
        },
        "rows": [one.values() for one in found],
    }


def _caption(seed: int, options: argparse.Namespace) -> str:
    return (
        f"{time.strftime('%Y-%m-%d')}, {describe_machine()}, a real broker beside each tool: {options.kills} kills -9 of each, "
        f"{options.rate} lines a second to each of two logs, one of them rotated every {options.rotate:g} s; seed {seed}"
    )


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
