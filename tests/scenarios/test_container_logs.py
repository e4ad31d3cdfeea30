"""Logs of containers: what a program wrote arrives whole, however its runtime cut it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.rig.shipping import origin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig.shipping import Shipping

AT = "2026-11-21T05:00:00.123456789Z"
SECTIONS: dict[str, Any] = {"transforms": [{"cri": {}}], "record": {"timestamp": "event"}}


def test_parts_of_a_line_arrive_as_one_record_also_when_a_restart_comes_between(shipping: Shipping, logs_dir: Path) -> None:
    log = logs_dir / "0.log"
    log.write_text(f"{AT} stdout F whole\n{AT} stdout P one, \n{AT} stdout P two, \n")
    long_wait = {"multiline": {"preset": "container", "timeout": "1h"}}
    shipping.start(source=long_wait, **SECTIONS)
    shipping.records(until=1)
    shipping.stop()
    with log.open("a") as file:
        file.write(f"{AT} stdout F three\n{AT} stderr F last\n")
    shipping.start(**SECTIONS)
    records = shipping.records(until=3)
    shipping.wait_caught_up()
    (offset,) = shipping.offsets.values()
    shipping.stop()
    assert offset.position == log.stat().st_size
    values = [json.loads(record.value or b"") for record in records]
    assert [(value["stream"], value["message"]) for value in values] == [
        ("stdout", "whole"),
        ("stdout", "one, two, three"),
        ("stderr", "last"),
    ]
    lines = log.read_bytes().splitlines(keepends=True)
    assert [origin(record)[1] for record in records] == [0, len(lines[0]), len(b"".join(lines[:4]))]
    assert {record.timestamp_ms for record in records} == {1_795_237_200_123}
