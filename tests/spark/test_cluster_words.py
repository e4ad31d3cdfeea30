"""What a session on a cluster is made of, what it must not send, and the line over which batches hear that they shall settle."""

from __future__ import annotations

import pickle
import pkgutil
import socket
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from copycat_agent import __version__
from copycat_agent.definitions import load_file
from copycat_agent.errors import FatalError, FileError
from copycat_agent.executor import run_batch
from copycat_agent.model import SourceOffset, SourcePartition, Split, SplitResult
from copycat_agent.options import AgentOptions, KafkaOptions, SparkOptions
from copycat_agent.spark import cluster_task, sql_task
from copycat_agent.spark.cluster_host import TRUSTED, ClusterHost, addresses, driver_host, is_cluster, refusal, settings, zip_package
from copycat_agent.spark.cluster_job import TOKEN_BYTES, ControlListener
from copycat_agent.spark.cluster_runner_pool import ClusterRunnerPool
from copycat_agent.spark.cluster_task import RUN
from copycat_agent.spark.session import configuration
from tests.rig.threads import NewThreads
from tests.rig.waiting import wait_until
from tests.spark.batches import batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from copycat_agent.options import Definition

SECONDS = 60.0
FAR = "spark://192.0.2.77:7077"
ENCRYPTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


def test_what_an_executor_runs_is_known_by_a_name_that_leads_to_it() -> None:
    assert pkgutil.resolve_name(RUN) is run_batch


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host:443", "local-cluster[2,1,1024]"])
def test_everything_but_this_process_is_a_cluster(master: str) -> None:
    assert is_cluster(master)


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]", "local[2,3]"])
def test_this_host_is_none(master: str, tmp_path: Path) -> None:
    assert not is_cluster(master)
    with pytest.raises(FatalError, match="no cluster"):
        ClusterHost(SparkOptions(), tmp_path / "run", master, 1)


def test_masters_are_taken_apart() -> None:
    assert addresses("spark://a:7077,b:7078") == [("a", 7077), ("b", 7078)]
    assert addresses("spark://[::1]:7077") == [("::1", 7077)]
    assert addresses("k8s://https://host:6443") == [("host", 6443)]
    assert addresses("yarn") == []


def test_the_driver_has_the_address_that_leads_to_the_master_and_no_other() -> None:
    assert driver_host("spark://127.0.0.1:7077", {}) == "127.0.0.1"
    assert driver_host("local-cluster[2,1,1024]", {}) == "127.0.0.1"
    assert driver_host(FAR, {"spark.driver.host": "10.0.0.5"}) == "10.0.0.5"
    made = settings("spark://127.0.0.1:7077", {}, "127.0.0.1", Path("/l"))
    assert (made["spark.driver.host"], made["spark.driver.bindAddress"]) == ("127.0.0.1", "127.0.0.1")


def test_a_run_to_the_end_asks_for_a_core_per_task_and_an_agent_for_what_the_cluster_gives(tmp_path: Path) -> None:
    def cores(tasks: int | None, **conf: str) -> str | None:
        return ClusterHost(SparkOptions(conf=conf), tmp_path, FAR, tasks).conf.get("spark.cores.max")

    assert (cores(3), cores(None)) == ("3", None)
    assert cores(3, **{"spark.cores.max": "2"}) == cores(None, **{"spark.cores.max": "2"}) == "2"


def test_settings_that_keep_a_promise_cannot_be_changed() -> None:
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.task.maxFailures": "4",
        "spark.speculation": "true",
        "spark.executor.memory": "2g",
        TRUSTED: "true",
    }
    made = settings(FAR, conf, "10.0.0.5", Path("/l"))
    assert (made["spark.eventLog.enabled"], made["spark.task.maxFailures"], made["spark.speculation"]) == ("false", "1", "false")
    assert made["spark.executor.memory"] == "2g"
    assert TRUSTED not in made


def _definition(directory: Path, **kafka: object) -> Definition:
    document = {"name": "app", "source": {"type": "log_file", "include": ["/l/*"]}, "record": {"topic": "t"}, "kafka": kafka}
    path = directory / "app.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=("127.0.0.1:9092",))))
    assert loaded.definition is not None, loaded.problems
    return loaded.definition


