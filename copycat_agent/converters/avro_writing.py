"""Compiles an Avro schema into functions that check a value and write it in one pass.

Faster than fastavro's writer on nullable fields. It also says which field is wrong and why, accepts no number for another type, and drops
nothing silently. fastavro parses the schemas, and tests compare every byte with its writer's.
"""

from __future__ import annotations

import threading
from typing import Any

from fastavro import parse_schema

from copycat_agent.converters import avro_numbers
from copycat_agent.converters.avro_numbers import Write
from copycat_agent.converters.base import BadSchemaError, UnfitValueError, kind, wanted
from copycat_agent.converters.schema_forms import clock_micros_of, days_of, local_micros_of, local_nanos_of, micros_of, nanos_of

AvroType = str | list[Any] | dict[str, Any]
"""An Avro schema, as in JSON."""

_TRIES_MAX = 200_000
"""How many types of unions may be tried in vain for one value: more than a value of 1 MiB needs, and no more than a second's work. In a
schema that contains itself each level of a value could double them."""
_DEFAULTS_MAX = 2**20
"""The most values and bytes of all defaults of a schema: one of 2 kB, of records within each other, has more than memory holds."""
_PLAIN: dict[str, Write] = {
    "null": avro_numbers.null, "boolean": avro_numbers.boolean, "int": avro_numbers.integer, "long": avro_numbers.long,
    "float": avro_numbers.single, "double": avro_numbers.double, "bytes": avro_numbers.binary, "string": avro_numbers.string,
}  # fmt: skip
_LOGICAL: dict[tuple[str, str], Write] = {
    ("int", "date"): avro_numbers.counted(days_of, avro_numbers.integer),
    ("int", "time-millis"): avro_numbers.counted(lambda value: clock_micros_of(value) // 1000, avro_numbers.integer),
    ("long", "time-micros"): avro_numbers.counted(clock_micros_of, avro_numbers.long),
    ("long", "timestamp-millis"): avro_numbers.counted(lambda value: micros_of(value) // 1000, avro_numbers.long),
    ("long", "timestamp-micros"): avro_numbers.counted(micros_of, avro_numbers.long),
    ("long", "timestamp-nanos"): avro_numbers.counted(nanos_of, avro_numbers.long),
    ("long", "local-timestamp-millis"): avro_numbers.counted(lambda value: local_micros_of(value) // 1000, avro_numbers.long),
    ("long", "local-timestamp-micros"): avro_numbers.counted(local_micros_of, avro_numbers.long),
    ("long", "local-timestamp-nanos"): avro_numbers.counted(local_nanos_of, avro_numbers.long),
    ("string", "uuid"): avro_numbers.uuid_text,
}
_WHOLE_FIRST = ("int", "long")
_MISSING = object()


def parsed(schema: AvroType, named: dict[str, Any]) -> AvroType:
    """Returns a schema with its names resolved, see fastavro; adds its named types to `named`. Raises BadSchemaError."""
    try:
        return parse_schema(schema, named_schemas=named)
    except Exception as error:  # noqa: BLE001 - whatever fastavro raises for JSON that is no schema
        words = str(error).partition("\n")[0][:200]
        raise BadSchemaError(f"it is no Avro schema ({type(error).__name__}: {words})") from None


class _TryBudget(threading.local):
    """How many vain tries are left for one value."""

    left = 0


class Compiler:
    """Makes writers for the types of one schema. `drops`: a record's fields that are not in the schema are left out."""

    def __init__(self, named: dict[str, Any], *, drops: bool) -> None:
        self._named = named
        self._drops = drops
        self._strict = Compiler(named, drops=False) if drops else self
        self._records: dict[str, Write] = {}
        self._defaults_left = _DEFAULTS_MAX
        self._tries: _TryBudget = self._strict.tries if drops else _TryBudget()

    @property
    def tries(self) -> _TryBudget:
        """Returns the counter that its unions use."""
        return self._tries

    def top(self, schema: AvroType) -> Write:
        """Returns the writer of a whole schema."""
        try:
            write, tries = self.of(schema), self._tries
        except RecursionError:
            raise BadSchemaError("it is nested too deeply") from None

        def guarded(value: object) -> bytes:
            tries.left = _TRIES_MAX
            try:
                return write(value)
            except RecursionError:
                raise UnfitValueError("the value is nested too deeply") from None

        return guarded

    def of(self, schema: AvroType) -> Write:  # noqa: PLR0911 - a table of kinds
        """Returns the writer of a type."""
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            return _PLAIN[schema] if schema in _PLAIN else self._named_type(schema)
        type_ = schema["type"]
        if isinstance(type_, dict | list):
            return self.of(type_)
        if special := self._logical(schema):
            return special
        if type_ == "array":
            return _array(self.of(schema["items"]))
        if type_ == "map":
            return _map(self.of(schema["values"]))
        if type_ in ("record", "error", "enum", "fixed"):
            return self._named_type(schema["name"])
        return self.of(type_)

    def _logical(self, schema: dict[str, Any]) -> Write | None:
        """Returns the writer of a logical type; None for one that is unknown or invalid for its type, which Avro ignores."""
        type_, logical = schema["type"], schema.get("logicalType")
        if logical is None or not isinstance(logical, str):
            return None
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if logical == "decimal" and isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision:
            if type_ == "bytes":
                return avro_numbers.decimal_bytes(precision, scale)
            return avro_numbers.decimal_fixed(precision, scale, schema["size"]) if type_ == "fixed" else None
        if (type_, logical, schema.get("size")) == ("fixed", "uuid", 16):
            return avro_numbers.uuid_fixed
        return _LOGICAL.get((type_, logical))

    def _named_type(self, name: str) -> Write:
        schema = self._named.get(name)
        if schema is None:
            raise BadSchemaError(f"it names a type {name[:100]!r} that is not in it")
        if schema["type"] == "enum":
            return avro_numbers.enum(tuple(schema["symbols"]))
        if schema["type"] == "fixed":
            return self._logical(schema) or avro_numbers.fixed(schema["size"])
        if name in self._records:
            return lambda value: self._records[name](value)  # noqa: PLW0108 - it contains itself, and is not finished
        self._records[name] = avro_numbers.null
        self._records[name] = write = self._record(schema)
        return write

    def _record(self, schema: dict[str, Any]) -> Write:
        fields = []
        for field in schema["fields"]:
            write = self.of(field["type"])
            fields.append((field["name"], write, self._default(field)))
        return _strict(fields, drops=self._drops)

    def _default(self, field: dict[str, Any]) -> bytes | None:
        """Returns the bytes of a missing field: its default, null if it may be null, None if it is required."""
        type_ = field["type"]
        if "default" not in field:
            if isinstance(type_, list):
                return avro_numbers.size(type_.index("null")) if "null" in type_ else None
            return b"" if type_ == "null" else None
        try:
            return self._written_default(type_, field["default"])
        except (UnfitValueError, KeyError, TypeError, ValueError, AttributeError):
            raise BadSchemaError(f"the default of field {field['name']!r} is none of its type") from None

    def _written_default(self, type_: AvroType, default: Any) -> bytes:  # noqa: ANN401 - JSON
        """Writes a default from the schema's JSON: of a union the first type that accepts it, bytes as text of Latin-1."""
        data = self._default_bytes(type_, default)
        self._defaults_left -= 1 + len(data)
        if self._defaults_left < 0:
            raise BadSchemaError(f"its defaults have more than {_DEFAULTS_MAX} values and bytes")
        return data

    def _default_bytes(self, type_: AvroType, default: Any) -> bytes:  # noqa: ANN401 - JSON
        if isinstance(type_, list):
            return self._default_of_union(type_, default)
        full = self._named.get(type_, type_) if isinstance(type_, str) else self._named.get(type_.get("name", ""), type_)
        base = full if isinstance(full, str) else full["type"]
        if base in ("bytes", "fixed"):
            data: bytes = default.encode("latin-1")
            return avro_numbers.binary(data) if base == "bytes" else data
        if base in ("record", "error"):
            return b"".join([self._written_default(field["type"], _chosen(default, field)) for field in full["fields"]])
        if base == "array":
            items = [self._written_default(full["items"], item) for item in default]
            return avro_numbers.size(len(items)) + b"".join(items) + (b"\0" if items else b"")
        if base == "map":
            pairs = [avro_numbers.string(key) + self._written_default(full["values"], item) for key, item in default.items()]
            return avro_numbers.size(len(pairs)) + b"".join(pairs) + (b"\0" if pairs else b"")
        return _PLAIN[base](default) if base in _PLAIN else self.of(type_)(default)

    def _default_of_union(self, branches: list[Any], default: Any) -> bytes:  # noqa: ANN401 - JSON
        for index, branch in enumerate(branches):
            try:
                return avro_numbers.size(index) + self._written_default(branch, default)
            except (UnfitValueError, KeyError, TypeError, ValueError, AttributeError):
                continue
        raise wanted("one of its types", default)

    def _union(self, branches: list[Any]) -> Write:
        of = _exact if any(map(_is_double, branches)) else _unchanged
        writes = [(avro_numbers.size(index), branch, of(self.of(branch))) for index, branch in enumerate(branches)]
        if len(writes) == 2 and "null" in branches and branches != ["null", "null"]:  # noqa: PLR2004 - null and another
            at = branches.index("null")
            return _nullable(writes[at][0], writes[1 - at][0], writes[1 - at][2])
        if self._drops:  # a type that accepts all of a value is tried before one that would leave some of it out
            strict = [(avro_numbers.size(index), branch, of(self._strict.of(branch))) for index, branch in enumerate(branches)]
            writes = [*strict, *writes]
        return _any_of(writes, self._tries)


def _is_double(branch: AvroType) -> bool:
    return "double" in (branch, branch.get("type") if isinstance(branch, dict) else "")


def _exact(write: Write) -> Write:
    """Returns the writer of a type beside double, which takes the numbers that float would round."""
    return avro_numbers.exact_single if write is avro_numbers.single else write


def _unchanged(write: Write) -> Write:
    return write


def _chosen(default: dict[str, Any], field: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    return default[field["name"]] if field["name"] in default else field["default"]


def _strict(fields: list[tuple[str, Write, bytes | None]], *, drops: bool) -> Write:
    """Returns the writer of a record: its fields in order."""
    names = frozenset(name for name, _, _ in fields)

    def write(value: object) -> bytes:
        if type(value) is not dict and not isinstance(value, dict):
            raise wanted("an object", value)
        parts, seen, name = [], 0, ""
        try:
            for name, write_field, default in fields:
                found = value.get(name, _MISSING)
                if found is not _MISSING:
                    seen += 1
                    parts.append(write_field(found))
                elif default is not None:
                    parts.append(default)
                else:
                    raise UnfitValueError(_ABSENT)  # noqa: TRY301 - it gets its path below
        except UnfitValueError as unfit:
            raise unfit.within(name) from None
        if seen != len(value) and not drops:
            raise _extra(value, names)
        return b"".join(parts)

    return write


_TOO_MANY = "the types of the schema's unions can be tried on it in too many ways"
_ABSENT = "it is missing, and the schema has no default for it"


def _extra(value: dict[Any, Any], names: frozenset[str]) -> UnfitValueError:
    extra = next(name for name in value if name not in names)
    return UnfitValueError("the schema has no such field; extra_fields: drop leaves such fields out").within(str(extra))


def _nullable(null: bytes, other: bytes, write: Write) -> Write:
    def either(value: object) -> bytes:
        return null if value is None else other + write(value)

    return either


def _any_of(writes: list[tuple[bytes, Any, Write]], tries: _TryBudget) -> Write:
    """Returns a writer by the first type that accepts the value; whole numbers try types of whole numbers first."""
    whole = sorted(writes, key=lambda one: one[1] not in _WHOLE_FIRST)

    def write(value: object) -> bytes:
        deepest: UnfitValueError | None = None
        for index, _, write_branch in whole if type(value) is int else writes:
            try:
                return index + write_branch(value)
            except UnfitValueError as unfit:
                tries.left -= 1
                if tries.left < 0:
                    raise UnfitValueError(_TOO_MANY) from None
                if deepest is None or len(unfit.path) > len(deepest.path):
                    deepest = unfit
        if deepest is not None and deepest.path:
            raise deepest
        raise UnfitValueError(f"none of the types that the schema allows takes {kind(value)}")

    return write


def _array(write_item: Write) -> Write:
    def write(value: object) -> bytes:
        if not isinstance(value, list | tuple):
            raise wanted("a list", value)
        if not value:
            return b"\0"
        items: list[bytes] = []
        try:
            items.extend(map(write_item, value))
        except UnfitValueError as unfit:
            raise unfit.within(f"[{len(items)}]") from None  # `items` holds those before it
        return avro_numbers.size(len(items)) + b"".join(items) + b"\0"

    return write


def _map(write_item: Write) -> Write:
    def write(value: object) -> bytes:
        if not isinstance(value, dict):
            raise wanted("an object", value)
        if not value:
            return b"\0"
        parts, name = [avro_numbers.size(len(value))], ""
        try:
            for name, item in value.items():
                parts += avro_numbers.string(name), write_item(item)
        except UnfitValueError as unfit:
            raise unfit.within(str(name)) from None
        return b"".join([*parts, b"\0"])

    return write
