"""Avro and Parquet from a spool directory: scenario 52, files that Spark and Avro's own library wrote, damage, bombs, dead letters."""

from __future__ import annotations

import gzip
import io
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from copycat_agent.definitions import load_file
from copycat_agent.dlq import Replay
from copycat_agent.options import AgentOptions, KafkaOptions
from tests.rig.kafka import consume
from tests.rig.shipping import Shipping, origin
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from copycat_agent.dev_broker import DevBroker
    from copycat_agent.model import SourceOffset
    from copycat_agent.options import Definition

SCHEMA = {"type": "record", "name": "row", "fields": [{"name": "file", "type": "string"}, {"name": "id", "type": "long"}]}


class Spool(Shipping):
    """A connector over a spool directory."""

    def definition(self, *, source: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **sections: Any) -> Definition:
        """See `Shipping.definition`."""
        document = {
            "name": self.name,
            "source": {"type": "spool_dir", "dir": str(self.logs), "scan_interval": "200ms", "ready": {"min_age": "0s"}, **(source or {})},
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

    def settled(self) -> dict[str, SourceOffset]:
        """What is known of each file, by its name."""
        return {offset.path.rpartition("/")[2]: offset for offset in self.offsets.values()}


@pytest.fixture
def spool(make_shipping: Callable[..., Shipping], broker: DevBroker, make_topic: Callable[..., str]) -> Spool:
    shipping = make_shipping()
    shipping.__class__ = Spool
    assert isinstance(shipping, Spool)
    return shipping


def rows(name: str, count: int) -> list[dict[str, Any]]:
    return [{"file": name, "id": index} for index in range(count)]


def avro(records: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, SCHEMA, records, codec="deflate", sync_interval=4000)
    return file.getvalue()


def parquet(records: list[dict[str, Any]], **how: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), file, **how)
    return file.getvalue()


def drop(directory: Path, name: str, data: bytes) -> None:
    """Put a whole file there."""
    beside = directory.parent / f"{name}.writing"
    beside.write_bytes(data)
    beside.rename(directory / name)


@pytest.mark.parametrize("kind", ["avro", "parquet"])
def test_files_that_are_stopped_in_the_middle_go_on_at_the_next_record(kind: str, spool: Spool) -> None:
    names = [f"{index}.{kind}" for index in range(5)]
    for name in names:
        drop(spool.logs, name, avro(rows(name, 5000)) if kind == "avro" else parquet(rows(name, 5000), row_group_size=2000))
    how: dict[str, Any] = {"source": {"format": {"type": kind}, "order_by": "name"}, "limits": {"records_per_second": 500}}
    spool.start(**how)
    spool.records(until=500)
    spool.stop()
    before = len(spool.records())
    assert 500 <= before < 25_000, "it was stopped in the middle"
    spool.start(source=how["source"])
    found = spool.records(until=25_000)
    spool.wait_caught_up()
    for name in names:
        mine = [record for record in found if origin(record)[0] == name]
        assert [json.loads(record.value or b"") for record in mine] == rows(name, 5000)
        assert [origin(record)[1] for record in mine] == list(range(5000))
    assert {name: (one.records, one.done) for name, one in spool.settled().items()} == dict.fromkeys(names, (5000, True))
    spool.stop()
    assert len(spool.records()) == 25_000


@pytest.mark.long
def test_files_that_spark_and_avros_own_library_wrote(spool: Spool, tmp_path: Path) -> None:
    session = SparkSession.builder.getOrCreate()
    frame = session.sql(
        "SELECT id, cast(id / 4 AS decimal(10,2)) AS price, array(named_struct('a', id)) AS deep, "
        "timestamp_micros(id * 1000001) AS at, map('k', id) AS tags, if(id % 2 = 0, NULL, 'é') AS text FROM range(100)"
    )
    frame.coalesce(1).write.option("compression", "snappy").parquet(str(tmp_path / "spark"))
    (part,) = (tmp_path / "spark").glob("*.parquet")
    drop(spool.logs, "spark.parquet", part.read_bytes())
    spool.start(source={"format": "parquet"}, record={"origin_headers": False})
    found = spool.rows(100)
    assert [row["id"] for row in found] == list(range(100))
    assert found[7] | {"at": ""} == {"id": 7, "price": 1.75, "deep": [{"a": 7}], "at": "", "tags": {"k": 7}, "text": "é"}
    assert datetime.fromisoformat(found[7]["at"]).replace(tzinfo=UTC) == datetime(1970, 1, 1, 0, 0, 7, 7, tzinfo=UTC)
    spool.stop()

    jvm: Any = session._jvm
    schema = jvm.org.apache.avro.Schema.Parser().parse(json.dumps(SCHEMA))
    writer = jvm.org.apache.avro.file.DataFileWriter(jvm.org.apache.avro.generic.GenericDatumWriter(schema))
    writer.setCodec(jvm.org.apache.avro.file.CodecFactory.fromString("snappy"))
    writer.setSyncInterval(32)
    writer.create(schema, jvm.java.io.File(str(tmp_path / "java.avro")))
    for index in range(20):
        record = jvm.org.apache.avro.generic.GenericData.Record(schema)
        record.put("file", "java")
        record.put("id", index)
        writer.append(record)
    writer.close()
    drop(spool.logs, "java.avro", (tmp_path / "java.avro").read_bytes())
    spool.start(source={"format": "avro", "pattern": "*.avro"}, record={"origin_headers": False})
    assert spool.rows(120)[100:] == rows("java", 20)


