"""What each of avro, json_schema and protobuf knows of its schemas; everything else they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from copycat_agent.model import Column

if TYPE_CHECKING:
    from copycat_agent.converters.schemas.registry_access import SchemaRegistry, Written

Scalar = Literal["string", "int", "double", "boolean", "bytes"]


class Key(NamedTuple):
    """What a schema takes of a key, which is a text: a value of this kind, by itself or, with `field`, as its only field."""

    kind: Scalar
    field: str = ""


class Writer(NamedTuple):
    """A schema, compiled. `write` makes the payload of a value, without the id before it; it raises `Unfit`.

    `name` is the schema's full name, "" where it has none. `key` says how a text fits, None where it does not.
    """

    write: Callable[[Any], bytes]
    name: str = ""
    key: Key | None = None


class SchemaForm(Protocol):
    """One kind of schema, with the options of one converter. Methods raise `BadSchemaError`."""

    def of_file(self, registry: SchemaRegistry, *, registers: bool) -> tuple[Written, Writer]:
        """The schema of the options' file. `registers` puts what it imports into the registry; else that has to be there."""

    def of_registry(self, schema: Written, registry: SchemaRegistry) -> Writer:
        """A schema that came from the registry, and may refer to others there."""

    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[Written, Writer]:
        """A schema made for these columns, `name` from the topic. `written` is the file's own, where it still holds; else ""."""

    def of_key(self, name: str) -> tuple[Written, Writer]:
        """A schema for texts."""


REFERENCES_MAX = 100
"""So many other schemas one may refer to, all in all."""


class BadSchemaError(Exception):
    """A schema that is none, or one that cannot be used. Its text says why and holds no data."""


class TooManyReferencesError(BadSchemaError):
    """More than `REFERENCES_MAX`."""

    def __init__(self) -> None:
        super().__init__(f"it refers to more than {REFERENCES_MAX} others")
