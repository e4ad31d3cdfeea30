"""The schemas of `avro`, including those made for declared columns. `avro_writing` is the only user of fastavro here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from copycat_agent.converters.avro_writing import AvroType, Compiler, parsed
from copycat_agent.converters.base import BadSchemaError, ConverterProblem, RegistrySchema, Site
from copycat_agent.converters.schema_forms import Key, Scalar, SchemaForm, Writer, referred, typed
from copycat_agent.converters.schema_options import AvroConverterOptions, file_problem, underivable
from copycat_agent.model import Column

if TYPE_CHECKING:
    from copycat_agent.converters.registry_access import SchemaRegistry
    from copycat_agent.sql_types import SqlType

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MILLIS_DIGITS = 3
_SIMPLE: dict[str, Any] = {
    "string": "string", "boolean": "boolean", "tinyint": "int", "smallint": "int", "int": "int", "bigint": "long", "float": "float",
    "double": "double", "binary": "bytes", "void": "null",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip
_KEYS: dict[str, Scalar] = {
    "string": "string", "int": "int", "long": "int", "float": "double", "double": "double", "boolean": "boolean", "bytes": "bytes",
}  # fmt: skip


def avro_of(columns: tuple[Column, ...], name: str) -> dict[str, Any]:
    """Returns a record schema of this name. Raises BadSchemaError for a name or a type that Avro does not have."""
    return _record(typed(columns), name, set())


def _record(fields: list[tuple[str, SqlType, bool]], name: str, taken: set[str]) -> dict[str, Any]:
    """Returns a record schema; `taken` are the names of other records, which have to differ."""
    while name in taken:
        name += "_"
    taken.add(name)
    made = []
    for field, type_, nullable in fields:
        if not _NAME.fullmatch(field):
            raise BadSchemaError(f"{field[:100]!r} cannot be a field's name in Avro; rename it")
        made.append({"name": field, **_field(_type(type_, f"{name}_{field}", field, taken), nullable=nullable)})
    return {"type": "record", "name": name, "fields": made}


def _field(type_: Any, *, nullable: bool) -> dict[str, Any]:  # noqa: ANN401 - JSON
    if type_ == "null":
        return {"type": "null", "default": None}
    return {"type": ["null", type_], "default": None} if nullable else {"type": type_}


def _type(type_: SqlType, name: str, field: str, taken: set[str]) -> Any:  # noqa: ANN401 - JSON
    """Returns a type; `name` is for a record, `field` for messages, `taken` as for `_record`."""
    if type_.word in _SIMPLE:
        return _SIMPLE[type_.word]
    if type_.word == "decimal":
        precision, scale = (*type_.numbers, 0)[:2] if type_.numbers else (10, 0)
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    if type_.word == "time":
        digits = type_.numbers[0] if type_.numbers else 6
        unit, base = ("millis", "int") if digits <= _MILLIS_DIGITS else ("micros", "long")
        return {"type": base, "logicalType": f"time-{unit}"}
    if type_.word == "array":
        return {"type": "array", "items": _or_null(_type(type_.parts[0][1], f"{name}_item", field, taken))}
    if type_.word == "map" and type_.parts[0][1].word == "string":
        return {"type": "map", "values": _or_null(_type(type_.parts[1][1], f"{name}_value", field, taken))}
    if type_.word == "struct":
        return _record([(part, inner, True) for part, inner in type_.parts], name, taken)
    raise BadSchemaError(f"field {field[:100]!r} is of type {type_.word}, for which Avro has none")


def _or_null(type_: Any) -> Any:  # noqa: ANN401 - JSON
    return type_ if type_ == "null" else ["null", type_]


class AvroForm(SchemaForm):
    """Avro. References are parsed into the named types of the schema that has them."""

    kind = "AVRO"
    _options: AvroConverterOptions

    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[RegistrySchema, Writer]:
        return self.own(written or json.dumps(avro_of(columns, name), separators=(",", ":")))

    def of_key(self, name: str) -> tuple[RegistrySchema, Writer]:
        del name
        return self.own('"string"')

    def _others(self, schema: RegistrySchema, registry: SchemaRegistry) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for _, other in referred(schema, registry, lambda one: (one.subject, one.version)):
            parsed(_json(other.text), named)
        return named

    def _writer(self, text: str, others: dict[str, Any]) -> Writer:
        schema = parsed(_json(text), others)
        write = Compiler(others, drops=self._options.extra_fields == "drop").top(schema)
        return Writer(write, full_name(schema), _key(schema))


def _json(text: str) -> AvroType:
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        if text.strip().isalpha():
            return text.strip()  # a primitive type may be written without quotes
        raise BadSchemaError("it is no JSON") from None


def full_name(schema: AvroType) -> str:
    """Returns the full name of a record, enum or fixed; else the primitive's, which Confluent's strategies use."""
    if isinstance(schema, dict):
        return str(schema.get("name") or (schema["type"] if isinstance(schema["type"], str) else ""))
    return schema if isinstance(schema, str) else ""


def _key(schema: AvroType) -> Key | None:
    if isinstance(schema, dict) and schema["type"] == "record":
        fields = schema["fields"]
        inner = _key(fields[0]["type"]) if len(fields) == 1 else None
        return Key(inner.kind, fields[0]["name"]) if inner is not None and not inner.field else None
    type_ = schema if isinstance(schema, str) else schema["type"] if isinstance(schema, dict) and "logicalType" not in schema else ""
    if isinstance(schema, dict) and schema.get("logicalType") == "uuid":
        type_ = "string"
    if isinstance(schema, dict) and schema["type"] == "enum":
        type_ = "string"
    return Key(_KEYS[type_]) if type_ in _KEYS else None


def problems(options: AvroConverterOptions, site: Site) -> Iterator[ConverterProblem]:
    """Yields problems of the schema's file, and of the declared fields that it has to hold or to be made of."""
    if options.schema_ is not None:
        yield from _file_problems(options, site)
    elif options.derives and site.part == "value" and site.columns is not None:
        try:
            avro_of(site.columns, "r")
        except BadSchemaError as error:
            yield underivable(site, error)


