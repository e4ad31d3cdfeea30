"""Connectors with a query, on a real Spark session and a real broker: what arrives, in which order, and what is counted."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from copycat_agent.spark.jobs import JobExecutor
from copycat_agent.watch import Watcher
from tests.lake.conftest import Lake, Sent, as_json
from tests.rig.kafka import consume
from tests.rig.shipping import Shipping
from tests.rig.waiting import wait_until
from tests.spark.conftest import workers
from tests.spark.numbers_source import LAST

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.spark.host import SparkHost


pytestmark = pytest.mark.timeout(300)
"""On a machine that does much else."""


@pytest.fixture(scope="module")
def carrier(host: SparkHost) -> Iterator[JobExecutor]:
    """Bounded jobs, as live connectors with a query use."""
    executor = JobExecutor(host)
    yield executor
    executor.close()


@pytest.fixture(scope="module")
def watcher() -> Iterator[Watcher]:
    watcher = Watcher()
    yield watcher
    watcher.close()


@pytest.fixture
def shipping(
    tmp_path: Path, broker: DevBroker, carrier: JobExecutor, watcher: Watcher, make_topic: Callable[..., str]
) -> Iterator[Shipping]:
    """A connector over `tmp_path / "logs"`, not started."""
    made = Shipping(tmp_path, "app", broker.bootstrap, make_topic(), carrier, watcher)
    yield made
    made.close()


def write(shipping: Shipping, rows: list[dict[str, Any]], name: str = "app.log") -> None:
    """Rows as lines of JSON."""
    with (shipping.logs / name).open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def parsed(query: str) -> dict[str, Any]:
    """A query over what the lines hold, as JSON."""
    fields = "n int, level string, url string, items array<string>, text string"
    inner = f"(SELECT r.* FROM (SELECT from_json(message, '{fields}') AS r FROM records))"  # noqa: S608 - no database here
    return {"sql": query.replace("records", inner)}


def values(shipping: Shipping, until: int) -> list[Any]:
    return [json.loads(record.value or b"") for record in shipping.records(until)]


def test_a_query_between_a_topic_of_several_partitions_and_files(
    tmp_path: Path, broker: DevBroker, carrier: JobExecutor, watcher: Watcher, make_topic: Callable[..., str]
) -> None:
    """A batch has one run of its query, so it is of one partition, and is not written again for a dead letter that is refused."""
    dlq = make_topic(1, {"max.message.bytes": "3000"})
    lake = Lake(tmp_path, "lake", broker.bootstrap, make_topic(3), carrier, watcher)
    lake.send([*as_json(({"n": number} for number in range(300)), 3), Sent(Random(1).randbytes(4000).hex().encode())])
    step = {"sql": {"query": "SELECT n, n * 2 AS twice FROM records", "schema": "n int"}}
    try:
        found = lake.run(transforms=[step], errors={"tolerance": "all", "dlq": {"topic": dlq}})
    finally:
        lake.close()
    assert lake.last.state == "stopped", lake.last.reason
    rows = sorted((row["n"], row["twice"]) for file in found for row in file.rows)
    assert rows == [(number, number * 2) for number in range(300)]
    (letter,) = consume(broker.bootstrap, dlq)
    assert dict(letter.headers)["copycat.raw"] == b"omitted: refused by the topic"


def test_a_query_selects_filters_and_keeps_the_order(shipping: Shipping) -> None:
    rows = [{"n": n, "level": "DEBUG" if n % 3 == 0 else "INFO", "url": f"http://h{n}.test/p?q=1"} for n in range(25_000)]
    write(shipping, rows)
    query = parsed(
        "SELECT n, CASE WHEN n < 10 THEN 'few' ELSE 'many' END AS how, parse_url(url, 'HOST') AS host FROM records WHERE level <> 'DEBUG'"
    )
    shipping.start(transforms=[query], until_idle=True).wait_idle()
    wanted = [{"n": n, "how": "few" if n < 10 else "many", "host": f"h{n}.test"} for n in range(25_000) if n % 3]
    assert values(shipping, len(wanted)) == wanted
    counts = shipping.status.counts
    assert (counts.read, counts.acknowledged, counts.dropped) == (25_000, len(wanted), 25_000 - len(wanted))
    (offset,) = shipping.offsets.values()
    assert offset.position == (shipping.logs / "app.log").stat().st_size


def test_a_query_makes_of_random_records_what_steps_make_with_the_same_account(
    tmp_path: Path, broker: DevBroker, carrier: JobExecutor, watcher: Watcher, make_topic: Callable[..., str], rng: random.Random
) -> None:
    words = ["INFO", "WARN", "DEBUG", "ü 💥", "", 'a "quoted" \\ one', "\u2028"]
    rows = [
        {
            "n": rng.choice([n, -n, 2**62, None]),
            "level": rng.choice(words),
            "x": rng.choice([rng.random(), 1e300, 0.0, None]),
            "items": items,
        }
        for n in range(3000)
        for items in [rng.choice([None, [], [1, None, 3], [n]])]
    ]
    bad = ["not json", "[1]", "", "{", '{"n": 1} x']
    lines = [rng.choice(bad) if rng.random() < 0.03 else json.dumps(row) for row in rows]
    schema = "n bigint, level string, x double, items array<bigint>"
    query = "SELECT *, concat(level, '-', 'z') AS route, 'prod' AS env FROM records WHERE level <> 'DEBUG'"
    ways = [
        [{"json": {}}, {"drop_if": {"level": "DEBUG"}}, {"set": {"route": "{level}-z", "env": "prod"}}],
        [{"json": {}}, {"sql": {"query": query, "schema": schema}}],
    ]
    found = []
    for number, steps in enumerate(ways):
        (tmp_path / str(number)).mkdir()
        made = Shipping(tmp_path / str(number), "app", broker.bootstrap, make_topic(), carrier, watcher)
        (made.logs / "app.log").write_text("".join(line + "\n" for line in lines))
        made.start(transforms=steps, errors={"tolerance": "all"}, until_idle=True).wait_idle()
        (offset,) = made.offsets.values()
        found.append((values(made, made.status.counts.acknowledged), made.status.counts, offset.position))
        made.close()
    assert found[0] == found[1]
    assert found[0][1].rejected > 0


def test_one_record_becomes_many_and_counts_once(shipping: Shipping) -> None:
    write(shipping, [{"n": n, "items": [f"{n}.{k}" for k in range(n % 4)]} for n in range(400)])
    query = parsed("SELECT n, item FROM records LATERAL VIEW explode(items) t AS item")
    shipping.start(transforms=[query], record={"key": "{item}"}, until_idle=True).wait_idle()
    wanted = [f"{n}.{k}" for n in range(400) for k in range(n % 4)]
    assert [(record.key or b"").decode() for record in shipping.records(len(wanted))] == wanted
    counts = shipping.status.counts
    assert (counts.read, counts.acknowledged, counts.dropped) == (400, 300, 100)


def test_records_that_a_query_fails_for_become_dead_letters_with_the_step_in_words(
    shipping: Shipping, make_topic: Callable[..., str], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    letters = make_topic()
    write(shipping, [{"n": n, "text": "secret-word" if n in (7, 4000) else str(n)} for n in range(5000)])
    query = parsed("SELECT n, CAST(text AS INT) * 2 AS twice FROM records WHERE n >= 0")
    shipping.start(transforms=[query], errors={"tolerance": "all", "dlq": {"topic": letters}}, until_idle=True).wait_idle()
    assert values(shipping, 4998) == [{"n": n, "twice": 2 * n} for n in range(5000) if n not in (7, 4000)]
    shipping.topic = letters
    found = shipping.records(2)
    assert [json.loads(letter.value or b"")["n"] for letter in found] == [7, 4000]
    headers = dict(found[0].headers)
    assert headers["copycat.stage"] == b"transform"
    assert b"transforms[0] sql" in (headers["copycat.message"] or b"")
    assert b"'twice'" in (headers["copycat.message"] or b"")
    said = caplog.text + "".join(capfd.readouterr()) + str(headers)
    assert "secret-word" not in said


def test_a_record_that_makes_an_exploding_query_fail_is_found_among_others(shipping: Shipping) -> None:
    write(shipping, [{"n": n, "text": "x" if n == 700 else "2"} for n in range(1000)])
    query = parsed("SELECT n, k FROM records LATERAL VIEW explode(sequence(1, CAST(text AS INT))) t AS k")
    shipping.start(transforms=[query], errors={"tolerance": "all"}, until_idle=True).wait_idle()
    assert [(one["n"], one["k"]) for one in values(shipping, 1998)] == [(n, k) for n in range(1000) if n != 700 for k in (1, 2)]
    counts = shipping.status.counts
    assert (counts.acknowledged, counts.rejected) == (999, 1)


def test_steps_behind_the_query_see_its_columns_and_a_missing_key_is_a_bad_record(shipping: Shipping) -> None:
    write(shipping, [{"n": n, "text": None if n == 2 else f"k{n}"} for n in range(6)])
    steps = [parsed("SELECT n, text AS id FROM records"), {"drop_if": {"n": 4}}]
    shipping.start(transforms=steps, record={"key": "{id}"}, errors={"tolerance": "all"}, until_idle=True).wait_idle()
    assert [record.key for record in shipping.records(4)] == [b"k0", b"k1", b"k3", b"k5"]
    counts = shipping.status.counts
    assert (counts.acknowledged, counts.dropped, counts.rejected) == (4, 1, 1)


def test_a_refused_query_stops_its_connector_in_words(shipping: Shipping) -> None:
    write(shipping, [{"n": 1}])
    shipping.start(transforms=[{"sql": "SELECT count(*) AS c FROM records"}], until_idle=True).wait_idle()
    status = shipping.status
    assert status.state == "failed"
    assert "transforms[0] sql: the query cannot be run: it groups records" in status.reason


@pytest.mark.long
def test_a_killed_worker_loses_nothing_and_offsets_stay_exact(shipping: Shipping) -> None:
    count = 60_000
    write(shipping, [{"n": n, "text": "x" * 300} for n in range(count)])
    slow = "SELECT n, length(text) + length(repeat(text, 20)) AS size FROM records WHERE n % 2 = 0"
    shipping.start(transforms=[parsed(slow)], until_idle=True)
    wait_until(lambda: workers() and shipping.status.tasks, 60, "a batch is under way")
    for worker in workers()[1:]:  # the first is their daemon
        worker.kill()
    shipping.wait_idle()
    found = [one["n"] for one in values(shipping, count // 2)]
    assert sorted(set(found)) == list(range(0, count, 2))
    firsts = list(dict.fromkeys(found))
    assert firsts == sorted(firsts)
    (offset,) = shipping.offsets.values()
    assert (offset.position, offset.records) == ((shipping.logs / "app.log").stat().st_size, count)
    assert shipping.status.counts.dropped == count // 2


def test_a_message_that_kafka_refuses_among_those_of_one_record_makes_it_a_dead_letter(
    shipping: Shipping, make_topic: Callable[..., str], rng: random.Random
) -> None:
    letters = make_topic()
    write(shipping, [{"n": n, "items": ["a", rng.randbytes(1_500_000).hex() if n == 3 else "b"]} for n in range(6)])
    query = parsed("SELECT n, item FROM records LATERAL VIEW explode(items) t AS item")
    shipping.start(
        transforms=[query], source={"line": {"max_bytes": "8MiB"}}, errors={"tolerance": "all", "dlq": {"topic": letters}}, until_idle=True
    )
    shipping.wait_idle()
    assert {one["n"] for one in values(shipping, 10) if one["item"] == "b"} == {0, 1, 2, 4, 5}
    counts = shipping.status.counts
    assert (counts.read, counts.acknowledged, counts.dead_lettered) == (6, 5, 1)


@pytest.mark.parametrize(("policy", "kept", "dropped"), [("keep", 1, 0), ("drop", 0, 1)])
def test_on_error_of_the_query_says_what_becomes_of_records_it_fails_for(shipping: Shipping, policy: str, kept: int, dropped: int) -> None:
    (shipping.logs / "app.log").write_text("1\nx\n3\n")
    step = {"sql": "SELECT CAST(message AS INT) AS n FROM records", "on_error": policy}
    shipping.start(transforms=[step], until_idle=True).wait_idle()
    assert values(shipping, 2 + kept) == [{"n": 1}, *([{"message": "x"}] * kept), {"n": 3}]
    assert (shipping.status.counts.acknowledged, shipping.status.counts.dropped) == (2 + kept, dropped)


@pytest.mark.timeout(300)
def test_a_query_behind_a_data_source_answers_for_each_range(shipping: Shipping) -> None:
    source = {"type": "datasource", "class": "tests.spark.numbers_source:Numbers", "replayable": True}
    query = {"query": "SELECT id, upper(name) AS name FROM records WHERE id % 2 = 0", "schema": "id bigint, name string"}
    shipping.start(source=source, transforms=[{"sql": query}], delivery={"guarantee": "exactly_once"}, until_idle=True, deadline=60)
    shipping.wait_idle(240)
    counts = shipping.status.counts
    assert (counts.read, counts.acknowledged, counts.dropped) == (LAST, LAST // 2, LAST // 2)
    found = consume(shipping.bootstrap, shipping.topic, "read_committed", LAST // 2)
    assert [json.loads(one.value or b"") for one in found] == [{"id": n, "name": f"N{n}"} for n in range(2, LAST + 1, 2)]


def test_a_query_that_is_refused_is_told_before_there_is_anything_to_read(shipping: Shipping) -> None:
    shipping.start(transforms=[{"sql": "SELECT max(message) AS m FROM records"}])
    wait_until(lambda: shipping.status.state == "failed", 60.0, lambda: f"{shipping.status}")
    assert "transforms[0] sql: the query cannot be run: it groups records" in shipping.status.reason


@pytest.mark.long
def test_a_record_that_asks_for_too_much_memory_is_dropped_alone(shipping: Shipping) -> None:
    write(shipping, [{"n": 1}, {"n": 1_500_000_000}, {"n": 2}])
    shipping.start(transforms=[parsed("SELECT n, size(sequence(1, n)) AS x FROM records")], errors={"tolerance": "all"}, until_idle=True)
    shipping.wait_idle(240)
    assert values(shipping, 2) == [{"n": 1, "x": 1}, {"n": 2, "x": 2}]
    assert (shipping.status.counts.acknowledged, shipping.status.counts.rejected) == (2, 1)
