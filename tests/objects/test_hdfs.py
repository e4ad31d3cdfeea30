"""A directory of HDFS: followed over kills of the agent, moved from, and given to a backfill."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hdfs_native import Client, FileStatus, WriteOptions

from copycat_agent.extending import parse_address
from copycat_agent.sources.objects.blocks import ReplacedError
from copycat_agent.sources.objects.listing_schedule import NameRange
from copycat_agent.sources.objects.objects_source import store_at
from tests.rig.hdfs import Hdfs
from tests.rig.kafka import values
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.rig.agent import AgentProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as one:
        yield one


def put(hdfs: Hdfs, path: str, data: bytes) -> None:
    """Write a file beside, and give it its name once it is complete."""
    with hdfs.client.create("/beside", WriteOptions(overwrite=True)) as file:
        file.write(data)
    hdfs.client.mkdirs(path.rpartition("/")[0], create_parent=True)
    hdfs.client.rename("/beside", path, overwrite=True)


def names(hdfs: Hdfs, path: str) -> list[str]:
    return [one.path for one in hdfs.client.list_status(path, recursive=True) if not one.isdir]


def test_each_record_arrives_once_over_kills_and_what_is_delivered_is_moved(
    hdfs: Hdfs, agent: AgentProcess, make_topic: Callable[..., str]
) -> None:
    topic, again = make_topic(), make_topic()
    cleanup = {"policy": "move", "to": "/done/"}
    source = {"type": "objects", "uri": f"{hdfs.url}/in/", "poll_interval": "1s", "min_age": "0s", "cleanup": cleanup}
    agent.define("h", {"source": source, "record": {"topic": topic}, "delivery": {"guarantee": "exactly_once"}})
    wanted: list[bytes] = []

    def more(first: int, count: int) -> None:
        for number in range(first, first + count):
            records = [b"%04d-%05d" % (number, line) for line in range(2000)]
            put(hdfs, f"/in/{number * 7919 % 1000:03}/{number}", b"\n".join(records) + b"\n")
            wanted.extend(records)

    def arrived(name: str = topic) -> list[bytes]:
        return [one for one in values(agent.bootstrap, name) if one is not None]

    more(0, 20)
    agent.start()
    wait_until(lambda: len(arrived()) > 2000, 120, lambda: agent.log[-2000:])
    more(20, 20)
    agent.kill()
    more(40, 10)
    agent.start()
    wait_until(lambda: len(arrived()) >= len(wanted), 120, lambda: agent.log[-2000:])
    wait_until(lambda: names(hdfs, "/in") == [], 60, lambda: f"{names(hdfs, '/in')}")
    agent.stop()
    assert sorted(arrived()) == sorted(wanted), "each once"
    assert len(names(hdfs, "/done")) == 50
    definition = agent.root / "again.yaml"
    definition.write_text(f"name: again\nsource: {{type: log_file, include: [/nowhere/*.log]}}\nrecord: {{topic: {again}}}\n")
    command = [sys.executable, "-m", "copycat_agent", "backfill", str(definition), f"{hdfs.url}/done/**"]
    options = ["--bootstrap-servers", agent.bootstrap, "--state-dir", str(agent.root / "again")]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(arrived(again)) == sorted(wanted)


def test_its_files_are_listed_read_and_told_when_they_are_replaced(hdfs: Hdfs) -> None:
    found_names = ["/x/in/a", "/x/in/b[1].csv", "/x/in/d#e/\u00e9 #?%2B;*", "/x/in/d?/c"]
    for name in found_names:
        put(hdfs, name, b"first")
    for name in ("/x/in/_tmp/a", "/x/in/.a", "/x/in/d?/a._COPYING_"):
        put(hdfs, name, b"not complete")
    store = store_at(parse_address(f"{hdfs.url}/x/in/"))
    found = list(store.listed(NameRange()))
    assert [one.name for one in found] == found_names
    for one in found:
        assert store.look(one.name) == one
        assert store.open(one).read_at(2, 9) == b"rst"
    file = store.open(found[0])
    put(hdfs, "/x/in/a", b"new")
    with pytest.raises(ReplacedError):
        file.read_at(0, 5)
    with pytest.raises(ReplacedError):
        store.open(found[0])
    with pytest.raises(FileNotFoundError):
        store.look("/x/in/nope")
    for number, one in enumerate(found[1:]):
        store.copy(one, f"/x/out/{number}[1]#")
        store.delete(one)
    assert names(hdfs, "/x/out") == [f"/x/out/{number}[1]#" for number in range(3)]
    assert [one.name for one in store.listed(NameRange())] == ["/x/in/a"]
    with pytest.raises(FileNotFoundError):
        list(store_at(parse_address(f"{hdfs.url}/nope/")).listed(NameRange()))


def test_a_listing_is_whole_or_fails(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        put(hdfs, f"/y/in/{number}/a", b"first")
    store = store_at(parse_address(f"{hdfs.url}/y/in/"))
    assert len(list(store.listed(NameRange()))) == 3
    list_status = Client.list_status

    def kill_before(client: Client, path: str) -> Iterator[FileStatus]:
        if path.rstrip("/") != "/y/in":
            hdfs.kill_namenode()
        return list_status(client, path)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "list_status", kill_before)
        with pytest.raises(OSError, match=r"."):
            list(store.listed(NameRange()))
    hdfs.start_namenode()


def test_a_user_in_an_address_is_refused(hdfs: Hdfs) -> None:
    with pytest.raises(OSError, match="set HADOOP_USER_NAME instead"):
        list(store_at(parse_address(hdfs.url.replace("//", "//etl@") + "/x/")).listed(NameRange()))
