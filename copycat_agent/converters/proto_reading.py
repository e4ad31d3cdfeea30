"""Turns protobuf messages in values of topics into fields: the reverse of `proto_fields`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format  # type: ignore[import-untyped]
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]

from copycat_agent.converters.proto_fields import JSON_TYPES, WRAPPERS
from copycat_agent.converters.proto_form import file_of
from copycat_agent.formats.draft import Unparsed

if TYPE_CHECKING:
    from copycat_agent.converters.base import RegistrySchema
    from copycat_agent.converters.registry_access import SchemaRegistry

_VARINT_BYTES = 10
_MICROSECOND_NANOS = 1000


class ProtoDecoder:
    """Decodes payloads of one file's messages. A payload begins with the indexes of its message type. Thread-safe."""

    def __init__(self, file: FileDescriptor) -> None:
        self._file = file
        self._message = lru_cache(100)(self._found)

    def read(self, data: bytes) -> dict[str, Any] | Unparsed:
        """Returns the fields of a payload's message; None for a field with presence that is not set. `Unparsed` for an invalid payload."""
        try:
            path, begin = _indexes(data)
            kind = self._message(path)
        except (IndexError, ValueError):
            return Unparsed("it does not say which message of its schema it is", "was it written with a schema registry?")
        try:
            return _fields(GetMessageClass(kind).FromString(data[begin:]))
        except (DecodeError, RecursionError, json_format.Error):
            return Unparsed("it is no message of its schema")
        except ValueError:
            return Unparsed("a time, duration or other value of protobuf's own types is beyond what its type allows")

    def _found(self, path: tuple[int, ...]) -> Descriptor:
        first, *inner = path
        found = self._file.message_types_by_name.values()[first]
        for index in inner:
            found = found.nested_types[index]
        return found


def reading_by(schema: RegistrySchema, registry: SchemaRegistry) -> ProtoDecoder:
    """Returns the reader for a schema of the registry. Raises BadSchemaError, and what the registry raises."""
    return ProtoDecoder(file_of(schema, registry))


def _indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the path of the message type in the file, and the message's begin. Raises IndexError or ValueError without a valid path."""
    count, at = _varint(data, 0)
    path = []
    for _ in range(count):
        index, at = _varint(data, at)
        path.append(index)
    if any(index < 0 for index in (count, *path)):
        raise ValueError
    return tuple(path) or (0,), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a zigzag number and the position after it. Raises IndexError or ValueError."""
    number = 0
    for shift in range(_VARINT_BYTES):
        byte = data[at + shift]
        number |= (byte & 127) << 7 * shift
        if byte < 128:  # noqa: PLR2004 - the last has no high bit
            return number >> 1 ^ -(number & 1), at + shift + 1
    raise ValueError


def _fields(message: Message) -> dict[str, Any]:
    return {field.name: _of_field(message, field) for field in message.DESCRIPTOR.fields}


def _of_field(message: Message, field: FieldDescriptor) -> Any:  # noqa: ANN401 - any field's
    if not field.is_repeated:
        if field.has_presence and not message.HasField(field.name):
            return None
        return _of(field)(getattr(message, field.name))
    found = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = _of(field.message_type.fields_by_name["value"])
        return {key if isinstance(key, str) else str(key): of(value) for key, value in found.items()}
    return list(map(_of(field), found))


def _of(field: FieldDescriptor) -> Callable[[Any], Any]:
    """Returns the function that converts single values of a field."""
    if field.enum_type is not None:
        names: Mapping[int, Any] = field.enum_type.values_by_number
        return lambda value: names[value].name if value in names else value
    return _of_message if field.message_type is not None else lambda value: value


def _of_message(message: Message) -> Any:  # noqa: ANN401 - as above
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":  # finer than datetime allows: text
        return message.ToJsonString() if message.nanos % _MICROSECOND_NANOS else message.ToDatetime(UTC)
    if name in WRAPPERS:
        return message.value
    if name == "google.protobuf.Any":
        return _of_any(message)
    if name in JSON_TYPES or name.startswith("google.protobuf."):
        return json_format.MessageToDict(message)
    return _fields(message)


def _of_any(message: Message) -> dict[str, Any]:
    """Returns the message in an `Any`, with its type; as the type's URL and bytes if the schema does not have that type."""
    try:
        found: dict[str, Any] = json_format.MessageToDict(message, descriptor_pool=message.DESCRIPTOR.file.pool)
    except TypeError:
        return _fields(message)
    return found
