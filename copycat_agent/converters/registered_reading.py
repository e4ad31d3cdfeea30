"""Decodes values with a schema in a registry: they begin with a zero byte and the schema's id in four bytes, as Confluent defines it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from copycat_agent.converters.avro_whole import whole_schema
from copycat_agent.converters.base import PREFIX_BYTES, BadSchemaError, RegistrySchema
from copycat_agent.converters.decoded_value import DecodedValue, ValueReader, json_objects
from copycat_agent.converters.registry_access import AbsentError, SchemaRegistry, registry_of
from copycat_agent.converters.schema_forms import referred
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.avro_format import BadAvroSchemaError, read_alone, reading_of
from copycat_agent.model import Schema
from copycat_agent.options import SchemaRegistryOptions

_SCHEMAS_KEPT = 1000
AGAIN_SECONDS = 0.5
"""Time after which an absent schema is requested once more: it may have been registered just now, on another node of the registry."""
ABSENT_SECONDS = 10.0
"""Time for which an absent schema is not requested again: many records may name it."""
READ_SECONDS = 5.0
"""Time after which values are returned, though others are left: absent schemas take time, and a read that gives nothing is given up."""
_HINT = "was it written with a schema registry? else set converters.value: json, or leave it out"
_ABSENT_HINT = "was it written with another registry? correct converters.schema_registry.url, or register the schema there"


class RegisteredReader:
    """Decodes values; one per definition and process. Thread-safe."""

    def __init__(self, kind: str, registry: SchemaRegistryOptions) -> None:
        """`kind` is avro, json_schema or protobuf. Sends no request yet."""
        self._kind = kind
        self._registry = registry_of(registry)
        self._reading = lru_cache(_SCHEMAS_KEPT)(self._asked)
        self._absent: dict[int, tuple[Unparsed, float]] = {}
        """Schemas that the registry does not have: what is wrong with their records, and until when to believe it (monotonic)."""

    def read_all(self, values: Sequence[bytes]) -> tuple[list[Any], list[Schema | None] | None]:
        """Implements `ValuesReader`."""
        found, until = [], time.monotonic() + READ_SECONDS
        for data in values:
            found.append(self.read(data))
            if time.monotonic() > until:
                break
        return [one.value for one in found], [one.schema for one in found]

    def read(self, data: bytes) -> DecodedValue:
        """Implements `ValueReader`. Does not fetch the schema of JSON, which names its fields itself."""
        if len(data) < PREFIX_BYTES or data[0]:
            return DecodedValue(Unparsed("it does not begin with the id of a schema", _HINT))
        if self._kind == "json_schema":
            (fields,) = json_objects((data[PREFIX_BYTES:],))
            return DecodedValue(fields)
        read = self._found(int.from_bytes(data[1:PREFIX_BYTES], "big"))
        return DecodedValue(read) if isinstance(read, Unparsed) else read(data[PREFIX_BYTES:])

    def _found(self, number: int) -> ValueReader | Unparsed:
        """Returns the reader of a schema. Records of a schema that the registry does not have, nor a moment later, are bad ones."""
        bad, until = self._absent.get(number, (None, 0.0))
        if bad is not None and time.monotonic() < until:
            return bad
        for pause in (AGAIN_SECONDS, 0.0):
            try:
                return self._reading(number)
            except AbsentError as error:
                if not error.is_certain:
                    raise
                bad = Unparsed(f"schema {number}: {error.message}", _ABSENT_HINT)
            time.sleep(pause)
        assert bad is not None
        if len(self._absent) >= _SCHEMAS_KEPT:
            self._absent.clear()
        self._absent[number] = bad, time.monotonic() + ABSENT_SECONDS
        return bad

    def _asked(self, number: int) -> ValueReader | Unparsed:
        written = self._registry.by_id(number)
        if written.kind != self._kind.upper():
            return Unparsed(f"schema {number} is of type {written.kind}, the converter is {self._kind}", "correct converters.value")
        try:
            return (_avro if self._kind == "avro" else _protobuf)(written, self._registry)
        except (BadAvroSchemaError, BadSchemaError) as error:
            return Unparsed(f"schema {number}: {error}", "correct the schema")


def _avro(written: RegistrySchema, registry: SchemaRegistry) -> ValueReader:
    others = [other.text for _, other in referred(written, registry, lambda one: (one.subject, one.version))]
    reading = reading_of(whole_schema(written.text, others) if others else written.text)
    return lambda data: DecodedValue(read_alone(data, reading), reading.schema)


def _protobuf(written: RegistrySchema, registry: SchemaRegistry) -> ValueReader:
    from copycat_agent.converters.proto_reading import reading_by  # noqa: PLC0415 - imports the compiler, which few need

    reading = reading_by(written, registry)
    return lambda data: DecodedValue(reading.read(data))
