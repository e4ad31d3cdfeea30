"""A run to the end on a real cluster: everything once, whatever of it is killed; and what is said when it cannot work."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

from copycat_agent.definitions import load_file
from copycat_agent.errors import FatalError, RetriableError
from copycat_agent.model import TaskId
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, KafkaOptions
from copycat_agent.sources import SOURCES
from copycat_agent.sources.remote import maker
from copycat_agent.watch import Watcher
from copycat_agent.worker import Worker
from tests.rig.apart import ExecutorApart
from tests.rig.kafka import consume, values
from tests.rig.oauth import CLIENT_ID, OauthBroker, TokenServer
from tests.rig.oauth import SECRET as OAUTH_SECRET
from tests.rig.object_store import CREDENTIALS, ObjectStore
from tests.rig.spark_cluster import PROJECT, SparkCluster, kill
from tests.rig.waiting import wait_until
from tests.spark.batches import batch
from tests.spark.conftest import CANARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.options import Definition
    from copycat_agent.worker import Status

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]  # six JVMs have to start: 30 s

SECONDS = 200
SECRET = "canary-of-a-definition-71bd"


LACKING = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in ("orjson", "pyarrow") else find(name, *more)
"""


class Run:
    """A run to the end on an executor, with a state directory of its own."""

    def __init__(self, root: Path, bootstrap: str, topic: str, executor: ExecutorApart, **sections: Any) -> None:
        self._definition = self._load(root, bootstrap, topic, sections)
        self._bootstrap, self._topic = bootstrap, topic
        self._store = OffsetStore.open(root / "state")
        self._watcher = Watcher()
        self._executor = executor
        self.worker: Worker | None = None

    def _load(self, root: Path, bootstrap: str, topic: str, sections: dict[str, Any]) -> Definition:
        source = {"type": "log_file", "include": [f"{root}/logs/*"]}
        path = root / "app.yaml"
        path.write_text(yaml.safe_dump({"name": "app", "source": source, "record": {"topic": topic}, **sections}), "utf-8")
        loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(bootstrap,))))
        assert loaded.definition is not None, loaded.problems
        return loaded.definition

    def start(self, *patterns: str) -> None:
        """`patterns` are addresses; none: what the definition matches."""
        make = maker(SOURCES[self._definition.source.type], patterns) if patterns else None
        self.worker = Worker(self._store, self._executor, self._watcher, until_idle=True, make_source=make)
        self.worker.apply([self._definition])

    @property
    def status(self) -> Status:
        """The connector's."""
        assert self.worker is not None
        return self.worker.statuses()[0]

    def finish(self) -> Status:
        """Wait for its end."""
        assert self.worker is not None
        assert self.worker.wait(SECONDS), self.status
        return self.status

    def lines(self) -> list[bytes | None]:
        """All that arrived."""
        return values(self._bootstrap, self._topic)

    def close(self) -> None:
        """Stop what still runs."""
        if self.worker is not None:
            self.worker.stop(5.0)
        self._store.close()
        self._watcher.close()


@pytest.fixture
def make_run(tmp_path: Path, broker: DevBroker, topic: str) -> Iterator[Callable[..., Run]]:
    """`make_run(executor, **sections)`: over the files in `tmp_path / "logs"`."""
    made: list[Run] = []

    def make(executor: ExecutorApart, **sections: Any) -> Run:
        made.append(Run(tmp_path, broker.bootstrap, topic, executor, **sections))
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.fixture(scope="module")
def real(spark_cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExecutorApart]:
    """What production has: batches are run by `run_batch`."""
    executor = ExecutorApart(tmp_path_factory.mktemp("real") / "run", spark_cluster.url)
    yield executor
    executor.close()


def _write(directory: Path, files: int, count: int) -> set[bytes]:
    directory.mkdir(exist_ok=True)
    lines = [[b"%03d %07d" % (number, line) for line in range(count)] for number in range(files)]
    for number, some in enumerate(lines):
        data = b"\n".join(some) + b"\n"
        name = f"{number:03}.log"
        (directory / (f"{name}.gz" if number % 2 else name)).write_bytes(gzip.compress(data) if number % 2 else data)
    return {line for some in lines for line in some}


