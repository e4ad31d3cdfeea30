"""Google Cloud Storage: a bucket followed over kills of the agent, and what becomes of its objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from copycat_agent.extending import parse_address
from copycat_agent.sources.objects.blocks import ReplacedError
from copycat_agent.sources.objects.listing_schedule import NameRange
from copycat_agent.sources.objects.objects_source import store_at
from tests.rig import gcs
from tests.rig.kafka import values
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.rig.agent import AgentProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.skipif(bool(gcs.WHY_NOT), reason=gcs.WHY_NOT)]


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[gcs.GoogleStorage]:
    """It runs, and this process may use it."""
    root = tmp_path / "gcs"
    root.mkdir()
    one = gcs.GoogleStorage(root)
    monkeypatch.setenv(gcs.VARIABLE, str(one.credentials))
    with one:
        yield one


def test_each_record_arrives_once_over_kills_and_what_is_delivered_is_deleted(
    storage: gcs.GoogleStorage, agent: AgentProcess, topic: str
) -> None:
    source = {"type": "objects", "uri": storage.uri("in/"), "poll_interval": "1s", "cleanup": {"policy": "delete"}}
    agent.define("g", {"source": source, "record": {"topic": topic}, "delivery": {"guarantee": "exactly_once"}})
    agent.start()
    wanted: list[bytes] = []

    def put(first: int, count: int) -> None:
        for number in range(first, first + count):
            records = [b"%04d-%05d" % (number, line) for line in range(2000)]
            storage.put(f"in/{number * 7919 % 1000:03}/{number}", b"\n".join(records) + b"\n")
            wanted.extend(records)

    def arrived() -> list[bytes]:
        return [one for one in values(agent.bootstrap, topic) if one is not None]

    put(0, 20)
    wait_until(lambda: len(arrived()) > 2000, 120, lambda: agent.log[-2000:])
    put(20, 20)
    agent.kill()
    put(40, 10)
    agent.start()
    wait_until(lambda: len(arrived()) > 60_000, 120, lambda: agent.log[-2000:])
    put(50, 10)
    agent.kill()
    agent.start()
    wait_until(lambda: len(arrived()) >= len(wanted), 120, lambda: agent.log[-2000:])
    assert sorted(arrived()) == sorted(wanted), "each once"
    wait_until(lambda: storage.names("in") == [], 60, lambda: f"{storage.names('in')}")
    put(60, 1)
    wait_until(lambda: len(arrived()) == len(wanted), 60, lambda: f"a bucket that is empty is followed: {agent.log[-2000:]}")
    agent.stop()


def test_a_store_without_versions_reads_moves_and_tells_what_is_not_there(storage: gcs.GoogleStorage) -> None:
    names = ["in/a", "in/b/c", "in/b/\u00e9 #?%2B"]
    for name in names:
        storage.put(name, b"first")
    store = store_at(parse_address(storage.uri("in/")))
    found = list(store.listed(NameRange()))
    assert [one.name for one in found] == [f"logs/{name}" for name in names]
    file = store.open(found[0])
    assert file.read_at(0, 3) == b"fir"
    storage.put("in/a", b"second")
    with pytest.raises(ReplacedError):
        store.open(found[0]).read_at(0, 5)
    store.copy(found[1], store.name_at("/done/b/c"))
    store.delete(found[1])
    assert storage.names("") == ["logs/done/b/c", "logs/in/a", f"logs/{names[2]}"]
    with pytest.raises(FileNotFoundError):
        store.look(found[1].name)
    assert list(store_at(parse_address(storage.uri("nothing/"))).listed(NameRange())) == []
    with pytest.raises(FileNotFoundError):
        list(store_at(parse_address(storage.uri("in/").replace("gs://logs", "gs://none"))).listed(NameRange()))
