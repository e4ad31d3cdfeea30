"""Files in a bucket whose server fails one request in six: before it does what was asked, behind it, or without a word."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.sinks.file_names import parse_name
from tests.lake.conftest import as_json
from tests.rig.failing_store import FailingStore
from tests.rig.object_store import ObjectStore, object_store
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.lake.conftest import Lake

SHARE = 1 / 6


@pytest.fixture
def store(tmp_path: Any) -> Iterator[ObjectStore]:
    with object_store(tmp_path) as one:
        yield one


@pytest.mark.timeout(300)
def test_each_record_is_in_one_object_whatever_requests_fail(
    make_lake: Callable[..., Lake], store: ObjectStore, rng: random.Random
) -> None:
    lake, count = make_lake(2), 300
    seen: dict[str, list[int]] = {}
    with FailingStore(store.endpoint, rng, SHARE) as front:
        uri = f"s3://{store.bucket}/lake/?endpoint_override={front.endpoint}&region=us-east-1"
        sink = {"uri": uri, "path": "{@topic}", "roll": {"records": 40, "age": "300ms"}}
        lake.start(sink=sink, errors={"retry_max_delay": "300ms"})
        for begin in range(0, count, 50):
            lake.send(as_json(({"n": number} for number in range(begin, begin + 50)), 2))
        wait_until(lambda: len(rows(store, seen)) >= count, 200, lambda: f"{len(rows(store, seen))}; {lake.status}; {front.done}")
        lake.stop()
    found = rows(store, {})
    assert sorted(found) == list(range(count))
    assert {"before", "behind", "silent"} <= front.done.keys()


def rows(store: ObjectStore, seen: dict[str, list[int]]) -> list[int]:
    """The numbers of all visible records. Objects in `seen` are not read again: nobody replaces them."""
    for page in store.client.get_paginator("list_objects_v2").paginate(Bucket=store.bucket, Prefix="lake/"):
        for one in page.get("Contents", ()):
            key = one["Key"]
            if "_copycat" not in key and key not in seen:
                assert parse_name(key) is not None
                body = store.client.get_object(Bucket=store.bucket, Key=key)["Body"].read()
                seen[key] = [json.loads(line)["n"] for line in body.splitlines()]
    return list(chain.from_iterable(seen.values()))
