"""S. Spooled files of text formats on the real broker: every record once, in order, over a stop in the middle, packed or not."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import yaml

from copycat_agent.definitions import load_file
from copycat_agent.offsets import OffsetStore
from copycat_agent.options import AgentOptions, KafkaOptions
from tests.rig.kafka import Consumed, consume
from tests.rig.shipping import SCAN_INTERVAL, Shipping, origin
from tests.rig.waiting import wait_until
from tests.unit.sources.archives import ARCHIVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import SourceOffset
    from copycat_agent.options import Definition
    from copycat_agent.spark.runners import RunnerExecutor
    from copycat_agent.watch import Watcher

RECORDS = 5000
SLOWLY: dict[str, Any] = {"delivery": {"max_batch_bytes": "64KiB"}, "limits": {"records_per_second": 100}}


class Spooling(Shipping):
    """One connector over files that are dropped into `root / "logs"`."""

    def definition(self, *, source: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **sections: Any) -> Definition:
        spool = {"type": "spool_dir", "dir": str(self.logs), "ready": {"min_age": "0s"}, "scan_interval": SCAN_INTERVAL, **(source or {})}
        record = {"topic": self.topic, "origin_headers": True, **(record or {})}
        path = self.logs.parent / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump({"name": self.name, "source": spool, "record": record, **sections}), "utf-8")
        loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(self.bootstrap,))))
        assert loaded.definition is not None, loaded.problems
        return loaded.definition


@pytest.fixture
def spooling(
    tmp_path: Path, broker: DevBroker, executor: RunnerExecutor, watcher: Watcher, make_topic: Callable[..., str]
) -> Iterator[Spooling]:
    one = Spooling(tmp_path, "spool", broker.bootstrap, make_topic(), executor, watcher)
    yield one
    one.close()


def order(number: int) -> dict[str, Any]:
    return {"id": str(number), "text": f"order {number} é"}


def rows(count: int = RECORDS) -> list[dict[str, Any]]:
    return [order(number) for number in range(count)]


def contents(records: list[Consumed]) -> list[bytes | None]:
    return [record.value for record in records]


def xml(count: int = RECORDS) -> bytes:
    inner = "".join(f"<order>\n <id>{one['id']}</id> <text>{one['text']}</text></order>\n" for one in rows(count))
    return f"<?xml version='1.0'?>\n<orders>{inner}</orders>".encode()


FILES: dict[str, tuple[Any, bytes]] = {
    "lines": ("lines", "\n".join(json.dumps(one) for one in rows()).encode()),
    "lines between others": (
        {"type": "lines", "skip_lines": 2, "skip_footer": 3},
        "\n".join(["from: here", "", *(json.dumps(one) for one in rows()), "", f"rows: {RECORDS}", "end"]).encode(),
    ),
    "groups of lines": (
        {"type": "lines", "multiline": {"start": r"^\{"}, "skip_footer": 1},
        "\n".join([*(json.dumps(one, indent=1) for one in rows()), "end"]).encode(),
    ),
    "w3c": (
        {"type": "w3c", "unescape": "percent"},
        "".join(
            [
                "#Version: 1.0\n#Fields: id text\n",
                *(f"{one['id']}\t{quote(one['text'])}\n" for one in rows()[:2000]),
                "#Fields: text id\n",
                *(f"{quote(one['text'])}\t{one['id']}\n" for one in rows()[2000:]),
            ]
        ).encode(),
    ),
    "jsonl": ("jsonl", "\r\n".join(json.dumps(one) for one in rows()).encode()),
    "json array": ("json", json.dumps(rows(), indent=1).encode()),
    "json values": ("json", "".join(json.dumps(one, ensure_ascii=False) for one in rows()).encode()),
    "json path": ({"type": "json", "path": "page.items"}, json.dumps({"n": [1], "page": {"items": rows()}, "end": {}}).encode()),
    "xml": ({"type": "xml", "record": "/orders/order"}, xml()),
}
"""Name -> format and a file with the same records."""


SHORT = [
    ("lines", True),
    ("lines between others", False),
    ("lines between others", True),
    ("w3c", False),
    ("groups of lines", False),
    ("groups of lines", True),
    ("jsonl", False),
    ("json array", True),
    ("json values", False),
    ("xml", False),
    ("xml", True),
]
LONG = [pytest.param(name, packed, marks=pytest.mark.long) for name in FILES for packed in (False, True) if (name, packed) not in SHORT]


@pytest.mark.parametrize(("name", "packed"), [*SHORT, *LONG])
def test_a_file_goes_on_at_the_next_record_after_a_stop_in_the_middle(spooling: Spooling, name: str, packed: bool) -> None:
    form, data = FILES[name]
    (spooling.logs / "orders.data").write_bytes(gzip.compress(data, 1) if packed else data)
    source = {"format": form}
    spooling.start(source=source, **SLOWLY)
    spooling.records(until=1)
    spooling.stop()
    (offset,) = saved(spooling)
    spooling.start(source=source)
    records = spooling.records(until=RECORDS)
    wait_until(lambda: [one.done for one in spooling.offsets.values()] == [True], 60, lambda: f"{spooling.offsets}")
    assert [one.records for one in spooling.offsets.values()] == [RECORDS]
    assert [json.loads(value or b"") for value in contents(spooling.records())] == rows()
    assert [origin(record)[1] for record in records] == sorted({origin(record)[1] for record in records})
    assert 0 < offset.records < RECORDS, "it was stopped in the middle"


def saved(spooling: Spooling) -> list[SourceOffset]:
    """What is saved while it does not run."""
    store = OffsetStore.open(spooling.state_dir)
    try:
        return list(store.read(spooling.name).values())
    finally:
        store.close()


def test_a_binary_file_of_6000_bytes_arrives_as_4096_and_1904(spooling: Spooling) -> None:
    data = bytes(range(240)) * 25
    (spooling.logs / "image").write_bytes(data)
    (spooling.logs / "packed.gz").write_bytes(gzip.compress(data))
    spooling.start(source={"format": {"type": "binary", "chunk": "4096B"}})
    records = spooling.records(until=4)
    assert sorted((origin(record)[1], record.value) for record in records) == [(0, data[:4096])] * 2 + [(4096, data[4096:])] * 2


def test_json_is_sent_as_it_stands_unless_somebody_asks_for_fields(spooling: Spooling) -> None:
    text = b'{"id": 7,  "price":1.10, "price":1e400, "n":12345678901234567890123}'
    (spooling.logs / "a.jsonl").write_bytes(text + b"\n[1, 2]\n")
    source, filters = {"format": "jsonl"}, [{"drop_if": {"id": 8}}]
    spooling.start(source=source, record={"key": "x"}, transforms=filters)
    assert contents(spooling.records(until=2)) == [text, b"[1, 2]"]
    spooling.stop()
    (spooling.logs / "b.jsonl").write_bytes(b'{"id":  8, "price": 1.10}\n')
    spooling.start(source=source, record={"key": "{id}"}, converters={"value": {"type": "json"}})
    record = spooling.records(until=3)[-1]
    assert (record.key, record.value) == (b"8", b'{"id":8,"price":1.1}')


def test_bad_records_are_dead_letters_with_their_bytes_and_the_rest_of_the_file_goes_on(
    spooling: Spooling, make_topic: Callable[..., str], broker: DevBroker
) -> None:
    letters = make_topic()
    (spooling.logs / "a.json").write_bytes(b'[{"id":1},{bad},"' + b"x" * 2000 + b'",{"id":2}]')
    spooling.start(
        source={"format": {"type": "json", "max_bytes": "1000B"}}, errors={"tolerance": "all", "dlq": {"topic": letters}}
    )  # fmt: skip
    assert contents(spooling.records(until=2)) == [b'{"id":1}', b'{"id":2}']
    found = [dict(record.headers) | {"": record.value} for record in consume(broker.bootstrap, letters, until=2)]
    assert [one[""] for one in found] == [b"{bad}", b'"' + b"x" * 999]
    assert [one["copycat.stage"] for one in found] == [b"parse", b"frame"]
    assert found[1]["copycat.message"] == b"the record is longer than format.max_bytes"
    assert [one["copycat.offset"] for one in found] == [b"10", b"16"]


def test_a_truncated_file_is_delivered_up_to_the_damage(spooling: Spooling) -> None:
    (spooling.logs / "a.xml").write_bytes(xml(100)[:-40])
    (spooling.logs / "b.xml").write_bytes(xml(1))
    spooling.start(source={"format": "xml"})
    records = spooling.records(until=100)
    assert sorted(origin(record)[0] for record in records) == ["a.xml"] * 99 + ["b.xml"]
    wait_until(
        lambda: any("not well-formed XML" in (offset.trouble or "") for offset in spooling.offsets.values()),
        60,
        lambda: f"{spooling.offsets}",
    )


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_files_in_an_archive_go_on_at_the_next_record_after_a_stop_in_the_middle(spooling: Spooling, kind: str) -> None:
    half = RECORDS // 2
    table = ["id,text\n", *(f"{one['id']},{one['text']}\n" for one in rows())]
    files = {"../orders/1.csv": "".join(table[: half + 1]).encode(), "2.csv": (table[0] + "".join(table[half + 1 :])).encode()}
    (spooling.logs / "orders.data").write_bytes(ARCHIVES[kind](files))
    source = {"format": {"type": "csv", "header": True}, "unpack": {"archives": True}}
    record = {"headers": {"member": "{@file.member}"}}
    spooling.start(source=source, record=record, **SLOWLY)
    spooling.records(until=1)
    spooling.stop()
    (offset,) = saved(spooling)
    spooling.start(source=source, record=record)
    records = spooling.records(until=RECORDS)
    wait_until(lambda: [one.done for one in spooling.offsets.values()] == [True], 60, lambda: f"{spooling.offsets}")
    assert [json.loads(value or b"") for value in contents(spooling.records())] == rows()
    members = [dict(one.headers)["member"] for one in records[:RECORDS]]
    assert members == [b"../orders/1.csv"] * half + [b"2.csv"] * half
    assert 0 < offset.records < RECORDS, "it was stopped in the middle"
