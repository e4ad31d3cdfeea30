"""An agent whose tasks run on a real cluster: each record arrives, once where that is promised, whatever of the cluster is killed."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml
from confluent_kafka import Producer

from tests.lake.written import files_below
from tests.rig.agent import AgentProcess, is_alive
from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.spark_cluster import SparkCluster, kill
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker

SECONDS = 420.0
"""For executors and their processes to come up, on a machine that is busy."""
TAKE_OVER_SECONDS = 20.0
"""Within which batches of what is gone go on elsewhere."""
SECRET = "canary-of-a-cluster-4d1e"
CHANNEL = "canary-of-sparks-channel-8a02"
ENCRYPTED = {"spark.authenticate": "true", "spark.authenticate.secret": CHANNEL, "spark.network.crypto.enabled": "true"}
LEADS, STANDS_BY = "leads from now on", "stands by: "
_LINES = 25

VICTIMS = {"pythons": 4, "executors": 3, "workers": 1, "jvm": 1, "agent": 1}
"""Who is killed in a loop, how often of ten times: A JVM of the driver that dies young three times in a row is the agent's end."""

pytestmark = pytest.mark.timeout(900)


class Load:
    """Objects that come into a directory, and records that come into a topic, all numbered, ten times a second."""

    def __init__(self, root: Path, bootstrap: str, topic: str) -> None:
        self.directory = root / "objects"
        self.directory.mkdir()
        self.count = 0
        """Of records of each kind that are there."""
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "5"})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for turn in itertools.count():
            lines = [b"%09d" % (turn * _LINES + number) for number in range(_LINES)]
            beside = self.directory.parent / "next"
            beside.write_bytes(b"\n".join(lines) + b"\n")
            beside.rename(self.directory / f"{turn:06}.log")
            for line in lines:
                self._producer.produce(self._topic, line, partition=turn % 4)
            self._producer.flush()
            self.count += _LINES
            if self._stop.wait(0.1):
                return

    def end(self) -> set[bytes]:
        """No more; all that were sent of each kind."""
        self._stop.set()
        self._thread.join()
        return {b"%09d" % number for number in range(self.count)}


