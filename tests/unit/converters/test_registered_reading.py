"""Values behind the id of a schema are read, with all that the schema refers to."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from google.protobuf import any_pb2, duration_pb2, timestamp_pb2  # type: ignore[import-untyped]

from copycat_agent.converters import registered_reading
from copycat_agent.converters.base import Reference, RegistrySchema
from copycat_agent.converters.proto_fields import writer_of
from copycat_agent.converters.proto_form import compile_proto, message_indexes, message_of
from copycat_agent.converters.registered_reading import AGAIN_SECONDS, READ_SECONDS, RegisteredReader
from copycat_agent.converters.registry_access import AbsentError, RegisteredSchema
from copycat_agent.errors import BlockedError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.options import SchemaRegistryOptions


class Registry:
    """Stands in for a schema registry: schemas by id, and by subject."""

    def __init__(self, main: RegistrySchema, **others: RegistrySchema) -> None:
        self._main, self._others = main, others

    def by_id(self, number: int) -> RegistrySchema:
        assert number == 7
        return self._main

    def version(self, subject: str, version: int) -> RegisteredSchema:
        return RegisteredSchema(version, self._others[subject])


def reader(kind: str, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> RegisteredReader:
    monkeypatch.setattr(registered_reading, "registry_of", lambda _: registry)
    return RegisteredReader(kind, SchemaRegistryOptions(url="http://127.0.0.1:1"))


def behind_id(payload: bytes) -> bytes:
    return b"\0" + (7).to_bytes(4, "big") + payload


PLACE = {"type": "record", "name": "Place", "namespace": "com.geo", "fields": [{"name": "city", "type": "string"}]}
KIND = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "com.shop",
    "fields": [
        {"name": "from", "type": "com.geo.Place"}, {"name": "to", "type": ["null", "com.geo.Place"]}, {"name": "kind", "type": "Kind"},
        {"name": "via", "type": {"type": "array", "items": "com.geo.Place"}},
    ],
}  # fmt: skip


def test_avro_schemas_may_refer_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    refers = (Reference("com.geo.Place", "place", 1), Reference("Kind", "kind", 1))
    inner = RegistrySchema("AVRO", json.dumps(PLACE)), RegistrySchema("AVRO", json.dumps({**KIND, "namespace": "com.shop"}))
    registry = Registry(RegistrySchema("AVRO", json.dumps(ORDER), refers), place=inner[0], kind=inner[1])
    value = {"from": {"city": "Bonn"}, "to": None, "kind": "B", "via": [{"city": "Ulm"}]}
    named: dict[str, Any] = {}
    fastavro.parse_schema(PLACE, named_schemas=named)
    fastavro.parse_schema({**KIND, "namespace": "com.shop"}, named_schemas=named)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER, named_schemas=named), value)
    understood = reader("avro", registry, monkeypatch).read(behind_id(out.getvalue()))
    assert understood.value == value
    assert understood.schema is not None
    assert fastavro.parse_schema(json.loads(understood.schema.avro)), "whole by itself: files are written by it"


def test_an_invalid_default_does_not_matter_to_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string", "default": None}]}
    read = reader("avro", Registry(RegistrySchema("AVRO", json.dumps(schema))), monkeypatch).read
    value, found = read(behind_id(b"\2x"))
    assert value == {"s": "x"}
    assert found is not None
    assert fastavro.parse_schema(json.loads(found.avro)), "files have it"


def test_an_avro_schema_that_refers_to_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(RegistrySchema("AVRO", json.dumps(ORDER), (Reference("x", "x", 1),)), x=RegistrySchema("AVRO", "no schema"))
    value = reader("avro", registry, monkeypatch).read(behind_id(b"x")).value
    assert isinstance(value, Unparsed)
    assert "schema 7: it, or one that it refers to, is no Avro schema" in str(value)


MONEY = 'syntax = "proto3"; package shop; message Money { int64 units = 1; string currency = 2; }'
PROTO = """
syntax = "proto3";
package shop;
import "money.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { UNKNOWN = 0; GIFT = 1; }
message Other { string text = 1; }
message Order {
  message Line { string article = 1; Money price = 2; }
  int64 n = 1; bytes raw = 2; Kind kind = 3; repeated Line lines = 4; map<string, int32> counts = 5;
  google.protobuf.Timestamp at = 6; google.protobuf.StringValue note = 7; optional double weight = 8;
  oneof way { string road = 9; string rail = 10; }
}
"""


def test_messages_are_read_with_what_their_schema_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(RegistrySchema("PROTOBUF", PROTO, (Reference("money.proto", "money", 1),)), money=RegistrySchema("PROTOBUF", MONEY))
    order = message_of(compile_proto("o.proto", {"o.proto": PROTO, "money.proto": MONEY}), "Order")
    moment = datetime(2026, 11, 29, 12, 0, 0, 5, UTC)
    value = {
        "n": 2**60, "raw": b"\xff", "kind": "GIFT", "lines": [{"article": "tea", "price": {"units": 3, "currency": "EUR"}}],
        "counts": {"a": 1}, "at": moment, "note": "", "weight": None, "road": None, "rail": "x",
    }  # fmt: skip
    given = {name: one for name, one in value.items() if one is not None}
    read = reader("protobuf", registry, monkeypatch).read
    payload = message_indexes(order) + writer_of(order, drops=False)(given)
    assert read(behind_id(payload)).value == value
    first = message_of(order.file, "Other")
    assert read(behind_id(message_indexes(first) + writer_of(first, drops=False)({"text": "t"}))).value == {"text": "t"}
    line = message_of(order.file, "Order.Line")
    inner = read(behind_id(message_indexes(line) + writer_of(line, drops=False)({"article": "tea"}))).value
    assert inner == {"article": "tea", "price": None}


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x02\x10", b"\x00\xff", b"\x01", b"\xff" * 12])
def test_what_is_no_message_is_a_bad_record(payload: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry(RegistrySchema("PROTOBUF", MONEY))
    assert isinstance(reader("protobuf", registry, monkeypatch).read(behind_id(payload)).value, Unparsed)


def test_a_time_finer_than_a_microsecond_keeps_all_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message One { google.protobuf.Timestamp at = 1; }'
    read = reader("protobuf", Registry(RegistrySchema("PROTOBUF", text)), monkeypatch).read
    inner = timestamp_pb2.Timestamp(seconds=1, nanos=1).SerializeToString()
    assert read(behind_id(b"\0\x0a" + bytes([len(inner)]) + inner)).value == {"at": "1970-01-01T00:00:01.000000001Z"}


HOLDER = """
syntax = "proto3";
package shop;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
message Note { string text = 1; }
message Holder { google.protobuf.Any any = 1; google.protobuf.Timestamp at = 2; google.protobuf.Duration took = 3; }
"""


def held(field: int, inner: bytes) -> bytes:
    """A `Holder` with one field."""
    return behind_id(b"\x02\x02" + bytes([field << 3 | 2, len(inner)]) + inner)


@pytest.mark.parametrize(
    ("url", "value"),
    [("type.googleapis.com/shop.Note", {"@type": "type.googleapis.com/shop.Note", "text": "tea"}),
     ("type.googleapis.com/far.Away", {"type_url": "type.googleapis.com/far.Away", "value": b"\x0a\x03tea"}),
     ("", {"type_url": "", "value": b"\x0a\x03tea"})],
)  # fmt: skip
def test_a_message_of_any_type_is_read_whether_or_not_the_schema_has_it(url: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader("protobuf", Registry(RegistrySchema("PROTOBUF", HOLDER)), monkeypatch).read
    inner = any_pb2.Any(type_url=url, value=b"\x0a\x03tea").SerializeToString()
    assert read(held(1, inner)).value == {"any": value, "at": None, "took": None}


@pytest.mark.parametrize(
    ("field", "inner"), [(2, timestamp_pb2.Timestamp(seconds=253_402_300_800)), (3, duration_pb2.Duration(seconds=2**62))]
)
def test_a_time_beyond_its_type_is_a_bad_record_in_words(field: int, inner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader("protobuf", Registry(RegistrySchema("PROTOBUF", HOLDER)), monkeypatch).read
    value = read(held(field, inner.SerializeToString())).value
    assert isinstance(value, Unparsed)
    assert "beyond what its type allows" in value.why


class Forgetful(Registry):
    """Does not have the schema until it was asked for it `absences` times."""

    def __init__(self, absences: int, *, is_certain: bool = True) -> None:
        super().__init__(RegistrySchema("AVRO", json.dumps(PLACE)))
        self.absences, self.is_certain, self.asked = absences, is_certain, 0

    def by_id(self, number: int) -> RegistrySchema:
        self.asked += 1
        if self.asked > self.absences:
            return super().by_id(number)
        error = AbsentError("it is not there")
        error.is_certain = self.is_certain
        raise error


ULM = b"\x06Ulm"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_reading, "AGAIN_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_schema_that_is_registered_just_now_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reader("avro", Forgetful(1), monkeypatch).read(behind_id(ULM)).value == {"city": "Ulm"}


@pytest.mark.usefixtures("at_once")
def test_an_absent_schema_makes_bad_records_without_a_question_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Forgetful(2)
    read = reader("avro", registry, monkeypatch)
    for _ in range(3):
        value = read.read(behind_id(ULM)).value
        assert isinstance(value, Unparsed)
        assert value.why == "schema 7: it is not there"
    assert registry.asked == 2


def test_what_is_decoded_is_returned_before_all_absent_schemas_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(registered_reading, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    read = reader("avro", Forgetful(10_000), monkeypatch)
    values = [b"\0" + number.to_bytes(4, "big") for number in range(500)]
    begins = []
    while values:
        begins.append(now[0])
        found, schemas = read.read_all(values)
        assert (len(schemas or ()), {type(one) for one in found}) == (len(found), {Unparsed})
        values = values[len(found) :]
    assert max(end - begin for begin, end in pairwise([*begins, now[0]])) <= READ_SECONDS + AGAIN_SECONDS


@pytest.mark.usefixtures("at_once")
def test_an_absent_schema_is_asked_for_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_reading, "ABSENT_SECONDS", 0.0)
    read = reader("avro", Forgetful(2), monkeypatch)
    assert isinstance(read.read(behind_id(ULM)).value, Unparsed)
    assert read.read(behind_id(ULM)).value == {"city": "Ulm"}


@pytest.mark.usefixtures("at_once")
def test_an_answer_that_any_server_could_give_makes_no_bad_records(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BlockedError, match="it is not there"):
        reader("avro", Forgetful(9, is_certain=False), monkeypatch).read(behind_id(ULM))
