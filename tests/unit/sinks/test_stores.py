"""What every store promises: the claims stand on nothing else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from copycat_agent.errors import FatalError
from copycat_agent.sinks.sink_stores import SinkStore, check_address, store_at

MORE = 9 * 2**20
"""Bytes of a file that goes in several parts."""


def write(store: SinkStore, name: str, data: bytes) -> Path:
    path = store.scratch() / name
    path.write_bytes(data)
    return path


def test_it_keeps_two_writers_apart(store: SinkStore) -> None:
    assert store.has_conditional_put()
    assert list(store.list("")) == []


def test_the_first_put_stays(store: SinkStore) -> None:
    assert store.put_if_absent("a/b", b"first")
    assert not store.put_if_absent("a/b", b"second")
    assert store.get("a/b") == b"first"


def test_a_key_is_free_again_once_it_is_deleted(store: SinkStore) -> None:
    store.put_if_absent("a/b", b"first")
    store.delete(["a/b"])
    assert store.put_if_absent("a/b", b"second")
    assert store.get("a/b") == b"second"


def test_of_many_who_put_at_once_one_is_first(uri: str) -> None:
    stores = [store_at(uri) for _ in range(8)]
    for number in range(5):
        gate = threading.Barrier(len(stores))

        def put(one: int, key: str = f"a/{number}", gate: threading.Barrier = gate) -> bool:
            gate.wait()
            return stores[one].put_if_absent(key, str(one).encode())

        with ThreadPoolExecutor(len(stores)) as pool:
            first = [one for one, is_first in enumerate(pool.map(put, range(len(stores)))) if is_first]
        assert len(first) == 1
        assert stores[0].get(f"a/{number}") == str(first[0]).encode()


def test_what_is_not_there_is_none(store: SinkStore) -> None:
    assert store.get("no/such") is None
    assert list(store.list("no")) == []
    store.delete(["no/such", "no"])


@pytest.mark.parametrize("size", [0, 5, MORE])
def test_a_file_is_uploaded_and_published_whole(store: SinkStore, size: int) -> None:
    store.upload({"_copycat/x/0": write(store, "one", b"x" * size)})
    assert list(store.list("")) == ["_copycat/x/0"]
    store.publish({"_copycat/x/0": "dt=2026-01-01/a+b.parquet"})
    assert list(store.list("")) == ["dt=2026-01-01/a+b.parquet"]
    assert store.get("dt=2026-01-01/a+b.parquet") == b"x" * size


def test_what_is_published_stays_as_it_is(store: SinkStore) -> None:
    store.upload({"_copycat/x/0": write(store, "one", b"one"), "_copycat/x/1": write(store, "two", b"two")})
    store.publish({"_copycat/x/0": "a/0", "_copycat/x/1": "b/c/1"})
    store.publish({"_copycat/x/0": "a/0", "_copycat/x/1": "b/c/1", "_copycat/x/2": "b/c/2"})
    assert {key: store.get(key) for key in store.list("")} == {"a/0": b"one", "b/c/1": b"two"}


def test_the_file_of_another_connector_stays_as_it_is(store: SinkStore) -> None:
    """Also if it is as large. One's own may be published again: the first time its deletion from pending may have failed."""
    pending = {name: f"_copycat/{name}/pending/t/0/1-{name}/0" for name in ("one", "other")}
    store.upload({pending["one"]: write(store, "one", b"one")})
    store.publish({pending["one"]: "a/0"})
    store.upload({pending["other"]: write(store, "other", b"two")})
    with pytest.raises(FatalError, match="is not this connector's file"):
        store.publish({pending["other"]: "a/0"})
    assert store.get("a/0") == b"one"
    assert store.get(pending["other"]) == b"two"


def test_several_publish_the_same_at_once(uri: str) -> None:
    stores = [store_at(uri) for _ in range(4)]
    moves = {f"_copycat/x/{n}": f"a/{n % 3}/{n}" for n in range(20)}
    stores[0].upload({key: write(stores[0], str(n), str(n).encode()) for n, key in enumerate(moves)})
    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(lambda one: one.publish(moves), stores))
    assert {key: stores[0].get(key) for key in stores[0].list("")} == {final: str(n).encode() for n, final in enumerate(moves.values())}


NAMES = ("a b", "a'b", "ä=ü", "x:y", "a%3Ab", "q?x", "#h", "[z]", "{c}", "~t", "a+b", "a&b", 'a"b', "a\\b", "*", "a,b;c", "日本", "tr.")


def test_any_text_may_stand_in_a_key(store: SinkStore, uri: str) -> None:
    names = [one for one in NAMES if not (":" in one and uri.startswith("hdfs:"))]
    for name in names:
        store.upload({f"_copycat/x/{name}": write(store, "file", name.encode())})
        store.publish({f"_copycat/x/{name}": f"d/{name}/{name}"})
    assert sorted(store.list("d")) == sorted(f"d/{name}/{name}" for name in names)
    assert all(store.get(f"d/{name}/{name}") == name.encode() for name in names)


def test_keys_are_listed_in_order_behind_one(store: SinkStore) -> None:
    keys = [f"a/{n:020}" for n in range(30)]
    for key in [*keys[::-1], "ab/0", "b", "a.c"]:
        store.put_if_absent(key, b"")
    assert list(store.list("a")) == keys
    assert list(store.list("a", keys[10])) == keys[11:]
    assert list(store.list("a", f"a/{10:020}+")) == keys[11:]
    assert list(store.list("a", keys[-1])) == []


def test_more_keys_than_a_page_holds_are_listed_and_deleted(store: SinkStore) -> None:
    keys = [f"a/{n:05}" for n in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put_if_absent(key, b""), keys))
    assert list(store.list("a")) == keys
    store.delete(keys[:-1])
    assert list(store.list("a")) == keys[-1:]


def test_an_address_is_shown_without_its_options(store: SinkStore, uri: str) -> None:
    assert store.shown("a/b") == uri.partition("?")[0].rstrip("/") + "/a/b"
    assert "endpoint" not in store.shown()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("viewfs://host/lake", "addresses that begin with viewfs:// are not known"),
        ("hdfs://host/a:b/c", "HDFS takes no names with a colon"),
        ("hdfs://etl@host/a", "set HADOOP_USER_NAME instead"),
        ("file://host/lake", "not that of a directory of this host"),
        ("file:///", "not that of a directory of this host"),
        ("s3://lake/a//b", "parts of the address's path are empty"),
        ("s3://lake/../b", "parts of the address's path are empty"),
        ("s3://lake/a?allow_bucket_creation=true", "an option that is not known: allow_bucket_creation"),
        ("s3://key:secret-9f3@lake/a", "must not hold a key"),
        ("lake", "not an address"),
    ],
)
def test_an_address_that_is_none_is_refused(uri: str, words: str) -> None:
    with pytest.raises(FatalError, match=words) as raised:
        check_address(uri)
    assert "secret-9f3" not in str(raised.value)
    assert "gcs" not in raised.value.hint, "only what files are written to"
