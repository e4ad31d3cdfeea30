"""`benchmarks/run failover`: two agents with one agent_id, of which one runs. Whatever is killed or stopped, every line counts.

With `--cluster` their tasks are on a real Spark standalone cluster, whose executors, workers and master are killed as well. Totals over all
calls are kept as those of `kill_loop`, for one state of the product's code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import kill_loop_totals
from benchmarks.kill_loop_end import LoopEnd
from copycat_agent.dev_broker import DevBroker
from tests.kill.object_load import CONNECTORS, ObjectLoad, object_definitions
from tests.rig.agent import AgentProcess
from tests.rig.kafka import create_topic
from tests.rig.object_store import CREDENTIALS
from tests.rig.spark_cluster import SparkCluster
from tests.rig.verifier import Verifier
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LEADS, _STANDS_BY = "leads from now on", 'seems to lead"'  # the quote: a line that counts repeats is written later
_SECONDS = 300.0
"""For whatever comes up or ends by itself, on a machine that is busy: an executor alone may take two minutes."""
_CONF = {
    "spark.cores.max": "2", "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # up in half the time
}  # fmt: skip
_STOPPED_SECONDS = (10.0, 20.0)
"""More than the group waits for a member."""


class Pair:
    """Two agents, one of which leads, and what may be struck."""

    def __init__(self, agents: list[AgentProcess], broker: DevBroker, cluster: SparkCluster | None, dice: random.Random) -> None:
        self.agents, self.broker, self.cluster, self.dice = agents, broker, cluster, dice
        self._options = ("--standby", *(("--master", cluster.url) if cluster else ()))
        self.broken: list[str] = []
        self.take_over_seconds: list[float] = []

    def start(self, agent: AgentProcess) -> None:
        """Start it, and return when it stands by or leads."""
        before = agent.log.count(_STANDS_BY) + agent.log.count(_LEADS)
        agent.start(*self._options)
        wait_until(lambda: agent.log.count(_STANDS_BY) + agent.log.count(_LEADS) > before, _SECONDS, lambda: agent.log[-2000:])

    def goes_on(self, verifier: Verifier, load: ObjectLoad, after: str) -> None:
        """Wait until something arrives that is put from now on. Agents that end meanwhile are started again, as by a service manager."""

        def has_arrived() -> bool:
            for agent in self.agents:
                if not agent.is_running:
                    self._restart(agent)
            return later.seconds is not None

        later = verifier.committed.await_after(load.counts())
        words = lambda: "\n".join((f"nothing arrives after {after}", *(agent.log[-2000:] for agent in self.agents)))  # noqa: E731
        wait_until(has_arrived, 2 * _SECONDS, words)

    def leader(self) -> AgentProcess:
        """The one that leads, waited for."""
        return wait_until(lambda: max(filter(_leads, self.agents), key=_led_at, default=None), _SECONDS, "nobody leads")

    def other(self) -> AgentProcess:
        """The one that does not."""
        leader = self.leader()
        other = next(one for one in self.agents if one is not leader)
        if _leads(other):  # it hears of it, and ends
            self._restart(other)
        elif not other.is_running:
            self.start(other)
        return other

    def _restart(self, agent: AgentProcess) -> None:
        if (code := agent.wait(_SECONDS)) != 75:
            self.broken.append(f"an agent ended by itself with {code}")
        self.start(agent)

    def strikes(self) -> dict[str, Callable[[], None]]:
        """By who is struck."""
        local: dict[str, Callable[[], None]] = {
            "leader killed": lambda: self._end_leader(AgentProcess.kill),
            "leader stopped": self._stop_leader,
            "leader asked to end": lambda: self._end_leader(lambda agent: agent.signal(signal.SIGTERM)),
            "standby killed": self._kill_standby,
            "jvm killed": lambda: self._kill_jvm(self.leader()),
            "broker killed": self._kill_broker,
        }
        if self.cluster is None:
            return local | {"worker killed": self._kill_worker}
        return local | {
            "executor killed": self._kill_executor,
            "task killed": self._kill_task,
            "spark worker killed": self._kill_daemon,
            "master killed": self._kill_master,
        }

    def strike(self) -> str:
        """Strike one of them, and say whom."""
        name, strike = self.dice.choice(list(self.strikes().items()))
        time.sleep(self.dice.uniform(0.0, 4.0))
        strike()
        return name

    def _end_leader(self, end: Callable[[AgentProcess], None]) -> None:
        leader, other = self.leader(), self.other()
        led = other.log.count(_LEADS)
        end(leader)
        self._taken_over(other, led)
        if (code := leader.wait(_SECONDS)) not in {0, -signal.SIGKILL}:
            self.broken.append(f"an agent that was ended left with {code}")
        self.start(leader)

    def _stop_leader(self) -> None:
        leader, other = self.leader(), self.other()
        led = other.log.count(_LEADS)
        leader.signal(signal.SIGSTOP)
        self._taken_over(other, led)
        time.sleep(self.dice.uniform(*_STOPPED_SECONDS) - _STOPPED_SECONDS[0])
        leader.signal(signal.SIGCONT)
        self._restart(leader)

    def _taken_over(self, other: AgentProcess, led: int) -> None:
        began = time.monotonic()
        wait_until(lambda: other.log.count(_LEADS) > led, _SECONDS, lambda: other.log[-2000:])
        self.take_over_seconds.append(time.monotonic() - began)

    def _kill_standby(self) -> None:
        other = self.other()
        other.kill()
        self.start(other)

    def _kill_jvm(self, agent: AgentProcess) -> None:
        if (jvm := agent.jvm()) is not None:
            jvm.kill()

    def _kill_worker(self) -> None:
        if processes := self.leader().python_processes():
            self.dice.choice(processes).kill()

    def _kill_broker(self) -> None:
        self.broker.kill()
        time.sleep(self.dice.uniform(0.0, 3.0))
        self.broker.start()

    def _kill_executor(self) -> None:
        assert self.cluster is not None
        if executors := self.cluster.executors():
            self.dice.choice(executors).kill()

    def _kill_task(self) -> None:
        assert self.cluster is not None
        if pythons := self.cluster.pythons():
            self.dice.choice(pythons).kill()

    def _kill_daemon(self) -> None:
        assert self.cluster is not None
        number = self.dice.randrange(len(self.cluster.workers))
        worker = self.cluster.workers.pop(number)
        worker.kill()
        worker.wait()
        self.cluster.start_worker(number)

    def _kill_master(self) -> None:
        assert self.cluster is not None
        assert self.cluster.master is not None
        self.cluster.master.kill()
        self.cluster.master.wait()
        time.sleep(self.dice.uniform(0.0, 20.0))
        self.cluster.start_master()


def _leads(agent: AgentProcess) -> bool:
    return agent.is_running and agent.log.rfind(_LEADS) > agent.log.rfind(_STANDS_BY)


def _led_at(agent: AgentProcess) -> str:
    """When it began to. One that led before may not have heard yet that another one does."""
    return str(json.loads(next(line for line in reversed(agent.log.splitlines()) if _LEADS in line))["ts"])


def main() -> None:
    """A table to standard output, progress to standard error. Exits 1 when the promise was broken."""
    options = _options()
    end = LoopEnd(options.minutes)
    os.environ.update(CREDENTIALS)
    work = Path(tempfile.mkdtemp(prefix="copycat-failover-"))
    kept = _run(work, options, end)
    if kept:
        shutil.rmtree(work)
    else:
        print(f"files, topics and the agents' logs are in {work}", file=sys.stderr)
    sys.exit(0 if kept else 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/run failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=60, help="end after so many, whatever was done by then")
    parser.add_argument("--guarantee", choices=("exactly_once", "at_least_once"), default="exactly_once")
    parser.add_argument("--cluster", action="store_true", help="tasks on a Spark standalone cluster of two workers")
    parser.add_argument("--seed", type=int, default=None, help="of who is struck")
    parser.add_argument("--rate", type=int, default=100, help="lines a second")
    parser.add_argument("--totals", type=Path, default=kill_loop_totals.DIRECTORY, help="directory of the totals over all calls")
    return parser.parse_args()


@contextlib.contextmanager
def _cluster(work: Path, *, wanted: bool) -> Iterator[SparkCluster | None]:
    if not wanted:
        yield None
        return
    work.mkdir()
    with SparkCluster(work, environ=dict(CREDENTIALS)) as cluster:
        yield cluster


def _run(work: Path, options: argparse.Namespace, end: LoopEnd) -> bool:
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", file=sys.stderr)
    code, run = kill_loop_totals.code_hash(), uuid.uuid4().hex[:8]
    totals = kill_loop_totals.Totals(options.totals.resolve(), code)
    load = ObjectLoad(work / "files", run, options.rate)
    topics = {name: f"failover.{name}" for name in CONNECTORS}
    struck: Counter[str] = Counter()
    with contextlib.ExitStack() as around:
        broker = around.enter_context(DevBroker(work / "broker"))
        cluster = around.enter_context(_cluster(work / "cluster", wanted=options.cluster))
        for topic in topics.values():
            create_topic(broker.bootstrap, topic, 2)
        agents = [around.enter_context(AgentProcess(work / name, broker.bootstrap)) for name in ("one", "two")]
        for agent in agents:
            settings = {"agent_id": "pair", "kafka": {"bootstrap_servers": [broker.bootstrap]}}
            settings |= {"spark": {"conf": _CONF}} if cluster else {}
            (agent.root / "agent.yaml").write_text(json.dumps(settings))  # which is YAML
            for name, definition in object_definitions(load, topics, options.guarantee).items():
                agent.define(name, definition)
        verifier = around.enter_context(Verifier(broker.bootstrap, list(topics.values()), run))
        load.watch(verifier)
        around.enter_context(load)
        pair = Pair(agents, broker, cluster, random.Random(seed))
        pair.start(agents[0])
        pair.start(agents[1])

        def note(*, ended: bool) -> dict[str, Any]:
            source = "objects, on a cluster" if cluster else "objects, two agents"
            counts: Counter[str] = Counter()
            for one in verifier.committed.by_source(lambda _: source).values():
                counts.update(one)
            counts["lost"] = sum(verifier.committed.lost_by_source(load.counts(), lambda _: source).values()) if ended else 0
            told = kill_loop_totals.snapshot(options.guarantee, struck, {source: counts}, pair.broken, ended=ended)
            return totals.put(f"{run} {code}", told)

        pair.goes_on(verifier, load, "the start")
        while struck.total() < options.kills and not end.has_come:
            struck[name := pair.strike()] += 1
            pair.goes_on(verifier, load, name)
            print(f"{time.strftime('%H:%M:%S')} {name}: {kill_loop_totals.line(note(ended=False))}", file=sys.stderr, flush=True)
        load.pause()
        if not verifier.wait_all(load.counts(), 240, 120):
            pair.broken.append("not everything has arrived in the end")
        leader, other = pair.leader(), pair.other()
        other.stop(_SECONDS)
        leader.stop(_SECONDS)
        pair.broken += load.broken(leader.state_dir, options.guarantee)
        verdict = verifier.finish(load.counts())
        runs = note(ended=True)
    times = sorted(pair.take_over_seconds)
    print(kill_loop_totals.text(runs, code))
    print(f"\ntaken over {len(times)} times, after {times[len(times) // 2]:.1f} s (median), {times[-1]:.1f} s at most" if times else "")
    print({name: verdict[name] for name in ("written", "lost", "duplicated", "phantom", "corrupt", "reordered", "examples")}, pair.broken)
    repeated = verdict["duplicated"] if options.guarantee == "exactly_once" else 0
    return not (verdict["lost"] or repeated or verdict["phantom"] or verdict["corrupt"] or pair.broken)


if __name__ == "__main__":
    main()
