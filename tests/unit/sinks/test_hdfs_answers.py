"""What HDFS refuses or fails at, as it is told to a person, and what is left of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hdfs_native import Client, WriteOptions

from copycat_agent.dev_broker import free_port
from copycat_agent.errors import BlockedError, CopycatError, FatalError, FileError, RetriableError
from copycat_agent.sinks.claims import Claims, LocalFile, Range
from copycat_agent.sinks.hdfs_store import SCRATCH
from copycat_agent.sinks.sink_stores import SinkStore, store_at
from tests.rig.hdfs import Hdfs
from tests.rig.waiting import wait_until
from tests.unit.sinks.test_processes import SECONDS, kill_and_stop

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as one:
        yield one


@pytest.fixture
def root(hdfs: Hdfs, tmp_path: Path) -> str:
    """A path that no other test has."""
    hdfs.client.mkdirs(f"/{tmp_path.name}")
    return f"/{tmp_path.name}"


@pytest.fixture
def store(hdfs: Hdfs, root: str) -> SinkStore:
    return store_at(f"{hdfs.url}{root}/lake/")


def put(client: Client, path: str, data: bytes = b"x") -> None:
    with client.create(path, WriteOptions(create_parent=True)) as file:
        file.write(data)


def test_of_many_who_put_at_once_one_is_first(store: SinkStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(5):
            firsts = list(pool.map(lambda one, key=f"a/{number}": store.put_if_absent(key, str(one).encode()), range(8)))
            assert sum(firsts) == 1
            assert store.get(f"a/{number}") == str(firsts.index(True)).encode()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_each_offset_is_visible_once_whoever_is_killed_and_stopped(hdfs: Hdfs, root: str, store: SinkStore) -> None:
    kill_and_stop(store, f"{hdfs.url}{root}/lake/", 1, SECONDS, 60)


def test_a_range_whose_files_could_have_no_names_is_not_claimed(store: SinkStore) -> None:
    claims, topic = Claims(store, "lake"), "t" * 249
    assert claims.resume(topic, 3, 0) == 0
    path = store.scratch() / "one"
    path.write_text("{}\n")
    with pytest.raises(FileError, match="no name of more than 255 bytes: ttt"):
        claims.commit(Range(topic, 3, 0, 9), [LocalFile(path, "dt=1", 1)], "jsonl")
    assert claims.resume(topic, 3, 0) == 0


def test_what_is_published_leaves_no_directory(hdfs: Hdfs, root: str, store: SinkStore) -> None:
    path = store.scratch() / "one"
    path.write_bytes(b"data")
    store.upload({"_copycat/pending/0-a/0": path})
    store.publish({"_copycat/pending/0-a/0": "d/0", "_copycat/pending/0-a/1": "d/1"})
    assert [one.path for one in hdfs.client.list_status(root, recursive=True) if "pending/" in one.path] == []
    assert list(store.list("")) == ["d/0"]


def test_it_says_who_has_no_right(hdfs: Hdfs, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(hdfs.client, f"{root}/lake/a/b")
    hdfs.client.set_permission(root, 0o700)
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    store = store_at(f"{hdfs.url}{root}/lake/")
    for ask in (lambda: store.put_if_absent("a/b", b"x"), lambda: store.get("a/b"), lambda: list(store.list("a"))):
        with pytest.raises(BlockedError, match=r"cannot .* hdfs:.*HADOOP_USER_NAME"):
            ask()


def test_a_file_in_the_way_is_told(hdfs: Hdfs, root: str, store: SinkStore) -> None:
    put(hdfs.client, f"{root}/lake/a")
    with pytest.raises(FatalError, match=r"lake/a/b.*look at sink.uri and sink.path"):
        store.put_if_absent("a/b", b"x")


def test_a_file_of_somebody_else_is_not_replaced(hdfs: Hdfs, root: str, store: SinkStore) -> None:
    put(hdfs.client, f"{root}/lake/d/1", b"theirs")
    path = store.scratch() / "one"
    path.write_bytes(b"mine")
    store.upload({"_copycat/x": path})
    with pytest.raises(FatalError, match=r"d/1 is not this connector's file"):
        store.publish({"_copycat/x": "d/1"})
    assert store.get("d/1") == b"theirs"


def test_what_killed_processes_left_is_deleted_after_a_day(hdfs: Hdfs, root: str) -> None:
    client = hdfs.client
    for name in ("old", "new"):
        put(client, f"{root}/lake/{SCRATCH}/{name}")
    written = client.get_file_info(f"{root}/lake/{SCRATCH}/old").modification_time
    client.set_times(f"{root}/lake/{SCRATCH}/old", written - 2 * DAY_MS, written)
    store = store_at(f"{hdfs.url}{root}/lake/")
    assert store.put_if_absent("a", b"x")
    assert list(store.list(SCRATCH)) == [f"{SCRATCH}/new"]


@pytest.mark.parametrize(
    ("authority", "kind", "words"),
    [
        ("127.0.0.1:{port}", RetriableError, "look at the network, the NameNode"),
        ("no-such-nameservice", FatalError, "set HADOOP_CONF_DIR"),
        ("", FatalError, "set HADOOP_CONF_DIR"),
    ],
)
def test_an_address_where_nobody_answers_is_told(
    monkeypatch: pytest.MonkeyPatch, authority: str, kind: type[CopycatError], words: str
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    store = store_at(f"hdfs://{authority.format(port=free_port())}/lake/")
    with pytest.raises(kind, match=words):
        store.get("a")


def test_the_settings_of_hadoop_name_a_cluster(hdfs: Hdfs, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"dfs.nameservices": "lake", "dfs.ha.namenodes.lake": "a", "dfs.namenode.rpc-address.lake.a": hdfs.url.rpartition("/")[2]}
    found = "".join(f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    for name, text in (("hdfs-site", found), ("core-site", "<property><name>fs.defaultFS</name><value>hdfs://lake</value></property>")):
        (tmp_path / f"{name}.xml").write_text(f"<configuration>{text}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert store_at(f"hdfs://lake{root}/").put_if_absent("a", b"x")
    assert store_at(f"hdfs://{root}/").get("a") == b"x"


def test_what_was_written_outlives_a_namenode_and_a_datanode(hdfs: Hdfs, store: SinkStore) -> None:
    path = store.scratch() / "one"
    path.write_bytes(b"data")
    store.upload({"_copycat/pending/one": path})
    assert store.put_if_absent("_copycat/claims/1", b"claim")
    hdfs.kill_namenode()
    with pytest.raises(RetriableError, match="cannot read"):
        store.get("_copycat/claims/1")
    hdfs.kill_datanode()
    hdfs.start_namenode()
    hdfs.start_datanode()
    wait_until(lambda: _published(store, {"_copycat/pending/one": "d/one"}), 120)
    assert [store.get(key) for key in ("_copycat/claims/1", "d/one")] == [b"claim", b"data"]
    assert not store.put_if_absent("_copycat/claims/1", b"another")


def _published(store: SinkStore, moves: dict[str, str]) -> bool:
    """Whether all can be published and read: the NameNode takes no changes until it knows the blocks."""
    try:
        store.publish(moves)
        return all(store.get(one) is not None for one in moves.values())
    except RetriableError:
        return False


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "copycat_agent.sinks.hdfs_store", raising=False)
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(FatalError, match=r"hdfs:// needs hdfs_native; pip install 'copycat-agent\[hdfs\]'"):
        store_at("hdfs://host/lake/")