class Site:
    """A cluster, an agent with its tasks there, and a load for it: objects with at_least_once, a topic with exactly_once."""

    def __init__(
        self, root: Path, broker: DevBroker, undo: ExitStack, workers: int = 2, *, encrypted: bool = False, two: bool = False
    ) -> None:
        """`two`: a second agent stands by, `other`, and the cluster has cores for both."""
        self._bootstrap = broker.bootstrap
        self._numbers = itertools.count(workers)
        (root / "cluster").mkdir()
        self.cluster = undo.enter_context(SparkCluster(root / "cluster", workers, cores=1, conf=ENCRYPTED if encrypted else {}))
        self.origin = create_topic(broker.bootstrap, unique_topic("origin"), 4)
        names = ("objects", "mirror", "queried")
        self.objects, self.mirror, self.queried = (create_topic(broker.bootstrap, unique_topic(name), 2) for name in names)
        self.load = Load(root, broker.bootstrap, self.origin)
        undo.callback(self.load.end)
        self.options = ("--master", self.cluster.url, *(("--standby",) if two else ()))
        self.agent, self.other = (undo.enter_context(AgentProcess(root / name, broker.bootstrap)) for name in ("agent", "other"))
        (root / "secret").write_text(SECRET)
        (root / "spark-secret").write_text(CHANNEL)
        conf: dict[str, Any] = {"spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}  # up in half the time
        conf |= {**ENCRYPTED, "spark.authenticate.secret": f"${{file:{root / 'spark-secret'}}}"} if encrypted else {}
        conf |= {"spark.cores.max": workers // 2} if two else {}
        options = {"spark": {"conf": conf}, **({"agent_id": unique_topic("pair").replace(".", "-")} if two else {})}
        for agent in (self.agent, self.other) if two else (self.agent,):
            self._define(agent, root)
            (agent.root / "agent.yaml").write_text(yaml.safe_dump(options), "utf-8")
            self.start(agent)

    def _define(self, agent: AgentProcess, root: Path) -> None:
        source = {"type": "objects", "uri": f"file://{self.load.directory}/", "poll_interval": "200ms"}
        record = {"topic": self.objects, "headers": {"token": f"${{file:{root / 'secret'}}}"}}
        agent.define("objects", {"source": source, "record": record, "delivery": {"tasks_max": 4}})
        mirrored = {"type": "kafka", "topics": [self.origin], "poll_interval": "100ms"}
        delivery = {"guarantee": "exactly_once", "tasks_max": 4}
        agent.define("mirror", {"source": mirrored, "record": {"topic": self.mirror}, "delivery": delivery})
        agent.define("app", {"source": {"type": "log_file", "include": [f"{root}/*.log"]}, "record": {"topic": "nowhere"}})

    def start(self, agent: AgentProcess) -> None:
        """With two: return once it leads or stands by."""
        known = agent.log.count(LEADS) + agent.log.count(STANDS_BY)
        agent.start(*self.options)
        if "--standby" in self.options:
            wait_until(lambda: agent.log.count(LEADS) + agent.log.count(STANDS_BY) > known, SECONDS, lambda: agent.log[-2000:])

    def goes_on(self, seconds: float = SECONDS) -> None:
        """Wait until what is there by now has arrived, and what comes next."""
        self._has(self.load.count + _LINES, seconds)

    def _has(self, count: int, seconds: float) -> None:
        wanted = {b"%09d" % number for number in range(count)}

        def missing() -> list[int]:
            return [len(wanted - set(self.arrived(topic))) for topic in (self.objects, self.mirror)]

        wait_until(lambda: not any(missing()), seconds, lambda: f"{missing()} of {count} are missing; {self.words()}")

    def words(self) -> str:
        """What the agent said last, without the objects that it found."""
        return "\n".join([line for line in self.agent.log.splitlines() if "partition begins" not in line][-60:])

    def arrived(self, topic: str) -> Counter[bytes]:
        """How often each value has arrived."""
        return Counter(one.value or b"" for one in consume(self._bootstrap, topic, "read_committed"))

    def strike(self, victim: str, dice: random.Random) -> None:
        """Kill one of `VICTIMS`, and start again what nobody else does."""
        if victim == "agent":
            self.agent.kill()
            self.start(self.agent)
        elif victim == "jvm":
            kill(_one_of(lambda: [one for one in [self.agent.jvm()] if one]))
        elif victim == "workers":
            number = dice.randrange(len(self.cluster.workers))
            worker = self.cluster.workers[number]
            family = psutil.Process(worker.pid).children(recursive=True)
            for one in (psutil.Process(worker.pid), *family):
                with suppress(psutil.NoSuchProcess):
                    kill(one)
            worker.wait()
            del self.cluster.workers[number]
            self.cluster.start_worker(next(self._numbers))
        else:
            kill(_one_of(getattr(self.cluster, victim)))

    def is_whole(self) -> None:
        """Everything has arrived, and what is promised exactly once has arrived once."""
        sent = self.load.end()
        self._has(self.load.count, SECONDS)
        assert set(self.arrived(self.objects)) == sent
        mirrored = self.arrived(self.mirror)
        assert set(mirrored) == sent
        assert max(mirrored.values()) == 1


@pytest.fixture
def make_site(tmp_path: Path, cache: None, broker: DevBroker) -> Iterator[Callable[..., Site]]:
    """`make_site(workers=2)`: workers of one core each."""
    with ExitStack() as undo:
        yield lambda workers=2, **more: Site(tmp_path, broker, undo, workers, **more)


def _one_of(find: Callable[[], list[psutil.Process]]) -> psutil.Process:
    """Any that `find` finds, waited for."""
    return random.choice(wait_until(lambda: _alive(find), SECONDS, "there is one"))


def _alive(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return [one for one in find() if is_alive(one)]
    return []


@pytest.mark.parametrize(
    ("cores", "victims"), [(1, ["executors"]), pytest.param(2, ["pythons", "executors"], marks=pytest.mark.long)], ids=["short", "long"]
)
def test_what_is_killed_in_the_middle_loses_nothing_and_what_is_of_this_host_is_refused(
    make_site: Callable[..., Site], cores: int, victims: list[str]
) -> None:
    site = make_site(cores)
    site.goes_on()
    wait_until(lambda: len(_alive(site.cluster.pythons)) == cores, SECONDS, "a runner for each core")
    for victim in victims:
        kill(_one_of(getattr(site.cluster, victim)))
        site.goes_on()
    site.is_whole()
    refusals = [json.loads(line)["diff"] for line in site.agent.log.splitlines() if '"! app: ' in line]
    assert len(refusals) == 1
    assert "log_file is not read on a cluster" in refusals[0]
    assert "second agent on this host, without --master" in refusals[0]
    _is_nowhere(SECRET, site)
    site.agent.stop()


def _is_nowhere(secret: str, site: Site) -> None:
    """Neither in what Spark writes, nor in what anybody on these hosts sees of its processes."""
    jvm = site.agent.jvm()
    assert jvm is not None
    processes = [jvm, site.cluster.master, *site.cluster.workers, *site.cluster.executors(), *site.cluster.pythons()]
    for process in processes:
        assert process is not None
        for kind in ("cmdline", "environ"):
            assert secret.encode() not in _content_of(Path(f"/proc/{process.pid}/{kind}"))
    places = [site.cluster.directory, site.agent.state_dir / "run"]
    for path in (path for place in places for path in place.rglob("*") if path.is_file()):
        assert secret.encode() not in _content_of(path), path
    assert secret not in site.agent.log


def _content_of(path: Path) -> bytes:
    """Nothing of a file, or a process, that is gone meanwhile."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return path.read_bytes()
    return b""


@pytest.mark.long
def test_a_channel_that_is_encrypted_carries_the_same_and_shows_its_secret_in_no_command_line(make_site: Callable[..., Site]) -> None:
    site = make_site(encrypted=True)
    site.goes_on()
    jvm = site.agent.jvm()
    assert jvm is not None
    own = [jvm, psutil.Process(site.agent.pid)]
    for process in [*own, *site.cluster.executors(), *site.cluster.pythons()]:
        assert CHANNEL.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    for process in own:
        assert CHANNEL.encode() not in Path(f"/proc/{process.pid}/environ").read_bytes()
    assert CHANNEL not in site.agent.log
    assert CHANNEL not in site.cluster.executor_words()
    site.is_whole()
    site.agent.stop()


@pytest.mark.long
def test_a_worker_that_comes_later_gets_tasks(make_site: Callable[..., Site]) -> None:
    site = make_site(1)
    site.goes_on()
    assert len(_alive(site.cluster.pythons)) == 1
    site.cluster.start_worker(1)
    wait_until(lambda: len(_alive(site.cluster.pythons)) == 2, SECONDS, "it has a runner")
    late = psutil.Process(site.cluster.workers[1].pid)

    def used() -> float:
        family = [one for one in late.children(recursive=True) if one.name().startswith("python")]
        return sum(one.cpu_times().user for one in family)

    site.goes_on()
    before = used()
    wait_until(lambda: used() > before + 0.5, SECONDS, "it works")
    site.is_whole()
    site.agent.stop()


@pytest.mark.long
@pytest.mark.parametrize("victims", ["pythons", "executors", "executors and pythons"])
def test_what_is_stopped_holds_up_nothing_for_long(make_site: Callable[..., Site], victims: str) -> None:
    """With all that an executor has started it is as a host that is cut off, and comes back later."""
    site = make_site()
    site.goes_on()
    victim = _one_of(getattr(site.cluster, victims.split(maxsplit=1)[0]))
    family = [victim, *(victim.children(recursive=True) if "and" in victims else ())]
    for one in family:
        one.suspend()
    site.goes_on(TAKE_OVER_SECONDS + 10)  # it takes some time to see what has arrived
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.resume()
    site.goes_on()
    site.is_whole()
    site.agent.stop()


@pytest.mark.long
def test_a_query_has_a_core_of_its_own_and_files_of_a_lake_hold_each_record_once(make_site: Callable[..., Site], tmp_path: Path) -> None:
    site = make_site()
    site.goes_on()
    source = {"type": "objects", "uri": f"file://{site.load.directory}/", "poll_interval": "200ms"}
    query = "SELECT message FROM records WHERE message LIKE '%7'"
    site.agent.define("query", {"source": source, "transforms": [{"sql": query}], "record": {"topic": site.queried}})
    (tmp_path / "lake").mkdir()
    sink = {"type": "files", "uri": f"file://{tmp_path}/lake/", "format": "lines", "roll": {"age": "1s", "idle": "500ms"}}
    site.agent.define("lake", {"source": {"type": "kafka", "topics": [site.origin], "poll_interval": "100ms"}, "sink": sink})
    wait_until(lambda: site.arrived(site.queried), SECONDS, lambda: f"no answer of the query: {site.words()}")
    kill(_one_of(site.cluster.pythons))
    site.is_whole()
    sent = site.load.end()
    sevens = {b'{"message":"%s"}' % line for line in sent if line.endswith(b"7")}
    wait_until(lambda: set(site.arrived(site.queried)) == sevens, SECONDS, lambda: f"the query is behind: {site.words()}")

    def lake() -> Counter[bytes]:
        return Counter(line for path in files_below(tmp_path / "lake") for line in path.read_bytes().splitlines())

    wait_until(lambda: lake().keys() == sent, SECONDS, lambda: f"{len(lake())} of {len(sent)}: {site.words()}")
    assert max(lake().values()) == 1
    site.agent.stop()


@pytest.mark.long
def test_the_drivers_jvm_and_the_agent_itself_may_die(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.goes_on()
    jvm = site.agent.jvm()
    assert jvm is not None
    kill(jvm)
    site.goes_on()
    site.agent.kill()
    wait_until(lambda: not _alive(site.cluster.pythons), SECONDS, "nobody works on for an agent that is gone")
    site.start(site.agent)
    site.goes_on()
    site.is_whole()
    site.agent.stop()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_second_driver_takes_over_from_one_that_was_killed_and_from_one_that_stands_still(make_site: Callable[..., Site]) -> None:
    site = make_site(two=True)
    site.goes_on()
    assert STANDS_BY in site.other.log
    site.agent.kill()
    site.agent, site.other = site.other, site.agent
    wait_until(lambda: LEADS in site.agent.log, SECONDS, site.words)
    site.goes_on()
    site.start(site.other)
    site.agent.signal(signal.SIGSTOP)
    wait_until(lambda: site.other.log.count(LEADS) == 2, SECONDS, site.words)
    site.agent, site.other = site.other, site.agent
    site.goes_on()
    site.other.signal(signal.SIGCONT)
    assert site.other.wait(SECONDS) == 75
    site.is_whole()
    site.agent.stop()


@pytest.mark.long
def test_a_master_that_is_away_for_a_moment_stops_nothing(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.goes_on()
    assert site.cluster.master is not None
    site.cluster.master.send_signal(signal.SIGKILL)
    site.cluster.master.wait()
    site.goes_on()
    site.cluster.start_master()
    site.goes_on()
    site.is_whole()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_kills_lose_nothing(make_site: Callable[..., Site], rng: random.Random) -> None:
    site = make_site()
    site.goes_on()
    struck: Counter[str] = Counter()
    for _ in range(int(os.environ.get("COPYCAT_CLUSTER_KILLS", "12"))):
        victim = rng.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        site.strike(victim, rng)
        struck[victim] += 1
        time.sleep(rng.uniform(0, 5))
        if rng.random() < 0.5 or victim in {"agent", "jvm"}:
            site.goes_on()
    print(dict(struck), site.load.count)
    site.goes_on()
    site.is_whole()
