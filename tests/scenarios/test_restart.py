"""I. Restart and crash: what is committed counts, nothing else does; and the life of a connector around it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.rig.kafka import consume, create_topic, unique_topic
from tests.rig.proxy import PRODUCE
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import ProxiedBroker
    from tests.rig.agent import AgentProcess
    from tests.rig.ledger import Ledger
    from tests.rig.shipping import Shipping

SHORT, LONG = b"s" * 19 + b"\n", b"l" * 1999 + b"\n"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize(("start_at", "expected"), [("beginning", 8), ("end", 6)])
def test_short_and_long_lines_before_during_between_and_after_runs_arrive_once(
    shipping: Shipping, logs_dir: Path, start_at: str, expected: int
) -> None:
    path, source = logs_dir / "app", {"start_at": start_at}
    append(path, SHORT + LONG)
    shipping.start(source=source)
    append(path, SHORT + LONG)
    shipping.records(until=expected - 4)
    shipping.stop()
    append(path, SHORT + LONG)
    shipping.start(source=source)
    append(path, SHORT + LONG)
    shipping.records(until=expected)
    shipping.stop()
    assert [len(line) for line in shipping.lines()] == [19, 1999] * (expected // 2)


def test_a_file_arrives_in_its_order(shipping: Shipping, ledger: Ledger, logs_dir: Path) -> None:
    ledger.writer(logs_dir / "app").write(1000)
    shipping.start()
    shipping.records(until=1000)
    shipping.stop()
    assert ledger.verify(shipping.records())


def test_stop_and_start_repeat_nothing_and_keep_the_order(shipping: Shipping, ledger: Ledger, logs_dir: Path) -> None:
    writer = ledger.writer(logs_dir / "app")
    for total in (500, 1000, 1500):
        writer.write(500)
        shipping.start()
        shipping.records(until=total)
        assert shipping.stop().state == "stopped"
    assert ledger.verify(shipping.records())


def test_a_stop_with_acknowledgements_pending_waits_for_them(
    make_shipping: Callable[..., Shipping], proxied_broker: ProxiedBroker, ledger: Ledger, logs_dir: Path
) -> None:
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    shipping = make_shipping(bootstrap=bootstrap, topic=create_topic(bootstrap, unique_topic()))
    writer = ledger.writer(logs_dir / "app")
    writer.write(1)
    shipping.start()
    shipping.records(until=1)
    proxy.delay(0.3)
    proxy.requests.clear()
    writer.write_block(3999)
    wait_until(lambda: proxy.requests[PRODUCE] > 0, message="records are on their way")
    assert shipping.stop().state == "stopped"
    proxy.forward()
    shipping.start()
    shipping.wait_caught_up()
    shipping.stop()
    assert ledger.verify(shipping.records())


def test_a_stop_under_full_load_repeats_nothing(shipping: Shipping, ledger: Ledger, logs_dir: Path) -> None:
    kafka = {"client": {"queue.buffering.max.messages": 1000}}  # full all the time
    ledger.writer(logs_dir / "app").write_block(60_000)
    shipping.start(kafka=kafka)
    shipping.records(until=1000)
    shipping.stop()
    shipping.start(kafka=kafka)
    shipping.wait_caught_up()
    shipping.stop()
    assert ledger.verify(shipping.records())


@pytest.mark.timeout(600)
def test_a_killed_agent_goes_on_near_where_it_was(
    make_agent: Callable[..., AgentProcess], proxied_broker: ProxiedBroker, ledger: Ledger, tmp_path: Path
) -> None:
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    topic = create_topic(bootstrap, unique_topic())
    ledger.writer(tmp_path / "app.log").write_block(20_000, (150, 150))
    late = ledger.writer(tmp_path / "late.log")
    late.write(2)
    end = late.path.read_bytes()[-20:]
    os.truncate(late.path, late.path.stat().st_size - 20)  # the writer pauses within its second line
    agent = make_agent(bootstrap)
    definition = {
        "name": "app",
        "source": {"type": "log_file", "include": [str(tmp_path / "*.log")], "scan_interval": "200ms"},
        "record": {"topic": topic},
        "delivery": {"max_batch_bytes": "128KiB"},
    }
    agent.define("app", definition | {"limits": {"bytes_per_second": "64KiB"}})  # it cannot be through before it is killed
    proxy.delay(0.05)
    agent.start()
    consume(
        bootstrap, topic, until=lambda seen: len(seen) > 3_000 and any(b"|late.log|" in (one.value or b"") for one in seen), deadline=180
    )
    agent.kill()
    proxy.forward()
    seen = len(consume(bootstrap, topic))
    assert seen < 20_000
    agent.define("app", definition)
    with late.path.open("ab") as file:
        file.write(end[:10])
    agent.start()
    consume(bootstrap, topic, until=seen + 1, deadline=180)
    with late.path.open("ab") as file:
        file.write(end[10:])
    consume(bootstrap, topic, until=ledger.all_arrived(), deadline=120)
    agent.stop()
    verdict = ledger.verify(consume(bootstrap, topic))
    assert verdict.is_complete
    assert verdict.duplicated < seen / 2
