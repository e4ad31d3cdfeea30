"""Promises of converters with a schema registry, on a real one: consumers' own deserializers read what they write."""

from __future__ import annotations

import gzip
import json
import pickle
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from copycat_agent.converters import CONVERTERS, Converter, Site, build_converter, registry_access, schema_converter
from copycat_agent.converters.proto_form import compile_proto, message_of
from copycat_agent.errors import BlockedError, DataError, FatalError, RetriableError
from copycat_agent.model import Column
from copycat_agent.model import Schema as FileSchema
from copycat_agent.options import SchemaRegistryOptions
from tests.rig.registry import RegistryFront, SchemaRegistry
from tests.rig.secured import make_authority, sign
from tests.rig.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "qty", "type": "int"}],
}
ORDER_2 = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}


@pytest.fixture
def topic() -> str:
    return f"t.{uuid.uuid4().hex[:12]}"


def make(
    type_: str, url: str, *, part: Any = "value", columns: Any = None, after: Any = None, login: Any = None, **options: Any
) -> Converter:
    kind = CONVERTERS[type_]
    known = SchemaRegistryOptions.model_validate({"url": url, **({"basic_auth": login} if login else {})})
    validated = kind.options.model_validate({"type": type_, **options})
    assert pickle.loads(pickle.dumps(validated)) == validated
    return build_converter(validated, Site(part, known, columns, after))


def avro(registry_client: SchemaRegistryClient, data: bytes, field: Any = MessageField.VALUE) -> Any:
    return AvroDeserializer(registry_client)(data, SerializationContext("t", field))


def put(registry_client: SchemaRegistryClient, subject: str, schema: Any, kind: str = "AVRO") -> int:
    return registry_client.register_schema(subject, Schema(schema if isinstance(schema, str) else json.dumps(schema), kind))


def file(tmp_path: Path, name: str, schema: Any) -> str:
    path = tmp_path / name
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema, indent=2))
    return str(path)


def test_the_latest_version_of_the_topics_subject_is_taken(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str
) -> None:
    put(registry_client, f"{topic}-value", ORDER)
    number = put(registry_client, f"{topic}-value", ORDER_2)
    data = make("avro", schema_registry.url)({"id": "a", "qty": 5}, topic, None)
    assert data[:5] == b"\0" + number.to_bytes(4, "big")
    assert avro(registry_client, data) == {"id": "a", "qty": 5, "note": None}


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({}, "{topic}-value"),
        ({"subject": "{topic}-mine"}, "{topic}-mine"),
        ({"subject_strategy": "record"}, "shop.Order"),
        ({"subject_strategy": "topic_record"}, "{topic}-shop.Order"),
    ],
)
def test_a_files_schema_is_looked_up_by_what_it_says_under_each_strategy(
    options: dict[str, str],
    subject: str,
    schema_registry: SchemaRegistry,
    registry_client: SchemaRegistryClient,
    topic: str,
    tmp_path: Path,
) -> None:
    options = {name: text.format(topic=topic) for name, text in options.items()}
    number = put(registry_client, subject.format(topic=topic), ORDER)
    put(registry_client, subject.format(topic=topic), ORDER_2)
    data = make("avro", schema_registry.url, schema=file(tmp_path, "o.avsc", ORDER), **options)({"id": "a", "qty": 5}, topic, None)
    assert data[1:5] == number.to_bytes(4, "big")
    assert avro(registry_client, data) == {"id": "a", "qty": 5}


