"""Readers as connectors of the real worker, on a real broker: what a read_committed consumer sees, and what is told."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from copycat_agent.sources.datasource import source as datasource_source
from tests.datasource.conftest import UnhurriedStart, arrived, of
from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from copycat_agent.worker import Status
    from tests.datasource.conftest import Shop
    from tests.rig.shipping import Shipping

pytestmark = pytest.mark.timeout(300)
GUARANTEES = ("at_least_once", "exactly_once")


def with_each(quick: str) -> pytest.MarkDecorator:
    """This guarantee in every run of the tests, the other one in the long lane."""
    return pytest.mark.parametrize("guarantee", [pytest.param(one, marks=() if one == quick else pytest.mark.long) for one in GUARANTEES])


def seen(shipping: Shipping, count: int | None = None) -> list[Any]:
    return arrived(shipping.bootstrap, shipping.topic, "id", count)


def planners() -> list[psutil.Process]:
    """Processes in which readers plan; one that was killed, or ends just now, is none."""
    found = []
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "copycat_agent.sources.datasource.process" in " ".join(one.cmdline()):
                found.append(one)
    return found


def position(shipping: Shipping) -> Any:
    (offset,) = shipping.offsets.values()
    return json.loads(offset.cursor)


@with_each("exactly_once")
def test_the_reader_of_the_page_runs_over_restarts(guarantee: str, shipping: Shipping, shop: Shop) -> None:
    source, delivery = of("orders:Orders", {"database": shop.path}), {"guarantee": guarantee}
    shop.add(1, 25_000)
    shipping.start(source=source, delivery=delivery, deadline=60)
    assert seen(shipping, 25_000) == list(range(1, 25_001))
    shop.add(25_001, 25_010)
    assert seen(shipping, 25_010) == list(range(1, 25_011))
    wait_until(lambda: position(shipping) == {"offset": {"id": 25_010}}, 30)
    shipping.stop()
    shop.add(25_011, 25_020)
    shipping.start(source=source, delivery=delivery, deadline=60)
    assert seen(shipping, 25_020) == list(range(1, 25_021))
    shipping.stop()
    assert seen(shipping) == list(range(1, 25_021))
    wait_until(lambda: not planners(), 30, lambda: f"{planners()}")


@with_each("at_least_once")
def test_partitions_of_arrow_batches_come_in_order_with_the_fields_of_the_schema(
    guarantee: str, shipping: Shipping, tmp_path: Path
) -> None:
    upto = tmp_path / "upto"
    upto.write_text("3000")
    record = {"key": "{name}", "origin_headers": False}
    steps = [{"drop_if": {"id": "13"}}, {"rename": {"name": "who"}}]
    source = of("batches:Batches", {"upto": upto})
    shipping.start(source=source, transforms=[steps[0]], record=record, delivery={"guarantee": guarantee}, deadline=60)
    wanted = [number for number in range(1, 3001) if number != 13]
    found = consume(shipping.bootstrap, shipping.topic, "read_committed", len(wanted), 60.0)
    assert [json.loads(one.value or b"") for one in found] == [{"id": number, "name": f"n{number}"} for number in wanted]
    assert {one.key for one in found} == {f"n{number}".encode() for number in wanted}
    wait_until(lambda: (shipping.status.counts.read, shipping.status.counts.dropped) == (3000, 1), 30)


def test_a_simple_reader_is_told_what_is_saved_and_its_rows_are_fields(shipping: Shipping, tmp_path: Path) -> None:
    lines, told = tmp_path / "lines", tmp_path / "committed"
    lines.write_text("\n".join(map(str, range(1, 251))))
    source = of("batches:Lines", {"path": lines, "committed": told})
    shipping.start(source=source, delivery={"guarantee": "exactly_once"}, deadline=60)
    found = consume(shipping.bootstrap, shipping.topic, "read_committed", 250, 60.0)
    values = [json.loads(one.value or b"") for one in found]
    assert values[:2] == [{"id": 1, "tags": ["odd"], "origin": {"host": "h", "port": 1}}, {"id": 2, "tags": [], "origin": None}]
    assert [value["id"] for value in values] == list(range(1, 251))
    wait_until(lambda: told.exists() and told.read_text().endswith('{"line": 250}\n'), 30)
    shipping.stop()
    told.unlink()
    shipping.start(source=source, delivery={"guarantee": "exactly_once"}, deadline=60)
    wait_until(lambda: told.exists() and told.read_text() == '{"line": 250}\n', 30, "it is told once more after a start")


@pytest.mark.parametrize(
    ("kind", "options", "count"),
    [("batches:Ending", {}, 50), ("batches:Lines", {"most": 40}, 40), ("batches:Batches", {"upto": "upto"}, 1000)],
)
def test_a_run_to_the_end_ends_where_the_reader_says(
    kind: str, options: dict[str, Any], count: int, shipping: Shipping, tmp_path: Path
) -> None:
    (tmp_path / "lines").write_text("\n".join(map(str, range(1, 251))))
    (tmp_path / "upto").write_text("1000")
    options = {"path": tmp_path / "lines", **options, **({"upto": tmp_path / "upto"} if "upto" in options else {})}
    shipping.start(source=of(kind, options), until_idle=True, deadline=60)
    shipping.wait_idle()
    assert len(seen(shipping)) == count


@with_each("at_least_once")
def test_what_plans_may_be_killed_and_nothing_is_lost_or_sent_twice(guarantee: str, shipping: Shipping, shop: Shop) -> None:
    shipping.start(source=of("orders:Orders", {"database": shop.path}), delivery={"guarantee": guarantee}, deadline=60)
    for begin in (1, 1001, 2001):
        (planner,) = wait_until(lambda: found if len(found := planners()) == 1 else [], 60, "a process that plans")
        shop.add(begin, begin + 999)
        os.kill(planner.pid, signal.SIGKILL)
        assert seen(shipping, begin + 999) == list(range(1, begin + 1000))
    shipping.stop()
    assert seen(shipping) == list(range(1, 3001))


def failing_with(shipping: Shipping, words: str) -> Status | None:
    """Its status, if its reason has these words."""
    status = shipping.status
    return status if words in status.reason else None


@pytest.mark.parametrize(
    ("timeout", "moods"),
    [
        (
            "30s",
            {
                "raise": "the reader batches:Sick failed (next): ValueError at batches.py:",
                "die": "the process of the reader batches:Sick ended with 3 (next)",
                "break": "the reader batches:Sick failed (read): OSError at batches.py:",
            },
        ),
        ("10s", {"hang": "the reader batches:Sick has not answered (next) within 10 s: its process was killed"}),
    ],
    ids=["fails", "hangs"],
)
def test_a_reader_that_fails_is_retrying_with_a_reason_without_what_it_said(
    timeout: str, moods: dict[str, str], shipping: Shipping, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasource_source, "ReaderProcess", UnhurriedStart)
    upto, file = tmp_path / "upto", tmp_path / "mood"
    upto.write_text("10")
    file.write_text(next(iter(moods)))
    source = of("batches:Sick", {"upto": upto, "mood": file}, timeout=timeout)
    shipping.start(source=source, errors={"retry_max_delay": "500ms"}, deadline=60)
    for mood, words in moods.items():
        file.write_text(mood)
        now = wait_until(partial(failing_with, shipping, words), 60, lambda: f"{shipping.status}")
        assert now is not None
        assert now.state == "retrying"
        assert "hunter2" not in now.reason
    file.write_text("")
    assert seen(shipping, 10) == list(range(1, 11))
    wait_until(lambda: shipping.status.state == "running", 30)


def test_what_cannot_be_a_reader_ends_its_connector_with_words(shipping: Shipping) -> None:
    shipping.start(source=of("batches:NoStream", {}), deadline=60)
    wait_until(lambda: shipping.status.state == "failed", 60, lambda: f"{shipping.status}")
    assert "NoStream of batches cannot be streamed: it has neither streamReader nor simpleStreamReader" in shipping.status.reason


@with_each("exactly_once")
def test_a_range_larger_than_a_batch_is_refused_or_goes_in_several_if_it_can_be_read_again(
    guarantee: str, shipping: Shipping, tmp_path: Path
) -> None:
    upto = tmp_path / "upto"
    upto.write_text("20000")
    delivery = {"guarantee": guarantee, "max_batch_bytes": "64KiB"}
    source = of("batches:Batches", {"upto": upto})
    shipping.start(source=source, delivery=delivery, deadline=60)
    wait_until(lambda: shipping.status.state == "failed", 60, lambda: f"{shipping.status}")
    assert "what lies between two positions is more than delivery.max_batch_bytes (65,536 bytes)" in shipping.status.reason
    assert seen(shipping) == []
    shipping.stop()
    slowly: Any = {"limits": {"records_per_second": 1000}}
    shipping.start(source={**source, "replayable": True}, delivery=delivery, deadline=60, **slowly)
    wait_until(lambda: "records" in position(shipping), 60, "a position within the range")
    shipping.stop()
    shipping.start(source={**source, "replayable": True}, delivery=delivery, deadline=60)
    assert sorted(set(seen(shipping, 20_000))) == list(range(1, 20_001))
    wait_until(lambda: position(shipping) == {"offset": {"next": 20_001}}, 60)
    shipping.stop()
    assert seen(shipping) == list(range(1, 20_001))


def test_bad_records_go_where_the_definition_says(shipping: Shipping, shop: Shop, make_topic: Callable[..., str]) -> None:
    letters = make_topic()
    shop.add(1, 5)
    shipping.start(
        source=of("orders:Orders", {"database": shop.path}),
        transforms=[{"convert": {"customer": "int"}}],
        errors={"tolerance": "all", "dlq": {"topic": letters}},
        deadline=60,
    )
    found = consume(shipping.bootstrap, letters, until=5, deadline=60.0)
    assert [json.loads(one.value or b"")["id"] for one in found] == [1, 2, 3, 4, 5]
    assert seen(shipping) == []