def test_files_on_a_mount_arrive_once_by_way_of_two_workers(make_run: Callable[..., Run], real: ExecutorApart, tmp_path: Path) -> None:
    lines = _write(tmp_path / "logs", 4, 2000)
    run = make_run(real)
    run.start()
    status = run.finish()
    assert (status.state, status.counts.read, status.counts.acknowledged) == ("stopped", 8000, 8000)
    arrived = run.lines()
    assert len(arrived) == 8000
    assert set(arrived) == lines


def test_executors_log_in_with_tokens_of_their_own_processes(real: ExecutorApart, tmp_path: Path) -> None:
    lines = _write(tmp_path / "logs", 4, 200)
    with TokenServer() as server, OauthBroker(tmp_path / "guarded", server) as guarded:
        oauth = {"token_url": server.token_url, "client_id": CLIENT_ID, "client_secret": OAUTH_SECRET}
        security = {"protocol": "SASL_PLAINTEXT", "mechanism": "OAUTHBEARER", "oauth": oauth}
        run = Run(tmp_path, guarded.bootstrap, "t", real, kafka={"security": security, "create_topics": {}})
        run.start()
        try:
            assert run.finish().counts.acknowledged == 800
        finally:
            run.close()
        assert {record.value for record in consume(guarded.bootstrap, "t", until=800, client=guarded.client)} == lines
        assert 1 <= len(server.asked) <= 4


@pytest.mark.parametrize("victims", ["executors", "pythons"])
def test_what_is_killed_in_the_middle_loses_nothing_and_counts_nothing_twice(
    victims: str, make_run: Callable[..., Run], real: ExecutorApart, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    lines = _write(tmp_path / "logs", 12, 20_000)
    run = make_run(real, delivery={"max_batch_bytes": "64KiB"})
    run.start()
    for part in (1, 2, 3):
        wait_until(lambda part=part: run.status.counts.acknowledged > part * 20_000, SECONDS, "it is under way")  # type: ignore[misc]
        some = wait_until(getattr(spark_cluster, victims), SECONDS, "somebody works")
        kill(some[0])
    status = run.finish()
    assert (status.state, status.counts.read, status.counts.acknowledged) == ("stopped", len(lines), len(lines))
    arrived = run.lines()
    assert set(arrived) == lines
    assert len(arrived) < 1.5 * len(lines)  # repeats within the windows that were not committed


def test_a_worker_that_dies_leaves_the_work_to_the_other(cache: None, make_run: Callable[..., Run], tmp_path: Path) -> None:
    lines = _write(tmp_path / "logs", 8, 20_000)
    (tmp_path / "cluster").mkdir()
    with SparkCluster(tmp_path / "cluster") as cluster:
        executor = ExecutorApart(tmp_path / "run", cluster.url)
        run = make_run(executor, delivery={"max_batch_bytes": "64KiB"})
        run.start()
        wait_until(lambda: run.status.counts.acknowledged > 20_000, SECONDS, "it is under way")
        family = psutil.Process(cluster.workers[0].pid).children(recursive=True)
        kill(psutil.Process(cluster.workers[0].pid))
        for one in family:
            if one.is_running():
                kill(one)
        status = run.finish()
        assert (status.state, status.counts.acknowledged) == ("stopped", len(lines))
        assert set(run.lines()) == lines
        executor.close()


def test_a_master_that_is_gone_for_good_ends_it_with_its_reason(cache: None, tmp_path: Path) -> None:
    with SparkCluster(tmp_path, workers=0) as cluster:
        url = cluster.url
    executor = ExecutorApart(tmp_path / "run", url)
    (result,) = executor.submit(batch("answer")).result(SECONDS)
    assert isinstance(result.error, FatalError)
    assert "cannot be reached: Connection refused" in str(result.error)
    wait_until(lambda: executor.told, SECONDS, "who started it is told")
    executor.close()


def test_a_cluster_without_room_is_told_and_waited_for(cache: None, tmp_path: Path) -> None:
    with SparkCluster(tmp_path, workers=0, python_path=PROJECT) as cluster:
        executor = ExecutorApart(tmp_path / "run", cluster.url, "tests.spark.batches:run", place_seconds=17)
        (result,) = executor.submit(batch("answer")).result(SECONDS)
        assert isinstance(result.error, RetriableError)
        assert "given it no place" in str(result.error)
        assert "free cores" in str(result.error)
        waiting = executor.submit(batch("answer", task=1))
        executor.settle(TaskId("app", 1))
        assert waiting.result(SECONDS)[0].error is None  # unread: it had not begun
        third = executor.submit(batch("answer", task=2))
        cluster.start_worker(0)
        assert third.result(SECONDS)[0].error is None
        executor.close()


def test_the_package_travels_and_comes_before_one_that_is_there(cluster: ExecutorApart) -> None:
    (result,) = cluster.submit(batch("where")).result(SECONDS)
    assert "copycat_agent.zip" in result.offset.path


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"orjson.py": "raise ImportError"}, ""),
        ({"sitecustomize.py": LACKING}, "lacks orjson, pyarrow"),
        ({"sitecustomize.py": "import copycat_agent\ncopycat_agent.__version__ = '0.0.1'"}, "copycat-agent 0.0.1 of its own"),
    ],
    ids=["broken", "lacking", "other"],
)  # fmt: skip
def test_an_executor_that_cannot_run_batches_says_what_it_lacks(cache: None, tmp_path: Path, written: dict[str, str], said: str) -> None:
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    with SparkCluster(tmp_path, workers=1, python_path=f"{tmp_path}:{PROJECT}") as cluster:
        executor = ExecutorApart(tmp_path / "run", cluster.url)
        (result,) = executor.submit(batch("answer")).result(SECONDS)
        assert isinstance(result.error, FatalError if said else RetriableError)
        assert said in str(result.error)
        executor.close()


