"""The other way: from the bytes of a value in Kafka to what it holds, by the options of the converter that would write it.

Null has no bytes, and is nobody's business here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from copycat_agent.converters.understood import Understood, ValueReader, json_object

if TYPE_CHECKING:
    from copycat_agent.options import ConverterOptions, SchemaRegistryOptions


READABLE = ("bytes", "string", "json", "avro", "json_schema", "protobuf")
"""Types of converters whose values can be read."""


def value_reader(options: ConverterOptions, registry: SchemaRegistryOptions | None) -> ValueReader:
    """The reader of values that the converter of these options writes. `options.type` is one of `READABLE`. Asks nothing yet."""
    if options.type == "json":
        return lambda data: Understood(json_object(data))
    if options.type in ("bytes", "string"):
        return Understood
    from copycat_agent.converters.registered_reading import RegisteredReader  # noqa: PLC0415 - imports the registry's client, and fastavro

    assert registry is not None, "check sees to it"
    return RegisteredReader(options.type, registry).read
