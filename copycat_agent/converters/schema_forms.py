"""The common parts of avro, json_schema and protobuf: the interface to their schemas, column types, and times as counts.

Times are Python's own types, and RFC 3339 text.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from copycat_agent.converters.base import BadSchemaError, Reference, RegistrySchema, UnfitValueError, wanted
from copycat_agent.model import Column
from copycat_agent.sql_types import SqlType, parse_type

if TYPE_CHECKING:
    from copycat_agent.converters.registry_access import SchemaRegistry
    from copycat_agent.converters.schema_options import SchemaOptions


Scalar = Literal["string", "int", "double", "boolean", "bytes"]


class Key(NamedTuple):
    """The form in which a schema accepts a key, which is a text: a value of this kind, alone or, with `field`, as its only field."""

    kind: Scalar
    field: str = ""


class Writer(NamedTuple):
    """A compiled schema. `write` returns the payload of a value, without the id before it; it raises `UnfitValueError`.

    `name` is the schema's full name, "" if it has none. `key` is how a text fits, None if it does not.
    """

    write: Callable[[Any], bytes]
    name: str = ""
    key: Key | None = None


class SchemaForm(ABC):
    """One kind of schema, with the options of one converter. Methods raise `BadSchemaError`."""

    kind: ClassVar[str]
    """Its name in registries."""

    def __init__(self, options: SchemaOptions) -> None:
        self._options = options

    def of_file(self, registry: SchemaRegistry, *, registers: bool) -> tuple[RegistrySchema, Writer]:
        """Returns the schema of the options' file. `registers`: registers its imports; else they have to be in the registry."""
        del registry, registers  # it has no imports
        assert self._options.schema_ is not None
        return self.own(self._options.schema_.text)

    def of_registry(self, schema: RegistrySchema, registry: SchemaRegistry) -> Writer:
        """Returns the writer of a schema from the registry, which may refer to others there."""
        if schema.kind != self.kind:
            raise BadSchemaError(f"it is of type {schema.kind}, the converter is {self._options.type}")
        return self._writer(schema.text, self._others(schema, registry))

    @abstractmethod
    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[RegistrySchema, Writer]:
        """Returns a schema made for these columns, `name` from the topic. `written` is the file's own if it still applies; else ""."""

    @abstractmethod
    def of_key(self, name: str) -> tuple[RegistrySchema, Writer]:
        """Returns a schema for texts."""

    def own(self, text: str) -> tuple[RegistrySchema, Writer]:
        """Returns a schema that refers to no other."""
        return RegistrySchema(self.kind, text), self._writer(text, {})

    @abstractmethod
    def _others(self, schema: RegistrySchema, registry: SchemaRegistry) -> dict[str, Any]:
        """Returns the schemas that this one refers to, in the form for `_writer`."""

    @abstractmethod
    def _writer(self, text: str, others: dict[str, Any]) -> Writer: ...


_REFERENCES_MAX = 100
"""The most other schemas that one may refer to, including indirect references."""


def referred(
    schema: RegistrySchema, registry: SchemaRegistry, key: Callable[[Reference], object], seen: set[object] | None = None
) -> Iterator[tuple[str, RegistrySchema]]:
    """Yields the referenced schemas with their names, innermost first; the first for each `key`, none for a `key` of None."""
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
    """Returns names and types of columns, and whether they may be null. Raises BadSchemaError."""
    found = []
    for column in columns:
        try:
            found.append((column.name, parse_type(column.type), column.nullable))
        except ValueError:
            raise BadSchemaError(f"{column.type[:100]!r} is no type of Spark SQL") from None
    return found


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = timedelta(microseconds=1)
_DATED = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")
_DAY_ONLY = re.compile(r"\d{4}-\d\d-\d\d")
_FINER = re.compile(r"[.,]\d{6}(\d{1,3})")
_CLOCK = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")


def micros_of(value: object) -> int:
    """Returns microseconds since 1970 of a moment with a zone. Raises UnfitValueError."""
    if isinstance(value, str):
        value = _moment(value)
    if not isinstance(value, datetime):
        raise wanted("a time", value)
    if value.tzinfo is None:
        raise UnfitValueError("a time with a zone is needed, this one has none")
    return (value - _EPOCH) // _MICROSECOND


def local_micros_of(value: object) -> int:
    """Returns microseconds since 1970 of a time without a zone. Raises UnfitValueError."""
    if isinstance(value, str):
        value = _moment(value)
    if not isinstance(value, datetime):
        raise wanted("a time", value)
    if value.tzinfo is not None:
        raise UnfitValueError("a time without a zone is needed, this one has one")
    return (value - _LOCAL_EPOCH) // _MICROSECOND


def nanos_of(value: object) -> int:
    """Returns nanoseconds since 1970 of a moment with a zone: Python's types have microseconds, texts may have more.

    Raises UnfitValueError.
    """
    return micros_of(value) * 1000 + _finer(value)


def local_nanos_of(value: object) -> int:
    """Returns nanoseconds since 1970 of a time without a zone. Raises UnfitValueError."""
    return local_micros_of(value) * 1000 + _finer(value)


def _finer(value: object) -> int:
    """Returns the nanoseconds of a text beyond its microseconds."""
    found = _FINER.search(value) if isinstance(value, str) else None
    return int(found[1].ljust(3, "0")) if found else 0


def days_of(value: object) -> int:
    """Returns days since 1970-01-01. Raises UnfitValueError."""
    if isinstance(value, str):
        value = _parsed(date.fromisoformat, _DAY_ONLY.fullmatch(value), value, "a date such as 2026-11-21")
    if not isinstance(value, date) or isinstance(value, datetime):
        raise wanted("a date", value)
    return value.toordinal() - _EPOCH_DAY


def clock_micros_of(value: object) -> int:
    """Returns microseconds since midnight of a time of day. Raises UnfitValueError."""
    if isinstance(value, str):
        value = _parsed(time.fromisoformat, _CLOCK.fullmatch(value), value, "a time of day such as 05:00:00")
    if not isinstance(value, time):
        raise wanted("a time of day", value)
    if value.tzinfo is not None:
        raise UnfitValueError("a time of day without a zone is needed, this one has one")
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond


def _moment(text: str) -> object:
    return _parsed(datetime.fromisoformat, _DATED.match(text), text, "a time such as 2026-11-21T05:00:00Z")


def _parsed(parse: Callable[[str], object], shape: re.Match[str] | None, text: str, what: str) -> object:
    if shape is not None:
        try:
            return parse(text)
        except ValueError:
            pass
    raise UnfitValueError(f"{what} is needed, the text is none")