def test_nothing_is_registered_unless_asked_for(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    path = file(tmp_path, "o.avsc", ORDER)
    with pytest.raises(BlockedError, match=rf"does not have this schema in subject '{topic}-value'.*auto_register"):
        make("avro", schema_registry.url, schema=path)({"id": "a", "qty": 5}, topic, None)
    assert f"{topic}-value" not in registry_client.get_subjects()
    data = make("avro", schema_registry.url, schema=path, auto_register=True)({"id": "a", "qty": 5}, topic, None)
    assert avro(registry_client, data) == {"id": "a", "qty": 5}
    assert registry_client.get_latest_version(f"{topic}-value").schema_id == int.from_bytes(data[1:5], "big")


def test_a_subject_that_is_not_there_is_named(schema_registry: SchemaRegistry, topic: str) -> None:
    with pytest.raises(BlockedError, match=f"does not have subject '{topic}-value'"):
        make("avro", schema_registry.url)({"a": 1}, topic, None)


def test_only_a_registry_says_for_certain_that_it_has_no_such_schema(registry_front: RegistryFront) -> None:
    registry = registry_access.registry_of(SchemaRegistryOptions(url=registry_front.url))
    for answer, is_certain in ((None, True), ((404, b"<html>"), False), ((404, b'{"error_code": 404}'), False)):
        registry_front.answer = answer
        with pytest.raises(registry_access.AbsentError, match="does not have schema 65535") as caught:
            registry.by_id(65535)
        assert caught.value.is_certain is is_certain


def test_a_schema_that_is_not_compatible_is_fatal_with_the_registrys_words(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    put(registry_client, f"{topic}-value", ORDER)
    registry_client.set_compatibility(f"{topic}-value", "BACKWARD")
    broken = {**ORDER, "fields": [*ORDER["fields"], {"name": "new", "type": "string"}]}
    with pytest.raises(FatalError, match=r"refuses the schema.*HTTP 409") as caught:
        make("avro", schema_registry.url, schema=file(tmp_path, "o.avsc", broken), auto_register=True)({"id": "a"}, topic, None)
    assert "compatib" in caught.value.message.lower()


def test_a_schema_of_another_kind_is_fatal(schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str) -> None:
    put(registry_client, f"{topic}-value", {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}, "JSON")
    with pytest.raises(FatalError, match="of type JSON, the converter is avro"):
        make("avro", schema_registry.url)({"a": 1}, topic, None)


def test_the_registry_is_asked_once_however_many_records_and_threads(
    registry_front: RegistryFront, registry_client: SchemaRegistryClient, topic: str
) -> None:
    put(registry_client, f"{topic}-value", ORDER)
    convert = make("avro", registry_front.url)
    registry_front.hold_seconds = 0.2
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda number: convert({"id": "a", "qty": number}, topic, None), range(400)))
    assert len(set(found)) == 400
    assert registry_front.requests == [f"GET /subjects/{topic}-value/versions/latest"]


def test_a_registry_that_is_down_is_retried_and_then_works(
    registry_front: RegistryFront, registry_client: SchemaRegistryClient, topic: str
) -> None:
    put(registry_client, f"{topic}-value", ORDER)
    convert = make("avro", registry_front.url)
    registry_front.stop()
    with pytest.raises(RetriableError, match=f"the schema registry at {registry_front.url} does not answer: .*refused") as caught:
        convert({"id": "a", "qty": 5}, topic, None)
    assert not isinstance(caught.value, BlockedError)
    assert "schema_registry.url" in caught.value.hint
    registry_front.start()
    assert avro(registry_client, convert({"id": "a", "qty": 5}, topic, None)) == {"id": "a", "qty": 5}
    registry_front.stop()
    assert convert({"id": "b", "qty": 6}, topic, None), "what is known needs no registry"


