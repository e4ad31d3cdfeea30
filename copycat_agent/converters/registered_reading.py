"""Values with a schema: before them stand a zero and the id of the schema in the registry, four bytes, as Confluent's serializers write."""

from __future__ import annotations

from functools import lru_cache

from copycat_agent.converters.registry_access import registry_of
from copycat_agent.converters.understood import Understood, json_object
from copycat_agent.errors import BlockedError
from copycat_agent.formats.draft import Unparsed
from copycat_agent.formats.records.avro_reading import BadAvroSchemaError, Reading, read_alone, reading_of
from copycat_agent.options import SchemaRegistryOptions

_PREFIX_BYTES = 5
_SCHEMAS_KEPT = 1000
_HINT = "was it written with a schema registry? else set converters.value: json, or leave it out"


class RegisteredReader:
    """One per definition and process; thread-safe."""

    def __init__(self, kind: str, registry: SchemaRegistryOptions) -> None:
        """`kind` is avro or json_schema. Asks nothing yet."""
        self._is_avro = kind == "avro"
        self._registry = registry_of(registry)
        self._reading = lru_cache(_SCHEMAS_KEPT)(self._asked)

    def read(self, data: bytes) -> Understood:
        """A `reading.ValueReader`. JSON says itself what its fields are: its schema is not asked for."""
        if len(data) < _PREFIX_BYTES or data[0]:
            return Understood(Unparsed("it does not begin with the id of a schema", _HINT))
        if not self._is_avro:
            return Understood(json_object(data[_PREFIX_BYTES:]))
        reading = self._reading(int.from_bytes(data[1:_PREFIX_BYTES], "big"))
        if isinstance(reading, Unparsed):
            return Understood(reading)
        return Understood(read_alone(data[_PREFIX_BYTES:], reading), reading.schema)

    def _asked(self, number: int) -> Reading | Unparsed:
        written = self._registry.by_id(number)
        if written.kind != "AVRO":
            return Unparsed(f"schema {number} is of type {written.kind}, the converter is avro", "correct converters.value")
        if written.references:
            raise BlockedError(f"schema {number} refers to other schemas, and is not read", "register it with all that it needs")
        try:
            return reading_of(written.text)
        except BadAvroSchemaError as error:
            return Unparsed(f"schema {number}: {error}", "correct the schema")