def _file_problems(options: AvroConverterOptions, site: Site) -> Iterator[ConverterProblem]:
    assert options.schema_ is not None
    file = options.schema_
    try:
        _, writer = AvroForm(options).own(file.text)
        schema = parsed(_json(file.text), {})
    except BadSchemaError as error:
        yield file_problem(site, file, str(error), "correct the file; it is an Avro schema in JSON")
        return
    if site.part == "key":
        if writer.key is None:
            yield file_problem(site, file, "it takes no text, and a key is one", "use a primitive type, or a record with one such field")
    elif site.columns is not None:
        if isinstance(schema, dict) and schema["type"] == "record":
            yield from _mismatches(options, site, schema)
        else:
            yield file_problem(site, file, "it is no record", "values have fields; only a record takes those")


def _mismatches(options: AvroConverterOptions, site: Site, schema: dict[str, Any]) -> Iterator[ConverterProblem]:
    """Yields declared fields that the schema does not have, and required fields that are not declared."""
    assert options.schema_ is not None
    declared = {column.name for column in site.columns or ()}
    known = {field["name"] for field in schema["fields"]}
    if options.extra_fields == "error" and (extra := sorted(declared - known)):
        hint = "drop it in transforms (drop_fields), add it to the schema, or set extra_fields: drop"
        yield file_problem(site, options.schema_, f"it has no field {extra[0]!r}, which the records have", hint)
    needed = [field for field in schema["fields"] if "default" not in field and not _nullable(field["type"])]
    for field in needed:
        if field["name"] not in declared:
            hint = "make it in transforms (set, default, rename), or give it a default in the schema"
            yield file_problem(site, options.schema_, f"it needs a field {field['name']!r}, which the records do not have", hint)


def _nullable(type_: AvroType) -> bool:
    return type_ == "null" or (isinstance(type_, list) and "null" in type_)