def test_a_secret_in_a_definition_is_nowhere_but_in_memory(cluster: ExecutorApart, spark_cluster: SparkCluster, flag: Path) -> None:
    cluster.submit(batch("answer")).result(SECONDS)
    work = batch("until-told", str(flag), secret=SECRET)
    future = cluster.submit(work)
    wait_until(flag.exists, SECONDS, "the batch runs")
    assert cluster.jvm_pid
    family = [psutil.Process(cluster.jvm_pid), *spark_cluster.executors(), *spark_cluster.pythons()]
    for process in family:
        for kind in ("cmdline", "environ"):
            data = Path(f"/proc/{process.pid}/{kind}").read_bytes()
            assert SECRET.encode() not in data
            assert CANARY.encode() not in data
    cluster.settle(work.task)
    assert future.result(SECONDS)[0].offset.path == "settled"
    places = [cluster.run_dir, spark_cluster.directory]
    for path in (path for place in places for path in place.rglob("*") if path.is_file()):
        assert SECRET.encode() not in path.read_bytes(), path


def test_objects_are_read_by_executors_with_credentials_of_their_own(
    cache: None, make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    lines = [b"%06d" % number for number in range(50_000)]
    (tmp_path / "cluster").mkdir()
    with ObjectStore(tmp_path) as store, SparkCluster(tmp_path / "cluster", environ=CREDENTIALS) as cluster:
        for number in range(5):
            data = b"\n".join(lines[number * 10_000 : (number + 1) * 10_000])
            store.put(f"many/{number}.gz", gzip.compress(data))
        executor = ExecutorApart(tmp_path / "run", cluster.url)
        run = make_run(executor)
        run.start(store.uri("many/*.gz"))
        status = run.finish()
        assert (status.state, status.counts.acknowledged) == ("stopped", 50_000)
        assert sorted(run.lines()) == lines  # type: ignore[type-var]
        executor.close()


def test_a_query_runs_where_its_batch_does(make_run: Callable[..., Run], real: ExecutorApart, tmp_path: Path) -> None:
    _write(tmp_path / "logs", 4, 500)
    query = "SELECT CAST(substring(message, 1, 3) AS INT) AS file, message FROM records WHERE CAST(substring(message, 5) AS INT) < 100"
    run = make_run(real, transforms=[{"sql": query}])
    run.start()
    status = run.finish()
    assert (status.state, status.counts.read, status.counts.acknowledged, status.counts.dropped) == ("stopped", 2000, 400, 1600)
    assert b'{"file":2,"message":"002 0000099"}' in run.lines()