def test_a_registry_that_hangs_is_given_up_in_time_and_once_for_all_who_wait(
    registry_front: RegistryFront, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_access, "ANSWER_SECONDS", 0.5)
    registry_front.hold_seconds = 60.0
    convert: Any = make("avro", registry_front.url)
    waiting: list[str] = []

    class Lock:
        """The converter's, which tells who comes to it; the first goes on once all have."""

        def __init__(self) -> None:
            self._lock = threading.Lock()

        def __enter__(self) -> None:
            waiting.append("one more")
            self._lock.acquire()
            wait_until(lambda: len(waiting) == 4)

        def __exit__(self, *_: object) -> None:
            self._lock.release()

    def attempt(_: int) -> str:
        with pytest.raises(RetriableError) as caught:
            convert({"a": 1}, topic, None)
        return caught.value.message

    monkeypatch.setattr(convert, "_lock", Lock())
    begun = time.monotonic()
    with ThreadPoolExecutor(4) as threads:
        words = set(threads.map(attempt, range(4)))
    assert words == {f"the schema registry at {registry_front.url} did not answer within 0.5 s"}
    assert time.monotonic() - begun < registry_front.hold_seconds / 2
    wait_until(lambda: registry_front.requests)
    assert len(registry_front.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "error", "words"),
    [
        (403, b"{}", BlockedError, "does not let this login use"),
        (404, b"<html>", BlockedError, "does not have"),
        (301, b"", BlockedError, "HTTP 301"),
        (429, b"{}", RetriableError, "cannot answer now"),
        (500, b'{"error_code": 50001, "message": "storage is gone"}', RetriableError, "storage is gone"),
        (503, b"", RetriableError, "HTTP 503"),
        (422, b'{"error_code": 42201, "message": "bad schema"}', FatalError, "bad schema"),
        (200, b"<html>", BlockedError, "not as a schema registry does"),
        (200, b"{}", BlockedError, "not as a schema registry does"),
        (200, b"[]", BlockedError, "not as a schema registry does"),
    ],
)
def test_each_answer_says_what_to_do(
    status: int, body: bytes, error: type[Exception], words: str, registry_front: RegistryFront, topic: str
) -> None:
    registry_front.answer = status, body
    with pytest.raises(error, match=words) as caught:
        make("avro", registry_front.url)({"a": 1}, topic, None)
    assert isinstance(caught.value, BlockedError) == (error is BlockedError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_login_is_sent_and_never_shown(schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str) -> None:
    put(registry_client, f"{topic}-value", ORDER)
    with RegistryFront(schema_registry.url, ("me", "s3cret:word")) as registry_front:
        login = {"username": "me", "password": "s3cret:word"}
        assert make("avro", registry_front.url, login=login)({"id": "a", "qty": 5}, topic, None)
        with pytest.raises(BlockedError, match=r"refuses this login.*HTTP 401") as caught:
            make("avro", registry_front.url, login={**login, "password": "other-s3cret"})({"id": "a"}, topic, None)
        assert "s3cret" not in str(caught.value)
        with pytest.raises(BlockedError, match="wants a login"):
            make("avro", registry_front.url)({"id": "a"}, topic, None)


def test_a_new_version_is_noticed_when_a_record_does_not_fit(
    registry_front: RegistryFront, registry_client: SchemaRegistryClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_converter, "RECHECK_SECONDS", 0.0)
    put(registry_client, f"{topic}-value", ORDER)
    convert = make("avro", registry_front.url)
    with pytest.raises(DataError, match="field 'note'"):
        convert({"id": "a", "qty": 5, "note": "x"}, topic, None)
    put(registry_client, f"{topic}-value", ORDER_2)
    assert avro(registry_client, convert({"id": "a", "qty": 5, "note": "x"}, topic, None))["note"] == "x"


def test_the_latest_version_is_asked_for_again_and_an_outage_then_is_no_matter(
    registry_front: RegistryFront, registry_client: SchemaRegistryClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = put(registry_client, f"{topic}-value", ORDER)
    convert = make("avro", registry_front.url)
    convert({"id": "a", "qty": 5}, topic, None)
    second = put(registry_client, f"{topic}-value", ORDER_2)
    monkeypatch.setattr(schema_converter, "REFRESH_SECONDS", 0.0)
    registry_front.stop()
    assert convert({"id": "a", "qty": 5}, topic, None)[1:5] == first.to_bytes(4, "big")
    registry_front.start()
    assert convert({"id": "a", "qty": 5}, topic, None)[1:5] == second.to_bytes(4, "big")


def test_a_bad_record_names_its_field_and_asks_nobody(
    registry_front: RegistryFront, registry_client: SchemaRegistryClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_converter, "RECHECK_SECONDS", 600.0)
    monkeypatch.setattr(schema_converter, "REFRESH_SECONDS", 600.0)
    put(registry_client, f"{topic}-value", ORDER)
    convert = make("avro", registry_front.url)
    for _ in range(3):
        with pytest.raises(DataError, match="field 'qty': a whole number is needed, not text") as caught:
            convert({"id": "a", "qty": "s3cret"}, topic, None)
        assert "s3cret" not in str(caught.value)
        assert "convert" in caught.value.hint
    assert len(registry_front.requests) == 1


def test_a_raw_line_is_a_record_with_its_message(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str
) -> None:
    convert = make("avro", schema_registry.url, auto_register=True, columns=(Column("message"),))
    assert avro(registry_client, convert("zeile ü".encode() + b"\xff", topic, None)) == {"message": "zeile ü\ufffd"}


def test_a_schema_made_from_declared_types_is_registered_under_the_topics_name(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str
) -> None:
    columns = (Column("id"), Column("price", "decimal(10,2)"), Column("tags", "array<string>"))
    convert = make("avro", schema_registry.url, auto_register=True, columns=columns)
    data = convert({"id": "a", "price": Decimal("1.10"), "tags": ["x"]}, topic, None)
    assert avro(registry_client, data) == {"id": "a", "price": Decimal("1.10"), "tags": ["x"]}
    assert json.loads(registry_client.get_latest_version(f"{topic}-value").schema.schema_str or "")["name"] == topic.replace(".", "_")


def test_each_file_brings_its_columns_and_a_new_one_is_an_evolution(
    registry_front: RegistryFront, registry_client: SchemaRegistryClient, topic: str
) -> None:
    convert = make("avro", registry_front.url, auto_register=True)
    one = FileSchema((Column("id"),))
    two = FileSchema((Column("id"), Column("qty", "bigint")))
    assert avro(registry_client, convert({"id": "a"}, topic, one)) == {"id": "a"}
    assert avro(registry_client, convert({"id": "b", "qty": 5}, topic, two)) == {"id": "b", "qty": 5}
    asked = len(registry_front.requests)
    for _ in range(10):
        convert({"id": "c"}, topic, FileSchema((Column("id"),)))
        convert({"id": "c", "qty": None}, topic, two)
    assert len(registry_front.requests) == asked, "equal columns have one schema, whichever file they come from"
    assert len(registry_client.get_versions(f"{topic}-value")) == 2


def test_a_column_that_changes_its_type_is_refused_by_the_registry(
    registry_front: RegistryFront, registry_client: SchemaRegistryClient, topic: str
) -> None:
    convert = make("avro", registry_front.url, auto_register=True)
    convert({"id": "a"}, topic, FileSchema((Column("id"),)))
    registry_client.set_compatibility(f"{topic}-value", "FULL")
    with pytest.raises(FatalError, match="refuses the schema"):
        convert({"id": 5}, topic, FileSchema((Column("id", "bigint"),)))


def test_an_avro_files_own_schema_is_registered_as_it_is_while_no_step_changes_fields(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str
) -> None:
    own = FileSchema((Column("id"), Column("qty", "int", nullable=False)), json.dumps(ORDER))
    data = make("avro", schema_registry.url, auto_register=True)({"id": "a", "qty": 5}, topic, own)
    assert registry_client.get_schema(int.from_bytes(data[1:5], "big")).schema_str == json.dumps(ORDER)
    convert = make("avro", schema_registry.url, auto_register=True, after=lambda columns: columns[1:], subject=f"{topic}-less")
    assert avro(registry_client, convert({"qty": 5}, topic, own)) == {"qty": 5}


def test_fields_that_nobody_knows_are_a_bad_record_with_a_next_step(schema_registry: SchemaRegistry, topic: str) -> None:
    with pytest.raises(DataError, match="nothing says what fields the records have; name a schema FILE"):
        make("avro", schema_registry.url, auto_register=True)({"a": 1}, topic, None)


@pytest.mark.parametrize(
    ("schema", "key", "read"),
    [
        ('"string"', "k1", "k1"),
        ('"long"', "-12", -12),
        ({"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}, "7", {"id": 7}),
    ],
)
def test_a_key_has_a_schema_of_its_own(
    schema: Any, key: str, read: Any, schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str
) -> None:
    put(registry_client, f"{topic}-key", schema)
    assert avro(registry_client, make("avro", schema_registry.url, part="key")(key, topic, None), MessageField.KEY) == read


def test_a_key_that_is_no_number_is_a_bad_record(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str
) -> None:
    put(registry_client, f"{topic}-key", '"long"')
    with pytest.raises(DataError, match="a whole number is needed, the key is none"):
        make("avro", schema_registry.url, part="key")("12a", topic, None)
    put(registry_client, f"{topic}-x-key", ORDER)
    with pytest.raises(FatalError, match="takes no text"):
        make("avro", schema_registry.url, part="key")("k", f"{topic}-x", None)


@pytest.mark.parametrize("type_", ["avro", "json_schema"])
def test_a_key_without_a_schema_is_a_text(
    type_: str, schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str
) -> None:
    data = make(type_, schema_registry.url, part="key", auto_register=True)("k1", topic, None)
    assert data[5:] == {"avro": b"\x04k1", "json_schema": b'"k1"'}[type_]
    assert f"{topic}-key" in registry_client.get_subjects()


def test_json_with_a_schema_is_read_by_its_deserializer(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    schema = {"title": "order", "type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    path = file(tmp_path, "o.json", schema)
    data = make("json_schema", schema_registry.url, schema=path, auto_register=True)({"id": "a"}, topic, None)
    assert JSONDeserializer(json.dumps(schema), schema_registry_client=registry_client)(
        data, SerializationContext(topic, MessageField.VALUE)
    ) == {"id": "a"}
    latest = make("json_schema", schema_registry.url)
    assert latest({"id": "a"}, topic, None) == data
    with pytest.raises(DataError, match="field 'id' is missing"):
        latest({}, topic, None)
    derived = make("json_schema", schema_registry.url, auto_register=True, columns=(Column("n", "bigint"),), subject=f"{topic}-d")
    assert derived({"n": 5}, topic, None)[5:] == b'{"n":5}'


PROTO = """syntax = "proto3"; package shop; import "common/money.proto";
message Other {} message Order { string id = 1; common.Money price = 2; }"""
MONEY = 'syntax = "proto3"; package common; message Money { int64 cents = 1; }'


def test_protobuf_is_read_by_its_deserializer_with_what_it_imports(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "common").mkdir()
    file(tmp_path / "common", "money.proto", MONEY)
    path = file(tmp_path, "order.proto", PROTO)
    options = {"schema": path, "message": "Order"}
    with pytest.raises(BlockedError, match=r"subject 'common/money.proto'"):
        make("protobuf", schema_registry.url, **options)({"id": "a"}, topic, None)
    data = make("protobuf", schema_registry.url, auto_register=True, **options)({"id": "a", "price": {"cents": 5}}, topic, None)
    order = message_of(compile_proto("order.proto", {"order.proto": PROTO, "common/money.proto": MONEY}), "Order")
    read = ProtobufDeserializer(GetMessageClass(order), {"use.deprecated.format": False})(
        data, SerializationContext(topic, MessageField.VALUE)
    )
    assert (read.id, read.price.cents) == ("a", 5)
    assert make("protobuf", schema_registry.url, **options)({"id": "a", "price": {"cents": 5}}, topic, None) == data
    assert make("protobuf", schema_registry.url, message="Order")({"id": "a", "price": {"cents": 5}}, topic, None) == data, (
        "from the registry alone"
    )
    with pytest.raises(DataError, match=r"field 'price.cents'"):
        make("protobuf", schema_registry.url, message="shop.Order")({"price": {"cents": "5"}}, topic, None)


def test_avro_schemas_may_refer_to_others_in_the_registry(
    schema_registry: SchemaRegistry, registry_client: SchemaRegistryClient, topic: str
) -> None:
    put(registry_client, f"{topic}-money", {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]})
    order = {"type": "record", "name": "O", "fields": [{"name": "price", "type": "Money"}]}
    registry_client.register_schema(f"{topic}-value", Schema(json.dumps(order), "AVRO", [SchemaReference("Money", f"{topic}-money", 1)]))
    data = make("avro", schema_registry.url)({"price": {"cents": 5}}, topic, None)
    assert avro(registry_client, data) == {"price": {"cents": 5}}


LATEST = b'{"subject": "s", "version": 1, "id": %s, "schemaType": "AVRO", "schema": "\\"string\\""}'


@pytest.mark.parametrize("number", [b"0", b"-1", b"4294967296", b'"7"', b"null", b"1.5", b"true"])
def test_an_id_that_is_none_is_never_written(number: bytes, registry_front: RegistryFront, topic: str, tmp_path: Path) -> None:
    registry_front.answer = 200, LATEST % number
    for options in (
        {},
        {"schema": file(tmp_path, "s.avsc", '"string"')},
        {"schema": file(tmp_path, "s.avsc", '"string"'), "auto_register": True},
    ):
        with pytest.raises(BlockedError, match="not as a schema registry does"):
            make("avro", registry_front.url, **options)("text", topic, None)
    registry_front.answer = 200, LATEST % b"4294967295"
    assert make("avro", registry_front.url)("text", topic, None) == b"\0\xff\xff\xff\xff\x08text"


@pytest.mark.parametrize(
    ("headers", "body"),
    [({}, b"[" * 100_000), ({}, b" " * (9 * 2**20)), ({"Content-Encoding": "gzip"}, gzip.compress(LATEST % b"1"))],
    ids=["deep", "long", "packed"],
)
def test_an_answer_that_no_registry_gives_is_none(headers: dict[str, str], body: bytes, registry_front: RegistryFront, topic: str) -> None:
    registry_front.answer, registry_front.headers = (200, body), headers
    with pytest.raises(BlockedError, match="not as a schema registry does"):
        make("avro", registry_front.url)({"a": 1}, topic, None)


def test_only_the_registry_of_the_definition_is_asked_and_told_the_login(
    schema_registry: SchemaRegistry, registry_front: RegistryFront, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RegistryFront(schema_registry.url) as elsewhere:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, elsewhere.url)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        registry_front.answer, registry_front.headers = (307, b""), {"Location": f"{elsewhere.url}/stolen"}
        with pytest.raises(BlockedError, match="HTTP 307"):
            make("avro", registry_front.url, login={"username": "me", "password": "s3cret"})({"a": 1}, topic, None)
        assert len(registry_front.requests) == 1
        assert elsewhere.requests == []


def test_a_certificate_of_nobody_known_blocks_and_names_the_option(registry_front: RegistryFront, tmp_path: Path, topic: str) -> None:
    make_authority(tmp_path, "ca")
    sign(tmp_path, "registry")
    server = registry_front.start_tls(tmp_path / "registry.pem")
    for address in (server, server.replace("https", "HTTPS")):
        with pytest.raises(BlockedError, match=r"certificate that is refused: .*CERTIFICATE_VERIFY_FAILED") as caught:
            make("avro", address)({"a": 1}, topic, None)
        assert "ca_file" in caught.value.hint


def test_a_registry_that_hangs_is_not_waited_for_again_with_each_topic(
    registry_front: RegistryFront, registry_client: SchemaRegistryClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = make("avro", registry_front.url)
    for number in range(4):
        put(registry_client, f"{topic}-{number}-value", ORDER)
        convert({"id": "a", "qty": 5}, f"{topic}-{number}", None)
    asked = len(registry_front.requests)
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + schema_converter.REFRESH_SECONDS + 1)
    registry_front.answer = 503, b"{}"
    for number in range(4):
        assert convert({"id": "a", "qty": 5}, f"{topic}-{number}", None)
        with pytest.raises(DataError):
            convert({"id": "a", "qty": "5"}, f"{topic}-{number}", None)
    assert len(registry_front.requests) == asked + 1


def test_however_many_files_and_topics_what_is_kept_is_bounded_and_the_registry_is_asked_once_for_each(
    registry_front: RegistryFront, topic: str
) -> None:
    derived: Any = make("avro", registry_front.url, auto_register=True)
    for number in range(300):
        derived({"id": "a"}, topic, FileSchema((Column("id"),)))
        derived({"id": "a", f"c{number % 3}": 1}, topic, FileSchema((Column("id"), Column(f"c{number % 3}", "int"))))
    assert len(derived._known) == schema_converter._FILES_MAX
    assert len(registry_front.requests) == 4
