"""A store and a topic that version 8 has written are gone on with: nothing is sent again, nothing is lost.

`version_8` was made by that version, on a real broker, by an agent with these connectors, which were started three times: `orders` (two
lanes, three files), `first-name`, `wished` and `idle`, which has no files, with exactly_once; `plain` and `old-plain` with at_least_once.
Then the store was put back to what it was before the last start, so that Kafka is ahead for `orders` and `first-name`. Names were changed,
and nothing was opened since: first-name to second-name, old-plain to new-plain. `plain` is paused. A person set `wished` back: its file to
byte 0, and when it looked last to five seconds earlier, with two files not taken up then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.errors import RetriableError
from tests.unit.old_stores import old_store, topic_of, upgraded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.worker.test_names import Host

EXPECTED: dict[str, dict[str, list[Any]]] = topic_of(8)["expected"]
EXACT = ["idle", "orders", "second-name", "wished"]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return upgraded(8, old_store(8, tmp_path / "state"))


def files(host: Host, name: str) -> dict[str, list[Any]]:
    rows = host.store.read(name).items()
    return {one.key: [offset.position, offset.path.rpartition("/")[2]] for one, offset in rows if one.key != "started"}


def expected(name: str) -> dict[str, list[Any]]:
    return {key: place for key, place in EXPECTED[name].items() if key != "started"}


@pytest.mark.parametrize("order", [EXACT, EXACT[::-1]])
def test_every_connector_goes_on_where_kafka_knows_it_to_be(host: Host, order: list[str]) -> None:
    for name in order:
        host.open(name)
    for name in order:
        assert files(host, name) == expected(name), name


def test_what_needs_no_kafka_is_as_it_was(host: Host) -> None:
    for name in ("plain", "new-plain"):
        assert files(host, name) == expected(name)
    assert host.store.targets() == {"plain": "paused"}
    assert host.store.connectors() == ("idle", "new-plain", "orders", "plain", "second-name", "wished")


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("commits", range(8))
def test_the_first_opening_may_be_killed_anywhere(host: Host, name: str, commits: int) -> None:
    left = commits // 2

    def killed(step: str) -> None:
        nonlocal left
        left -= step == "commit"
        if left < 0:
            host.kafka.at_step = lambda _: None
            host.kafka.fail_commit(after=bool(commits % 2))

    host.kafka.at_step = killed
    try:
        host.open(name)
    except RetriableError:
        host.kafka.at_step = lambda _: None
        host.open(name)
    assert files(host, name) == expected(name)


def test_the_store_may_be_lost_before_the_first_opening(host: Host) -> None:
    host.lose_store()
    host.open("orders")
    assert files(host, "orders") == expected("orders")
