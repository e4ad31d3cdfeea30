"""Promises of Protobuf: fields become a message, exactly, or are refused with their field."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from copycat_agent.converters.base import BadSchemaError, UnfitValueError
from copycat_agent.converters.proto_fields import writer_of
from copycat_agent.converters.proto_form import ProtoForm, compile_proto, message_indexes, message_of
from copycat_agent.converters.registry_access import OfflineRegistry
from copycat_agent.converters.schema_options import ProtobufOptions, ProtoPath
from copycat_agent.options import SchemaRegistryOptions, TypeAdapter, ValidationError

PROTO = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "common/money.proto";
message Other { string x = 1; message First {} message Inner { int32 a = 1; message A {} message B {} message Deep { int32 b = 1; } } }
message Order {
  string id = 1;
  optional int32 qty = 2;
  int64 big = 3;
  uint64 unsigned = 4;
  double d = 5;
  float f = 6;
  bool ok = 7;
  bytes raw = 8;
  enum State { NEW = 0; PAID = 1; }
  State state = 9;
  google.protobuf.Timestamp at = 10;
  repeated string tags = 11;
  map<string, int32> counts = 12;
  map<int32, string> names = 13;
  Other.Inner inner = 14;
  oneof pay { string card = 15; string cash = 16; }
  google.protobuf.Struct free = 17;
  google.protobuf.StringValue wrapped = 18;
  common.Money price = 19;
  string two_words = 20;
}
"""
MONEY = 'syntax = "proto3"; package common; message Money { int64 cents = 1; }'
SECRET = "s3cret-value"


@pytest.fixture(scope="module")
def order() -> Any:
    return message_of(compile_proto("order.proto", {"order.proto": PROTO, "common/money.proto": MONEY}), "Order")


def read(order: Any, data: bytes) -> Any:
    message = GetMessageClass(order)()
    message.ParseFromString(data)
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def test_every_kind_of_field_arrives(order: Any) -> None:
    value = {
        "id": "a", "qty": 5, "big": -(2**63), "unsigned": 2**64 - 1, "d": 1.5, "f": 2, "ok": True, "raw": b"\x01", "state": "PAID",
        "at": datetime(2026, 11, 21, 5, 0, 0, 5000, tzinfo=UTC), "tags": ["x", "y"], "counts": {"a": 1}, "names": {"7": "seven"},
        "inner": {"a": 1}, "card": "c", "free": {"any": [1, {"x": None}]}, "wrapped": "w", "price": {"cents": 5}, "twoWords": "tw",
    }  # fmt: skip
    assert read(order, writer_of(order, drops=False)(value)) == {
        "id": "a", "qty": 5, "big": str(-(2**63)), "unsigned": str(2**64 - 1), "d": 1.5, "f": 2.0, "ok": True, "raw": "AQ==",
        "state": "PAID", "at": "2026-11-21T05:00:00.005Z", "tags": ["x", "y"], "counts": {"a": 1}, "names": {"7": "seven"},
        "inner": {"a": 1}, "card": "c", "free": {"any": [1.0, {"x": None}]}, "wrapped": "w", "price": {"cents": "5"}, "two_words": "tw",
    }  # fmt: skip


def test_null_is_a_field_that_is_not_set(order: Any) -> None:
    assert writer_of(order, drops=False)({"id": None, "qty": None}) == b""
    assert read(order, writer_of(order, drops=False)({"qty": 0})) == {"qty": 0}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"qty": "5"}, "field 'qty': a whole number is needed, not text"),
        ({"qty": True}, "field 'qty': a whole number"),
        ({"qty": 2**31}, "field 'qty': the number is beyond 32 bits"),
        ({"unsigned": -1}, "field 'unsigned'"),
        ({"d": 2**53 + 1}, "field 'd'"),
        ({"f": 1e300}, "field 'f'"),
        ({"ok": 1}, "field 'ok'"),
        ({"raw": SECRET}, "field 'raw': bytes are needed, not text"),
        ({"id": b"x"}, "field 'id'"),
        ({"id": "\ud800"}, "field 'id'"),
        ({"state": SECRET}, "field 'state': it is none of the enum's words"),
        ({"at": SECRET}, "field 'at'"),
        ({"tags": ["a", 5]}, "field 'tags[1]'"),
        ({"tags": "a"}, "field 'tags': a list is needed"),
        ({"counts": {"a": "x"}}, "field 'counts.a'"),
        ({"names": {SECRET: "x"}}, "a whole number is needed"),
        ({"inner": {"a": "x"}}, "field 'inner.a'"),
        ({"inner": 5}, "field 'inner': an object"),
        ({"card": "a", "cash": "b"}, "one of card, cash"),
        ({"free": 5}, "field 'free'"),
        ({"other": 1}, "field 'other': the message has no such field"),
        ([], "an object is needed"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_field(order: Any, value: Any, words: str) -> None:
    with pytest.raises(UnfitValueError) as caught:
        writer_of(order, drops=False)(value)
    message = caught.value.as_data_error("").message
    assert words in message
    assert SECRET not in message.replace(f"names.{SECRET}", "")


def test_fields_that_the_message_does_not_have_may_be_left_out(order: Any) -> None:
    assert read(order, writer_of(order, drops=True)({"id": "a", "other": 1})) == {"id": "a"}


def test_which_message_it_is_stands_before_it(order: Any) -> None:
    file = compile_proto("order.proto", {"order.proto": PROTO, "common/money.proto": MONEY})
    assert message_indexes(message_of(file, None)) == b"\0"
    assert message_indexes(message_of(file, "shop.v1.Order")) == b"\x02\x02"
    assert message_indexes(message_of(file, "Other.Inner.Deep")) == b"\x06\0\x02\x04"
    with pytest.raises(BadSchemaError, match="no message 'Nope'"):
        message_of(file, "Nope")


def test_a_required_field_that_is_missing_is_refused() -> None:
    message = message_of(compile_proto("a.proto", {"a.proto": 'syntax = "proto2"; message A { required string x = 1; }'}), None)
    with pytest.raises(UnfitValueError, match="requires"):
        writer_of(message, drops=False)({})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('syntax = "proto3"; message A { strin x = 1; }', 'a.proto:1:32: "strin" is not defined'),
        ('syntax = "proto3"; import "gone.proto"; message A {}', "gone.proto"),
        ('syntax = "proto3";', "no message"),
    ],
)
def test_the_compilers_words_name_line_and_column(text: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadSchemaError) as caught:
        message_of(compile_proto("a.proto", {"a.proto": text}), None)
    assert words in str(caught.value)
    assert capfd.readouterr().err == "", "what the compiler says goes to the operator, not to standard error"


