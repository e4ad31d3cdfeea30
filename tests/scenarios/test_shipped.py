"""The definition of a spool directory that `connectors.d/` ships does what its comments say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.rig.kafka import consume
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rig.shipping import Shipping

SHIPPED = Path(__file__).parents[2] / "connectors.d/orders-csv.yaml.disabled"


def test_tables_are_sent_filed_by_date_and_the_bad_ones_set_aside(
    shipping: Shipping, tmp_path: Path, make_topic: Callable[..., str]
) -> None:
    text = SHIPPED.read_text("utf-8").replace("/var/spool/orders/in", str(shipping.logs)).replace("/var/spool/orders", str(tmp_path))
    document: dict[str, Any] = yaml.safe_load(text.replace("min_age: 30s", "min_age: 0s"))
    dlq = make_topic()
    record = {key: value for key, value in document["record"].items() if key != "topic"}
    (shipping.logs / "orders-1.csv").write_text("order_id;qty;price\no1;2;1.10\no2;many;1.00\no3;4;0.10\n")
    (shipping.logs / "orders-2.csv.gz").write_bytes(b"\x1f\x8b\x08\x00cut")
    (shipping.logs / "orders-3.csv").write_text("order_id;qty;price\nnot yet;1;1\n")
    for name in ("orders-1.csv.done", "orders-2.csv.gz.done"):
        (shipping.logs / name).touch()
    shipping.start(source=document["source"], record=record, errors={"tolerance": "all", "dlq": {"topic": dlq}})
    arrived = shipping.records(until=2)
    assert [json.loads(one.value or b"") for one in arrived] == [
        {"order_id": "o1", "qty": 2, "price": 1.1},
        {"order_id": "o3", "qty": 4, "price": 0.1},
    ]
    assert [(one.value or b"")[-5:-1] for one in arrived] == [b"1.10", b"0.10"]
    assert [(one.key, dict(one.headers)["row"]) for one in arrived] == [(b"o1", b"1"), (b"o3", b"3")]
    (letter,) = consume(shipping.bootstrap, dlq, until=1)
    assert (letter.value, dict(letter.headers)["copycat.record"]) == (b"o2;many;1.00", b"2")
    wait_until(lambda: sorted(path.name for path in shipping.logs.iterdir()) == ["orders-3.csv"], 60, "the cleanup")
    assert len(list((tmp_path / "done").glob("????-??-??/orders-1.csv"))) == 1
    assert "gzip" in json.loads((tmp_path / "failed/orders-2.csv.gz.error.json").read_text())["reason"]
