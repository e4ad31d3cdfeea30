"""Avro files: the schema that came with records is the file's, and others read it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from copycat_agent.encoding.files_layout import TypedValue, shown_value
from copycat_agent.errors import DataError
from copycat_agent.model import Schema
from copycat_agent.sinks.formats import RangeFiles, WrittenFile
from tests.unit.sinks.formats.rig import options, read, read_all, schema_of

ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "namespace": "shop", "doc": "An order.",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "note", "type": ["null", "string", {"type": "array", "items": "int"}], "default": None},
        {"name": "parent", "type": ["null", "Order"], "default": None},
    ],
}  # fmt: skip
SCHEMA = schema_of(json.dumps(ORDER), id="bigint", state="string", note="variant", parent="variant")
TEXT_SCHEMA = schema_of(json.dumps({"type": "record", "name": "r", "fields": [{"name": "t", "type": "string"}]}), t="string")
RECORD = {"id": 1, "state": "NEW", "note": [1, 2], "parent": {"id": 0, "state": "PAID", "note": "x", "parent": None}}


def schema_in(file: WrittenFile) -> Any:
    with file.path.open("rb") as stream:
        return json.loads(fastavro.reader(stream).metadata["avro.schema"])


def test_the_schema_of_the_records_is_the_files(tmp_path: Path) -> None:
    files = RangeFiles(options("avro"), tmp_path)
    assert files.add_all("d", [RECORD] * 5, SCHEMA) == 5
    with pytest.raises(DataError, match="field 'state': the text is none of the enum's words"):
        files.add("d", RECORD | {"state": "LOST"}, SCHEMA)
    (file,) = files.close()
    assert schema_in(file) == ORDER
    assert read(file) == [RECORD] * 5


def test_records_with_fields_that_the_schema_lacks_go_to_a_file_of_their_columns(tmp_path: Path) -> None:
    files = RangeFiles(options("avro"), tmp_path)
    more = RECORD | {"more": "é", "note": "x", "parent": None}
    assert files.add_all("d", [RECORD, more, RECORD, more, RECORD | {"state": 1}], SCHEMA) == 4
    given, made = files.close()
    assert read(given) == [RECORD] * 2
    assert read(made) == [{"id": 1, "state": "NEW", "note": '"x"', "parent": None, "more": "é"}] * 2


def test_a_schema_may_be_no_record(tmp_path: Path) -> None:
    files = RangeFiles(options("avro"), tmp_path)
    schema = schema_of('"string"', value="string")
    assert files.add_all("d", [{"value": "a"}, {"value": "b"}, "c", {"value": 1}], schema) == 3
    (file,) = files.close()
    assert (schema_in(file), read(file)) == ("string", ["a", "b", "c"])


def test_records_that_are_encoded_already_stay_as_they_are(tmp_path: Path) -> None:
    event = [{"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]} for name in ("Made", "Gone")]
    files = RangeFiles(options("avro"), tmp_path)
    assert files.add_all("d", [b"\0\2", b"\2\4"], schema_of(json.dumps(event), value="variant")) == 2
    (file,) = files.close()
    with file.path.open("rb") as stream:
        assert list(fastavro.reader(stream, return_record_name=True)) == [("Made", {"id": 1}), ("Gone", {"id": 2})]


def test_a_record_that_is_encoded_is_shown_in_fields() -> None:
    assert shown_value(TypedValue(b"\2a", TEXT_SCHEMA)) == b'{"t":"a"}'


def test_a_schema_that_cannot_be_written_with_has_what_is_encoded_already(tmp_path: Path) -> None:
    kind = {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}
    schema = {"type": "record", "name": "r", "fields": [{"name": "kind", "type": kind, "default": "C"}]}
    files = RangeFiles(options("avro"), tmp_path)
    assert files.add_all("d", [b"\2", {"kind": "A"}, b"\2"], schema_of(json.dumps(schema), kind="string")) == 3
    given, made = files.close()
    assert (read(given), read(made)) == ([{"kind": "B"}] * 2, [{"kind": "A"}])


@pytest.mark.parametrize("text", ["{", '{"type": "x"}', "[" * 5000])
def test_of_a_schema_that_is_none_the_columns_count(tmp_path: Path, text: str) -> None:
    files = RangeFiles(options("avro"), tmp_path)
    files.add("d", {"n": 1}, schema_of(text, n="int"))
    assert read_all(files.close()) == [{"n": 1}]


def test_names_that_avro_does_not_have_do_not_fit(tmp_path: Path) -> None:
    files = RangeFiles(options("avro"), tmp_path)
    files.add("d", {"ok": 1})
    for record in ({"a.b": 1}, {"": 1}, {"ok": 1, "deep": [{"a b": 1}]}):
        with pytest.raises(DataError, match="cannot be a field's name in Avro"):
            files.add("d", record)
    assert read_all(files.close()) == [{"ok": 1}]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "snappy"])
@pytest.mark.parametrize(
    "schema", [None, schema_of(json.dumps({"type": "record", "name": "r", "fields": [{"name": "t", "type": "string"}]}), t="string")]
)
def test_blocks_of_every_codec_are_read_by_others(tmp_path: Path, compression: str, schema: Schema | None) -> None:
    files = RangeFiles(options("avro", compression), tmp_path)
    rows = [{"t": f"{number}" * 20} for number in range(20_000)]
    assert files.add_all("d", rows, schema) == len(rows)
    (file,) = files.close()
    assert read(file) == rows
    reader = fastavro.block_reader(io.BytesIO(file.path.read_bytes()))
    assert reader.metadata["avro.codec"] == {"none": "null", "gzip": "deflate", "zstd": "zstandard"}.get(compression, compression)
    assert len(list(reader)) in (7, 8), "of 256 KiB"
