"""Decodes values of Kafka records, by the options of the converter that would write them.

Callers leave out null, which has no bytes.
"""

from __future__ import annotations

from copycat_agent.converters.decoded_value import ValuesReader, json_objects
from copycat_agent.options import ConverterOptions, SchemaRegistryOptions

READABLE = ("bytes", "string", "json", "avro", "json_schema", "protobuf")
"""Types of converters whose values can be decoded."""


def values_reader(options: ConverterOptions, registry: SchemaRegistryOptions | None) -> ValuesReader:
    """Returns the reader of values that the converter of these options writes. `options.type` is in `READABLE`. Sends no request yet."""
    if options.type == "json":
        return lambda values: (json_objects(values), None)
    if options.type in ("bytes", "string"):
        return lambda values: (list(values), None)
    from copycat_agent.converters.registered_reading import RegisteredReader  # noqa: PLC0415 - imports the registry's client, and fastavro

    assert registry is not None, "check sees to it"
    return RegisteredReader(options.type, registry).read_all
