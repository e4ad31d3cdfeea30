"""Objects that come, come late, are replaced and go: each record once, and what is not read is told."""

from __future__ import annotations

import gzip
import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.objects.conftest import crossed
from tests.rig.shipping import origin
from tests.rig.waiting import wait_until
from tests.unit.sources.archives import ARCHIVES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects.conftest import Bucket, Objects, Place


def lines(name: str, count: int) -> bytes:
    return b"".join(b"%s %d\n" % (name.encode(), number) for number in range(count))


def expected(**counts: int) -> list[str]:
    return [f"{name} {number}" for name, count in counts.items() for number in range(count)]


@crossed
def test_objects_are_read_in_the_order_of_their_names_and_new_ones_follow(shipping: Objects, place: Place, guarantee: str) -> None:
    for name in ("b", "a", "deep/er/c"):
        place.put(name, lines(name, 3))
    place.put("empty", b"")
    delivery = {"guarantee": guarantee, "tasks_max": 1}
    shipping.follow(place, delivery=delivery)
    assert shipping.lines(until=9) == expected(**{"a": 3, "b": 3, "deep/er/c": 3})
    place.put("z", gzip.compress(lines("z", 2)))
    assert shipping.lines(until=11)[9:] == expected(z=2)
    shipping.stop()
    place.put("late", lines("late", 2))
    shipping.follow(place, delivery=delivery)
    assert shipping.lines(until=13)[11:] == expected(late=2)
    shipping.wait_caught_up()
    assert len(shipping.lines()) == 13


def test_an_object_goes_on_at_the_next_record_after_a_stop_in_the_middle(shipping: Objects, place: Place) -> None:
    place.put("a", lines("a", 5000))
    place.put("b.gz", gzip.compress(lines("b", 5000), 1))
    slowly: dict[str, Any] = {"delivery": {"max_batch_bytes": "64KiB"}, "limits": {"records_per_second": 2000}}
    shipping.follow(place, **slowly)
    shipping.records(until=1)
    shipping.stop()
    shipping.follow(place)
    assert sorted(shipping.lines(until=10_000)) == sorted(expected(a=5000, b=5000))
    shipping.wait_caught_up()
    wait_until(lambda: all(one.done for one in shipping.offsets.values()), 60, lambda: f"{shipping.offsets}")
    assert [one for one in shipping.lines() if one.startswith("a")] == expected(a=5000), "in order, each once"
    assert {origin(record)[0] for record in shipping.records()} == {"a", "b.gz"}


def test_an_object_that_is_replaced_is_read_again_and_one_that_is_put_again_is_not(shipping: Objects, bucket: Bucket) -> None:
    bucket.put("a", b"one\n")
    shipping.follow(bucket)
    shipping.lines(until=1)
    bucket.put("a", b"one\n")
    bucket.put("b", b"two\n")
    assert shipping.lines(until=2) == ["one", "two"]
    bucket.put("a", b"three\n")
    assert shipping.lines(until=3) == ["one", "two", "three"]


@pytest.mark.parametrize("what", ["deleted", "replaced"])
def test_what_is_gone_before_it_was_read_is_in_the_ledger(shipping: Objects, place: Place, what: str) -> None:
    place.put("a", lines("a", 20_000))
    slowly: dict[str, Any] = {"delivery": {"max_batch_bytes": "64KiB"}, "limits": {"records_per_second": 500}}
    shipping.follow(place, {"relist": "1s"}, **slowly)
    wait_until(lambda: any(one.position for one in shipping.offsets.values()), 30)
    if what == "deleted":
        place.delete("a")
    else:
        place.put("a", b"new\n")
    wait_until(lambda: shipping.losses, 60, lambda: f"{shipping.status}")
    (loss,) = shipping.losses
    assert (loss.reason, loss.detail) == ("destroyed", f"it was {what} before it was read to its end")
    got = shipping.records(None if what == "deleted" else lambda records: any(one.value == b"new" for one in records))
    sent = [one.value.decode() for one in got if one.value and one.value != b"new"]
    assert sent == expected(a=20_000)[: len(sent)]
    assert sum(len(one) + 1 for one in sent) == loss.start
    assert loss.end == len(lines("a", 20_000))


@pytest.mark.parametrize("policy", ["delete", "move", "tag"])
def test_what_becomes_of_objects_that_are_delivered(shipping: Objects, bucket: Bucket, policy: str) -> None:
    done = f"done-{bucket.directory}"
    names = ["a", "deep/b"]
    for name in names:
        bucket.put(name, lines(name, 2))
    bucket.store.put(f"{done}/a", b"another one")
    to = {"to": f"/{done}/"} if policy == "move" else {}
    shipping.follow(bucket, {"cleanup": {"policy": policy, **to}})
    shipping.lines(until=4)
    if policy == "tag":
        wait_until(lambda: tags(bucket, "a") == tags(bucket, "deep/b") == {"copycat": "delivered"}, 60)
        assert bucket.names() == names
    else:
        wait_until(lambda: not bucket.names(), 60)
    if policy == "move":
        moved = bucket.names(done)
        assert [name for name in moved if not name.startswith("a.")] == ["a", "deep/b"]
        assert len(moved) == 3, "what was there is still there"
    bucket.put("c", lines("c", 1))
    assert shipping.lines(until=5) == [*sorted(expected(**{"a": 2, "deep/b": 2})), "c 0"] or len(shipping.lines()) == 5