SECURITY = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "u", "password": "canary"}


@pytest.mark.parametrize("conf", [{}, {"spark.authenticate": "true"}, {"spark.network.crypto.enabled": "true"}])
def test_a_secret_does_not_cross_a_network_in_the_clear(tmp_path: Path, conf: dict[str, str]) -> None:
    found = refusal(_definition(tmp_path, security=SECURITY), {"spark.driver.host": "10.0.0.5", **conf}, FAR)
    assert found is not None
    assert "spark.network.crypto.enabled" in found.hint
    assert "canary" not in str(found)


@pytest.mark.parametrize("conf", [ENCRYPTED, {"spark.ssl.rpc.enabled": "true"}, {TRUSTED: "true"}, {"spark.driver.host": "127.0.0.1"}])
def test_it_may_cross_what_is_encrypted_or_stays_here(tmp_path: Path, conf: dict[str, str]) -> None:
    assert refusal(_definition(tmp_path, security=SECURITY), {"spark.driver.host": "10.0.0.5", **conf}, FAR) is None


def test_a_definition_without_secrets_may_go_anywhere(tmp_path: Path) -> None:
    assert refusal(_definition(tmp_path), {"spark.driver.host": "10.0.0.5"}, FAR) is None


def test_a_runner_is_sent_no_secret_either_and_no_credential_of_the_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    conf = {"spark.driver.host": "192.0.2.5", "spark.driver.bindAddress": "127.0.0.1"}
    pool = ClusterRunnerPool(ClusterHost(SparkOptions(conf=conf), tmp_path, FAR, None))
    plain = replace(batch("answer"), definition=pickle.dumps(_definition(tmp_path)))
    assert "canary" not in repr(pool.work(1, plain))
    with pytest.raises(FatalError, match="holds secrets"):
        pool.work(1, replace(plain, definition=pickle.dumps(_definition(tmp_path, security=SECURITY))))
    pool.close()


def test_the_secret_of_a_clusters_channel_is_no_setting_of_a_local_session(tmp_path: Path) -> None:
    conf = {"spark.authenticate.secret": "canary", "spark.x": "y"}
    assert "canary" not in str(configuration(conf, 1, tmp_path, tmp_path))
    assert settings(FAR, conf, "192.0.2.5", tmp_path)["spark.authenticate.secret"] == "canary"


def test_an_address_that_is_not_of_this_host_is_said_to_be(tmp_path: Path) -> None:
    conf = {"spark.driver.host": "192.0.2.5"}
    with pytest.raises(FatalError, match="cannot be let in at this host's address") as raised:
        ClusterRunnerPool(ClusterHost(SparkOptions(conf=conf), tmp_path, FAR, None))
    assert "spark.driver.bindAddress" in raised.value.hint


def test_the_package_that_travels_is_whole(tmp_path: Path) -> None:
    with zipfile.ZipFile(zip_package(tmp_path)) as archive:
        names = set(archive.namelist())
    root = Path(cluster_task.__file__).parents[1]
    assert {str(path.relative_to(root.parent)) for path in root.rglob("*.py")} <= names
    assert (tmp_path / "copycat_agent.zip").stat().st_mode & 0o777 == 0o600


def test_an_executor_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster_task.describe_python(__version__).trouble == ""
    assert "of its own" in cluster_task.describe_python("9.9").trouble
    assert cluster_task.describe_python(__version__, ("for_queries",)).trouble == "its Python lacks for_queries"
    monkeypatch.setattr(cluster_task, "NEEDED", ("orjson", "not_there", "not.there"))
    found = cluster_task.describe_python(__version__)
    assert found.trouble == "its Python lacks not_there, not.there"
    assert found.host in str(cluster_task.unfit(found))


def _carried(path: str, end: int, compression: str = "") -> SplitResult:
    """What a task on a cluster makes of a file that the driver saw with `end` bytes."""
    split = Split(SourcePartition("app", "k"), path, path, SourceOffset(0, compression=compression), end)
    work = replace(batch("echo"), splits=(split,))
    message = cluster_task.BatchMessage(work, "tests.spark.batches:run", __version__, None)
    ((result,),) = map(pickle.loads, cluster_task.carry([message]))
    return result  # type: ignore[no-any-return]


