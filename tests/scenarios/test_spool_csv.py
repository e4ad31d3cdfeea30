"""CSV files from a spool directory, on the real broker: scenarios 42 to 44."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from copycat_agent.definitions import load_file
from copycat_agent.options import AgentOptions, KafkaOptions
from tests.rig.kafka import consume
from tests.rig.shipping import Shipping, origin
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.executor import Executor
    from copycat_agent.options import Definition
    from copycat_agent.watch import Watcher

TYPED = {"type": "csv", "types": {"qty": "int", "price": "decimal(10,2)", "at": "timestamp"}, "timestamp_zone": "Europe/Berlin"}


class Spool(Shipping):
    """A connector over a spool directory of CSV files."""

    form: dict[str, Any] | str = "csv"

    def definition(self, *, source: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **sections: Any) -> Definition:
        """See `Shipping.definition`."""
        spool = {"type": "spool_dir", "dir": str(self.logs), "scan_interval": "200ms", "ready": {"min_age": "0s"}, "format": self.form}
        document = {
            "name": self.name,
            "source": {**spool, **(source or {})},
            "record": {"topic": self.topic, "origin_headers": True, **(record or {})},
            **sections,
        }
        path = self._root / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
        loaded = load_file(path, AgentOptions(kafka=KafkaOptions(bootstrap_servers=(self.bootstrap,))))
        assert loaded.definition is not None, loaded.problems
        return loaded.definition

    def rows(self, until: int | None = None) -> list[dict[str, Any]]:
        """The values that arrived, waiting for so many."""
        return [json.loads(record.value or b"") for record in self.records(until)]


@pytest.fixture
def spool(tmp_path: Path, broker: DevBroker, executor: Executor, watcher: Watcher, topic: str) -> Any:
    """A connector over `tmp_path / "logs"`, not started."""
    spool = Spool(tmp_path, "csv", broker.bootstrap, topic, executor, watcher)
    yield spool
    spool.close()


def drop(spool: Shipping, name: str, text: str) -> None:
    hidden = spool.logs / f".{name}"
    hidden.write_bytes(text.encode())
    hidden.rename(spool.logs / name)


def test_typed_columns_reach_kafka_without_loss(spool: Spool) -> None:
    spool.form = TYPED
    drop(spool, "a.csv", 'id,qty,price,at,text\nA1,123456789012345678901,1.10,2026-07-01T12:00:00.000001,"two\r\nlines"\n\nA2,,,,\n\n')
    spool.start()
    first, second = spool.records(2)
    assert first.value == (
        b'{"id":"A1","qty":123456789012345678901,"price":1.10,"at":"2026-07-01T12:00:00.000001+02:00","text":"two\\r\\nlines"}'
    )
    assert json.loads(second.value or b"") == {"id": "A2", "qty": None, "price": None, "at": None, "text": None}
    spool.wait_caught_up()
    assert [offset.records for offset in spool.offsets.values()] == [2], "empty lines are no records"


def test_a_malformed_row_is_a_dead_letter_with_its_file_and_number_and_the_others_go_on(
    spool: Spool, make_topic: Callable[..., str]
) -> None:
    dead, spool.form = make_topic(), TYPED
    rows = [f"A{number},{number},1.00" for number in range(1, 11)]
    rows[4] = "A5,s3cret,1.00"
    drop(spool, "a.csv", "\n".join(["id,qty,price", *rows]) + "\n")
    drop(spool, "b.csv", "id,qty,price\nB1,1,1.00\n")
    spool.start(errors={"tolerance": "all", "dlq": {"topic": dead}})
    assert {row["id"] for row in spool.rows(10)} == {"B1", *(f"A{number}" for number in range(1, 11) if number != 5)}
    (letter,) = consume(spool.bootstrap, dead, until=1)
    headers = {name: (value or b"").decode() for name, value in letter.headers}
    assert letter.value == b"A5,s3cret,1.00"
    assert headers["copycat.file"].endswith("/a.csv")
    assert (headers["copycat.record"], headers["copycat.stage"]) == ("5", "parse")
    assert "column 'qty': not a whole number" in headers["copycat.error"] + headers.get("copycat.message", "")
    assert "s3cret" not in str(headers)


def test_without_tolerance_a_malformed_row_stops_the_connector_before_it(spool: Spool) -> None:
    spool.form = TYPED
    drop(spool, "a.csv", "id,qty\nA1,1\nA2,s3cret\nA3,3\n")
    spool.start()
    wait_until(lambda: spool.status.state == "failed", 30, lambda: f"{spool.status}")
    assert "a.csv" in spool.status.reason
    assert "column 'qty'" in spool.status.reason
    assert "s3cret" not in spool.status.reason
    assert [row["id"] for row in spool.rows(1)] == ["A1"]
    spool.stop()
    spool.form = {"type": "csv"}
    spool.start()
    assert [row["id"] for row in spool.rows(3)] == ["A1", "A2", "A3"], "it goes on at the row, whose column is text now"


def test_files_with_other_headers_are_read_by_their_own(spool: Spool) -> None:
    spool.form = {"type": "csv", "types": {"n": "int"}}
    spool.start()
    drop(spool, "a.csv", "n,a\n1,x\n")
    spool.records(1)
    drop(spool, "b.csv", "b,n\ny,2\n")
    assert spool.rows(2) == [{"n": 1, "a": "x"}, {"b": "y", "n": 2}]


def test_a_stopped_file_goes_on_at_the_next_row(spool: Spool) -> None:
    spool.form = {"type": "csv", "types": {"n": "int"}}
    rows = "".join(f'{number},"a\nb {number}"\n' for number in range(30_000))
    drop(spool, "a.csv", "n,text\n" + rows)
    spool.start(delivery={"max_batch_bytes": "64KiB"})
    spool.records(lambda found: len(found) >= 100)
    spool.stop()
    spool.start()
    spool.wait_caught_up()
    found = spool.records(30_000, deadline=60)
    assert [json.loads(one.value or b"") for one in found] == [{"n": number, "text": f"a\nb {number}"} for number in range(30_000)]
    assert origin(found[0]) == ("a.csv", 7)
