"""What each of avro, json_schema and protobuf knows of its schemas, and the columns that they make schemas of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from copycat_agent.converters.base import BadSchemaError, Reference, Written
from copycat_agent.model import Column
from copycat_agent.sql_types import SqlType, parse_type

if TYPE_CHECKING:
    from copycat_agent.converters.registry_access import SchemaRegistry
    from copycat_agent.converters.schema_options import SchemaOptions


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


class SchemaForm(ABC):
    """One kind of schema, with the options of one converter. Methods raise `BadSchemaError`."""

    kind: ClassVar[str]
    """As registries call it."""

    def __init__(self, options: SchemaOptions) -> None:
        self._options = options

    def of_file(self, registry: SchemaRegistry, *, registers: bool) -> tuple[Written, Writer]:
        """The schema of the options' file. `registers` puts what it imports into the registry; else that has to be there."""
        del registry, registers  # it stands for itself
        assert self._options.schema_ is not None
        return self.own(self._options.schema_.text)

    def of_registry(self, schema: Written, registry: SchemaRegistry) -> Writer:
        """A schema that came from the registry, and may refer to others there."""
        if schema.kind != self.kind:
            raise BadSchemaError(f"it is of type {schema.kind}, the converter is {self._options.type}")
        return self._writer(schema.text, self._others(schema, registry))

    @abstractmethod
    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[Written, Writer]:
        """A schema made for these columns, `name` from the topic. `written` is the file's own, where it still holds; else ""."""

    @abstractmethod
    def of_key(self, name: str) -> tuple[Written, Writer]:
        """A schema for texts."""

    def own(self, text: str) -> tuple[Written, Writer]:
        """A schema that refers to no other."""
        return Written(self.kind, text), self._writer(text, {})

    @abstractmethod
    def _others(self, schema: Written, registry: SchemaRegistry) -> dict[str, Any]:
        """What the schema refers to, as `_writer` takes it."""

    @abstractmethod
    def _writer(self, text: str, others: dict[str, Any]) -> Writer: ...


_REFERENCES_MAX = 100
"""So many other schemas one may refer to, all in all."""


def referred(
    schema: Written, registry: SchemaRegistry, key: Callable[[Reference], object], seen: set[object] | None = None
) -> Iterator[tuple[str, Written]]:
    """The schemas that one refers to, by their names there, innermost first; of those with one `key` the first, of those with None none."""
    seen = {None} if seen is None else seen
    for one in schema.references:
        if key(one) in seen:
            continue
        seen.add(key(one))
        if len(seen) > 1 + _REFERENCES_MAX:
            raise BadSchemaError(f"it refers to more than {_REFERENCES_MAX} others")
        other = registry.version(one.subject, one.version).schema
        yield from referred(other, registry, key, seen)
        yield one.name, other


def typed(columns: tuple[Column, ...]) -> list[tuple[str, SqlType, bool]]:
    """Names and types of columns, and whether they may be null. Raises BadSchemaError."""
    found = []
    for column in columns:
        try:
            found.append((column.name, parse_type(column.type), column.nullable))
        except ValueError:
            raise BadSchemaError(f"{column.type[:100]!r} is no type of Spark SQL") from None
    return found