def test_a_file_of_the_registry_cannot_be_put_outside(tmp_path: Path) -> None:
    with pytest.raises(BadSchemaError, match="below its own directory"):
        compile_proto("a.proto", {"a.proto": 'syntax = "proto3"; message A {}', "../../evil.proto": ""})


def test_imports_come_from_beside_the_file_only(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common/money.proto").write_text(MONEY)
    (tmp_path / "order.proto").write_text(PROTO)
    file = TypeAdapter(ProtoPath).validate_python(str(tmp_path / "order.proto"))
    assert dict(file.imports) == {"common/money.proto": MONEY}
    assert repr(file) == f"SchemaFile(path='{tmp_path}/order.proto')"
    (tmp_path / "a.proto").write_text('syntax = "proto3"; import "../../etc/passwd"; import "/etc/passwd"; message A {}')
    assert TypeAdapter(ProtoPath).validate_python(str(tmp_path / "a.proto")).imports == ()


@pytest.mark.parametrize(
    ("path", "words"), [("a.proto", "absolute"), ("/nope/a.proto", "No such file"), ("/dev/null", "not a regular file")]
)
def test_a_file_that_cannot_be_read_says_why(path: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TypeAdapter(ProtoPath).validate_python(path)


SMALL = """syntax = "proto3"; package p; import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
message M { map<int64, string> m = 1; string user_id = 2; int32 self = 3; float f = 4; google.protobuf.Value v = 5;
google.protobuf.Timestamp t = 6; repeated M r = 7; }"""


def small(value: Any) -> Any:
    message = message_of(compile_proto("m.proto", {"m.proto": SMALL}), None)
    return GetMessageClass(message).FromString(writer_of(message, drops=False)(value))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"m": {"--5": "x"}}, "a whole number is needed"),
        ({"m": {"1" * 5000: "x"}}, "a whole number is needed"),
        ({"m": {"1": "x", "01": "y"}}, "a whole number is needed"),
        ({"m": {"0": "x", "-0": "y"}}, "a whole number is needed"),
        ({"userId": "a", "user_id": "b"}, "twice"),
        ({"v": {"n": [12345678901234567]}}, "more digits than double holds"),
        ({"v": float("nan")}, "not finite"),
        ({"f": 2**24 + 1}, "more digits than float holds"),
        ({"t": "9999-12-31T23:59:59-12:00"}, "beyond the years"),
    ],
)
def test_nothing_is_changed_or_lost_on_its_way_into_a_message(value: Any, words: str) -> None:
    with pytest.raises(UnfitValueError, match=words):
        small(value)


def test_what_fits_is_read_back() -> None:
    read = small({"m": {"-5": "x", "0": "y"}, "userId": "a", "self": 1, "v": {"n": [2**53, True]}, "t": "1970-01-01T00:00:01.000000009Z"})
    assert dict(read.m) == {-5: "x", 0: "y"}
    assert (read.user_id, read.t.nanos) == ("a", 9)
    assert json_format.MessageToDict(read.v) == {"n": [float(2**53), True]}


def test_an_import_in_a_comment_is_none(tmp_path: Path) -> None:
    (tmp_path / "m.proto").write_text('syntax = "proto3"; // import "gone.proto";\nmessage M { string a = 1; }')
    file = TypeAdapter(ProtoPath).validate_python(str(tmp_path / "m.proto"))
    form = ProtoForm(ProtobufOptions.model_construct(schema_=file, message=None, extra_fields="error"))
    written, writer = form.of_file(OfflineRegistry(SchemaRegistryOptions(url="http://127.0.0.1:9")), registers=True)
    assert written.references == ()
    assert writer.write({"a": "x"}) == b"\0\n\x01x"


def test_what_the_compiler_only_warns_of_is_told_too() -> None:
    clash = 'syntax = "proto2"; message M { optional string userId = 1; optional string user_id = 2; }'
    with pytest.warns(Warning, match="conflicts"), pytest.raises(BadSchemaError, match="duplicate json_name"):
        compile_proto("m.proto", {"m.proto": clash})
