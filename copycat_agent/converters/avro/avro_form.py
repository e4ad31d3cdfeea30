"""What `avro` knows of schemas. Door to fastavro, with `writing`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from copycat_agent.converters.avro.derived import avro_of
from copycat_agent.converters.avro.writing import AvroType, Compiler, parsed
from copycat_agent.converters.base import OptionProblem, Site
from copycat_agent.converters.schemas.form import REFERENCES_MAX, BadSchemaError, Key, Scalar, TooManyReferencesError, Writer
from copycat_agent.converters.schemas.options import file_problem, underivable
from copycat_agent.converters.schemas.registry import Registry, Written

if TYPE_CHECKING:
    from copycat_agent.converters.avro.options import AvroConverterOptions
    from copycat_agent.model import Column

_KEYS: dict[str, Scalar] = {
    "string": "string", "int": "int", "long": "int", "float": "double", "double": "double", "boolean": "boolean", "bytes": "bytes",
}  # fmt: skip


class AvroForm:
    """See `Form`."""

    def __init__(self, options: AvroConverterOptions) -> None:
        self._options = options

    def of_file(self, registry: Registry | None, *, registers: bool = False) -> tuple[Written, Writer]:
        """See `Form`. A file stands for itself: nothing is asked."""
        del registry, registers
        assert self._options.schema_ is not None
        return self._own(self._options.schema_.text)

    def of_registry(self, schema: Written, registry: Registry) -> Writer:
        """See `Form`."""
        if schema.kind != "AVRO":
            raise BadSchemaError(f"it is of type {schema.kind}, the converter is avro")
        named: dict[str, Any] = {}
        _load_references(schema, registry, named, set())
        return self._writer(schema.text, named)

    def of_columns(self, columns: tuple[Column, ...], name: str, written: str) -> tuple[Written, Writer]:
        """See `Form`."""
        return self._own(written or json.dumps(avro_of(columns, name), separators=(",", ":")))

    def of_key(self, name: str) -> tuple[Written, Writer]:
        """See `Form`."""
        del name
        return self._own('"string"')

    def _own(self, text: str) -> tuple[Written, Writer]:
        return Written("AVRO", text), self._writer(text, {})

    def _writer(self, text: str, named: dict[str, Any]) -> Writer:
        schema = parsed(_json(text), named)
        write = Compiler(named, drops=self._options.extra_fields == "drop").top(schema)
        return Writer(write, full_name(schema), _key(schema))


def _json(text: str) -> AvroType:
    try:
        return json.loads(text)  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        if text.strip().isalpha():
            return text.strip()  # a primitive type may stand without quotes
        msg = "it is no JSON"
        raise BadSchemaError(msg) from None


def _load_references(schema: Written, registry: Registry, named: dict[str, Any], seen: set[tuple[str, int]]) -> None:
    """The named types of the schemas that it refers to, innermost first."""
    for one in schema.references:
        place = (one.subject, one.version)
        if place in seen:
            continue
        seen.add(place)
        if len(seen) > REFERENCES_MAX:
            raise TooManyReferencesError
        other = registry.version(*place).schema
        _load_references(other, registry, named, seen)
        parsed(_json(other.text), named)


def full_name(schema: AvroType) -> str:
    """The full name of a record, enum or fixed; else the primitive's, which is what Confluent's strategies take."""
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


def problems(options: AvroConverterOptions, site: Site) -> Iterator[OptionProblem]:
    """What is wrong with the schema's file, and with the declared fields it is to hold or to be made of."""
    if options.schema_ is not None:
        yield from _file_problems(options, site)
    elif options.derives and site.part == "value" and site.columns is not None:
        try:
            avro_of(site.columns, "r")
        except BadSchemaError as error:
            yield underivable(site, error)


def _file_problems(options: AvroConverterOptions, site: Site) -> Iterator[OptionProblem]:
    assert options.schema_ is not None
    file = options.schema_
    try:
        _, writer = AvroForm(options).of_file(None)
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


def _mismatches(options: AvroConverterOptions, site: Site, schema: dict[str, Any]) -> Iterator[OptionProblem]:
    """Declared fields that the schema does not have, and fields it needs that nobody declares."""
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