@pytest.fixture
def carrying(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which shall not end with its parent thread."""
    monkeypatch.setattr(cluster_task, "_die_with_parent", lambda: None)


@pytest.mark.usefixtures("carrying")
def test_a_file_that_a_worker_sees_shorter_than_the_driver_is_not_read(tmp_path: Path) -> None:
    """Else its last line might be taken for one that nobody will finish."""
    (tmp_path / "a").write_bytes(b"1\n2")
    found = _carried(str(tmp_path / "a"), 4)
    assert isinstance(found.error, FileError)
    assert "has 3 bytes on" in str(found.error)
    assert found.offset.position == 0
    assert _carried(str(tmp_path / "a"), 3).error is None
    assert _carried(str(tmp_path / "a"), 99, "gzip").error is None  # its end is not in bytes of the disk


@pytest.mark.usefixtures("carrying")
def test_an_executor_that_is_unfit_says_so_in_every_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_task, "NEEDED", ("not_there",))
    found = _carried("/nowhere", 1)
    assert isinstance(found.error, FatalError)
    assert "lacks not_there" in str(found.error)


@pytest.mark.usefixtures("carrying")
def test_an_executor_that_lacks_what_queries_need_says_so_for_those_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_task, "QUERIES_NEED", ("not_there",))
    assert "lacks" not in str(_carried("/nowhere", 1).error)
    split = Split(SourcePartition("app", "k"), "/a", "/a", SourceOffset(0), 1)
    message = cluster_task.BatchMessage(replace(batch("echo"), splits=(split,)), "tests.spark.batches:run", __version__, None)
    ((result,),) = [pickle.loads(sql_task.there(message, None))]  # type: ignore[arg-type]  # nothing is asked
    assert "lacks not_there" in str(result.error)


@pytest.fixture
def exchange() -> Iterator[ControlListener]:
    """On loopback."""
    exchange = ControlListener("127.0.0.1", "127.0.0.1")
    yield exchange
    exchange.close()


def test_a_batch_hears_that_it_shall_settle(exchange: ControlListener) -> None:
    line, other = exchange.line(), exchange.line()
    with cluster_task.settle_requested(line.address) as stopping, cluster_task.settle_requested(other.address) as others:
        wait_until(lambda: line.is_connected and other.is_connected, SECONDS, "they have come up")
        assert not stopping()
        line.settle()
        wait_until(stopping, SECONDS, "it hears")
        assert not others()


def test_a_batch_that_comes_up_late_hears_it_at_once(exchange: ControlListener) -> None:
    line = exchange.line()
    line.settle()
    with cluster_task.settle_requested(line.address) as stopping:
        wait_until(stopping, SECONDS, "it hears")


def test_a_batch_settles_when_its_driver_has_gone(exchange: ControlListener) -> None:
    line = exchange.line()
    with cluster_task.settle_requested(line.address) as stopping:
        wait_until(lambda: line.is_connected, SECONDS, "it has come up")
        exchange.close()
        wait_until(stopping, SECONDS, "it sees that nobody waits for it")


def test_who_does_not_know_the_token_is_not_heard(exchange: ControlListener) -> None:
    line = exchange.line()
    assert line.address
    with socket.create_connection(line.address[:2], SECONDS) as stranger:
        stranger.sendall(b"x" * TOKEN_BYTES)
        assert stranger.recv(1) == b""
    assert not line.is_connected
    with cluster_task.settle_requested(line.address):
        wait_until(lambda: line.is_connected, SECONDS, "the batch gets through")


def test_a_batch_without_a_line_runs_to_its_bounds() -> None:
    threads = NewThreads()
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        address = (*deaf.getsockname(), b"x" * TOKEN_BYTES)
        with cluster_task.settle_requested(address) as stopping, cluster_task.settle_requested(None) as without:
            assert not stopping()
            assert not without()
    wait_until(lambda: not threads.named("line"), SECONDS, "no thread is left")