def tags(bucket: Bucket, name: str) -> dict[str, str]:
    found = bucket.store.client.get_object_tagging(Bucket=bucket.store.bucket, Key=f"{bucket.directory}/{name}")
    return {one["Key"]: one["Value"] for one in found["TagSet"]}


def test_patterns_name_what_is_read(shipping: Objects, place: Place) -> None:
    for name in ("a.log", "a.txt", "x/b.log", "x/skip/c.log", ".hidden.log"):
        place.put(name, name.encode())
    shipping.follow(place, {"pattern": ["*.log"], "exclude": ["/x/skip/**"]})
    assert sorted(shipping.lines(until=2)) == ["a.log", "x/b.log"]
    shipping.wait_caught_up()
    assert len(shipping.lines()) == 2


def test_start_at_end_reads_what_comes_after_the_first_start(shipping: Objects, place: Place) -> None:
    place.put("old", b"old\n")
    time.sleep(1.1)  # an S3 server tells times in seconds
    shipping.follow(place, {"start_at": "end"})
    wait_until(lambda: shipping.offsets, 60)
    shipping.stop()
    time.sleep(1.1)
    place.put("a", b"new\n")
    shipping.follow(place, {"start_at": "end"})
    assert shipping.lines(until=1) == ["new"]


def test_a_run_to_the_end_reads_what_is_there_and_ends(shipping: Objects, place: Place) -> None:
    for number in range(40):
        place.put(f"{number:02}", b"%d\n" % number)
    shipping.follow(place, until_idle=True, source={"min_age": "1h"})
    shipping.wait_idle()
    assert sorted(shipping.lines(), key=int) == [str(number) for number in range(40)]


def test_a_run_to_the_end_ends_when_an_object_goes_while_it_is_read(shipping: Objects, bucket: Bucket) -> None:
    bucket.put("a", lines("a", 20_000))
    bucket.put("b", b"b\n")
    slowly: dict[str, Any] = {"delivery": {"max_batch_bytes": "64KiB", "tasks_max": 1}, "limits": {"records_per_second": 500}}
    shipping.follow(bucket, until_idle=True, **slowly)
    wait_until(lambda: any(one.position for one in shipping.offsets.values()), 30)
    bucket.delete("a")
    shipping.wait_idle()
    assert "b" in shipping.lines()
    (loss,) = shipping.losses
    assert (loss.reason, loss.detail) == ("destroyed", "it was deleted before it was read to its end")


def test_a_file_that_grows_is_left_alone_until_it_is_old_enough(shipping: Objects, tmp_path: Path) -> None:
    tree = tmp_path / "logs" / "tree"
    tree.mkdir()
    (tree / "a").write_bytes(b"one\n")
    past = time.time() - 7200
    os.utime(tree / "a", (past, past))
    (tree / "b").write_bytes(b"half")
    shipping.start(source={"type": "objects", "uri": f"file://{tree}", "min_age": "1h"})
    assert shipping.lines(until=1) == ["one"]
    (tree / "b").write_bytes(b"two\n")
    os.utime(tree / "b", (past, past))
    assert shipping.lines(until=2) == ["one", "two"]


def test_files_in_zip_and_tar_objects_are_read_each_by_itself(shipping: Objects, place: Place) -> None:
    for name, kind in (("a.zip", "zip"), ("b.tar.gz", "tar.gz"), ("c.tar", "tar")):
        place.put(name, ARCHIVES[kind]({"x": lines(f"{name} x", 1500), "y": lines(f"{name} y", 1500)}))
    place.put("d", lines("d", 3))
    source = {"unpack": {"archives": True}}
    slowly: dict[str, Any] = {"delivery": {"max_batch_bytes": "64KiB"}, "limits": {"records_per_second": 2000}}
    shipping.follow(place, source, record={"headers": {"member": "{@file.member}"}}, **slowly)
    shipping.records(until=1)
    shipping.stop()
    shipping.follow(place, source, record={"headers": {"member": "{@file.member}"}})
    everything = {f"{name} {part}": 1500 for name in ("a.zip", "b.tar.gz", "c.tar") for part in "xy"} | {"d": 3}
    assert sorted(shipping.lines(until=9003, deadline=60)) == sorted(expected(**everything))
    members = {((record.value or b"").split()[1], dict(record.headers)["member"]) for record in shipping.records()}
    assert members == {(b"x", b"x"), (b"y", b"y"), (b"0", b""), (b"1", b""), (b"2", b"")}
    shipping.wait_caught_up()
    wait_until(lambda: all(one.done for one in shipping.offsets.values()), 60, lambda: f"{shipping.offsets}")