def test_what_comes_before_the_damage_is_sent_and_the_next_file_is_read(spool: Spool) -> None:
    whole = avro(rows("a", 3000))
    drop(spool.logs, "a.avro", whole[: len(whole) * 2 // 3])
    drop(spool.logs, "b.avro", avro(rows("b", 10)))
    drop(spool.logs, "c.avro", b"a,b\n1,2\n")
    drop(spool.logs, "d.avro.gz", gzip.compress(avro(rows("d", 10))) + gzip.compress(b"") + b"trailing")
    spool.start(source={"format": "avro", "order_by": "name"})
    wait_until(lambda: len(spool.settled()) == 4 and all(one.done for one in spool.settled().values()), 60.0, lambda: f"{spool.settled()}")
    known = spool.settled()
    found = spool.rows()
    sent = known["a.avro"].records
    assert 1000 < sent < 3000
    assert sorted(found, key=lambda row: row["file"]) == [*rows("a", sent), *rows("b", 10), *rows("d", 10)]
    assert known["d.avro.gz"].trouble.startswith("gzip: ")
    assert known["a.avro"].trouble.startswith("avro: ")
    assert known["a.avro"].trouble.endswith(f"record {sent + 1})")
    assert known["b.avro"].trouble == ""
    assert known["c.avro"].trouble == "avro: it does not begin as an Avro file does (byte 0, record 1)"


def test_a_bomb_is_given_up_and_the_next_file_is_read(spool: Spool) -> None:
    bomb = gzip.compress(b"x" * 199 + b"\n" + b"x" * 2**20, 9) + gzip.compress(bytes(80 * 2**20), 9)
    drop(spool.logs, "a.gz", bomb)
    drop(spool.logs, "b.log", b"one\n")
    spool.start(source={"format": "lines", "order_by": "name", "unpack": {"max_bytes": "4MiB"}}, errors={"tolerance": "all"})
    wait_until(lambda: len(spool.settled()) == 2 and all(one.done for one in spool.settled().values()), 60.0, lambda: f"{spool.settled()}")
    assert spool.settled()["a.gz"].trouble.startswith("gzip: it holds more than unpack.max_bytes, 4194304 bytes")
    assert "one" in spool.lines()


@pytest.mark.parametrize("kind", ["avro", "parquet"])
def test_a_bad_record_is_a_dead_letter_with_its_fields_that_can_be_replayed(
    kind: str, spool: Spool, make_topic: Callable[..., str]
) -> None:
    letters = make_topic()
    records = [row | {"file": "" if row["id"] % 2 else "x"} for row in rows("", 6)]
    drop(spool.logs, f"a.{kind}", avro(records) if kind == "avro" else parquet(records))
    sections: dict[str, Any] = {"source": {"format": kind}, "errors": {"tolerance": "all", "dlq": {"topic": letters}}}
    spool.start(record={"key": "{missing}"}, **sections)
    found = consume(spool.bootstrap, letters, until=6)
    assert [json.loads(letter.value or b"") for letter in found] == records
    headers = {name: value or b"" for name, value in found[4].headers}
    assert headers["copycat.raw"].startswith(b"rendered: ")
    assert (headers["copycat.record"], headers["copycat.offset"], headers["copycat.places"]) == (b"5", b"4", b"records")
    spool.wait_caught_up()
    spool.stop()
    report = Replay(spool.definition(record={"key": "k"}, **sections)).run()
    assert (report.sent, report.left) == (6, 0)
    assert spool.rows() == records
