"""Data sources read to their end by `copycat backfill`, as a user runs it: with both guarantees, behind a query, while the data grows."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.datasource.conftest import arrived, of
from tests.rig.cache import CACHE
from tests.rig.kafka import wait_for_markers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from tests.datasource.conftest import Shop

pytestmark = pytest.mark.timeout(300)


with_each = pytest.mark.parametrize(
    ("guarantee", "replayable"), list(itertools.product(("at_least_once", "exactly_once"), (False, True)))
)  # fmt: skip


QUERY = {
    "sql": {
        "query": "SELECT id, upper(customer) AS customer FROM records WHERE id % 2 = 0",
        "schema": "id bigint, customer string, amount double",
    }
}


@pytest.fixture
def backfill(tmp_path: Path, broker: DevBroker, here: dict[str, str]) -> Callable[..., dict[str, Any]]:
    """`backfill(topic, source options, sections)`: the account of a run that has to be complete."""

    def run(topic: str, source: dict[str, Any], **sections: Any) -> dict[str, Any]:
        path = tmp_path / "app.yaml"
        path.write_text(yaml.safe_dump({"name": "app", "source": source, "record": {"topic": topic}, **sections}, sort_keys=False))
        where = ["--bootstrap-servers", broker.bootstrap, "--state-dir", str(tmp_path / "state"), "--format", "json"]
        command = [sys.executable, "-m", "copycat_agent", "backfill", str(path), *where]
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "NO_COLOR": "1", **CACHE, **here}
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        account: dict[str, Any] = json.loads(done.stdout)
        assert account["complete"]
        wait_for_markers(broker.bootstrap, topic)
        return account

    return run


@pytest.mark.long
@with_each
def test_all_there_is_is_sent_once_and_accounted_for(
    guarantee: str, replayable: bool, backfill: Callable[..., dict[str, Any]], broker: DevBroker, topic: str, shop: Shop
) -> None:
    shop.add(1, 25_000)
    source = of("orders:Orders", {"database": shop.path}, replayable=replayable)
    for last, new in ((25_000, 25_000), (25_010, 10)):  # the second run goes on where the first ended
        shop.add(25_001, last)
        account = backfill(topic, source, delivery={"guarantee": guarantee})
        records = account["totals"]["records"]
        assert (records["read"], records["acknowledged"]) == (new, new)
        assert arrived(broker.bootstrap, topic) == list(range(1, last + 1))


@pytest.mark.long
@with_each
def test_a_query_behind_a_data_source_answers_for_each_range(
    guarantee: str, replayable: bool, backfill: Callable[..., dict[str, Any]], broker: DevBroker, topic: str, shop: Shop
) -> None:
    shop.add(1, 25_000)
    source = of("orders:Orders", {"database": shop.path}, replayable=replayable)
    account = backfill(topic, source, transforms=[QUERY], delivery={"guarantee": guarantee})
    records = account["totals"]["records"]
    assert (records["read"], records["acknowledged"], records["dropped"]) == (25_000, 12_500, 12_500)
    assert arrived(broker.bootstrap, topic) == list(range(2, 25_001, 2))
    assert set(arrived(broker.bootstrap, topic, "customer")) == {f"C{number}" for number in range(7)}


def test_a_run_over_data_that_grows_all_the_time_ends(
    backfill: Callable[..., dict[str, Any]], broker: DevBroker, topic: str, shop: Shop
) -> None:
    shop.add(1, 25_000)
    stop, rows = threading.Event(), [25_000]

    def grow() -> None:
        while not stop.wait(0.02):
            shop.add(rows[0] + 1, rows[0] + 10)
            rows[0] += 10

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        source = of("orders:Orders", {"database": shop.path}, poll_interval="50ms", replayable=True)
        account = backfill(topic, source, delivery={"guarantee": "exactly_once"})
    finally:
        stop.set()
        thread.join()
    sent = account["totals"]["records"]["acknowledged"]
    assert 25_000 <= sent <= rows[0]
    assert arrived(broker.bootstrap, topic) == list(range(1, sent + 1))
